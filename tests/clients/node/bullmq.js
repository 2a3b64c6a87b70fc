// BullMQ against the server: workers, delays, retries, priorities, flows, schedules, rate limits,
// and a job whose worker died.
"use strict";

const assert = require("node:assert/strict");
const Redis = require("ioredis");
const { FlowProducer, Queue, QueueEvents, Worker } = require("bullmq");
const { run, sleep, until } = require("./support");

const JOBS = 300;
const CONCURRENCY = 8;

// Queues, their events and workers; `close` ends them all.
class House {
  constructor(connection) {
    this.connection = connection;
    this.open = [];
  }

  keep(part) {
    this.open.push(part);
    part.on("error", (error) => assert.fail(error));
    return part;
  }

  queue(name) {
    return this.keep(new Queue(name, { connection: this.connection }));
  }

  worker(name, work, options) {
    const { connection } = this;
    return this.keep(new Worker(name, work, { connection, drainDelay: 1, ...options }));
  }

  async events(name) {
    const events = this.keep(new QueueEvents(name, { connection: this.connection }));
    await events.waitUntilReady();
    return events;
  }

  async close() {
    await Promise.all(this.open.map((part) => part.close()));
  }
}

async function many(house) {
  const queue = house.queue("many");
  queue.setMaxListeners(0);
  const events = await house.events("many");
  const told = new Set();
  events.on("completed", ({ jobId, returnvalue }) => told.add(`${jobId}=${returnvalue}`));
  const times = new Array(JOBS).fill(0);
  const work = async (job) => {
    times[job.data.i] += 1;
    await job.updateProgress(50);
    return job.data.i * 2;
  };
  house.worker("many", work, { concurrency: CONCURRENCY });
  house.worker("many", work, { concurrency: CONCURRENCY });
  const data = Array.from({ length: JOBS }, (_, i) => ({ i, pad: "x".repeat(i) }));
  const list = data.map((each) => ({ name: "double", data: each }));
  const jobs = await queue.addBulk(list);
  await Promise.all(jobs.map((job) => job.waitUntilFinished(events)));
  assert.deepEqual(times, new Array(JOBS).fill(1), "each job runs once");
  await until("all are told of", () => told.size === JOBS);
  assert.ok(jobs.every((job) => told.has(`${job.id}=${job.data.i * 2}`)));
  assert.deepEqual(await queue.getJobCounts("completed", "active", "wait", "failed"), {
    completed: JOBS,
    active: 0,
    wait: 0,
    failed: 0,
  });
  const stored = await queue.getJob(jobs[7].id);
  assert.equal(stored.returnvalue, 14);
  assert.equal(stored.progress, 50);
  assert.equal((await queue.clean(0, JOBS, "completed")).length, JOBS);
  await queue.obliterate({ force: true });
}

async function delays(house) {
  const queue = house.queue("delays");
  const events = await house.events("delays");
  const begun = [];
  house.worker("delays", async (job) => begun.push([job.name, Date.now()]));
  const start = Date.now();
  const later = await queue.add("later", {}, { delay: 1_500 });
  const sooner = await queue.add("sooner", {}, { delay: 1_000 });
  const promoted = await queue.add("promoted", {}, { delay: 3_600_000 });
  assert.equal(await queue.getDelayedCount(), 3);
  await promoted.promote();
  await Promise.all([later, sooner, promoted].map((job) => job.waitUntilFinished(events)));
  assert.deepEqual(begun.map(([name]) => name), ["promoted", "sooner", "later"]);
  assert.ok(begun[1][1] - start >= 1_000 && begun[2][1] - start >= 1_500, begun);
}

async function retries(house) {
  const queue = house.queue("retries");
  const events = await house.events("retries");
  const again = [];
  events.on("waiting", ({ jobId, prev }) => again.push([jobId, prev]));
  house.worker("retries", async (job) => {
    if (job.name === "never" || job.attemptsMade < 2) throw new Error(`no ${job.attemptsMade}`);
    return "at last";
  });
  const options = { attempts: 3, backoff: { type: "exponential", delay: 30 } };
  const third = await queue.add("third", {}, options);
  const never = await queue.add("never", {}, options);
  assert.equal(await third.waitUntilFinished(events), "at last");
  await assert.rejects(never.waitUntilFinished(events), /no 2/);
  const failed = await queue.getFailed();
  const seen = failed.map((job) => [job.id, job.attemptsMade, job.failedReason]);
  assert.deepEqual(seen, [[never.id, 3, "no 2"]]);
  assert.equal(failed[0].stacktrace.length, 3);
  await failed[0].retry();
  await assert.rejects(never.waitUntilFinished(events));
  await failed[0].remove();
  assert.equal(await queue.getFailedCount(), 0);
  assert.ok(again.length >= 3, again);
}

async function priorities(house) {
  const queue = house.queue("priorities");
  const events = await house.events("priorities");
  await queue.pause();
  const priority = [3, 1, 0, 2, 1];
  const options = [...priority.map((each) => ({ priority: each })), { lifo: true }];
  const jobs = [];
  for (const [i, one] of options.entries()) jobs.push(await queue.add(`job ${i}`, {}, one));
  assert.equal((await queue.getPrioritized()).length, 4);
  const order = [];
  house.worker("priorities", async (job) => order.push(job.name));
  await sleep(50);
  assert.deepEqual(order, [], "a paused queue gives nothing away");
  await queue.resume();
  await Promise.all(jobs.map((job) => job.waitUntilFinished(events)));
  assert.deepEqual(order, [5, 2, 1, 4, 3, 0].map((i) => `job ${i}`));
}

async function flows(house) {
  const { connection } = house;
  const flow = house.keep(new FlowProducer({ connection }));
  const events = await house.events("parents");
  house.worker("children", async (job) => job.data.n * job.data.n, { concurrency: CONCURRENCY });
  house.worker("parents", async (job) => {
    const values = Object.values(await job.getChildrenValues());
    return values.reduce((sum, value) => sum + value, 0);
  });
  const child = (n) => ({ name: `child ${n}`, queueName: "children", data: { n } });
  const tree = await flow.add({
    name: "total",
    queueName: "parents",
    children: [
      { name: "part", queueName: "parents", children: [1, 2, 3].map(child) },
      { name: "part", queueName: "parents", children: [4, 5].map(child) },
    ],
  });
  assert.equal(await tree.job.waitUntilFinished(events), 55);
  assert.equal(await tree.children[0].job.getState(), "completed");
  const { processed } = await tree.job.getDependencies();
  assert.deepEqual(Object.values(processed).sort(), [14, 41]);
}

async function schedules(house) {
  const queue = house.queue("schedules");
  const ran = [];
  house.worker("schedules", async (job) => ran.push(job.data.i));
  await queue.upsertJobScheduler("tick", { every: 100 }, { name: "tick", data: { i: 7 } });
  assert.equal((await queue.getJobSchedulers()).length, 1);
  await until("three ticks", () => ran.length >= 3);
  assert.equal(await queue.removeJobScheduler("tick"), true);
  assert.equal((await queue.getJobSchedulers()).length, 0);
  assert.ok(ran.every((i) => i === 7));
}

async function limits(house) {
  const queue = house.queue("limits");
  const begun = [];
  const work = async () => begun.push(Date.now());
  house.worker("limits", work, { limiter: { max: 5, duration: 300 }, concurrency: CONCURRENCY });
  const list = Array.from({ length: 15 }, (_, i) => ({ name: `job ${i}`, data: {} }));
  await queue.addBulk(list);
  await until("all jobs ran", () => begun.length === 15);
  const took = begun[14] - begun[0];
  assert.ok(took >= 400, `15 jobs, 5 in 300 ms each, took ${took} ms`);
  const once = { deduplication: { id: "same" }, delay: 60_000 };
  const [first, second] = [await queue.add("a", {}, once), await queue.add("b", {}, once)];
  assert.equal(first.id, second.id);
  assert.equal(await queue.getDelayedCount(), 1);
}

// A worker takes a job and is never heard of again: another one gets it when the lock is over.
async function stalled(house) {
  const queue = house.queue("stalled");
  const events = await house.events("stalled");
  const told = [];
  events.on("stalled", ({ jobId }) => told.push(jobId));
  const job = await queue.add("orphan", {});
  const dead = house.worker("stalled", null, { lockDuration: 200 });
  assert.equal((await dead.getNextJob("token of the dead")).id, job.id);
  assert.equal(await job.getState(), "active");
  house.worker("stalled", async () => "adopted", { stalledInterval: 100, lockDuration: 10_000 });
  assert.equal(await job.waitUntilFinished(events), "adopted");
  assert.deepEqual(told, [job.id]);
}

async function main(port) {
  const connection = { host: "127.0.0.1", port };
  const redis = new Redis({ ...connection, maxRetriesPerRequest: null });
  await redis.flushall();
  for (const part of [many, delays, retries, priorities, flows, schedules, limits, stalled]) {
    const house = new House(connection);
    await part(house);
    await house.close();
    console.log(`  BullMQ: ${part.name}`);
  }
}

run(main);
