// ioredis, which speaks RESP2 and has no cache of its own: copies in a map, which are dropped when a
// second connection is told to.
"use strict";

const assert = require("node:assert/strict");
const Redis = require("ioredis");
const { run, sleep, until } = require("./support");

const KEYS = 40;
const WRITES = 400;

const name = (i) => `copy:${i % KEYS}`;

// A connection that receives what is told to it: keys, or null after FLUSHALL.
async function listen(redis, hear) {
  const listener = redis.duplicate();
  const id = await listener.client("ID");
  listener.on("messageBuffer", (channel, keys) => {
    assert.equal(String(channel), "__redis__:invalidate");
    hear(keys === null ? null : keys.map(String));
  });
  await listener.subscribe("__redis__:invalidate");
  return { listener, id };
}

// The values of keys that were read, until the server says that they have changed.
class Copies {
  constructor() {
    this.values = new Map();
    this.reading = new Set(); // What is told while a key is read ends its copy, too.
    this.hits = 0;
  }

  hear(keys) {
    if (keys === null) {
      this.values.clear();
      this.reading.clear();
      return;
    }
    for (const key of keys) {
      this.values.delete(key);
      this.reading.delete(key);
    }
  }

  async connect(redis) {
    const { listener, id } = await listen(redis, (keys) => this.hear(keys));
    this.listener = listener;
    this.tracked = redis.duplicate();
    assert.equal(await this.tracked.client("TRACKING", "ON", "REDIRECT", id), "OK");
    assert.equal(await this.tracked.client("GETREDIR"), id);
  }

  async get(key) {
    if (this.values.has(key)) {
      this.hits++;
      return this.values.get(key);
    }
    this.reading.add(key);
    const value = await this.tracked.get(key);
    if (this.reading.delete(key)) this.values.set(key, value);
    return value;
  }

  shows(key, value) {
    return until(`${key} is ${value}`, async () => (await this.get(key)) === value);
  }

  close() {
    this.tracked.disconnect();
    this.listener.disconnect();
  }
}

// Copies are used, and are dropped after a write, a deletion, an expiry and FLUSHALL.
async function changes(copies, writer) {
  await writer.set("k", "old");
  await copies.shows("k", "old");
  const before = copies.hits;
  for (let i = 0; i < KEYS; i++) assert.equal(await copies.get("k"), "old");
  assert.equal(copies.hits, before + KEYS);

  await writer.set("k", "new");
  await copies.shows("k", "new");
  await writer.multi().incr("n").del("k").exec();
  await copies.shows("k", null);
  await writer.set("k", "short", "PX", 60);
  await copies.shows("k", "short");
  await copies.shows("k", null);
  await writer.eval("redis.call('set', KEYS[1], ARGV[1])", 1, "k", "script");
  await copies.shows("k", "script");
  await writer.mset(Object.fromEntries(Array.from({ length: KEYS }, (_, i) => [name(i), "0"])));
  for (let i = 0; i < KEYS; i++) await copies.shows(name(i), "0");
  await writer.flushall();
  for (let i = 0; i < KEYS; i++) await copies.shows(name(i), null);
}

// Keys are written and read at the same time: in the end all copies are what the server has.
async function race(copies, writer) {
  let writes = true;
  const written = (async () => {
    for (let i = 0; i < WRITES; i++) await writer.set(name(7 * i), String(i));
    writes = false;
  })();
  for (let i = 0; writes; i++) {
    await Promise.all([copies.get(name(i)), copies.get(name(3 * i)), sleep(0)]);
  }
  await written;
  for (let i = 0; i < KEYS; i++) await copies.shows(name(i), await writer.get(name(i)));
}

// Tracks with these words, runs `act`, and returns what was told until `last` was.
async function told(redis, words, last, act) {
  const heard = [];
  const { listener, id } = await listen(redis, (keys) => heard.push(...keys));
  const tracked = redis.duplicate();
  await tracked.client("TRACKING", "ON", "REDIRECT", id, ...words);
  await act(tracked);
  await until(`${last} is told`, () => heard.includes(last));
  tracked.disconnect();
  listener.disconnect();
  return heard;
}

// A key that was read once is told of once; of one's own writes nothing is told with NOLOOP; with
// OPTIN of what was asked for, and with prefixes of nothing else.
async function kinds(redis) {
  const both = ["{t}:a", "{t}:b"];
  const plain = await told(redis, [], "{t}:b", async (tracked) => {
    await tracked.mget(both);
    for (const key of ["{t}:a", "{t}:a", "{t}:c", "{t}:b"]) await redis.set(key, "1");
  });
  assert.deepEqual(plain, both);

  const others = await told(redis, ["NOLOOP"], "{t}:b", async (tracked) => {
    await tracked.mget(both);
    await tracked.set("{t}:a", "2");
    await redis.set("{t}:b", "2");
  });
  assert.deepEqual(others, ["{t}:b"]);

  const chosen = await told(redis, ["OPTIN"], "{t}:b", async (tracked) => {
    await tracked.get("{t}:a");
    await tracked.pipeline().client("CACHING", "YES").get("{t}:b").exec();
    for (const key of both) await redis.set(key, "3");
  });
  assert.deepEqual(chosen, ["{t}:b"]);

  const words = ["BCAST", "PREFIX", "{t}:user", "PREFIX", "{t}:item"];
  const prefixed = await told(redis, words, "{t}:user:2", async () => {
    for (const key of ["user:1", "other", "item:1", "user:2"]) await redis.set(`{t}:${key}`, "v");
  });
  assert.deepEqual(prefixed, ["{t}:user:1", "{t}:item:1", "{t}:user:2"]);
}

run(async (port) => {
  const writer = new Redis({ port, host: "127.0.0.1" });
  await writer.flushall();
  const copies = new Copies();
  await copies.connect(writer);
  await changes(copies, writer);
  await race(copies, writer);
  copies.close();
  await kinds(writer);
  await writer.quit();
  console.log("  ioredis: copies, tracking");
});
