// connect-redis against the server: sessions of a web service, through node-redis in RESP3.
"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const session = require("express-session");
const { RedisStore } = require("connect-redis");
const { createClient } = require("redis");
const { run, sleep } = require("./support");

const VISITORS = 20;
const VISITS = 10;

// A service that counts each visitor's visits.
function serve(store) {
  const sessions = session({
    store,
    secret: "of the test",
    resave: false,
    saveUninitialized: false,
    cookie: { maxAge: 4_000 },
  });
  const server = http.createServer((request, response) => {
    sessions(request, response, (error) => {
      assert.ifError(error);
      if (request.url === "/leave") {
        return request.session.destroy((failure) => response.end(String(failure ?? "left")));
      }
      request.session.visits = (request.session.visits ?? 0) + 1;
      response.end(String(request.session.visits));
    });
  });
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => resolve(`http://127.0.0.1:${server.address().port}`));
  });
}

async function visit(url, cookie) {
  const response = await fetch(url, { headers: cookie ? { cookie } : {} });
  const [set] = response.headers.getSetCookie();
  return { text: await response.text(), cookie: set ? set.split(";")[0] : cookie };
}

async function main(port) {
  const options = { RESP: 3, socket: { port, host: "127.0.0.1" } };
  const client = await createClient(options).connect();
  await client.flushAll();
  const store = new RedisStore({ client, prefix: "visits:" });
  const url = await serve(store);
  const cookies = await Promise.all(
    Array.from({ length: VISITORS }, async () => {
      let cookie;
      for (let i = 1; i <= VISITS; i++) {
        const answer = await visit(url, cookie);
        assert.equal(answer.text, String(i));
        cookie = answer.cookie;
      }
      return cookie;
    }),
  );
  assert.equal(await store.length(), VISITORS);
  assert.equal((await store.ids()).length, VISITORS);
  assert.ok((await store.all()).every(({ visits }) => visits === VISITS));
  const keys = await client.keys("visits:*");
  const ttls = await Promise.all(keys.map((key) => client.ttl(key)));
  assert.ok(ttls.every((ttl) => ttl >= 1 && ttl <= 4), ttls);

  assert.equal((await visit(`${url}/leave`, cookies[0])).text, "left");
  assert.equal(await store.length(), VISITORS - 1);
  assert.equal((await visit(url, cookies[0])).text, "1", "who left is a stranger");
  await sleep(4_100);
  assert.equal((await visit(url, cookies[1])).text, "1", "a session ends with its time");
  await store.clear();
  assert.equal(await client.dbSize(), 0);
  console.log("  connect-redis: all");
}

run(main);
