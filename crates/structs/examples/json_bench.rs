//! The documents' bench: how many bytes a value costs, how fast texts are parsed and printed, and
//! how long the longest single step takes.
//!
//! `cargo run --release -p darter-structs --example json_bench -- [values]`
//! What came out is in docs/design/0020-json.md. Times are those of this thread's own running.

use darter_base::Prng;
use darter_base::preempt::Countdown;
use darter_structs::json::{Parser, Printer, Value, View, Walk};
use darter_structs::lazyfree;
use rustix::time::{ClockId, clock_gettime};

#[global_allocator] // The server's.
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Bytes fed at once, as the commands do.
const FED: usize = 2 * 1024;
/// Tokens printed at once.
const TOKENS: usize = 64;

fn main() {
    let values = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let int = |n: u64| format!("{}", Prng::from_seed(n).next_u64() % 1_000_000_000);
    let object = |n: u64| {
        format!(
            "{{\"id\":{n},\"name\":\"user {n}\",\"score\":{}.5,\"tags\":[\"a\",\"b\"]}}",
            n % 97
        )
    };
    measure("integers below 10^9", values, int);
    measure("objects of four members", values / 10, object);
    measure("strings of 600 bytes", values / 100, |_| format!("\"{}\"", "x".repeat(600)));
    let text =
        (0..values / 10).map(|n| format!("\"member:{n}\":{n}")).collect::<Vec<_>>().join(",");
    run("one object", values / 10, &format!("{{{text}}}"));
    run("one string", 1, &format!("\"{}\"", "x".repeat(values as usize * 10)));
}

fn measure(name: &str, count: u64, item: impl Fn(u64) -> String) {
    run(name, count, &format!("[{}]", (0..count).map(item).collect::<Vec<_>>().join(",")));
}

fn nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Runs `step` until it returns false. Returns how long all of it took, and the longest.
fn steps(mut step: impl FnMut() -> bool) -> (u64, u64) {
    let begin = nanoseconds();
    let (mut before, mut longest) = (begin, 0);
    loop {
        let more = step();
        let now = nanoseconds();
        longest = longest.max(now - before);
        before = now;
        if !more {
            return (now - begin, longest);
        }
    }
}

fn report(what: &str, (all, longest): (u64, u64)) {
    println!("  {what:<10} {:>8} us, longest step {:>5} us", all / 1_000, longest / 1_000);
}

fn run(name: &str, count: u64, text: &str) {
    println!("{name}: {count}, {} bytes of text", text.len());
    let (mut parser, mut rest) = (Parser::default(), text.as_bytes());
    let parsed = steps(|| {
        let (piece, more) = rest.split_at(rest.len().min(FED));
        parser.feed(piece).expect("a document");
        rest = more;
        !rest.is_empty()
    });
    report("parse", parsed);
    let mut value = parser.finish().expect("a document");
    println!("  memory     {:.2} bytes each", value.memory_bytes() as f64 / count as f64);
    let (mut walk, mut printer, mut out) = (Walk::default(), Printer::default(), Vec::new());
    let mut len = 0;
    report(
        "print",
        steps(|| {
            let more = walk.run(&value, TOKENS, &mut |token| printer.print(token, &mut out));
            len += out.len();
            out.clear();
            more
        }),
    );
    assert!(len >= text.len() / 2, "{len} bytes");
    if let Some(node) = value.node() {
        let middle = node.len() / 2;
        let cut = value.clone();
        let mut at = middle;
        let change = steps(|| {
            value.edit(&[at], |old| *old = Value::scalar(View::Bool(true)));
            at += 1;
            at < middle + 100
        });
        report("100 sets", change);
        drop(cut);
    }
    report(
        "drop",
        steps(|| {
            value = Value::null();
            false
        }),
    );
    report("free", steps(|| lazyfree::run(&Countdown::new(0))));
}
