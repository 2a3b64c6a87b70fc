import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentSkipListSet;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.resps.StreamEntry;

/** Jedis against the server: transactions with WATCH, messages, and queues, in both protocols. */
public class Programs {
    static final int THREADS = 6;
    static final int EACH = 50;
    static final int MESSAGES = 500;
    static final int JOBS = 300;
    static final int PATIENCE_S = 20;

    final HostAndPort address;
    final DefaultJedisClientConfig config;

    Programs(int port, RedisProtocol protocol) {
        address = new HostAndPort("127.0.0.1", port);
        config = DefaultJedisClientConfig.builder().protocol(protocol).build();
    }

    static void ensure(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(String.valueOf(what));
        }
    }

    Jedis connect() {
        return new Jedis(address, config);
    }

    void transactions() {
        try (Jedis jedis = connect(); Jedis other = connect()) {
            Transaction queued = jedis.multi();
            queued.set("k", "1");
            Response<Long> incremented = queued.incr("k");
            queued.lpush("k", "x");
            Response<String> value = queued.get("k");
            List<Object> replies = queued.exec();
            ensure(replies.size() == 4 && incremented.get() == 2, replies);
            ensure(replies.get(2) instanceof JedisDataException, replies);
            ensure(value.get().equals("2"), value.get());

            jedis.watch("k");
            other.set("k", "7");
            queued = jedis.multi();
            queued.set("k", "8");
            ensure(queued.exec() == null, "a watched key has changed");
            queued = jedis.multi();
            queued.set("k", "9");
            queued.discard();
            ensure(jedis.get("k").equals("7"), jedis.get("k"));
        }
    }

    /** Reads, adds one and writes, until nobody came between. */
    static void add(Jedis jedis, String key) {
        while (true) {
            jedis.watch(key);
            String value = jedis.get(key);
            Transaction queued = jedis.multi();
            queued.set(key, Long.toString(value == null ? 1 : Long.parseLong(value) + 1));
            if (queued.exec() != null) {
                return;
            }
        }
    }

    void contention() throws Exception {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int t = 0; t < THREADS; t++) {
            Thread thread = new Thread(() -> {
                try (Jedis jedis = connect()) {
                    for (int i = 0; i < EACH; i++) {
                        add(jedis, "counter");
                    }
                }
            });
            thread.setUncaughtExceptionHandler((which, error) -> failure.set(error));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        try (Jedis jedis = connect()) {
            ensure(failure.get() == null, failure.get());
            String counted = jedis.get("counter");
            ensure(counted.equals(Integer.toString(THREADS * EACH)), counted);
        }
    }

    /** Notes all that a subscriber is told. */
    static class Listener extends JedisPubSub {
        final BlockingQueue<String> heard = new LinkedBlockingQueue<>();

        @Override
        public void onSubscribe(String channel, int count) {
            heard.add("subscribed " + channel + " " + count);
        }

        @Override
        public void onMessage(String channel, String text) {
            heard.add(channel + " " + text);
        }

        String next() throws InterruptedException {
            return String.valueOf(heard.poll(20, TimeUnit.SECONDS));
        }
    }

    void messages() throws Exception {
        Listener listener = new Listener();
        Thread thread = new Thread(() -> {
            try (Jedis jedis = connect()) {
                jedis.subscribe(listener, "news", "other");
            }
        });
        thread.start();
        ensure(listener.next().equals("subscribed news 1"), "no confirmation");
        ensure(listener.next().equals("subscribed other 2"), "no confirmation");
        try (Jedis jedis = connect()) {
            for (int i = 0; i < MESSAGES; i++) {
                ensure(jedis.publish(i % 2 == 0 ? "news" : "other", "" + i) == 1, "PUBLISH " + i);
            }
            for (int i = 0; i < MESSAGES; i++) {
                String heard = listener.next();
                ensure(heard.equals((i % 2 == 0 ? "news " : "other ") + i), heard);
            }
            listener.unsubscribe();
            thread.join(20_000);
            ensure(!thread.isAlive() && jedis.publish("news", "x") == 0, "it still listens");
        }
    }

    /** Takes jobs of two lists until it is told to stop. */
    void pop(Set<String> done) {
        try (Jedis jedis = connectPatiently()) {
            for (;;) {
                String job = jedis.blpop(PATIENCE_S, "urgent", "jobs").get(1);
                if (job.equals("stop")) {
                    return;
                }
                ensure(done.add("list " + job), job + " was done twice");
            }
        }
    }

    /** Takes entries of a stream for a group until it is told to stop. */
    void consume(String name, Set<String> done) {
        XReadGroupParams params =
            XReadGroupParams.xReadGroupParams().count(1).block(PATIENCE_S * 1000);
        Map<String, StreamEntryID> log = Map.of("log", StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY);
        try (Jedis jedis = connectPatiently()) {
            for (;;) {
                StreamEntry entry =
                    jedis.xreadGroup("g", name, params, log).get(0).getValue().get(0);
                jedis.xack("log", "g", entry.getID());
                String job = entry.getFields().get("n");
                if (job.equals("stop")) {
                    return;
                }
                ensure(done.add("entry " + job), job + " was done twice");
            }
        }
    }

    /** A connection that waits for longer than a worker does. */
    Jedis connectPatiently() {
        return new Jedis(address, DefaultJedisClientConfig.builder()
            .protocol(config.getRedisProtocol()).socketTimeoutMillis(2 * PATIENCE_S * 1000).build());
    }

    void queues() throws Exception {
        try (Jedis jedis = connect()) {
            jedis.xgroupCreate("log", "g", StreamEntryID.XGROUP_LAST_ENTRY, true);
            Set<String> done = new ConcurrentSkipListSet<>();
            List<Thread> threads = new ArrayList<>();
            for (int i = 0; i < THREADS; i++) {
                String name = "c" + i;
                threads.add(new Thread(() -> pop(done)));
                threads.add(new Thread(() -> consume(name, done)));
            }
            threads.forEach(Thread::start);
            for (int i = 0; i < JOBS + THREADS; i++) {
                String job = i < JOBS ? "" + i : "stop";
                jedis.rpush(i % 2 == 0 ? "urgent" : "jobs", job);
                jedis.xadd("log", StreamEntryID.NEW_ENTRY, Map.of("n", job));
            }
            for (Thread thread : threads) {
                thread.join(PATIENCE_S * 1000);
                ensure(!thread.isAlive(), "a worker waits still");
            }
            ensure(done.size() == 2 * JOBS, done.size() + " are done");
            ensure(jedis.xpending("log", "g").getTotal() == 0, "some are pending");
            ensure(jedis.blpop(0.02, "none") == null, "nothing comes");
        }
    }

    public static void main(String[] args) throws Exception {
        for (RedisProtocol protocol : RedisProtocol.values()) {
            Programs programs = new Programs(Integer.parseInt(args[0]), protocol);
            try (Jedis jedis = programs.connect()) {
                jedis.flushAll();
            }
            programs.transactions();
            programs.contention();
            programs.messages();
            programs.queues();
            System.out.println("  Jedis " + protocol + ": transactions, messages, queues");
        }
    }
}
