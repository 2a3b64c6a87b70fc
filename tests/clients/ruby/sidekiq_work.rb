# What the Sidekiq processes of sidekiq_queue.rb run.

Redis.silence_deprecations = true

class Note
  include Sidekiq::Worker

  def perform(list, text)
    Sidekiq.redis { |redis| redis.rpush(list, text) }
  end
end

class Third
  include Sidekiq::Worker

  sidekiq_options retry: 5

  def perform
    count = Sidekiq.redis { |redis| redis.incr("third") }
    raise "not yet" if count < 3
  end
end

class Refuse
  include Sidekiq::Worker

  sidekiq_options retry: 0

  def perform(text)
    raise ArgumentError, text
  end
end

class Nap
  include Sidekiq::Worker

  def perform(seconds)
    sleep seconds
  end
end

# What is due is looked for five times a second.
Sidekiq.options[:poll_interval_average] = 0.2
