"""RQ against the server: workers that fork, retries, dependencies, unique jobs, schedules,
callbacks, and a job that is stopped."""

import sys
import time
from datetime import timedelta

import redis
from rq import Callback, Queue, Retry, Worker
from rq.command import send_shutdown_command, send_stop_job_command
from rq.exceptions import DuplicateJobError
from rq.job import Job

from rq_tasks import add, nap, refuse, report, third
from support import PATIENCE_S, until, worker

JOBS = 20


def finished(job):
    until(f"{job.func_name} is done", lambda: job.is_finished)
    return until("its result is there", job.return_value)


def many(queue):
    jobs = [queue.enqueue(add, i, 1) for i in range(JOBS // 2)]
    described = [Queue.prepare_data(add, (i, 1)) for i in range(JOBS // 2, JOBS)]
    jobs += queue.enqueue_many(described)
    assert [finished(job) for job in jobs] == [i + 1 for i in range(JOBS)]
    assert len(queue.finished_job_registry) == JOBS and queue.is_empty()
    until("nothing runs", lambda: len(queue.started_job_registry) == 0)
    jobs[0].delete()
    assert not Job.exists(jobs[0].id, queue.connection)


def retries(queue):
    assert finished(queue.enqueue(third, "counter", retry=Retry(max=3))) == "at last"
    failed = queue.enqueue(refuse, "no")
    until("it has failed", lambda: failed.is_failed and failed.id in queue.failed_job_registry)
    assert "ValueError: no" in failed.latest_result().exc_string
    queue.failed_job_registry.requeue(failed.id)
    until("it has failed again", lambda: len(failed.results()) == 2)


def dependencies(queue):
    first = queue.enqueue(add, 1, 1)
    both = [queue.enqueue(add, i, i, depends_on=first) for i in (1, 2)]
    last = queue.enqueue(add, 5, 5, depends_on=both, on_success=Callback(report), job_id="last")
    assert finished(last) == 10
    assert all(job.is_finished for job in both)
    until("its callback ran", lambda: queue.connection.lrange("reports", 0, -1) == [b"last=10"])
    assert len(queue.deferred_job_registry) == 0


def unique(queue):
    queue.enqueue(add, 2, 2, unique=True, job_id="one")
    for _ in range(2):
        try:
            queue.enqueue(add, 3, 3, unique=True, job_id="one")
            raise AssertionError("it was enqueued twice")
        except DuplicateJobError:
            pass
    assert finished(Job.fetch("one", queue.connection)) == 4


def schedules(queue):
    due = int(time.time()) + 1  # Times are stored in whole seconds.
    later = queue.enqueue_in(timedelta(seconds=1), add, 3, 4)
    assert later.id in queue.scheduled_job_registry and later.get_status() == "scheduled"
    assert finished(later) == 7
    assert time.time() >= due


def stopped(queue):
    long = queue.enqueue(nap, 60)
    until("it has begun", lambda: long.is_started and long.id in queue.started_job_registry)
    send_stop_job_command(queue.connection, long.id)
    until("it is stopped", lambda: long.is_stopped)


def main():
    url = f"redis://127.0.0.1:{sys.argv[1]}/0"
    connection = redis.Redis.from_url(url)
    connection.flushall()
    queue = Queue("jobs", connection=connection)
    arguments = ("rq.cli", "worker", "--url", url, "--with-scheduler", "jobs")
    with worker(*arguments) as first, worker(*arguments) as second:
        until("both are there", lambda: len(Worker.all(queue=queue)) == 2)
        for part in (many, retries, dependencies, unique, schedules, stopped):
            part(queue)
            print(f"  RQ: {part.__name__}")
        for each in Worker.all(queue=queue):
            send_shutdown_command(connection, each.name)
        assert [process.wait(PATIENCE_S) for process in (first, second)] == [0, 0]
    assert Worker.count(connection) == 0
    print("  RQ: an orderly end")


main()
