"""redis-py against the server: workers that wait for jobs and for entries, with threads and with
asyncio, in both protocols."""

import asyncio
import sys
import threading
import time

import redis
import redis.asyncio

JOBS = 300
WORKERS = 5
PATIENCE_S = 20


def run(work, names):
    """Starts a thread for each name; returns what waits for their ends."""
    threads = [threading.Thread(target=work, args=(name,)) for name in names]
    for thread in threads:
        thread.start()

    def join():
        for thread in threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive(), "a worker waits still"

    return join


def jobs(r):
    """Each job of two queues is done once, and nobody waits on when all are done."""

    def work(name):
        while True:
            _, job = r.blpop(["urgent", "jobs"], timeout=PATIENCE_S)
            if job == "stop":
                return
            r.rpush("done", job)

    join = run(work, range(WORKERS))
    for i in range(JOBS):
        r.rpush("urgent" if i % 7 == 0 else "jobs", i)
    for _ in range(WORKERS):
        r.rpush("jobs", "stop")
    join()
    assert sorted(map(int, r.lrange("done", 0, -1))) == list(range(JOBS))


def reliable(r):
    """Jobs go by way of a list of what is being done; priorities by a sorted set."""

    def move(name):
        while (job := r.blmove("todo", "doing", PATIENCE_S)) != "stop":
            with r.pipeline() as pipe:
                pipe.lrem("doing", 1, job).zadd("ranks", {job: int(job)}).execute()

    join = run(move, range(WORKERS))
    r.rpush("todo", *range(JOBS))
    r.rpush("todo", *["stop"] * WORKERS)
    join()
    assert r.lrange("doing", 0, -1) == ["stop"] * WORKERS
    ranked = [r.bzpopmin("ranks", PATIENCE_S) for _ in range(JOBS)]
    assert ranked == [("ranks", str(i), float(i)) for i in range(JOBS)] or ranked == [
        ["ranks", str(i), float(i)] for i in range(JOBS)
    ], ranked[:3]


def timeouts(r):
    for call in (
        lambda: r.blpop(["none", "nothing"], timeout=0.05),
        lambda: r.xread({"none": "$"}, block=50),
        lambda: r.bzpopmax("none", 0.05),
    ):
        begun = time.monotonic()
        assert not call()
        assert 0.05 <= time.monotonic() - begun < PATIENCE_S
    assert r.wait(0, 0) == 0 and r.wait(1, 10) == 0


def entries(reply):
    """The pairs of an ID and fields, however deep a protocol nests them."""
    if isinstance(reply, tuple) and len(reply) == 2 and isinstance(reply[1], dict):
        return [reply]
    parts = reply.values() if isinstance(reply, dict) else reply
    is_list = isinstance(parts, (list, tuple)) or isinstance(reply, dict)
    return [entry for part in parts for entry in entries(part)] if is_list else []


def group(r):
    """Each entry goes to one consumer of a group, and is acknowledged."""
    r.xgroup_create("log", "g", id="$", mkstream=True)
    got = []

    def work(name):
        while True:
            new = r.xreadgroup("g", name, {"log": ">"}, count=1, block=PATIENCE_S * 1000)
            for entry, fields in entries(new):
                r.xack("log", "g", entry)
                if fields["n"] == "stop":
                    return
                got.append(int(fields["n"]))

    join = run(work, [f"c{i}" for i in range(WORKERS)])
    for i in range(JOBS):
        r.xadd("log", {"n": i})
    for _ in range(WORKERS):
        r.xadd("log", {"n": "stop"})
    join()
    assert sorted(got) == list(range(JOBS))
    assert r.xpending("log", "g")["pending"] == 0


async def follow(r):
    seen, last = [], "0"
    while len(seen) < JOBS:
        new = await r.xread({"news": last}, count=7, block=PATIENCE_S * 1000)
        for last, fields in entries(new):
            seen.append(int(fields["n"]))
    return seen


async def pop(r):
    popped = []
    while (element := (await r.brpop(["left", "right"], timeout=PATIENCE_S))[1]) != "stop":
        popped.append(int(element))
    return popped


async def tasks(port, protocol):
    """Readers of a stream see all of it; takers of two lists share them."""
    r = redis.asyncio.Redis(port=port, protocol=protocol, decode_responses=True)
    readers = [asyncio.create_task(follow(r)) for _ in range(WORKERS)]
    takers = [asyncio.create_task(pop(r)) for _ in range(WORKERS)]
    for i in range(JOBS):
        await r.xadd("news", {"n": i})
        await r.lpush("left" if i % 2 else "right", i)
    assert await asyncio.gather(*readers) == [list(range(JOBS))] * WORKERS
    for _ in range(WORKERS):
        await r.lpush("right", "stop")
    taken = await asyncio.gather(*takers)
    left = list(map(int, await r.lrange("left", 0, -1)))
    assert sorted(left + sum(taken, [])) == list(range(JOBS))
    await r.aclose()


def main():
    port = int(sys.argv[1])
    for protocol in (2, 3):
        r = redis.Redis(port=port, host="127.0.0.1", protocol=protocol, decode_responses=True)
        r.flushall()
        for part in (jobs, reliable, timeouts, group):
            part(r)
            print(f"  redis-py RESP{protocol} {part.__name__}")
        asyncio.run(tasks(port, protocol))
        print(f"  redis-py RESP{protocol} tasks")


main()
