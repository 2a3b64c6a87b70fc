import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;

/** Jedis against the server: a pool shared by threads, pipelines, cursors, in both protocols. */
public class Basics {
    static void ensure(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(String.valueOf(what));
        }
    }

    static void strings(JedisPooled jedis) {
        ensure("OK".equals(jedis.set("k", "v")), "SET");
        ensure(jedis.set("k", "w", SetParams.setParams().nx()) == null, "SET NX");
        ensure("v".equals(jedis.get("k")), jedis.get("k"));
        ensure(jedis.incrBy("n", 42) == 42, "INCRBY");
        ensure(jedis.expire("k", 100) == 1 && jedis.ttl("k") > 98, "TTL");
        try {
            jedis.hget("k", "f");
            throw new AssertionError("no WRONGTYPE");
        } catch (JedisDataException error) {
            ensure(error.getMessage().startsWith("WRONGTYPE"), error);
        }
    }

    static void hashes(JedisPooled jedis) {
        Map<String, String> fields = new HashMap<>();
        for (int i = 0; i < 3000; i++) {
            fields.put("f" + i, "v" + i);
        }
        ensure(jedis.hset("h", fields) == 3000, "HSET");
        ensure(jedis.hgetAll("h").equals(fields), "HGETALL");
        Map<String, String> scanned = new HashMap<>();
        String cursor = ScanParams.SCAN_POINTER_START;
        do {
            ScanResult<Map.Entry<String, String>> part =
                jedis.hscan("h", cursor, new ScanParams().count(100));
            part.getResult().forEach(e -> scanned.put(e.getKey(), e.getValue()));
            cursor = part.getCursor();
        } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
        ensure(scanned.equals(fields), "HSCAN found " + scanned.size());
    }

    static void sets(JedisPooled jedis) {
        Set<String> both = new HashSet<>();
        for (int i = 0; i < 600; i++) {
            jedis.sadd("a", "m" + i);
            jedis.sadd("b", "m" + (i + 300));
            if (i >= 300) {
                both.add("m" + i);
            }
        }
        ensure(jedis.sinter("a", "b").equals(both), "SINTER");
        ensure(jedis.sunionstore("c", "a", "b") == 900, "SUNIONSTORE");
        ensure(jedis.spop("c", 900).size() == 900 && !jedis.exists("c"), "SPOP");
    }

    static void pipelines(JedisPooled jedis) {
        Map<Integer, Response<String>> replies = new HashMap<>();
        try (Pipeline pipeline = jedis.pipelined()) {
            for (int i = 0; i < 2000; i++) {
                pipeline.set("p" + i, Integer.toString(i));
                replies.put(i, pipeline.get("p" + i));
            }
            pipeline.sync();
        }
        replies.forEach((i, reply) -> ensure(reply.get().equals(i.toString()), "GET p" + i));
    }

    static void threads(JedisPooled jedis) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        AtomicInteger failures = new AtomicInteger();
        for (int t = 0; t < 8; t++) {
            pool.submit((Callable<Void>) () -> {
                try {
                    for (int i = 0; i < 500; i++) {
                        jedis.incr("shared");
                    }
                } catch (RuntimeException error) {
                    failures.incrementAndGet();
                }
                return null;
            });
        }
        pool.shutdown();
        ensure(pool.awaitTermination(60, TimeUnit.SECONDS), "threads hang");
        ensure(failures.get() == 0 && "4000".equals(jedis.get("shared")), jedis.get("shared"));
    }

    public static void main(String[] args) throws Exception {
        HostAndPort address = new HostAndPort("127.0.0.1", Integer.parseInt(args[0]));
        for (RedisProtocol protocol : RedisProtocol.values()) {
            DefaultJedisClientConfig config =
                DefaultJedisClientConfig.builder().protocol(protocol).build();
            try (JedisPooled jedis = new JedisPooled(address, config)) {
                jedis.flushAll();
                strings(jedis);
                hashes(jedis);
                sets(jedis);
                pipelines(jedis);
                threads(jedis);
                System.out.println("  Jedis " + protocol + ": all");
            }
        }
    }
}
