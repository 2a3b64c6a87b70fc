// rate-limiter-flexible against the server, through ioredis and through node-redis.
"use strict";

const assert = require("node:assert/strict");
const Redis = require("ioredis");
const { createClient } = require("redis");
const {
  BurstyRateLimiter,
  RateLimiterQueue,
  RateLimiterRedis,
  RateLimiterRedisNonAtomic,
} = require("rate-limiter-flexible");
const { run, sleep } = require("./support");

const POINTS = 10;

// As many are let through as there are points, however many ask at the same time.
async function points(storeClient, extra) {
  const options = { storeClient, points: POINTS, duration: 2, keyPrefix: "points", ...extra };
  const limiter = new RateLimiterRedis(options);
  const asked = Array.from({ length: 3 * POINTS }, () => limiter.consume("user"));
  const answers = await Promise.allSettled(asked);
  const refused = answers.filter(({ status }) => status === "rejected");
  assert.equal(refused.length, 2 * POINTS);
  for (const { reason } of refused) {
    assert.equal(reason.remainingPoints, 0);
    assert.ok(reason.msBeforeNext > 0 && reason.msBeforeNext <= 2_000, reason.msBeforeNext);
  }
  assert.equal((await limiter.get("user")).consumedPoints, 3 * POINTS);
  assert.equal((await limiter.consume("other", 4)).remainingPoints, POINTS - 4);
  assert.equal((await limiter.reward("other", 2)).consumedPoints, 2);
  await limiter.penalty("other", 5);
  assert.equal((await limiter.get("other")).consumedPoints, 7);
  await limiter.block("other", 100);
  const blocked = await limiter.consume("other").catch((reason) => reason);
  assert.ok(blocked.msBeforeNext > 95_000, blocked.msBeforeNext);
  assert.equal(await limiter.delete("other"), true);
  assert.equal(await limiter.get("other"), null);
  await sleep(2_050);
  assert.equal((await limiter.consume("user")).consumedPoints, 1, "its time is over");
}

async function others(storeClient) {
  const plain = { storeClient, points: 2, duration: 1, keyPrefix: "plain" };
  const burst = { storeClient, points: 3, duration: 5, keyPrefix: "burst" };
  const bursty = new BurstyRateLimiter(new RateLimiterRedis(plain), new RateLimiterRedis(burst));
  for (let i = 0; i < 5; i++) await bursty.consume("user");
  const refused = await bursty.consume("user").catch((reason) => reason);
  assert.equal(refused.remainingPoints, 0);

  const halves = { storeClient, points: 2, duration: 1, keyPrefix: "halves" };
  const loose = new RateLimiterRedisNonAtomic(halves);
  await loose.consume("user");
  await loose.consume("user");
  await assert.rejects(loose.consume("user"), "no point is left");

  const queued = { storeClient, points: 2, duration: 1, keyPrefix: "queued" };
  const queue = new RateLimiterQueue(new RateLimiterRedis(queued), { maxQueueSize: 3 });
  const start = Date.now();
  await Promise.all([1, 1, 1].map((tokens) => queue.removeTokens(tokens)));
  assert.ok(Date.now() - start > 500, "the third waits for its turn");
}

async function main(port) {
  const ioredis = new Redis({ port, host: "127.0.0.1" });
  await ioredis.flushall();
  await points(ioredis, {});
  await others(ioredis);
  const client = await createClient({ socket: { port, host: "127.0.0.1" } }).connect();
  await client.flushAll();
  await points(client, { useRedisPackage: true });
  console.log("  rate-limiter-flexible: all");
}

run(main);
