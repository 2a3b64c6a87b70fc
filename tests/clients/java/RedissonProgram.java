import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.api.FunctionMode;
import org.redisson.api.FunctionResult;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RBatch;
import org.redisson.api.RBlockingQueue;
import org.redisson.api.RBucket;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RDelayedQueue;
import org.redisson.api.RFunction;
import org.redisson.api.RLock;
import org.redisson.api.RMap;
import org.redisson.api.RMapCache;
import org.redisson.api.RRateLimiter;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RScoredSortedSet;
import org.redisson.api.RSemaphore;
import org.redisson.api.RTopic;
import org.redisson.api.RTransaction;
import org.redisson.api.RateType;
import org.redisson.api.RedissonClient;
import org.redisson.api.TransactionOptions;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.Protocol;

/** Redisson against the server: locks, queues, expiring maps, limits, in both protocols. */
public class RedissonProgram {
    static final int THREADS = 6;
    static final int EACH = 30;
    static final long PATIENCE_S = 20;

    final RedissonClient client;
    final ExecutorService pool = Executors.newCachedThreadPool();

    RedissonProgram(int port, Protocol protocol) {
        Config config = new Config().setProtocol(protocol).setCodec(StringCodec.INSTANCE);
        config.setThreads(4).setNettyThreads(4).setLockWatchdogTimeout(2_000);
        config.useSingleServer()
            .setAddress("redis://127.0.0.1:" + port)
            .setConnectionPoolSize(16)
            .setConnectionMinimumIdleSize(2)
            .setSubscriptionConnectionMinimumIdleSize(1);
        client = Redisson.create(config);
    }

    static void ensure(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(String.valueOf(what));
        }
    }

    /** Runs `work` in several threads, and waits for all. */
    void together(Callable<Void> work) throws Exception {
        List<Future<Void>> all = new ArrayList<>();
        for (int t = 0; t < THREADS; t++) {
            all.add(pool.submit(work));
        }
        for (Future<Void> each : all) {
            each.get(PATIENCE_S, TimeUnit.SECONDS);
        }
    }

    <T> T elsewhere(Callable<T> work) throws Exception {
        return pool.submit(work).get(PATIENCE_S, TimeUnit.SECONDS);
    }

    /** Each thread reads and writes under the lock: without exclusion additions would be lost. */
    void exclusion() throws Exception {
        RBucket<String> counter = client.getBucket("counter");
        counter.set("0");
        together(() -> {
            RLock lock = client.getLock("lock");
            for (int i = 0; i < EACH; i++) {
                lock.lock();
                try {
                    counter.set(Integer.toString(Integer.parseInt(counter.get()) + 1));
                } finally {
                    lock.unlock();
                }
            }
            return null;
        });
        ensure(counter.get().equals(Integer.toString(THREADS * EACH)), counter.get());
    }

    void locks() throws Exception {
        RLock lock = client.getLock("lock");
        lock.lock();
        lock.lock();
        ensure(lock.getHoldCount() == 2, lock.getHoldCount());
        ensure(!elsewhere(() -> client.getLock("lock").tryLock(50, TimeUnit.MILLISECONDS)), "held");
        Thread.sleep(2_500);
        ensure(lock.isHeldByCurrentThread() && lock.remainTimeToLive() > 0, "it is prolonged");
        lock.unlock();
        ensure(lock.isLocked(), "once more");
        lock.unlock();
        ensure(!lock.isLocked(), "released");
        ensure(lock.tryLock(0, 300, TimeUnit.MILLISECONDS), "free");
        ensure(elsewhere(() -> {
            RLock other = client.getLock("lock");
            boolean got = other.tryLock(5, TimeUnit.SECONDS);
            other.unlock();
            return got;
        }), "it is over after 300 ms");

        RReadWriteLock both = client.getReadWriteLock("both");
        both.readLock().lock();
        ensure(elsewhere(() -> both.readLock().tryLock()), "many may read");
        ensure(!elsewhere(() -> both.writeLock().tryLock()), "none may write");
        both.readLock().unlock();
        RLock several = client.getMultiLock(client.getLock("m1"), client.getLock("m2"));
        ensure(several.tryLock(1, TimeUnit.SECONDS), "both are free");
        several.unlock();
        RLock fair = client.getFairLock("fair");
        together(() -> {
            fair.lock();
            fair.unlock();
            return null;
        });
    }

    void queues() throws Exception {
        RBlockingQueue<String> queue = client.getBlockingQueue("queue");
        Future<String> taken = pool.submit(queue::take);
        Thread.sleep(50);
        queue.put("first");
        ensure(taken.get(PATIENCE_S, TimeUnit.SECONDS).equals("first"), "handed over");
        ensure(queue.poll(100, TimeUnit.MILLISECONDS) == null, "empty");
        Map<String, Integer> seen = new ConcurrentHashMap<>();
        Future<?> consumers = pool.submit(() -> {
            together(() -> {
                String item;
                while (!(item = queue.take()).equals("end")) {
                    seen.merge(item, 1, Integer::sum);
                }
                return null;
            });
            return null;
        });
        for (int i = 0; i < 300; i++) {
            queue.put("item " + i);
        }
        for (int t = 0; t < THREADS; t++) {
            queue.put("end");
        }
        consumers.get(PATIENCE_S, TimeUnit.SECONDS);
        ensure(seen.size() == 300 && seen.values().stream().allMatch(n -> n == 1), seen);

        RDelayedQueue<String> delayed = client.getDelayedQueue(queue);
        long begin = System.nanoTime();
        delayed.offer("later", 500, TimeUnit.MILLISECONDS);
        ensure("later".equals(queue.poll(PATIENCE_S, TimeUnit.SECONDS)), "it comes later");
        ensure(System.nanoTime() - begin >= 480_000_000, "not before its time");
        delayed.destroy();
    }

    void collections() throws Exception {
        RMap<String, String> map = client.getMap("map");
        Map<String, String> wanted = new HashMap<>();
        for (int i = 0; i < 1_000; i++) {
            wanted.put("f" + i, "v" + i);
        }
        map.putAll(wanted);
        ensure(map.readAllMap().equals(wanted) && map.size() == 1_000, map.size());
        ensure("v1".equals(map.put("f1", "w")) && map.putIfAbsent("f1", "x").equals("w"), "put");
        ensure(map.replace("f1", "w", "v1") && !map.remove("f1", "w"), "compare and set");
        int count = 0;
        for (Map.Entry<String, String> entry : map.entrySet()) {
            ensure(wanted.get(entry.getKey()).equals(entry.getValue()), entry);
            count++;
        }
        ensure(count == 1_000, count);

        RMapCache<String, String> cache = client.getMapCache("cache");
        cache.put("short", "v", 1, TimeUnit.SECONDS);
        cache.put("long", "v", 100, TimeUnit.SECONDS);
        ensure("v".equals(cache.get("short")) && cache.remainTimeToLive("long") > 99_000, "TTL");
        Thread.sleep(1_100);
        ensure(cache.get("short") == null && "v".equals(cache.get("long")), "one is over");
        cache.destroy();

        RScoredSortedSet<String> board = client.getScoredSortedSet("board");
        for (int i = 0; i < 100; i++) {
            board.add(i * 1.5, "player " + i);
        }
        ensure(board.rank("player 7") == 7 && board.addScore("player 0", 500) == 500, "scores");
        ensure(board.revRank("player 0") == 0 && board.pollFirst().equals("player 1"), "ranks");
    }

    void limits() throws Exception {
        RRateLimiter limiter = client.getRateLimiter("limiter");
        ensure(limiter.trySetRate(RateType.OVERALL, 5, Duration.ofSeconds(2)), "a rate");
        int allowed = 0;
        for (int i = 0; i < 12; i++) {
            allowed += limiter.tryAcquire() ? 1 : 0;
        }
        ensure(allowed == 5, allowed + " are let through");
        ensure(limiter.tryAcquire(Duration.ofSeconds(10)), "when its time has come");

        RSemaphore semaphore = client.getSemaphore("semaphore");
        ensure(semaphore.trySetPermits(2), "two permits");
        semaphore.acquire(2);
        Future<Void> third = pool.submit(() -> {
            semaphore.acquire();
            return null;
        });
        ensure(!semaphore.tryAcquire(Duration.ofMillis(50)), "none is left");
        semaphore.release();
        third.get(PATIENCE_S, TimeUnit.SECONDS);

        RCountDownLatch latch = client.getCountDownLatch("latch");
        latch.trySetCount(THREADS);
        Future<Boolean> opened = pool.submit(() -> latch.await(PATIENCE_S, TimeUnit.SECONDS));
        together(() -> {
            latch.countDown();
            return null;
        });
        ensure(opened.get(PATIENCE_S, TimeUnit.SECONDS), "all have arrived");
    }

    void others() throws Exception {
        RTopic topic = client.getTopic("topic");
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        topic.addListener(String.class, (channel, text) -> heard.add(text));
        for (int i = 0; i < 100; i++) {
            ensure(topic.publish("message " + i) == 1, "one listens");
        }
        for (int i = 0; i < 100; i++) {
            String text = heard.poll(PATIENCE_S, TimeUnit.SECONDS);
            ensure(("message " + i).equals(text), text);
        }
        topic.removeAllListeners();

        RTransaction transaction = client.createTransaction(TransactionOptions.defaults());
        transaction.<String, String>getMap("map").put("f1", "of a transaction");
        transaction.<String>getBucket("bucket").set("too");
        transaction.commit();
        ensure(client.getBucket("bucket").get().equals("too"), "committed");

        RBatch batch = client.createBatch();
        for (int i = 0; i < 200; i++) {
            batch.getAtomicLong("batch").incrementAndGetAsync();
        }
        ensure(batch.execute().getResponses().get(199).equals(200L), "a batch");
        RAtomicLong number = client.getAtomicLong("batch");
        ensure(number.compareAndSet(200, 7) && !number.compareAndSet(200, 8), number.get());
        ensure(client.getKeys().countExists("batch", "map", "missing") == 2, "EXISTS");

        RFunction function = client.getFunction();
        function.loadAndReplace("library",
            "redis.register_function('sum', function(keys, args) return args[1] + args[2] end)");
        Long sum = function.call(
            FunctionMode.WRITE, "sum", FunctionResult.LONG, List.of("key"), "40", "2");
        ensure(sum == 42, sum);
        function.delete("library");
    }

    void close() {
        pool.shutdownNow();
        client.shutdown(0, 5, TimeUnit.SECONDS);
    }

    public static void main(String[] args) throws Exception {
        for (Protocol protocol : Protocol.values()) {
            RedissonProgram program = new RedissonProgram(Integer.parseInt(args[0]), protocol);
            program.client.getKeys().flushall();
            program.exclusion();
            program.locks();
            program.queues();
            program.collections();
            program.limits();
            program.others();
            program.close();
            System.out.println("  Redisson " + protocol + ": all");
        }
        System.exit(0);
    }
}
