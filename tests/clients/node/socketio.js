// socket.io's adapters against the server: rooms that span three servers, by
// publish and subscribe, by sharded channels, and by a stream.
"use strict";

const assert = require("node:assert/strict");
const http = require("node:http");
const Redis = require("ioredis");
const { Server } = require("socket.io");
const { io } = require("socket.io-client");
const { createAdapter, createShardedAdapter } = require("@socket.io/redis-adapter");
const streams = require("@socket.io/redis-streams-adapter");
const { run, until } = require("./support");

const SERVERS = 3;
const CLIENTS = 9;
const MESSAGES = 100;

async function serve(adapter) {
  const server = http.createServer();
  const house = new Server(server, { adapter });
  house.on("connection", (socket) => {
    socket.on("join", (room, done) => Promise.resolve(socket.join(room)).then(done));
    socket.on("say", (room, text) => house.to(room).emit("said", text));
  });
  house.on("question", (number, answer) => answer(number + 1));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { house, url: `http://127.0.0.1:${server.address().port}` };
}

async function connect(url) {
  const client = io(url, { transports: ["websocket"], forceNew: true });
  client.heard = [];
  client.on("said", (text) => client.heard.push(text));
  await new Promise((resolve) => client.on("connect", resolve));
  return client;
}

async function rooms(servers, clients) {
  await Promise.all(clients.map((client, i) => client.emitWithAck("join", `room:${i % 2}`)));
  await until("all servers see all", async () => {
    const seen = await servers[0].house.in("room:0").fetchSockets();
    return seen.length === Math.ceil(CLIENTS / 2);
  });
  for (let i = 0; i < MESSAGES; i++) clients[1].emit("say", "room:0", i);
  const members = clients.filter((_, i) => i % 2 === 0);
  await until("all in the room have heard all", () =>
    members.every((client) => client.heard.length === MESSAGES),
  );
  const inOrder = Array.from({ length: MESSAGES }, (_, i) => i);
  for (const client of members) assert.deepEqual(client.heard, inOrder);
  assert.ok(clients.every((client, i) => i % 2 === 0 || client.heard.length === 0));
}

async function between(servers, clients) {
  const answers = await servers[1].house.serverSideEmitWithAck("question", 41);
  assert.deepEqual(answers, new Array(SERVERS - 1).fill(42));

  clients.forEach((client, i) => client.on("ask", (answer) => answer(i)));
  const replies = await servers[2].house.timeout(10_000).emitWithAck("ask");
  assert.deepEqual(replies.sort(), clients.map((_, i) => i));

  servers[0].house.in("room:1").socketsJoin("more");
  await until("they have joined", async () => {
    const seen = await servers[2].house.in("more").fetchSockets();
    return seen.length === Math.floor(CLIENTS / 2);
  });
  servers[1].house.in("more").disconnectSockets();
  await until("they are gone", () => clients.every((c, i) => c.connected === (i % 2 === 0)));
}

async function main(port) {
  const open = () => new Redis({ port, host: "127.0.0.1" });
  const adapters = {
    "publish and subscribe": () => createAdapter(open(), open()),
    "sharded channels": () => createShardedAdapter(open(), open()),
    "a stream": () => streams.createAdapter(open(), { readCount: 10 }),
  };
  await open().flushall();
  for (const [name, adapter] of Object.entries(adapters)) {
    const servers = [];
    for (let i = 0; i < SERVERS; i++) servers.push(await serve(adapter()));
    const clients = await Promise.all(
      Array.from({ length: CLIENTS }, (_, i) => connect(servers[i % SERVERS].url)),
    );
    await rooms(servers, clients);
    await between(servers, clients);
    clients.forEach((client) => client.close());
    await Promise.all(servers.map(({ house }) => house.close()));
    console.log(`  socket.io: ${name}`);
  }
}

run(main);
