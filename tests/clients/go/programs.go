// Transactions with WATCH, messages, and queues, as users of go-redis write them.
package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	writers  = 6
	each     = 50
	messages = 500
	jobs     = 300
	patience = 20 * time.Second
)

func transaction(ctx context.Context, client *redis.Client) {
	var last *redis.IntCmd
	replies, err := client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		for i := 0; i < 100; i++ {
			pipe.Set(ctx, fmt.Sprintf("k%d", i), i, 0)
			last = pipe.Incr(ctx, "n")
		}
		return nil
	})
	check(err)
	ensure(len(replies) == 200 && last.Val() == 100, "%d replies, %d", len(replies), last.Val())

	_, err = client.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.LPush(ctx, "n", "x")
		pipe.Incr(ctx, "n")
		return nil
	})
	ensure(err != nil, "LPUSH to a string is no error")
	value, err := client.Get(ctx, "n").Int()
	check(err)
	ensure(value == 101, "what follows an error has run, but n is %d", value)
}

// add reads, adds one and writes, until nobody came between. It returns how often it tried.
func add(ctx context.Context, client *redis.Client, key string) int {
	for tries := 1; ; tries++ {
		err := client.Watch(ctx, func(tx *redis.Tx) error {
			value, err := tx.Get(ctx, key).Int()
			if err != nil && err != redis.Nil {
				return err
			}
			_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
				pipe.Set(ctx, key, value+1, 0)
				return nil
			})
			return err
		}, key)
		if !errors.Is(err, redis.TxFailedErr) {
			check(err)
			return tries
		}
	}
}

func contention(ctx context.Context, client *redis.Client) {
	err := client.Watch(ctx, func(tx *redis.Tx) error {
		check(client.Set(ctx, "w", 1, 0).Err())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "w", 2, 0)
			return nil
		})
		return err
	}, "w")
	ensure(errors.Is(err, redis.TxFailedErr), "a watched key has changed, but: %v", err)

	var group sync.WaitGroup
	for w := 0; w < writers; w++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < each; i++ {
				add(ctx, client, "counter")
			}
		}()
	}
	group.Wait()
	value, err := client.Get(ctx, "counter").Int()
	check(err)
	ensure(value == writers*each, "%d of %d were counted", value, writers*each)
}

func receive(ctx context.Context, pubsub *redis.PubSub) *redis.Message {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	message, err := pubsub.ReceiveMessage(limited)
	check(err)
	return message
}

func publishing(ctx context.Context, client *redis.Client) {
	pubsub := client.Subscribe(ctx, "news", "other")
	for i := 0; i < 2; i++ {
		_, err := pubsub.ReceiveTimeout(ctx, patience)
		check(err)
	}
	check(pubsub.PSubscribe(ctx, "n*"))
	_, err := pubsub.ReceiveTimeout(ctx, patience)
	check(err)
	for i := 0; i < messages; i++ {
		count, err := client.Publish(ctx, "news", i).Result()
		check(err)
		ensure(count == 2, "%d receive it", count)
	}
	for i := 0; i < messages; i++ {
		for _, pattern := range []string{"", "n*"} {
			got := receive(ctx, pubsub)
			right := got.Channel == "news" && got.Pattern == pattern
			ensure(right && got.Payload == fmt.Sprint(i), "%d: %v", i, got)
		}
	}
	counts, err := client.PubSubNumSub(ctx, "news", "none").Result()
	check(err)
	ensure(counts["news"] == 1 && counts["none"] == 0, "NUMSUB: %v", counts)
	check(pubsub.Close())

	shard := client.SSubscribe(ctx, "shard")
	_, err = shard.ReceiveTimeout(ctx, patience)
	check(err)
	count, err := client.SPublish(ctx, "shard", "x").Result()
	check(err)
	ensure(count == 1 && receive(ctx, shard).Payload == "x", "SPUBLISH: %d", count)
	check(shard.Close())
}

// queues has workers wait for jobs of two lists, and for entries of a stream: each is done once.
func queues(ctx context.Context, client *redis.Client) {
	check(client.XGroupCreateMkStream(ctx, "log", "g", "$").Err())
	var group sync.WaitGroup
	done := make(chan string, 2*jobs)
	for i := 0; i < writers; i++ {
		group.Add(2)
		go func() {
			defer group.Done()
			for {
				job, err := client.BLPop(ctx, patience, "urgent", "jobs").Result()
				check(err)
				if job[1] == "stop" {
					return
				}
				done <- "list " + job[1]
			}
		}()
		go func(consumer string) {
			defer group.Done()
			for {
				streams, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
					Group: "g", Consumer: consumer, Streams: []string{"log", ">"},
					Count: 1, Block: patience,
				}).Result()
				check(err)
				entry := streams[0].Messages[0]
				check(client.XAck(ctx, "log", "g", entry.ID).Err())
				if entry.Values["n"] == "stop" {
					return
				}
				done <- fmt.Sprint("entry ", entry.Values["n"])
			}
		}(fmt.Sprintf("c%d", i))
	}
	add := func(list string, value any) {
		check(client.RPush(ctx, list, value).Err())
		check(client.XAdd(ctx, &redis.XAddArgs{Stream: "log", Values: []any{"n", value}}).Err())
	}
	var expected []string
	for i := 0; i < jobs; i++ {
		add([]string{"jobs", "urgent"}[i%2], i)
		expected = append(expected, fmt.Sprint("list ", i), fmt.Sprint("entry ", i))
	}
	for i := 0; i < writers; i++ {
		add("jobs", "stop")
	}
	group.Wait()
	close(done)
	var all []string
	for job := range done {
		all = append(all, job)
	}
	sort.Strings(all)
	sort.Strings(expected)
	ensure(fmt.Sprint(all) == fmt.Sprint(expected), "%d of %d are done", len(all), len(expected))
	pending, err := client.XPending(ctx, "log", "g").Result()
	check(err)
	ensure(pending.Count == 0, "pending: %v", pending)
	err = client.BLPop(ctx, 20*time.Millisecond, "none").Err()
	ensure(err == redis.Nil, "nothing comes, but %v", err)
}

func programs(ctx context.Context, client *redis.Client, protocol int) {
	transaction(ctx, client)
	contention(ctx, client)
	publishing(ctx, client)
	queues(ctx, client)
	fmt.Printf("  go-redis RESP%d: transactions, messages, queues\n", protocol)
}
