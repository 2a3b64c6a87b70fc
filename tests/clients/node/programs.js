// ioredis against the server: transactions with WATCH, messages, and queues.
"use strict";

const assert = require("node:assert/strict");
const Redis = require("ioredis");

const WRITERS = 6;
const EACH = 50;
const MESSAGES = 1000;
const JOBS = 300;
const PATIENCE_S = 20;

async function transactions(redis, other) {
  const replies = await redis.multi().set("k", 1).incr("k").lpush("k", "x").get("k").exec();
  assert.deepEqual(replies[0], [null, "OK"]);
  assert.deepEqual(replies[1], [null, 2]);
  assert.match(replies[2][0].message, /^WRONGTYPE/);
  assert.deepEqual(replies[3], [null, "2"]);

  await assert.rejects(redis.multi().set("k", 5).call("NOSUCH").exec(), /EXECABORT/);
  assert.equal(await redis.get("k"), "2");

  await redis.watch("k");
  await other.set("k", 7);
  assert.equal(await redis.multi().set("k", 8).exec(), null);
  assert.equal(await redis.get("k"), "7");

  await redis.multi({ pipeline: false });
  assert.equal(await redis.set("k", 9), "QUEUED");
  assert.equal(await redis.discard(), "OK");
  assert.equal(await redis.get("k"), "7");
}

// Reads, adds one and writes, until nobody came between.
async function add(redis, key) {
  for (;;) {
    await redis.watch(key);
    const value = Number(await redis.get(key));
    if ((await redis.multi().set(key, value + 1).exec()) !== null) return;
  }
}

async function contention(redis) {
  const writers = Array.from({ length: WRITERS }, () => redis.duplicate());
  await Promise.all(
    writers.map(async (writer) => {
      for (let i = 0; i < EACH; i++) await add(writer, "counter");
    }),
  );
  assert.equal(await redis.get("counter"), String(WRITERS * EACH));
  writers.forEach((writer) => writer.disconnect());
}

async function messages(redis) {
  const subscriber = redis.duplicate();
  const heard = { message: [], pmessage: [] };
  const all = new Promise((resolve) => {
    const note = (kind, text) => {
      heard[kind].push(text);
      if (heard.message.length + heard.pmessage.length === 2 * MESSAGES) resolve();
    };
    subscriber.on("message", (channel, text) => note("message", text));
    subscriber.on("pmessage", (pattern, channel, text) => note("pmessage", text));
  });
  assert.equal(await subscriber.subscribe("news", "other"), 2);
  assert.equal(await subscriber.psubscribe("n*"), 3);
  const numbers = Array.from({ length: MESSAGES }, (_, i) => String(i));
  const counts = await Promise.all(numbers.map((i) => redis.publish("news", i)));
  assert.ok(counts.every((count) => count === 2));
  await all;
  assert.deepEqual(heard, { message: numbers, pmessage: numbers });
  assert.equal(await subscriber.unsubscribe("news"), 2);
  assert.deepEqual(await redis.pubsub("NUMSUB", "news", "other"), ["news", 0, "other", 1]);
  subscriber.disconnect();
}

// Workers wait for jobs of two lists, and for entries of a stream: each is done once.
async function queues(redis) {
  await redis.xgroup("CREATE", "log", "g", "$", "MKSTREAM");
  const workers = Array.from({ length: 2 * WRITERS }, () => redis.duplicate());
  const done = [];
  const pop = async (worker) => {
    for (;;) {
      const [, job] = await worker.blpop("urgent", "jobs", PATIENCE_S);
      if (job === "stop") return;
      done.push(`list ${job}`);
    }
  };
  const consume = async (worker, name) => {
    for (;;) {
      const block = ["COUNT", 1, "BLOCK", PATIENCE_S * 1000];
      const new_ = await worker.xreadgroup("GROUP", "g", name, ...block, "STREAMS", "log", ">");
      const [id, [, job]] = new_[0][1][0];
      await worker.xack("log", "g", id);
      if (job === "stop") return;
      done.push(`entry ${job}`);
    }
  };
  const ends = workers.map((worker, i) => (i % 2 === 0 ? pop(worker) : consume(worker, `c${i}`)));
  const add = (list, job) => Promise.all([redis.rpush(list, job), redis.xadd("log", "*", "n", job)]);
  for (let i = 0; i < JOBS; i++) await add(i % 3 === 0 ? "urgent" : "jobs", i);
  for (let i = 0; i < WRITERS; i++) await add("jobs", "stop");
  await Promise.all(ends);
  const all = Array.from({ length: JOBS }, (_, i) => [`list ${i}`, `entry ${i}`]).flat();
  assert.deepEqual(done.sort(), all.sort());
  assert.equal((await redis.xpending("log", "g"))[0], 0);
  assert.equal(await workers[0].blpop("none", 0.02), null);
  workers.forEach((worker) => worker.disconnect());
}

async function main(port) {
  const redis = new Redis({ port, host: "127.0.0.1" });
  const other = redis.duplicate();
  await redis.flushall();
  await transactions(redis, other);
  await contention(redis);
  await messages(redis);
  await queues(redis);
  other.disconnect();
  await redis.quit();
  console.log("  ioredis: transactions, messages, queues");
}

main(Number(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
