// Scripts, as users of go-redis write them.
package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

var transfer = redis.NewScript(`
local balance = tonumber(redis.call('GET', KEYS[1]))
if balance < tonumber(ARGV[1]) then
  return redis.error_reply('POOR ' .. balance)
end
redis.call('DECRBY', KEYS[1], ARGV[1])
return {redis.call('INCRBY', KEYS[2], ARGV[1]), tostring(balance / 3), balance / 3}`)

func scripts(ctx context.Context, client *redis.Client, protocol int) {
	check(client.MSet(ctx, "from", 100, "to", 0).Err())
	reply, err := transfer.Run(ctx, client, []string{"from", "to"}, 30).Slice()
	check(err)
	ensure(fmt.Sprint(reply) == "[30 33.333333333333 33]", "%v", reply)
	known, err := transfer.Exists(ctx, client).Result()
	check(err)
	ensure(known[0], "it was sent once")
	check(client.ScriptFlush(ctx).Err())
	check(transfer.Run(ctx, client, []string{"from", "to"}, 10).Err())
	err = transfer.Run(ctx, client, []string{"from", "to"}, 1000).Err()
	ensure(err != nil && strings.HasPrefix(err.Error(), "POOR 60"), "%v", err)

	replies, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := 0; i < 10; i++ {
			transfer.EvalSha(ctx, pipe, []string{"to", "from"}, 1)
		}
		return nil
	})
	check(err)
	ensure(len(replies) == 10, "%d replies", len(replies))
	values, err := client.MGet(ctx, "from", "to").Result()
	check(err)
	ensure(fmt.Sprint(values) == "[70 30]", "%v", values)
	fmt.Printf("  go-redis RESP%d: scripts\n", protocol)
}
