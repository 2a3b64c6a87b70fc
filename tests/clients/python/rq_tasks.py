"""What the RQ workers of rq_queue.py run."""

import time

from rq import get_current_job


def add(a, b):
    return a + b


def third(counter):
    if get_current_job().connection.incr(counter) < 3:
        raise ValueError("not yet")
    return "at last"


def refuse(text):
    raise ValueError(text)


def nap(seconds):
    time.sleep(seconds)


def report(job, connection, result, *_):
    connection.rpush("reports", f"{job.id}={result}")
