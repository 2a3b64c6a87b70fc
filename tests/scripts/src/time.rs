//! The cost of the interpreter, and its longest run without asking whether the slice is over.
//!
//! `cargo run --release -p darter-scripts -- --time [NAME]`. Times between two questions are of the
//! thread's own processor time, as on a machine with other work the clock shows that, too.

use darter_base::preempt::{Never, Preempt};
use darter_script::{Machine, Protocol, Run, Script, Stop};
use rustix::time::{ClockId, clock_gettime};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Scripts that run long in C, in Lua's own libraries and in Darter's.
const HEAVY: &[(&str, &str)] = &[
    ("a loop", "local s = 0 for i = 1, 1e7 do s = s + i end return s"),
    ("array of 10^6", "local t = {} for i = 1, 1e6 do t[i] = i end return #t"),
    ("10^6 keys", "local t = {} for i = 1, 1e6 do t['key:' .. i] = i end return 1"),
    ("10^6 tables", "local t = {} for i = 1, 1e6 do t[i] = {i} end return #t"),
    (
        "10^5 weak entries",
        "local t = setmetatable({}, {__mode = 'kv'})
        for i = 1, 1e5 do t[{}] = {} end collectgarbage() return 1",
    ),
    (
        "sort 10^6",
        "local t = {} for i = 1, 1e6 do t[i] = (i * 7919) % 1000003 end
        table.sort(t) return 1",
    ),
    ("rep 100 MB", "return #('x'):rep(1e8)"),
    ("50 MB .. 50 MB", "local s = ('x'):rep(5e7) return #(s .. s)"),
    ("gsub on 10 MB", "return #(('ab'):rep(5e6):gsub('a', 'cc'))"),
    ("concat of 10^6", "local t = {} for i = 1, 1e6 do t[i] = 'x' end return #table.concat(t)"),
    (
        "insert at 1",
        "local t = {} for i = 1, 1e6 do t[i] = i end
        for i = 1, 5 do table.insert(t, 1, i) end return #t",
    ),
    (".-.-b", "return ('a'):rep(1000):find('.-.-b')"),
    ("plain find", "return ('a'):rep(200000):find(('a'):rep(50000) .. 'b', 1, true)"),
    (
        "cjson, 10 MB",
        "local s = '[' .. ('[1,\"text\",{\"a\":null}],'):rep(400000) .. '1]'
        return #cjson.encode(cjson.decode(s))",
    ),
    (
        "cmsgpack, 10^6",
        "local t = {} for i = 1, 1e6 do t[i] = i end
        return #cmsgpack.unpack(cmsgpack.pack(t))",
    ),
    (
        "loadstring, 1 MB",
        "return type(loadstring(('local x = 1 '):rep(199) .. ('y = 1 '):rep(150000)))",
    ),
    ("sha1hex, 50 MB", "return redis.sha1hex(('x'):rep(5e7))"),
    ("a reply of 10^6", "local t = {} for i = 1, 1e6 do t[i] = 'x' end return t"),
];

/// Prints the times and the longest runs.
pub(crate) fn run(wanted: &str) -> Result<(), String> {
    let mut machine = Machine::new(1 << 30).map_err(|error| error.to_string())?;
    for (name, text) in [
        ("return 1", "return 1"),
        ("return redis.call('get', KEYS[1])", "return redis.call('get', KEYS[1])"),
        ("ten calls", "for i = 1, 10 do redis.call('set', KEYS[1], ARGV[1]) end"),
    ] {
        let script = Script::new(text.as_bytes()).map_err(|_| "a script")?;
        let best = (0..5).map(|_| per_run(&mut machine, &script)).min().unwrap_or_default();
        println!("{name}: {} ns", best.as_nanos());
    }
    let created = Instant::now();
    drop(Machine::new(1 << 30).map_err(|error| error.to_string())?);
    println!("a machine: {} us", created.elapsed().as_micros());
    for (name, text) in HEAVY.iter().filter(|(name, _)| name.contains(wanted)) {
        let script = Script::new(text.as_bytes()).map_err(|_| "a script")?;
        let gaps = Gaps::default();
        let start = Instant::now();
        let stops = evaluate(&mut machine, &script, &gaps);
        machine.begin_collection();
        while machine.resume(&gaps) != Stop::Ended {}
        println!(
            "{name}: {} ms, longest {} us, {} of {} above 100 us {stops}",
            start.elapsed().as_millis(),
            gaps.longest.get().as_micros(),
            gaps.long.get(),
            gaps.questions.get(),
        );
    }
    Ok(())
}

/// The mean time of a script over 100 000 runs.
fn per_run(machine: &mut Machine, script: &Script) -> Duration {
    const RUNS: u32 = 100_000;
    let start = Instant::now();
    for _ in 0..RUNS {
        evaluate(machine, script, &Never);
    }
    start.elapsed() / RUNS
}

/// Runs a script whose commands all answer `OK`; returns the start of an error.
fn evaluate(machine: &mut Machine, script: &Script, preempt: &dyn Preempt) -> String {
    machine.begin(Run {
        script: script.clone(),
        keys: vec![b"key".to_vec()],
        arguments: vec![b"value".to_vec()],
        client: Protocol::Two,
    });
    while machine.resume(preempt) != Stop::Ended {
        machine.feed(b"+OK\r\n");
    }
    let reply = machine.take_reply();
    let first = reply.first().map_or(&b""[..], |piece| &piece[..piece.len().min(60)]);
    if first.starts_with(b"-") { first.escape_ascii().to_string() } else { String::new() }
}

/// A budget that never ends a slice, and keeps the longest time between two questions.
struct Gaps {
    last: Cell<Duration>,
    longest: Cell<Duration>,
    long: Cell<usize>,
    questions: Cell<usize>,
}

/// The processor time that this thread has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), nanos)
}

impl Default for Gaps {
    fn default() -> Self {
        let last = Cell::new(processor_time());
        Self { last, longest: Cell::default(), long: Cell::default(), questions: Cell::default() }
    }
}

impl Preempt for Gaps {
    fn must_yield(&self) -> bool {
        let now = processor_time();
        let gap = now - self.last.replace(now);
        self.longest.set(self.longest.get().max(gap));
        self.long.set(self.long.get() + usize::from(gap > Duration::from_micros(100)));
        self.questions.set(self.questions.get() + 1);
        false
    }
}
