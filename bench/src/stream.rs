//! The open-loop stream: small requests at a steady pace, whatever the server does.
//!
//! A client that waits for a stalled server sends nothing meanwhile, and so omits the requests that
//! others would have sent (coordinated omission). Here every request has an instant at which it is
//! due, fixed in advance; its latency counts from there, and what fell due during a stall is sent
//! in one batch as soon as the socket answers again.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::client::{Connection, Counter};
use crate::fault::Outcome;
use crate::prng::Prng;
use crate::process;
use crate::summary::{Sample, nanos};

/// The largest number of overdue requests that are sent together.
const BATCH_MAX: u64 = 64;
/// Stands for "no end yet" in [`Plan::end_ns`].
const ENDLESS: u64 = u64::MAX;

/// Appends one request; the number is its place in the stream.
pub(crate) type Request = dyn Fn(u64, &mut Prng, &mut Vec<u8>) + Send + Sync;

/// The shared state of an experiment's threads: its clock, and its end.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The instant 0 of all samples.
    pub(crate) epoch: Instant,
    end_ns: AtomicU64,
}

impl Plan {
    /// A plan that starts now and has no end yet.
    pub(crate) fn start() -> Plan {
        Plan { epoch: Instant::now(), end_ns: AtomicU64::new(ENDLESS) }
    }

    /// Nanoseconds since the epoch.
    pub(crate) fn now_ns(&self) -> u64 {
        nanos(self.epoch.elapsed())
    }

    /// Requests due from now on are no longer sent.
    pub(crate) fn end(&self) {
        self.end_ns.store(self.now_ns(), Ordering::Relaxed);
    }
}

/// The record of a stream.
#[derive(Debug, Default)]
pub(crate) struct Record {
    /// Every request, in order.
    pub(crate) samples: Vec<Sample>,
    /// How many replies were errors.
    pub(crate) errors: u64,
    /// The client's own latest wake-up: the noise of its machine.
    pub(crate) late_ns_max: u64,
    /// Why the stream broke off, if it did.
    pub(crate) broken: Option<String>,
}

impl Record {
    /// Adds the exchange of this number, which has just ended.
    pub(crate) fn add(&mut self, pace: &Pace<'_>, number: u64) {
        let due_ns = pace.due_ns(number);
        let latency_ns = pace.plan.now_ns().saturating_sub(due_ns);
        self.samples.push(Sample { due_ns, latency_ns });
    }
}

/// When each exchange of a stream is due.
pub(crate) struct Pace<'a> {
    plan: &'a Plan,
    first_ns: u64,
    rate: u64,
}

impl Pace<'_> {
    fn due_ns(&self, number: u64) -> u64 {
        self.first_ns + number * 1_000_000_000 / self.rate
    }
}

/// Runs a stream of `rate` requests a second until the plan ends or the server goes.
pub(crate) fn run(mut connection: Connection, plan: &Plan, rate: u64, request: &Request) -> Record {
    let mut prng = Prng::from_seed(rate);
    let mut counter = Counter::default();
    let (mut batch, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    run_paced(plan, rate, |numbers, pace, record| {
        batch.clear();
        numbers.clone().for_each(|number| request(number, &mut prng, &mut batch));
        connection.send(&batch)?;
        let mut next = numbers.start;
        while next < numbers.end {
            let read = connection.receive(&mut buffer)?;
            let ended = counter.feed(&buffer[..read]);
            (next..next + ended).for_each(|number| record.add(pace, number));
            next += ended;
            record.errors = counter.errors;
        }
        Ok(())
    })
}

/// Runs `exchange` with the numbers of the exchanges that are due, `rate` a second, until the plan ends
/// or one fails.
pub(crate) fn run_paced(
    plan: &Plan,
    rate: u64,
    exchange: impl FnMut(Range<u64>, &Pace<'_>, &mut Record) -> Outcome<()>,
) -> Record {
    process::run_first();
    let mut record = Record::default();
    if let Err(fault) = run_all(plan, rate, exchange, &mut record) {
        record.broken = Some(fault.to_string());
    }
    record
}

fn run_all(
    plan: &Plan,
    rate: u64,
    mut exchange: impl FnMut(Range<u64>, &Pace<'_>, &mut Record) -> Outcome<()>,
    record: &mut Record,
) -> Outcome<()> {
    let pace = Pace { plan, first_ns: plan.now_ns(), rate };
    let mut next = 0;
    while pace.due_ns(next) < plan.end_ns.load(Ordering::Relaxed) {
        let now_ns = plan.now_ns();
        if now_ns < pace.due_ns(next) {
            std::thread::sleep(Duration::from_nanos(pace.due_ns(next) - now_ns));
            let late_ns = plan.now_ns().saturating_sub(pace.due_ns(next));
            record.late_ns_max = record.late_ns_max.max(late_ns);
            continue;
        }
        let mut last = next;
        while last - next < BATCH_MAX && pace.due_ns(last) <= now_ns {
            last += 1;
        }
        exchange(next..last, &pace, record)?;
        next = last;
    }
    Ok(())
}
