// node-redis with client-side caching in RESP3: no copy outlives its value, whoever changes it.
"use strict";

const assert = require("node:assert/strict");
const { BasicClientSideCache, createClient } = require("redis");
const { run, until } = require("./support");

const KEYS = 40;
const WRITES = 400;

const name = (i) => `copy:${i % KEYS}`;

function connect(port, options) {
  return createClient({ RESP: 3, socket: { port, host: "127.0.0.1" }, ...options }).connect();
}

// Waits until a read by the client that caches replies with this.
async function shows(reader, key, value) {
  await until(`${key} is ${value}`, async () => (await reader.get(key)) === value);
}

// Copies are used, and are dropped after a write, a deletion, an expiry and FLUSHALL.
async function copies(port, writer) {
  const cache = new BasicClientSideCache();
  const reader = await connect(port, { clientSideCache: cache });
  await writer.set("k", "old");
  await shows(reader, "k", "old");
  const before = cache.stats().hitCount;
  for (let i = 0; i < KEYS; i++) assert.equal(await reader.get("k"), "old");
  assert.equal(cache.stats().hitCount, before + KEYS);

  await writer.set("k", "new");
  await shows(reader, "k", "new");
  await writer.del("k");
  await shows(reader, "k", null);
  await writer.set("k", "short", { PX: 60 });
  await shows(reader, "k", "short");
  await shows(reader, "k", null);
  await writer.mSet(Object.fromEntries(Array.from({ length: KEYS }, (_, i) => [name(i), "0"])));
  for (let i = 0; i < KEYS; i++) await shows(reader, name(i), "0");
  await writer.flushAll();
  for (let i = 0; i < KEYS; i++) await shows(reader, name(i), null);

  for (let i = 0; i < WRITES; i++) {
    await writer.set(name(7 * i), String(i));
    await reader.get(name(i));
  }
  for (let i = 0; i < KEYS; i++) await shows(reader, name(i), await writer.get(name(i)));
  await reader.close();
}

// A client that tracks with these words, and the keys that it is told of.
async function listen(port, words) {
  const listener = await connect(port, { emitInvalidate: true });
  const heard = [];
  listener.on("invalidate", (key) => heard.push(String(key)));
  await listener.sendCommand(["CLIENT", "TRACKING", "OFF"]);
  await listener.sendCommand(["CLIENT", "TRACKING", "ON", ...words]);
  return { listener, heard };
}

// Of keys with these prefixes a client is told, whether it has read them or not, and of no others.
async function prefixes(port, writer) {
  const { listener, heard } = await listen(port, ["BCAST", "PREFIX", "user:", "PREFIX", "item:"]);
  for (const key of ["other:1", "user:1", "items", "item:2", "user:3"]) await writer.set(key, "v");
  await writer.set("user:3", "w", { PX: 40 });
  const expected = ["item:2", "user:1", "user:3", "user:3", "user:3"];
  await until("all are told", () => heard.length >= expected.length);
  assert.deepEqual(heard.toSorted(), expected);
  await listener.close();
}

// With OPTIN only what is asked for is remembered, and once.
async function chosen(port, writer) {
  const { listener, heard } = await listen(port, ["OPTIN"]);
  await writer.mSet({ a: "1", b: "1" });
  assert.equal(await listener.get("a"), "1");
  await listener.sendCommand(["CLIENT", "CACHING", "YES"]);
  assert.equal(await listener.get("b"), "1");
  for (const key of ["a", "b", "a", "b"]) await writer.set(key, "2");
  await until("b is told", () => heard.length > 0);
  await listener.ping();
  assert.deepEqual(heard, ["b"]);
  await listener.close();
}

run(async (port) => {
  const writer = await connect(port);
  await writer.flushAll();
  await copies(port, writer);
  await prefixes(port, writer);
  await chosen(port, writer);
  console.log("  node-redis: copies, prefixes, OPTIN");
});
