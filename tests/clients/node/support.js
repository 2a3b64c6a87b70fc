// What the programs share: how they end, and waiting for what comes to hold.
"use strict";

const PATIENCE_MS = 30_000;
const POLL_MS = 10;

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Waits until `holds` returns something true, and returns that.
async function until(what, holds) {
  const end = Date.now() + PATIENCE_MS;
  for (;;) {
    const result = await holds();
    if (result) return result;
    if (Date.now() > end) throw new Error(`in vain: ${what}`);
    await sleep(POLL_MS);
  }
}

// Runs `main` with the ports of the command line. A failure, also one that nobody awaits, ends the
// program with an error.
function run(main) {
  const fail = (error) => {
    console.error(error);
    process.exit(1);
  };
  process.on("unhandledRejection", fail);
  main(...process.argv.slice(2).map(Number)).then(() => process.exit(0), fail);
}

module.exports = { run, sleep, until };
