// redlock over three servers, of which one fails: mutual exclusion, extension, expiry, majority.
"use strict";

const assert = require("node:assert/strict");
const Redis = require("ioredis");
const Redlock = require("redlock");
const { run, sleep } = require("./support");

const WORKERS = 6;
const ROUNDS = 15;
const TTL_MS = 5_000;

// Each worker reads, waits and writes under the lock: without exclusion, additions are lost.
async function exclusion(redlock) {
  let count = 0;
  let inside = 0;
  const work = async () => {
    for (let i = 0; i < ROUNDS; i++) {
      const lock = await redlock.lock(["lock:a", "lock:b"], TTL_MS);
      assert.equal(++inside, 1, "two hold the lock");
      const read = count;
      await sleep(1);
      count = read + 1;
      inside -= 1;
      await lock.unlock();
    }
  };
  await Promise.all(Array.from({ length: WORKERS }, work));
  assert.equal(count, WORKERS * ROUNDS);
}

async function overlap(clients, impatient) {
  const lock = await impatient.lock(["lock:a", "lock:b"], TTL_MS);
  await assert.rejects(impatient.lock("lock:b", TTL_MS), { name: "LockError" });
  for (const client of clients) assert.equal(await client.get("lock:b"), lock.value);
  await lock.unlock();
  for (const client of clients) assert.equal(await client.exists("lock:a", "lock:b"), 0);
  await assert.rejects(lock.unlock(), { name: "LockError" }, "it is not held any more");
}

async function expiry(redlock, impatient) {
  const short = await impatient.lock("lock:c", 1_000);
  const begin = Date.now();
  const longer = await short.extend(2_000);
  await sleep(1_100);
  await assert.rejects(impatient.lock("lock:c", TTL_MS), { name: "LockError" });
  const next = await redlock.lock("lock:c", TTL_MS);
  assert.ok(Date.now() - begin >= 1_990, "not before its time is over");
  await assert.rejects(longer.extend(TTL_MS), { name: "LockError" }, "somebody else holds it");
  await next.unlock();
}

// Two of three are a majority, one is none.
async function majority(clients, impatient) {
  const value = "somebody else's";
  await clients[0].set("lock:d", value);
  const lock = await impatient.lock("lock:d", TTL_MS);
  await lock.unlock();
  assert.equal(await clients[0].get("lock:d"), value, "only who holds a lock releases it");
  await clients[1].set("lock:d", value);
  await assert.rejects(impatient.lock("lock:d", TTL_MS), { name: "LockError" });
  assert.equal(await clients[2].exists("lock:d"), 0, "what a minority granted is given back");

  clients[0].disconnect();
  const other = await impatient.lock("lock:e", TTL_MS);
  await other.unlock();
}

async function main(...ports) {
  const clients = ports.map((port) => new Redis({ port, host: "127.0.0.1" }));
  const patient = { retryCount: 10_000, retryDelay: 5, retryJitter: 10 };
  const redlock = new Redlock(clients, patient);
  const impatient = new Redlock(clients, { retryCount: 0 });
  assert.equal(clients.length, 3);
  await exclusion(redlock);
  await overlap(clients, impatient);
  await expiry(redlock, impatient);
  await majority(clients, impatient);
  console.log("  redlock: all");
}

run(main);
