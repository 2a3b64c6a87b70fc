"""redis-py against the server: what a service does on a usual day, in both protocols."""

import sys

import redis


def strings(r):
    assert r.set("k", "v") is True
    assert r.get("k") == "v"
    assert r.set("k", "w", nx=True) is None
    assert r.set("k", "w", xx=True, get=True) == "v"
    assert r.incrby("n", 41) == 41 and r.incr("n") == 42
    assert r.mget("k", "missing", "n") == ["w", None, "42"]
    assert r.setex("t", 100, "v") and 98 <= r.ttl("t") <= 100
    assert r.getex("t", persist=True) == "v" and r.ttl("t") == -1
    assert r.append("k", "xyz") == 4 and r.getrange("k", 1, -1) == "xyz"
    try:
        r.hget("k", "f")
        raise AssertionError("no WRONGTYPE")
    except redis.ResponseError as error:
        assert str(error).startswith("WRONGTYPE"), error


def hashes(r):
    fields = {f"f{i}": f"v{i}" for i in range(2_000)}
    assert r.hset("h", mapping=fields) == 2_000
    assert r.hgetall("h") == fields
    assert dict(r.hscan_iter("h", count=100)) == fields
    assert r.hlen("h") == 2_000 and r.hdel("h", *list(fields)[:1_990]) == 1_990
    assert set(r.hkeys("h")) == set(list(fields)[1_990:])
    assert r.hincrbyfloat("h", "x", 1.5) == 1.5
    assert r.hrandfield("h", 100) is not None


def sets(r):
    r.sadd("a", *range(1_000))
    r.sadd("b", *range(500, 1_500))
    assert r.sinter("a", "b") == {str(i) for i in range(500, 1_000)}
    assert r.sintercard(2, ["a", "b"], limit=7) == 7
    assert r.sunionstore("c", "a", "b") == 1_500 and r.scard("c") == 1_500
    assert len(r.sdiff("a", "b")) == 500
    assert r.smismember("a", [1, 5_000]) == [1, 0]
    assert set(r.sscan_iter("c")) == {str(i) for i in range(1_500)}
    assert len(r.spop("c", 1_500)) == 1_500 and r.exists("c") == 0


def keyspace(r):
    r.mset({f"key:{i}": i for i in range(500)})
    found = set(r.scan_iter(match="key:*", count=50))
    assert found == {f"key:{i}" for i in range(500)}
    assert r.rename("key:1", "moved") and r.get("moved") == "1"
    assert r.copy("moved", "copied") and r.get("copied") == "1"
    payload = redis.Redis(**raw_of(r)).dump("a")
    assert r.restore("restored", 0, payload) in (True, "OK", b"OK")
    assert r.scard("restored") == 1_000
    assert r.type("restored") == "set" and r.object("ENCODING", "n") == "int"
    assert r.delete(*found) == 499


def raw_of(r):
    """The same connection without decoding, for binary payloads."""
    options = dict(r.connection_pool.connection_kwargs)
    return {"host": options["host"], "port": options["port"], "protocol": options["protocol"]}


def pipelines(r):
    pipe = r.pipeline(transaction=False)
    for i in range(1_000):
        pipe.set(f"p{i}", i)
        pipe.get(f"p{i}")
    replies = pipe.execute()
    assert replies[1::2] == [str(i) for i in range(1_000)]


def administration(r):
    assert r.ping() is True and r.echo("x") == "x"
    r.client_setname("basics")
    assert r.client_getname() == "basics"
    assert any(client["name"] == "basics" for client in r.client_list())
    assert r.config_get("maxmemory")["maxmemory"] == "0"
    assert r.info("server")["tcp_port"] == r.connection_pool.connection_kwargs["port"]
    assert r.info("memory")["used_memory"] > 0
    assert r.command_count() > 100
    assert r.dbsize() > 0 and r.flushdb() is True and r.dbsize() == 0


def main():
    port = int(sys.argv[1])
    for protocol in (2, 3):
        r = redis.Redis(port=port, host="127.0.0.1", protocol=protocol, decode_responses=True)
        r.flushall()
        for part in (strings, hashes, sets, keyspace, pipelines, administration):
            part(r)
            print(f"  redis-py RESP{protocol} {part.__name__}")


main()
