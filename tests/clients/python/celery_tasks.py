"""What the Celery workers of celery_queue.py run. Broker and results: see the environment."""

import time

import celery

app = celery.Celery("tasks")
app.conf.update(
    broker_transport_options={"queue_order_strategy": "priority"},
    result_expires=100,
    task_acks_late=True,
    task_track_started=True,
    worker_prefetch_multiplier=1,
)


@app.task
def add(a, b):
    return a + b


@app.task
def total(numbers):
    return sum(numbers)


@app.task(bind=True, max_retries=5)
def third(self):
    if self.request.retries < 2:
        raise self.retry(countdown=0.05)
    return self.request.retries


@app.task
def refuse(text):
    raise ValueError(text)


@app.task(ignore_result=True)
def note(key, text):
    app.backend.client.rpush(key, text)


@app.task
def nap(seconds):
    time.sleep(seconds)
