// asynq: queues of different weight, tasks of later, retries, unique tasks, groups, cancellation
// and its inspector, which deletes, archives and runs what waits.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

const (
	tasks  = 300
	second = 1 * time.Second
)

// until waits until something holds.
func until(what string, holds func() bool) {
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		ensure(time.Now().Before(end), "in vain: %s", what)
	}
}

// noted remembers what the handlers were given.
type noted struct {
	sync.Mutex
	ran map[string]int
}

func (n *noted) note(name string) int {
	n.Lock()
	defer n.Unlock()
	n.ran[name]++
	return n.ran[name]
}

func (n *noted) times(name string) int {
	n.Lock()
	defer n.Unlock()
	return n.ran[name]
}

func (n *noted) names() int {
	n.Lock()
	defer n.Unlock()
	return len(n.ran)
}

func (n *noted) handlers() *asynq.ServeMux {
	mux := asynq.NewServeMux()
	mux.HandleFunc("note", func(_ context.Context, task *asynq.Task) error {
		n.note(string(task.Payload()))
		_, err := task.ResultWriter().Write(append([]byte("result of "), task.Payload()...))
		return err
	})
	mux.HandleFunc("third", func(_ context.Context, task *asynq.Task) error {
		if n.note(string(task.Payload())) < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	mux.HandleFunc("refuse", func(context.Context, *asynq.Task) error {
		return fmt.Errorf("no: %w", asynq.SkipRetry)
	})
	mux.HandleFunc("nap", func(ctx context.Context, _ *asynq.Task) error {
		n.note("nap")
		<-ctx.Done()
		return ctx.Err()
	})
	return mux
}

func serve(client *redis.Client, n *noted) *asynq.Server {
	server := asynq.NewServerFromRedisClient(client, asynq.Config{
		Concurrency:              8,
		Queues:                   map[string]int{"default": 3, "low": 1},
		TaskCheckInterval:        10 * time.Millisecond,
		DelayedTaskCheckInterval: 50 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration {
			return 20 * time.Millisecond
		},
		GroupGracePeriod: second,
		GroupAggregator: asynq.GroupAggregatorFunc(func(group string, all []*asynq.Task) *asynq.Task {
			return asynq.NewTask("note", fmt.Appendf(nil, "%s of %d", group, len(all)))
		}),
		LogLevel: asynq.FatalLevel,
	})
	check(server.Start(n.handlers()))
	return server
}

// waiting is what the inspector shows and changes before a server takes anything.
func waiting(client *asynq.Client, inspector *asynq.Inspector) {
	enqueue := func(name string, options ...asynq.Option) *asynq.TaskInfo {
		info, err := client.Enqueue(asynq.NewTask("note", []byte(name)), options...)
		check(err)
		return info
	}
	for i := 0; i < 10; i++ {
		enqueue(fmt.Sprint("deleted ", i), asynq.ProcessIn(time.Hour))
	}
	deleted, err := inspector.DeleteAllScheduledTasks("default")
	check(err)
	ensure(deleted == 10, "%d were deleted", deleted)

	one := enqueue("one", asynq.TaskID("one"))
	_, err = client.Enqueue(asynq.NewTask("note", []byte("one")), asynq.TaskID("one"))
	ensure(errors.Is(err, asynq.ErrTaskIDConflict), "a task of this name is there: %v", err)
	unique := []asynq.Option{asynq.Unique(time.Minute), asynq.ProcessIn(time.Hour)}
	only := enqueue("only", unique...)
	_, err = client.Enqueue(asynq.NewTask("note", []byte("only")), unique...)
	ensure(errors.Is(err, asynq.ErrDuplicateTask), "such a task is there: %v", err)

	err = inspector.DeleteTask("default", "missing")
	ensure(errors.Is(err, asynq.ErrTaskNotFound), "there is no such task: %v", err)
	check(inspector.ArchiveTask("default", one.ID))
	check(inspector.DeleteTask("default", only.ID))
	info, err := inspector.GetQueueInfo("default")
	check(err)
	ensure(info.Size == 1 && info.Archived == 1 && info.MemoryUsage > 0, "%+v", info)
	count, err := inspector.RunAllArchivedTasks("default")
	check(err)
	ensure(count == 1, "%d were archived", count)
}

func working(client *asynq.Client, inspector *asynq.Inspector, n *noted) {
	for i := 0; i < tasks; i++ {
		options := []asynq.Option{asynq.Queue("default"), asynq.Retention(time.Minute)}
		if i%3 == 0 {
			options[0] = asynq.Queue("low")
		}
		_, err := client.Enqueue(asynq.NewTask("note", fmt.Append(nil, i)), options...)
		check(err)
	}
	until("all have run", func() bool { return n.names() == tasks+1 })
	ensure(n.times("one") == 1, "what was archived runs again, once: %d", n.times("one"))
	for i := 0; i < tasks; i++ {
		ensure(n.times(fmt.Sprint(i)) == 1, "%d ran %d times", i, n.times(fmt.Sprint(i)))
	}
	until("they are completed", func() bool {
		low, err := inspector.GetQueueInfo("low")
		check(err)
		return low.Completed == tasks/3 && low.Active == 0
	})
	kept, err := inspector.ListCompletedTasks("low", asynq.PageSize(10))
	check(err)
	ensure(len(kept) == 10, "a page of %d", len(kept))
	want := "result of " + string(kept[0].Payload)
	ensure(string(kept[0].Result) == want, "%s, not %s", kept[0].Result, want)
	removed, err := inspector.DeleteAllCompletedTasks("low")
	check(err)
	ensure(removed == tasks/3, "%d were removed", removed)
}

func failing(client *asynq.Client, inspector *asynq.Inspector, n *noted) {
	later, err := client.Enqueue(asynq.NewTask("note", []byte("later")), asynq.ProcessIn(second))
	check(err)
	_, err = client.Enqueue(asynq.NewTask("third", []byte("third")), asynq.MaxRetry(5))
	check(err)
	_, err = client.Enqueue(asynq.NewTask("refuse", nil))
	check(err)
	nap, err := client.Enqueue(asynq.NewTask("nap", nil), asynq.MaxRetry(0))
	check(err)
	until("it has begun", func() bool { return n.times("nap") == 1 })
	check(inspector.CancelProcessing(nap.ID))
	until("two are archived", func() bool {
		archived, err := inspector.ListArchivedTasks("default")
		check(err)
		return len(archived) == 2
	})
	until("the third try", func() bool { return n.times("third") == 3 })
	for i := 0; i < 5; i++ {
		_, err = client.Enqueue(asynq.NewTask("note", fmt.Append(nil, i)), asynq.Group("group"))
		check(err)
	}
	until("five in one", func() bool { return n.times("group of 5") == 1 })
	until("its time has come", func() bool { return n.times("later") == 1 })
	due := later.NextProcessAt.Truncate(second) // As it is stored.
	ensure(!time.Now().Before(due), "it was due at %v", due)
}

func tasksOfAsynq(ctx context.Context, redisClient *redis.Client, protocol int) {
	client := asynq.NewClientFromRedisClient(redisClient)
	inspector := asynq.NewInspectorFromRedisClient(redisClient)
	n := &noted{ran: map[string]int{}}
	waiting(client, inspector)
	server := serve(redisClient, n)
	until("the server is seen", func() bool {
		servers, err := inspector.Servers()
		check(err)
		return len(servers) == 1 && servers[0].Concurrency == 8
	})
	working(client, inspector, n)
	failing(client, inspector, n)
	server.Shutdown()
	names, err := inspector.Queues()
	check(err)
	ensure(len(names) == 2, "%v", names)
	check(inspector.DeleteQueue("low", true))
	fmt.Printf("  asynq RESP%d: all\n", protocol)
}
