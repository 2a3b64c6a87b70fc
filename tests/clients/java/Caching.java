import java.util.Map;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.UnifiedJedis;
import redis.clients.jedis.csc.CacheConfig;
import redis.clients.jedis.csc.CacheStats;
import redis.clients.jedis.csc.DefaultCache;
import redis.clients.jedis.csc.DefaultCacheable;
import redis.clients.jedis.csc.EvictionPolicy;
import redis.clients.jedis.params.SetParams;

/** Jedis with client-side caching in RESP3: no copy outlives its value, whoever changes it. */
public class Caching {
    static final int KEYS = 40;
    static final int WRITES = 400;
    static final long PATIENCE_MS = 30_000;

    /** Jedis's own cache, which by itself asks for a server that calls itself 7.4 or later. */
    public static class Compatible extends DefaultCache {
        public Compatible(int maximumSize, EvictionPolicy policy) {
            super(maximumSize, DefaultCacheable.INSTANCE, policy);
        }

        @Override
        public boolean compatibilityMode() {
            return true;
        }
    }

    final UnifiedJedis reader;
    final Jedis writer;

    Caching(UnifiedJedis reader, Jedis writer) {
        this.reader = reader;
        this.writer = writer;
    }

    static void ensure(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(String.valueOf(what));
        }
    }

    static String name(int i) {
        return "copy:" + i % KEYS;
    }

    /** Waits until a read by the client that caches has this result. */
    static void reads(Object expected, Supplier<Object> read) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        for (Object found = read.get(); !Objects.equals(found, expected); found = read.get()) {
            ensure(System.currentTimeMillis() < end, expected + " in vain: " + found);
            Thread.sleep(1);
        }
    }

    void shows(String key, String value) throws Exception {
        reads(value, () -> reader.get(key));
    }

    /** Copies are used, and are dropped after a write, a deletion, an expiry and FLUSHALL. */
    void changes() throws Exception {
        CacheStats stats = reader.getCache().getStats();
        writer.set("k", "old");
        shows("k", "old");
        long before = stats.getHitCount();
        for (int i = 0; i < KEYS; i++) {
            ensure(reader.get("k").equals("old"), "GET k");
        }
        ensure(stats.getHitCount() == before + KEYS, stats);

        before = stats.getInvalidationCount();
        writer.set("k", "new");
        shows("k", "new");
        ensure(stats.getInvalidationCount() == before + 1, stats);
        writer.del("k");
        shows("k", null);
        writer.set("k", "short", SetParams.setParams().px(60));
        shows("k", "short");
        shows("k", null);
        for (int i = 0; i < KEYS; i++) {
            writer.set(name(i), "0");
            shows(name(i), "0");
        }
        writer.flushAll();
        for (int i = 0; i < KEYS; i++) {
            shows(name(i), null);
        }
    }

    /** The same of other types, and of several keys in one reply. */
    void types() throws Exception {
        writer.hset("h", Map.of("a", "1"));
        reads(Map.of("a", "1"), () -> reader.hgetAll("h"));
        writer.hset("h", "b", "2");
        reads(Map.of("a", "1", "b", "2"), () -> reader.hgetAll("h"));
        writer.rename("h", "other");
        reads(Map.of(), () -> reader.hgetAll("h"));
        writer.mset("x", "1", "y", "1");
        reads("[1, 1]", () -> reader.mget("x", "y").toString());
        writer.set("y", "2");
        reads("[1, 2]", () -> reader.mget("x", "y").toString());
        writer.eval("redis.call('del', KEYS[1])", 1, "x");
        reads("[null, 2]", () -> reader.mget("x", "y").toString());
    }

    /** Keys are written and read at the same time: in the end all copies are what the server has. */
    void race(HostAndPort address) throws Exception {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Thread thread = new Thread(() -> {
            try (Jedis other = new Jedis(address)) {
                for (int i = 0; i < WRITES; i++) {
                    other.set(name(7 * i), "" + i);
                }
            }
        });
        thread.setUncaughtExceptionHandler((which, error) -> failure.set(error));
        thread.start();
        for (int i = 0; thread.isAlive(); i++) {
            reader.get(name(i));
        }
        ensure(failure.get() == null, failure.get());
        for (int i = 0; i < KEYS; i++) {
            shows(name(i), writer.get(name(i)));
        }
    }

    public static void main(String[] args) throws Exception {
        HostAndPort address = new HostAndPort("127.0.0.1", Integer.parseInt(args[0]));
        DefaultJedisClientConfig config = DefaultJedisClientConfig.builder().resp3().build();
        CacheConfig cache = CacheConfig.builder().maxSize(1000).cacheClass(Compatible.class).build();
        try (UnifiedJedis reader = new UnifiedJedis(address, config, cache);
                Jedis writer = new Jedis(address)) {
            writer.flushAll();
            Caching caching = new Caching(reader, writer);
            caching.changes();
            caching.types();
            caching.race(address);
        }
        System.out.println("  Jedis: copies, tracking");
    }
}
