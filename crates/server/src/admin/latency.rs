//! The LATENCY commands: slow events, histograms of commands, and the longest slices.
//!
//! An event is the cause of a slow slice. Redis samples events that block its thread. A core is
//! never blocked for longer than a slice, so a threshold in milliseconds yields few events. LATENCY
//! SLICES and INFO count all slices.

use super::{container, info, now, syntax, task, tips};
use crate::engine::state::latency::{Event, Events};
use crate::engine::{BUCKETS, Core, Runner, ServerCall, SessionCx, Slices};
use darter_command::{Answer, Args, Command, Flags, Group, Refusal};
use std::rc::Rc;

const ADMIN: Flags = Flags::ADMIN.and(Flags::NOSCRIPT).and(Flags::LOADING).and(Flags::STALE);

/// Tips of commands whose replies differ between cores and over time.
const SPECIAL: &[&str] =
    &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"];

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    container("latency", "2.8.13", Flags::NONE, Group::Server, "A container for latency diagnostics commands"),
    tips(task("latency|latest", "2.8.13", 2, ADMIN, Group::Server, |call| Box::pin(latest(call)), ("Return the latest latency samples for all events.", "O(1)")), SPECIAL),
    syntax(tips(task("latency|history", "2.8.13", 3, ADMIN, Group::Server, |call| Box::pin(history(call)), ("Return timestamp-latency samples for the event.", "O(1)")), SPECIAL), "event"),
    syntax(tips(task("latency|reset", "2.8.13", -2, ADMIN, Group::Server, |call| Box::pin(reset(call)), ("Reset latency data for one or more events.", "O(1)")), &["request_policy:all_nodes", "response_policy:all_succeeded"]), "[event]..."),
    syntax(tips(task("latency|histogram", "7.0.0", -2, ADMIN, Group::Server, |call| Box::pin(histogram(call)), ("Return the cumulative distribution of latencies of a subset of commands or all.", "O(N) where N is the number of commands with latency information being retrieved.")), SPECIAL), "[command]..."),
    tips(task("latency|slices", "7.0.0", 2, ADMIN, Group::Server, |call| Box::pin(slices(call)), ("Return the histogram of slices and the longest ones with their causes.", "O(1)")), SPECIAL),
    tips(task("latency|doctor", "2.8.13", 2, ADMIN, Group::Server, |call| Box::pin(doctor(call)), ("Return a human readable latency analysis report.", "O(1)")), SPECIAL),
    syntax(tips(task("latency|graph", "2.8.13", 3, ADMIN, Group::Server, |call| Box::pin(graph(call)), ("Return a latency graph for the event.", "O(1)")), SPECIAL), "event"),
    now("latency|help", "2.8.13", 2, Flags::LOADING.and(Flags::STALE), Group::Server, help, ("Show helpful text about the different subcommands.", "O(1)")),
];

async fn gather(core: &Rc<Core>) -> Events {
    let mut all = Events::default();
    for events in core.ask_all(|| |core: &Rc<Core>| core.admin.latency.borrow().clone()).await {
        all.merge(events);
    }
    all
}

fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// `LATENCY LATEST`: for each event its name, and the time, duration and maximum of its samples.
async fn latest(call: ServerCall) -> Result<Answer, Refusal> {
    let events = gather(&call.core).await;
    Ok(call.answer(|reply| {
        reply.array(events.len());
        for (name, event) in events.iter() {
            let (second, ms) = event.samples.back().copied().unwrap_or_default();
            reply.array(4);
            reply.bulk(name.as_bytes());
            reply.int(int(second));
            reply.int(int(ms));
            reply.int(int(event.worst_ms));
        }
    }))
}

/// `LATENCY HISTORY event`.
async fn history(call: ServerCall) -> Result<Answer, Refusal> {
    let name = String::from_utf8_lossy(call.args().bytes()?).into_owned();
    let events = gather(&call.core).await;
    let samples = events.get(&name).map(|event| event.samples.clone()).unwrap_or_default();
    Ok(call.answer(|reply| {
        reply.array(samples.len());
        for (second, ms) in samples {
            reply.array(2);
            reply.int(int(second));
            reply.int(int(ms));
        }
    }))
}

/// `LATENCY GRAPH event`: draws the samples as columns, oldest first, each with its age.
async fn graph(call: ServerCall) -> Result<Answer, Refusal> {
    let word = call.args().word()?;
    let name = String::from_utf8_lossy(word).into_owned();
    let events = gather(&call.core).await;
    let Some(event) = events.get(&name).filter(|event| !event.samples.is_empty()) else {
        return Err(Refusal::quoting("ERR No samples available for event '", word, "'"));
    };
    let now_s = call.core.now_ms() / 1_000;
    let samples: Vec<(u64, u64)> = event.samples.iter().copied().collect();
    let text = draw(&name, &samples, event.worst_ms, now_s);
    Ok(call.answer(|reply| reply.verbatim(*b"txt", text.as_bytes())))
}

/// Draws a column of `#` for each sample, scaled to the highest sample, with its age in seconds
/// below it.
fn draw(name: &str, samples: &[(u64, u64)], worst: u64, now_s: u64) -> String {
    const HEIGHT: u64 = 8;
    const WIDTH: usize = 80;
    let shown = &samples[samples.len().saturating_sub(WIDTH)..];
    let high = shown.iter().map(|(_, ms)| *ms).max().unwrap_or(0);
    let low = shown.iter().map(|(_, ms)| *ms).min().unwrap_or(0);
    let mut text = format!("{name} - high {high} ms, low {low} ms (all time high {worst} ms)\n");
    text.push_str(&"-".repeat(WIDTH));
    text.push('\n');
    for row in (1..=HEIGHT).rev() {
        let tall = |ms: u64| (ms * HEIGHT).div_ceil(high.max(1)).max(1) >= row;
        text.extend(shown.iter().map(|(_, ms)| if tall(*ms) { '#' } else { ' ' }));
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    let ages: Vec<String> =
        shown.iter().map(|(second, _)| now_s.saturating_sub(*second).to_string()).collect();
    let longest = ages.iter().map(String::len).max().unwrap_or(0);
    for digit in 0..longest {
        text.extend(ages.iter().map(|age| age.chars().nth(digit).unwrap_or(' ')));
        text.push('\n');
    }
    text.push_str("(each column: seconds ago, read downwards)\n");
    text
}

/// `LATENCY DOCTOR`: summarizes the events in words.
async fn doctor(call: ServerCall) -> Result<Answer, Refusal> {
    let events = gather(&call.core).await;
    let threshold = call.core.admin.settings().int("latency-monitor-threshold");
    let mut text = String::new();
    if threshold == 0 {
        text.push_str(
            "Events are not watched: CONFIG SET latency-monitor-threshold <milliseconds> \
             begins it. LATENCY SLICES has the longest slices either way.\n",
        );
    } else if events.len() == 0 {
        text = format!("Nothing took {threshold} ms or longer since the events were reset.\n");
    }
    for (name, Event { samples, worst_ms }) in events.iter() {
        let sum: u64 = samples.iter().map(|(_, ms)| ms).sum();
        let mean = sum / (samples.len() as u64).max(1);
        text.push_str(&format!(
            "{name}: {} slices beyond {threshold} ms, {mean} ms on average, {worst_ms} ms at worst. \
             A slice should end within a fraction of a millisecond: report it with LATENCY \
             SLICES, unless the machine had no CPU to give.\n",
            samples.len()
        ));
    }
    Ok(call.answer(|reply| reply.verbatim(*b"txt", text.as_bytes())))
}

/// `LATENCY RESET [event ...]`: replies with the number of events that were reset.
async fn reset(call: ServerCall) -> Result<Answer, Refusal> {
    let names: Vec<String> =
        call.request_words().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    let events = gather(&call.core).await;
    let wanted = |name: &String| names.is_empty() || names.contains(name);
    let count = events.iter().filter(|(name, _)| wanted(name)).count();
    call.core
        .ask_all(|| {
            let names = names.clone();
            move |core: &Rc<Core>| {
                let keep = |name: &String| !names.is_empty() && !names.contains(name);
                core.admin.latency.borrow_mut().retain(keep);
            }
        })
        .await;
    Ok(call.answer(|reply| reply.count(count)))
}

/// `LATENCY HISTOGRAM [command ...]`: the number of calls of each command, and a cumulative
/// histogram of their durations in microseconds.
async fn histogram(call: ServerCall) -> Result<Answer, Refusal> {
    let names: Vec<String> = call
        .request_words()
        .map(|word| String::from_utf8_lossy(word).to_ascii_lowercase())
        .collect();
    let facts = info::gather(&call.core).await;
    let table = &call.core.table;
    let mut wanted = info::merged(&call.core, &facts);
    wanted.retain(|(index, sum)| {
        let name = table.entries()[*index].row.name;
        let parent = |word: &String| {
            name.strip_prefix(word.as_str()).is_some_and(|rest| rest.starts_with('|'))
        };
        sum.calls > 0 && (names.is_empty() || names.iter().any(|word| word == name || parent(word)))
    });
    Ok(call.answer(|reply| {
        reply.map(wanted.len());
        for (index, sum) in &wanted {
            reply.bulk(table.entries()[*index].row.name.as_bytes());
            reply.map(2);
            reply.bulk(b"calls");
            reply.int(int(sum.calls));
            reply.bulk(b"histogram_usec");
            let buckets = cumulative(&sum.histogram);
            reply.map(buckets.len());
            for (us, count) in buckets {
                reply.int(int(us));
                reply.int(int(count));
            }
        }
    }))
}

/// The cumulative histogram: pairs of an upper bound in microseconds and the number of calls up to
/// it. A bound without calls of its own is left out.
fn cumulative(histogram: &[u32]) -> Vec<(u64, u64)> {
    let mut sum = 0;
    let mut buckets: Vec<(u64, u64)> = Vec::new();
    for (bucket, &count) in histogram.iter().enumerate() {
        sum += u64::from(count);
        if count > 0 {
            let us = (1_u64 << bucket).div_ceil(1_024).max(1);
            match buckets.last_mut() {
                Some(last) if last.0 == us => last.1 = sum,
                _ => buckets.push((us, sum)),
            }
        }
    }
    buckets
}

/// `LATENCY SLICES`: the histogram of the slices of all cores, and the longest slices. Also in
/// RESP2, each number is preceded by its name.
async fn slices(call: ServerCall) -> Result<Answer, Refusal> {
    let facts = info::gather(&call.core).await;
    let mut all = Slices::default();
    facts.iter().for_each(|facts| all.merge(&facts.slices));
    let core = &call.core;
    Ok(call.answer(|reply| {
        reply.map(4);
        reply.bulk(b"count");
        reply.int(int(all.count));
        reply.bulk(b"max_us");
        reply.int(int(all.max_ns / 1_000));
        reply.bulk(b"histogram");
        let used = all.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        let used: Vec<_> = used.collect();
        reply.map(used.len());
        for (bucket, count) in used {
            reply.bulk(bucket_name(bucket).as_bytes());
            reply.int(int(*count));
        }
        reply.bulk(b"longest");
        reply.array(all.longest.len());
        for long in &all.longest {
            reply.map(5);
            reply.bulk(b"us");
            reply.int(int(long.ns / 1_000));
            reply.bulk(b"cause");
            reply.bulk(long.cause.name().as_bytes());
            reply.bulk(b"command");
            reply.bulk(core.table.command_of(long.cause).unwrap_or("-").as_bytes());
            reply.bulk(b"core");
            reply.count(long.core);
            reply.bulk(b"at_ms");
            reply.int(int(long.unix_ms));
        }
    }))
}

/// The name of a histogram bucket: its range of durations.
fn bucket_name(bucket: usize) -> String {
    match bucket {
        last if last == BUCKETS - 1 => format!("from_{}us", 1_u64 << (last - 1)),
        bucket => format!("below_{}us", 1_u64 << bucket),
    }
}

fn help(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    super::help(
        cx,
        "LATENCY",
        &[
            "DOCTOR",
            "    Return a human readable latency analysis report.",
            "GRAPH <event>",
            "    Return an ASCII latency graph for the <event> class.",
            "HISTORY <event>",
            "    Return time-latency samples for the <event> class.",
            "LATEST",
            "    Return the latest latency samples for all events.",
            "RESET [<event> ...]",
            "    Reset latency data of one or more <event> classes.",
            "    (default: reset all data for all event classes)",
            "HISTOGRAM [COMMAND ...]",
            "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
            "    If no commands are specified then all histograms are replied.",
            "SLICES",
            "    Return the histogram of slices and the longest ones with their causes.",
        ],
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_buckets_are_named_by_their_range() {
        let names = [0, 1, 9, BUCKETS - 1].map(bucket_name);
        assert_eq!(names, ["below_1us", "below_2us", "below_512us", "from_4194304us"]);
    }

    #[test]
    fn graph_columns_are_scaled_to_the_highest_sample() {
        let text = draw("hgetall", &[(90, 1), (100, 8)], 20, 100);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "hgetall - high 8 ms, low 1 ms (all time high 20 ms)");
        assert_eq!(lines[2], " #", "only the highest reaches the top");
        assert_eq!(lines[9], "##", "all reach the ground");
        assert_eq!(lines[10], "10", "ten seconds ago, and now");
        assert_eq!(lines[11], "0 ");
    }
}
