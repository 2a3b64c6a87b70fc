// ioredis against the server: automatic pipelining, scan streams, binary values.
"use strict";

const assert = require("node:assert/strict");
const Redis = require("ioredis");

async function main(port) {
  const redis = new Redis({ port, host: "127.0.0.1", enableAutoPipelining: true });
  await redis.flushall();

  assert.equal(await redis.set("k", "v"), "OK");
  assert.equal(await redis.get("k"), "v");
  const binary = Buffer.from([0, 255, 13, 10, 0]);
  await redis.set("bin", binary);
  assert.deepEqual(await redis.getBuffer("bin"), binary);

  const numbers = Array.from({ length: 1000 }, (_, i) => i);
  await Promise.all(numbers.map((i) => redis.set(`n${i}`, i)));
  const back = await Promise.all(numbers.map((i) => redis.get(`n${i}`)));
  assert.deepEqual(back, numbers.map(String));

  await redis.hset("h", Object.fromEntries(numbers.map((i) => [`f${i}`, `v${i}`])));
  const all = await redis.hgetall("h");
  assert.equal(Object.keys(all).length, 1000);
  assert.equal(all.f77, "v77");

  const seen = new Set();
  for await (const keys of redis.scanStream({ match: "n*", count: 50 })) {
    keys.forEach((key) => seen.add(key));
  }
  assert.equal(seen.size, 1000);

  await redis.sadd("s", ...numbers);
  const members = new Set();
  for await (const batch of redis.sscanStream("s")) batch.forEach((m) => members.add(m));
  assert.equal(members.size, 1000);

  const replies = await redis.pipeline().set("p", 1).incr("p").hget("p", "f").del("p").exec();
  assert.deepEqual(replies[1], [null, 2]);
  assert.match(replies[2][0].message, /^WRONGTYPE/);
  assert.deepEqual(replies[3], [null, 1]);

  await redis.expire("k", 100);
  assert.ok((await redis.ttl("k")) > 98);
  assert.match(await redis.info("server"), /redis_version:/);
  await redis.quit();
  console.log("  ioredis: all");
}

main(Number(process.argv[2])).catch((error) => {
  console.error(error);
  process.exit(1);
});
