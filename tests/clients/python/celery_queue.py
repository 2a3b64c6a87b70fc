"""Celery with the server as its broker and its store of results: a worker of several processes,
retries, chains, groups and chords, priorities, remote control."""

import os
import sys
import time

import celery
import redis

from support import PATIENCE_S, until, worker

URL = f"redis://127.0.0.1:{sys.argv[1]}"
os.environ.update(CELERY_BROKER_URL=f"{URL}/0", CELERY_RESULT_BACKEND=f"{URL}/1")
from celery_tasks import add, app, nap, note, refuse, third, total  # noqa: E402

JOBS = 200
WORKER = ("celery", "--app", "celery_tasks", "worker", "--loglevel", "INFO", "--concurrency")


def all_is_acknowledged(broker):
    """A result may come before the worker has acknowledged its message."""
    until("all is acknowledged", lambda: not broker.exists("unacked"))


def get(result):
    return result.get(timeout=PATIENCE_S)


def priorities(broker, store):
    """What waits is taken by its priority, 0 first."""
    for priority in (9, 3, 0, 6):
        note.apply_async(("order", str(priority)), priority=priority)
    with worker(*WORKER, "1"):
        until("all four have run", lambda: store.llen("order") == 4)
        all_is_acknowledged(broker)
    assert store.lrange("order", 0, -1) == [b"0", b"3", b"6", b"9"]


def many(store):
    results = [add.delay(i, i) for i in range(JOBS)]
    assert [get(result) for result in results] == [2 * i for i in range(JOBS)]
    key = f"celery-task-meta-{results[0].id}"
    assert 80 <= store.ttl(key) <= 100, store.ttl(key)
    results[0].forget()
    assert not store.exists(key)


def retries(_):
    assert get(third.delay()) == 2
    refused = refuse.delay("no")
    until("it fails", refused.ready)
    assert refused.state == "FAILURE" and isinstance(refused.result, ValueError)
    begin = time.monotonic()
    assert get(add.apply_async((1, 1), countdown=0.3)) == 2
    assert time.monotonic() - begin >= 0.3


def canvases(_):
    assert get(celery.chain(add.s(1, 2), add.s(3), add.s(4)).delay()) == 10
    group = celery.group(add.s(i, 1) for i in range(30)).delay()
    assert get(group) == list(range(1, 31))
    for size in (2, 30):
        chord = celery.chord((add.s(i, i) for i in range(size)), total.s()).delay()
        assert get(chord) == size * (size - 1)
    steps = celery.chain(add.s(1, 1), celery.group(add.s(1), add.s(2)), total.s(), add.s(100))
    assert get(steps.delay()) == 107
    broken = celery.chord([add.s(1, 1), refuse.s("part")], total.s()).delay()
    until("the chord fails", broken.ready)
    assert broken.state == "FAILURE" and "part" in str(broken.result), broken.result


def control(_):
    (reply,) = until("it answers", lambda: app.control.ping(limit=1, timeout=1))
    assert list(reply.values()) == [{"ok": "pong"}], reply
    (tasks,) = app.control.inspect(limit=1, timeout=10).registered().values()
    assert "celery_tasks.nap" in tasks, tasks
    long = nap.delay(60)
    until("it has begun", lambda: long.state == "STARTED")
    long.revoke(terminate=True)
    until("it is revoked", lambda: long.state == "REVOKED")
    assert get(add.delay(2, 2)) == 4


def main():
    broker, store = (redis.Redis.from_url(f"{URL}/{db}") for db in (0, 1))
    broker.flushall()
    priorities(broker, store)
    print("  Celery: priorities")
    with worker(*WORKER, "2") as process:
        for part in (many, retries, canvases):
            part(store)
            print(f"  Celery: {part.__name__}")
        all_is_acknowledged(broker)
        app.control.shutdown()
        assert process.wait(PATIENCE_S) == 0
    assert broker.llen("celery") == 0 and not broker.exists("unacked")
    print("  Celery: an orderly end")
    # Last, with a worker of its own: after Celery has ended a task's process, it sometimes leaves
    # messages of other tasks unacknowledged. It does that with redis-server as often.
    with worker(*WORKER, "2"):
        control(store)
    print("  Celery: control")


main()
