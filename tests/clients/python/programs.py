"""redis-py against the server: transactions with WATCH, and messages, in both protocols."""

import random
import sys
import threading

import redis

ACCOUNTS = [f"account:{i}" for i in range(10)]
EACH = 100
PATIENCE_S = 20


def transaction(r):
    pipe = r.pipeline(transaction=True)
    for i in range(200):
        pipe.set(f"k{i}", i)
        pipe.incr("n")
    assert pipe.execute() == [reply for i in range(200) for reply in (True, i + 1)]
    assert r.mget("k0", "k199", "n") == ["0", "199", "200"]


def errors(r):
    r.set("text", "v")
    pipe = r.pipeline().set("a", 1).lpush("text", "x").incr("a")
    replies = pipe.execute(raise_on_error=False)
    assert replies[0] is True and replies[2] == 2, replies
    assert str(replies[1]).startswith("WRONGTYPE"), replies
    try:
        r.pipeline().set("a", 5).execute_command("NOSUCH").execute()
        raise AssertionError("an unknown command was queued")
    except redis.ResponseError as error:
        assert "unknown command" in str(error), error
    assert r.get("a") == "2"


def conflict(r):
    r.set("w", 1)
    with r.pipeline() as pipe:
        pipe.watch("w", "missing")
        assert pipe.get("w") == "1"
        r.set("w", 2)
        pipe.multi()
        pipe.set("w", 3)
        try:
            pipe.execute()
            raise AssertionError("a watched key has changed")
        except redis.WatchError:
            pass
        pipe.watch("w")
        pipe.multi()
        assert pipe.incr("w").execute() == [3]


def transfer(r, seed):
    prng = random.Random(seed)
    for _ in range(EACH):
        source, target = prng.sample(ACCOUNTS, 2)

        def step(pipe):
            balances = int(pipe.get(source)), int(pipe.get(target))
            pipe.multi()
            pipe.set(source, balances[0] - 1)
            pipe.set(target, balances[1] + 1)

        r.transaction(step, source, target)
        r.incr("transfers")


def transfers(r):
    """What threads move between accounts is never lost, nor seen halfway."""
    r.mset({account: 100 for account in ACCOUNTS})
    threads = [threading.Thread(target=transfer, args=(r, seed)) for seed in range(6)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        pipe = r.pipeline()
        for account in ACCOUNTS:
            pipe.get(account)
        balances = pipe.execute()
        assert sum(map(int, balances)) == 100 * len(ACCOUNTS), balances
    assert r.get("transfers") == str(6 * EACH), r.get("transfers")


def received(subscriber):
    message = subscriber.get_message(timeout=PATIENCE_S)
    assert message is not None, "no message"
    return message["type"], message["channel"], message["data"]


def messages(r):
    subscriber = r.pubsub()
    subscriber.subscribe("news", "other")
    subscriber.psubscribe("ne*")
    confirmed = [received(subscriber) for _ in range(3)]
    assert [kind for kind, _, _ in confirmed] == ["subscribe", "subscribe", "psubscribe"]
    assert [count for _, _, count in confirmed] == [1, 2, 3]
    assert set(r.pubsub_channels()) == {"news", "other"} and r.pubsub_numpat() == 1
    assert r.pubsub_numsub("news", "none") == [("news", 1), ("none", 0)]
    for i in range(500):
        assert r.publish("news", i) == 2
    for i in range(500):
        both = [received(subscriber) for _ in range(2)]
        assert both == [("message", "news", str(i)), ("pmessage", "news", str(i))], both
    subscriber.punsubscribe()
    assert received(subscriber)[0] == "punsubscribe"
    pipe = r.pipeline()
    for i in range(100):
        pipe.set("seen", i).publish("other", i)
    assert pipe.execute()[1::2] == [1] * 100
    assert [received(subscriber)[2] for _ in range(100)] == [str(i) for i in range(100)]
    subscriber.close()


def shard_messages(r):
    subscriber = r.pubsub()
    subscriber.ssubscribe("shard")
    assert received(subscriber) == ("ssubscribe", "shard", 1)
    assert r.spublish("shard", "x") == 1 and r.publish("shard", "x") == 0
    assert received(subscriber) == ("smessage", "shard", "x")
    subscriber.sunsubscribe("shard")
    assert received(subscriber)[0] == "sunsubscribe"
    subscriber.close()


def main():
    port = int(sys.argv[1])
    parts = (transaction, errors, conflict, transfers, messages, shard_messages)
    for protocol in (2, 3):
        r = redis.Redis(port=port, host="127.0.0.1", protocol=protocol, decode_responses=True)
        r.flushall()
        for part in parts:
            part(r)
            print(f"  redis-py RESP{protocol} {part.__name__}")


main()
