"""Functions through redis-py, in both protocols: libraries that are loaded, called, listed,
replaced, carried elsewhere and deleted."""

import sys

import redis

LIBRARY = """#!lua name=accounts
local count = 0

local function total(keys)
  local sum = 0
  for _, key in ipairs(keys) do sum = sum + (redis.call('GET', key) or 0) end
  return sum
end

local function move(keys, args)
  count = count + 1
  redis.call('DECRBY', keys[1], args[1])
  redis.call('INCRBY', keys[2], args[1])
  return redis.status_reply('MOVED')
end

redis.register_function('move', move)
redis.register_function{
  function_name = 'total', callback = total, flags = {'no-writes'}, description = 'a sum'
}
"""


def refused(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except redis.ResponseError as error:
        return str(error)
    raise AssertionError(f"{args} is not refused")


def calls(r):
    assert r.function_load(LIBRARY) == "accounts"
    assert "already exists" in refused(r.function_load, LIBRARY)
    assert r.function_load(LIBRARY, replace=True) == "accounts"
    r.mset({"a": 100, "b": 0})
    for _ in range(10):
        assert r.fcall("move", 2, "a", "b", 7) == "MOVED"
    assert r.mget("a", "b") == ["30", "70"]
    assert r.fcall("total", 3, "a", "b", "missing") == 100
    assert r.fcall_ro("total", 2, "a", "b") == 100
    assert "write flag" in refused(r.fcall_ro, "move", 2, "a", "b", 1)
    assert refused(r.fcall, "nothing", 0) == "Function not found"
    pipe = r.pipeline()
    for _ in range(5):
        pipe.fcall("move", 2, "b", "a", 2)
    assert pipe.execute() == ["MOVED"] * 5
    assert r.mget("a", "b") == ["40", "60"]


def names(listed):
    """The names of the functions of the only library in a FUNCTION LIST of either protocol."""
    (library,) = listed
    if isinstance(library, list):
        library = dict(zip(library[::2], library[1::2]))
    functions = library["functions"]
    functions = [f if isinstance(f, dict) else dict(zip(f[::2], f[1::2])) for f in functions]
    assert library["library_name"] == "accounts" and library["engine"] == "LUA"
    return sorted(function["name"] for function in functions)


def libraries(r, raw):
    assert names(r.function_list()) == ["move", "total"]
    assert r.function_list(library="other*") == []
    dump = raw.function_dump()
    assert r.function_delete("accounts")
    assert refused(r.fcall, "total", 1, "a") == "Function not found"
    assert raw.function_restore(dump)
    assert "already exists" in refused(raw.function_restore, dump)
    assert raw.function_restore(dump, "REPLACE")
    assert r.fcall("total", 2, "a", "b") == 100
    assert r.function_stats() is not None
    assert r.function_flush()
    assert r.function_list() == []
    assert raw.function_restore(dump, "FLUSH")
    assert names(r.function_list()) == ["move", "total"]
    assert r.function_flush("SYNC")


def main():
    port = int(sys.argv[1])
    for protocol in (2, 3):
        options = {"host": "127.0.0.1", "port": port, "protocol": protocol}
        r = redis.Redis(**options, decode_responses=True)
        r.flushall()
        calls(r)
        libraries(r, redis.Redis(**options))
        print(f"  redis-py RESP{protocol}: functions")


main()
