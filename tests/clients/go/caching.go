// Client-side caching: by go-redis's own cache in RESP3; in RESP2, for which it has none, by a map
// whose copies are dropped when a second connection is told to.
package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	copied  = 40
	writes  = 400
	readers = 4
)

// cache answers reads from copies, and counts those. A key that is absent has an empty value.
type cache interface {
	get(ctx context.Context, key string) string
	hits() uint64
}

// own is go-redis's cache.
type own struct{ *redis.Client }

func (o own) get(ctx context.Context, key string) string {
	value, err := o.Get(ctx, key).Result()
	if err != redis.Nil {
		check(err)
	}
	return value
}

func (o own) hits() uint64 {
	return o.CSCStats().Hits
}

// copies are the values of keys that were read, until the server says that they have changed.
type copies struct {
	tracked *redis.Client

	mu     sync.Mutex
	values map[string]string
	// The keys that are being read, and how often each was begun to be: what is told meanwhile ends
	// the copy, too.
	reading map[string]int
	begun   int
	used    uint64
	// What the server has said.
	told []string
}

func (c *copies) get(ctx context.Context, key string) string {
	c.mu.Lock()
	if value, ok := c.values[key]; ok {
		c.used++
		c.mu.Unlock()
		return value
	}
	c.begun++
	begun := c.begun
	c.reading[key] = begun
	c.mu.Unlock()
	value := own{c.tracked}.get(ctx, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading[key] == begun {
		c.values[key] = value
		delete(c.reading, key)
	}
	return value
}

func (c *copies) hits() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

func (c *copies) drop(keys []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, keys...)
	for _, key := range keys {
		delete(c.values, key)
		delete(c.reading, key)
	}
}

func (c *copies) dropAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.values)
	clear(c.reading)
}

// takeTold returns what the server has said since the last call.
func (c *copies) takeTold() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	told := c.told
	c.told = nil
	return told
}

// hear receives what is told to the second connection, until that is closed.
func (c *copies) hear(ctx context.Context, pubsub *redis.PubSub) {
	for {
		message, err := pubsub.ReceiveMessage(ctx)
		switch {
		case err == nil:
			c.drop(message.PayloadSlice)
		case strings.Contains(err.Error(), "message payload: <nil>"):
			c.dropAll() // So go-redis hands over what is told after FLUSHALL.
		default:
			return
		}
	}
}

// listen connects a client to which invalidations are sent. It returns its ID, and what closes it.
func (c *copies) listen(ctx context.Context, address string) (int64, func()) {
	var id int64
	learnID := func(ctx context.Context, conn *redis.Conn) (err error) {
		id, err = conn.ClientID(ctx).Result()
		return err
	}
	listener := redis.NewClient(&redis.Options{Addr: address, Protocol: 2, OnConnect: learnID})
	pubsub := listener.Subscribe(ctx, "__redis__:invalidate")
	_, err := pubsub.ReceiveTimeout(ctx, patience)
	check(err)
	go c.hear(ctx, pubsub)
	return id, func() {
		check(pubsub.Close())
		check(listener.Close())
	}
}

// redirected are copies whose connections have their invalidations sent to another one.
func redirected(ctx context.Context, address string) (*copies, func()) {
	c := &copies{values: map[string]string{}, reading: map[string]int{}}
	id, end := c.listen(ctx, address)
	turnOn := func(ctx context.Context, conn *redis.Conn) error {
		cmd := redis.NewStatusCmd(ctx, "client", "tracking", "on", "redirect", id)
		_ = conn.Process(ctx, cmd)
		return cmd.Err()
	}
	c.tracked = redis.NewClient(&redis.Options{Addr: address, Protocol: 2, OnConnect: turnOn})
	return c, func() {
		check(c.tracked.Close())
		end()
	}
}

func shows(ctx context.Context, c cache, key, value string) {
	until(key+" is "+value, func() bool { return c.get(ctx, key) == value })
}

func name(i int) string {
	return fmt.Sprintf("copy:%d", i%copied)
}

// changes has copies used, and dropped after a write, a deletion, an expiry and FLUSHALL.
func changes(ctx context.Context, c cache, writer *redis.Client) {
	check(writer.Set(ctx, "k", "old", 0).Err())
	shows(ctx, c, "k", "old")
	before := c.hits()
	for i := 0; i < copied; i++ {
		ensure(c.get(ctx, "k") == "old", "GET k")
	}
	ensure(c.hits() == before+copied, "%d of %d are copies", c.hits()-before, copied)
	check(writer.Set(ctx, "k", "new", 0).Err())
	shows(ctx, c, "k", "new")
	check(writer.Del(ctx, "k").Err())
	shows(ctx, c, "k", "")
	check(writer.Set(ctx, "k", "short", 60*time.Millisecond).Err())
	shows(ctx, c, "k", "short")
	shows(ctx, c, "k", "")
	for i := 0; i < copied; i++ {
		check(writer.Set(ctx, name(i), "0", 0).Err())
		shows(ctx, c, name(i), "0")
	}
	check(writer.FlushAll(ctx).Err())
	for i := 0; i < copied; i++ {
		shows(ctx, c, name(i), "")
	}
}

// race has keys written and read at the same time: in the end all copies are what the server has.
func race(ctx context.Context, c cache, writer *redis.Client) {
	done := make(chan bool)
	var group sync.WaitGroup
	for r := 0; r < readers; r++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := r; ; i++ {
				c.get(ctx, name(i))
				select {
				case <-done:
					return
				default:
				}
			}
		}()
	}
	for i := 0; i < writes; i++ {
		check(writer.Set(ctx, name(7*i), i, 0).Err())
	}
	close(done)
	group.Wait()
	for i := 0; i < copied; i++ {
		value, err := writer.Get(ctx, name(i)).Result()
		check(err)
		shows(ctx, c, name(i), value)
	}
}

// once has keys read once: each is told of once, though one changes twice.
func once(ctx context.Context, c *copies, writer *redis.Client) {
	for _, key := range []string{"{t}:a", "{t}:b"} {
		check(writer.Set(ctx, key, "1", 0).Err())
		shows(ctx, c, key, "1")
	}
	c.takeTold()
	for _, key := range []string{"{t}:a", "{t}:a", "{t}:c", "{t}:b"} {
		check(writer.Set(ctx, key, "2", 0).Err())
	}
	var told []string
	until("both are told", func() bool {
		told = append(told, c.takeTold()...)
		return len(told) >= 2
	})
	ensure(fmt.Sprint(told) == "[{t}:a {t}:b]", "told of %v", told)
}

func caching(ctx context.Context, client *redis.Client, protocol int) {
	address := client.Options().Addr
	if protocol == 2 {
		c, end := redirected(ctx, address)
		changes(ctx, c, client)
		race(ctx, c, client)
		once(ctx, c, client)
		end()
	} else {
		c := own{redis.NewClient(&redis.Options{
			Addr: address, Protocol: protocol,
			ClientSideCacheConfig: &redis.ClientSideCacheConfig{MaxEntries: 1000},
		})}
		changes(ctx, c, client)
		race(ctx, c, client)
		check(c.Close())
	}
	fmt.Printf("  go-redis RESP%d: copies, tracking\n", protocol)
}
