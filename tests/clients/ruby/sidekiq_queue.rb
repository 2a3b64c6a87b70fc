# Sidekiq against the server: two processes of five threads, many jobs, jobs of later, retries, a
# dead job, and a process that ends while a job runs. It asks the server by BRPOP, and what is due
# by a script.

require "sidekiq"
require "sidekiq/api"
require "tempfile"

PORT = ARGV.fetch(0)
URL = "redis://127.0.0.1:#{PORT}/0"
JOBS = 500
PATIENCE_S = 30
# How long a process that has to end waits for its jobs: longer than its BRPOPs last. One that is
# still waiting would take what is given back, and with it end.
END_S = 3

Sidekiq.configure_client { |config| config.redis = { url: URL, size: 5 } }
require_relative "sidekiq_work"

def ensure_that(holds, what)
  raise "not so: #{what}" unless holds
end

# Waits until the block returns something true, and returns that.
def until_it(what)
  limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE_S
  until (result = yield)
    raise "in vain: #{what}" if Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
    sleep 0.01
  end
  result
end

def redis(&block)
  Sidekiq.redis(&block)
end

# A Sidekiq process, which the kernel kills with this one, however this one ends.
def start(log)
  command = %w[setpriv --pdeathsig KILL sidekiq --concurrency 5 --queue default,2 --queue low]
  command += ["--timeout", END_S.to_s, "--require", File.join(__dir__, "sidekiq_work.rb")]
  spawn({ "REDIS_URL" => URL }, *command, out: log, err: log, in: File::NULL)
end

def many
  half = JOBS / 2
  half.times { |i| Note.perform_async("many", i.to_s) }
  Note.set(queue: "low").perform_bulk((half...JOBS).map { |i| ["many", i.to_s] })
  until_it("all have run") { redis { |r| r.llen("many") } >= JOBS }
  ran = redis { |r| r.lrange("many", 0, -1) }
  ensure_that(ran.sort == (0...JOBS).map(&:to_s).sort, "each has run once: #{ran.size}")
  until_it("they are counted") { Sidekiq::Stats.new.processed >= JOBS }
  ensure_that(Sidekiq::Queue.new.size.zero? && Sidekiq::Queue.new("low").size.zero?, "empty")
end

def later
  begun = Time.now
  Note.perform_in(1, "later", "x")
  cancelled = Note.perform_in(3600, "later", "never")
  set = Sidekiq::ScheduledSet.new
  ensure_that(set.size >= 1 && set.find_job(cancelled).at > Time.now + 3500, "they are scheduled")
  ensure_that(set.find_job(cancelled).delete, "it can be cancelled")
  until_it("it has run") { redis { |r| r.llen("later") } == 1 }
  ensure_that(Time.now - begun >= 1, "not before its time")
end

def retries
  Third.perform_async
  until_it("it ran three times") do
    # Sidekiq would wait for half a minute.
    Sidekiq::RetrySet.new.each { |entry| entry.reschedule(Time.now.to_f - 1) }
    redis { |r| r.get("third") } == "3"
  end
  Refuse.perform_async("no")
  until_it("it is dead") { Sidekiq::DeadSet.new.size == 1 }
  dead = Sidekiq::DeadSet.new.first
  ensure_that(dead.item["error_message"] == "no", dead.item)
  dead.retry
  until_it("it is dead again") { Sidekiq::DeadSet.new.size == 1 && Sidekiq::Stats.new.failed >= 4 }
  Sidekiq::DeadSet.new.clear
  ensure_that(Sidekiq::RetrySet.new.size.zero?, "nothing waits for a retry")
end

# Who has to end gives back what it has not finished.
def ended(pids)
  id = Nap.perform_async(60)
  until_it("it has begun") { Sidekiq::Queue.new.size.zero? && Sidekiq::ProcessSet.new.size == 2 }
  pids.each { |pid| Process.kill("TERM", pid) }
  pids.each do |pid|
    Process.wait(pid)
    ensure_that($?.success?, "an orderly end: #{$?}")
  end
  pids.clear
  waiting = Sidekiq::Queue.new.map(&:jid)
  ensure_that(waiting == [id], "#{waiting} waits again, and not #{id}")
  ensure_that(Sidekiq::ProcessSet.new.size.zero?, "they have signed off")
end

log = Tempfile.new("sidekiq")
pids = []
begin
  redis(&:flushall)
  2.times { pids << start(log) }
  until_it("both are there") { Sidekiq::ProcessSet.new.size == 2 }
  many
  later
  retries
  ended(pids)
  puts "  Sidekiq #{Sidekiq::VERSION}: all"
rescue StandardError
  warn File.read(log.path)
  raise
ensure
  pids.each { |pid| Process.kill("KILL", pid) && Process.wait(pid) }
end
