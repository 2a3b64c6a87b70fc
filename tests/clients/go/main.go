// Programs with go-redis against the server, in both protocols: `programs NAME PORT`, with a name
// from `main`.
//
// The drain of a big hash is as its users write it: HSCAN in batches of a hundred, HDEL of each
// batch, until the cursor is 0. Another goroutine reads and writes small keys meanwhile, and must
// never fail.
package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	fields = 100_000
	batch  = 100
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func ensure(holds bool, format string, values ...any) {
	if !holds {
		check(fmt.Errorf(format, values...))
	}
}

func fill(ctx context.Context, client *redis.Client, key string) {
	pipe := client.Pipeline()
	for first := 0; first < fields; first += batch {
		pairs := make([]any, 0, 2*batch)
		for i := first; i < first+batch; i++ {
			pairs = append(pairs, fmt.Sprintf("field:%d", i), fmt.Sprintf("reason %d", i))
		}
		pipe.HSet(ctx, key, pairs...)
	}
	_, err := pipe.Exec(ctx)
	check(err)
	count, err := client.HLen(ctx, key).Result()
	check(err)
	ensure(count == fields, "HLEN is %d", count)
}

// drain deletes all fields by cursor, and returns how many it deleted.
func drain(ctx context.Context, client *redis.Client, key string) int64 {
	var cursor uint64
	var deleted int64
	for {
		found, next, err := client.HScan(ctx, key, cursor, "", batch).Result()
		check(err)
		names := make([]string, 0, len(found)/2)
		for i := 0; i < len(found); i += 2 {
			names = append(names, found[i])
		}
		if len(names) > 0 {
			count, err := client.HDel(ctx, key, names...).Result()
			check(err)
			deleted += count
		}
		cursor = next
		if cursor == 0 {
			return deleted
		}
	}
}

func others(ctx context.Context, client *redis.Client, stop *atomic.Bool, done chan int) {
	count := 0
	for ; !stop.Load(); count++ {
		key := fmt.Sprintf("other:%d", count%100)
		check(client.Set(ctx, key, count, time.Minute).Err())
		value, err := client.Get(ctx, key).Int()
		check(err)
		ensure(value == count, "GET %s is %d, not %d", key, value, count)
	}
	done <- count
}

func drained(ctx context.Context, client *redis.Client, protocol int) {
	fill(ctx, client, "big")
	all, err := client.HGetAll(ctx, "big").Result()
	check(err)
	ensure(len(all) == fields && all["field:77"] == "reason 77", "HGETALL has %d", len(all))

	var stop atomic.Bool
	done := make(chan int)
	go others(ctx, client, &stop, done)
	deleted := drain(ctx, client, "big")
	stop.Store(true)
	served := <-done
	ensure(deleted == fields, "%d were deleted", deleted)
	ensure(served > 0, "nobody else was served")
	left, err := client.Exists(ctx, "big").Result()
	check(err)
	ensure(left == 0, "the drained hash is still there")
	fmt.Printf("  go-redis RESP%d drained %d fields, %d others served\n", protocol, deleted, served)
}

func main() {
	ctx := context.Background()
	run := map[string]func(context.Context, *redis.Client, int){
		"drain": drained, "programs": programs, "scripts": scripts, "functions": functions,
		"asynq": tasksOfAsynq, "caching": caching,
	}[os.Args[1]]
	for _, protocol := range []int{2, 3} {
		// By default the pool has ten connections a processor: with one, the workers would take all.
		options := &redis.Options{
			Addr: "127.0.0.1:" + os.Args[2], Protocol: protocol, PoolSize: 32,
		}
		client := redis.NewClient(options)
		check(client.FlushAll(ctx).Err())
		run(ctx, client, protocol)
		check(client.Close())
	}
}
