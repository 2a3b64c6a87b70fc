"""redis-py's locks and scripts against the server, in both protocols."""

import sys
import threading
import time

import redis
from redis.exceptions import LockError, LockNotOwnedError, NoScriptError

from support import until

WORKERS = 6
ROUNDS = 20

TRANSFER = """
local balance = tonumber(redis.call('GET', KEYS[1]))
if balance < tonumber(ARGV[1]) then
  return redis.error_reply('POOR ' .. balance)
end
redis.call('DECRBY', KEYS[1], ARGV[1])
return {redis.call('INCRBY', KEYS[2], ARGV[1]), balance - ARGV[1], {ok = 'DONE'}, false}
"""


def exclusion(r):
    """Without exclusion additions would be lost: each thread reads, waits and writes."""
    r.set("shared", 0)

    def work():
        for _ in range(ROUNDS):
            with r.lock("lock", timeout=20, sleep=0.002):
                value = int(r.get("shared"))
                time.sleep(0.0005)
                r.set("shared", value + 1)

    threads = [threading.Thread(target=work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert r.get("shared") == str(WORKERS * ROUNDS), r.get("shared")
    assert r.exists("lock") == 0


def ownership(r):
    lock = r.lock("lock", timeout=1)
    assert lock.acquire() and lock.locked() and lock.owned()
    assert not r.lock("lock").acquire(blocking=False)
    assert not r.lock("lock").acquire(blocking_timeout=0.05)
    assert lock.extend(100) and 99_000 < r.pttl("lock") <= 101_000
    assert lock.extend(5, replace_ttl=True) and 4_000 < r.pttl("lock") <= 5_000
    assert lock.reacquire() and r.pttl("lock") <= 1_000
    until("its time is over", lambda: not lock.locked())
    other = r.lock("lock", timeout=10)
    assert other.acquire(blocking=False)
    for refused in (lock.reacquire, lambda: lock.extend(1), lock.release):
        try:
            refused()
            raise AssertionError("somebody else holds it")
        except LockNotOwnedError:
            pass
    other.release()
    try:
        other.release()
        raise AssertionError("it was released twice")
    except LockError:
        pass


def scripts(r):
    transfer = r.register_script(TRANSFER)
    r.mset({"from": 100, "to": 0})
    assert transfer(keys=["from", "to"], args=[30]) == [30, 70, "DONE", None]
    r.script_flush()
    try:
        r.evalsha(transfer.sha, 2, "from", "to", 1)
        raise AssertionError("it was forgotten")
    except NoScriptError:
        pass
    pipe = r.pipeline()
    for _ in range(3):
        transfer(keys=["from", "to"], args=[10], client=pipe)
    assert [reply[0] for reply in pipe.execute()] == [40, 50, 60]
    assert r.script_exists(transfer.sha, "0" * 40) == [True, False]
    try:
        transfer(keys=["from", "to"], args=[1_000])
        raise AssertionError("it has no 1000")
    except redis.ResponseError as error:
        assert str(error).startswith("POOR 40"), error
    assert r.mget("from", "to") == ["40", "60"]
    assert r.eval_ro("return redis.call('GET', KEYS[1])", 1, "to") == "60"


def main():
    port = int(sys.argv[1])
    for protocol in (2, 3):
        r = redis.Redis(port=port, host="127.0.0.1", protocol=protocol, decode_responses=True)
        r.flushall()
        for part in (exclusion, ownership, scripts):
            part(r)
            print(f"  redis-py RESP{protocol} {part.__name__}")


main()
