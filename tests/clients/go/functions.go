// Functions, as users of go-redis write them.
package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

const library = `#!lua name=counters
local function bump(keys, args)
  local all = {}
  for i, key in ipairs(keys) do all[i] = redis.call('INCRBY', key, args[1]) end
  return all
end
redis.register_function('bump', bump)
redis.register_function{
  function_name = 'read', flags = {'no-writes'},
  callback = function(keys) return redis.call('MGET', unpack(keys)) end
}`

func functions(ctx context.Context, client *redis.Client, protocol int) {
	check(client.FunctionFlush(ctx).Err())
	name, err := client.FunctionLoad(ctx, library).Result()
	check(err)
	ensure(name == "counters", "%s", name)
	ensure(client.FunctionLoad(ctx, library).Err() != nil, "it is there already")
	check(client.FunctionLoadReplace(ctx, library).Err())

	counts, err := client.FCall(ctx, "bump", []string{"a", "b"}, 5).Int64Slice()
	check(err)
	ensure(fmt.Sprint(counts) == "[5 5]", "%v", counts)
	read, err := client.FCallRo(ctx, "read", []string{"a", "missing"}).Slice()
	check(err)
	ensure(fmt.Sprint(read) == "[5 <nil>]", "%v", read)

	list, err := client.FunctionList(ctx, redis.FunctionListQuery{WithCode: true}).Result()
	check(err)
	ensure(len(list) == 1 && list[0].Code == library && len(list[0].Functions) == 2, "%+v", list)
	dump, err := client.FunctionDump(ctx).Result()
	check(err)
	check(client.FunctionDelete(ctx, "counters").Err())
	ensure(client.FCall(ctx, "bump", []string{"a"}, 1).Err() != nil, "it is gone")
	check(client.FunctionRestore(ctx, dump).Err())
	count, err := client.FCall(ctx, "bump", []string{"a"}, 1).Int64Slice()
	check(err)
	ensure(fmt.Sprint(count) == "[6]", "%v", count)
	stats, err := client.FunctionStats(ctx).Result()
	check(err)
	ensure(len(stats.Engines) == 1 && stats.Engines[0].LibrariesCount == 1, "%+v", stats)
	check(client.FunctionFlush(ctx).Err())
	fmt.Printf("  go-redis RESP%d: functions\n", protocol)
}
