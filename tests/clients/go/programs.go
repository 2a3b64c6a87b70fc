// Transactions with WATCH, and messages, as users of go-redis write them.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	writers  = 6
	each     = 50
	messages = 500
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

func programs(ctx context.Context, client *redis.Client, protocol int) {
	transaction(ctx, client)
	contention(ctx, client)
	publishing(ctx, client)
	fmt.Printf("  go-redis RESP%d: transactions and messages\n", protocol)
}
