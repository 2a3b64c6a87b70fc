//! Publish and subscribe under load: clients that do not read are closed and delay no other client;
//! many subscribers and subscriptions are served in slices, and their memory is released.

use crate::{Asks, Check, Stage, ensure, slices, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Reply, Server};
use std::time::{Duration, Instant};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("a subscriber that does not read is closed",        Asks::AsRedis, deaf),
    ("a subscriber above its soft limit is closed late", Asks::AsRedis, soft),
    ("a message to thousands is sent in slices",         Asks::More,    many_receivers),
    ("a message to ten thousand clients goes in slices", Asks::More,    ten_thousand),
    ("a hundred thousand subscriptions are given back",  Asks::More,    many_subscriptions),
    ("many clients' subscriptions come and go",          Asks::More,    crowd),
    ("hostile patterns are matched in slices",           Asks::More,    hostile_patterns),
    ("messages of a script are bounded",                 Asks::More,    from_a_script),
];

/// A number from INFO.
pub(crate) fn number_of(client: &mut Client, name: &str) -> Result<u64, String> {
    let info = client.words("INFO everything").map_err(text)?;
    let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
    let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.and_then(|value| value.trim().parse().ok()).ok_or_else(|| format!("no {name}: {info}"))
}

fn client(server: &Server) -> Result<Client, String> {
    server.client().map_err(text)
}

/// Checks that at most 3 MB more memory is used than before. Polls, because memory is freed in
/// portions.
fn memory_is_back(client: &mut Client, before: u64) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let after = number_of(client, "used_memory")?;
        if after < before + 3_000_000 {
            return Ok(());
        }
        let waits = begun.elapsed() < Duration::from_secs(10);
        ensure(waits, || format!("{before} bytes, then {after}"))?;
    }
}

/// The number of an integer reply.
fn count(reply: &Reply) -> i64 {
    reply.int().unwrap_or(-1)
}

/// Publishes until there is no receiver. Returns the number of messages and the longest wait.
fn publish_until_gone(client: &mut Client, most: usize) -> Result<(usize, Duration), String> {
    let (message, mut longest) = ("m".repeat(100_000), Duration::ZERO);
    for sent in 0..most {
        let begun = Instant::now();
        let received = client.command(&["PUBLISH", "news", &message]).map_err(text)?;
        longest = longest.max(begun.elapsed());
        if count(&received) == 0 {
            return Ok((sent, longest));
        }
    }
    Err(format!("it still receives after {most} messages"))
}

fn deaf(stage: &Stage) -> Result<(), String> {
    let limits = "normal 0 0 0 pubsub 4mb 0 0";
    let server = stage.server_with(&["--client-output-buffer-limit", limits])?;
    let (mut deaf, mut client) = (client(&server)?, client(&server)?);
    deaf.words("SUBSCRIBE news").map_err(text)?;
    let before = number_of(&mut client, "used_memory")?;
    // The sockets may hold some megabytes more.
    let (sent, longest) = publish_until_gone(&mut client, 400)?;
    ensure(sent >= 40, || format!("closed after {sent} messages"))?;
    ensure(longest < Duration::from_secs(2), || format!("a publisher waited {longest:?}"))?;
    memory_is_back(&mut client, before)
}

fn soft(stage: &Stage) -> Result<(), String> {
    let limits = "normal 0 0 0 pubsub 0 200kb 1";
    let server = stage.server_with(&["--client-output-buffer-limit", limits])?;
    let (mut deaf, mut client) = (client(&server)?, client(&server)?);
    deaf.words("SUBSCRIBE news").map_err(text)?;
    let message = "m".repeat(100_000);
    for _ in 0..150 {
        let received = client.command(&["PUBLISH", "news", &message]).map_err(text)?;
        ensure(count(&received) == 1, || "it was closed at once".to_owned())?;
    }
    let begun = Instant::now();
    loop {
        let left = client.words("CLIENT LIST TYPE pubsub").map_err(text)?;
        if left.text().unwrap_or_default().is_empty() {
            return ensure(begun.elapsed() > Duration::from_millis(500), || "too early".to_owned());
        }
        ensure(begun.elapsed() < Duration::from_secs(10), || "it is not closed".to_owned())?;
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Subscribes to names, and reads the confirmations.
fn subscribe(
    client: &mut Client,
    word: &str,
    names: impl Iterator<Item = String>,
) -> Result<usize, String> {
    /// The number of names in one command.
    const EACH: usize = 500;
    let (names, mut confirmed): (Vec<String>, usize) = (names.collect(), 0);
    for some in names.chunks(EACH) {
        let words: Vec<&str> =
            std::iter::once(word).chain(some.iter().map(String::as_str)).collect();
        client.send(&encode(&words)).map_err(text)?;
        for _ in some {
            client.receive().map_err(text)?;
            confirmed += 1;
        }
    }
    Ok(confirmed)
}

/// Forty clients subscribe to 250 patterns each, all of which match.
fn many_receivers(stage: &Stage) -> Result<(), String> {
    const CLIENTS: usize = 40;
    const EACH: usize = 250;
    let server = stage.server()?;
    let mut client = client(&server)?;
    let mut listeners = Vec::new();
    for _ in 0..CLIENTS {
        let mut listener = server.client().map_err(text)?;
        let patterns =
            (0..EACH).map(|at| format!("n*{}", "e*".repeat(at % 5) + &"w*".repeat(at / 5)));
        subscribe(&mut listener, "PSUBSCRIBE", patterns)?;
        listeners.push(listener);
    }
    client.words("CONFIG RESETSTAT").map_err(text)?;
    let name = format!("n{}{}", "e".repeat(5), "w".repeat(60));
    let received = client.command(&["PUBLISH", &name, "x"]).map_err(text)?;
    ensure(count(&received) == (CLIENTS * EACH) as i64, || format!("{received:?} receive it"))?;
    for listener in &mut listeners {
        for _ in 0..EACH {
            let message = listener.receive().map_err(text)?;
            let is_last =
                message.items().and_then(<[Reply]>::last).and_then(Reply::text) == Some(b"x");
            ensure(is_last, || format!("{message:?}"))?;
        }
    }
    slices::are_short(&mut client)
}

/// Ten thousand clients with one channel: each receives each message, in order.
fn ten_thousand(stage: &Stage) -> Result<(), String> {
    const CLIENTS: usize = 10_000;
    const MESSAGES: usize = 5;
    let server = stage.server_with(&["--maxclients", "10100"])?;
    let mut client = client(&server)?;
    let mut listeners = Vec::new();
    for _ in 0..CLIENTS {
        let mut listener = server.client().map_err(text)?;
        listener.send(&encode(&["SUBSCRIBE", "news"])).map_err(text)?;
        listeners.push(listener);
    }
    for listener in &mut listeners {
        listener.receive().map_err(text)?;
    }
    client.words("CONFIG RESETSTAT").map_err(text)?;
    for message in 0..MESSAGES {
        let received = client.command(&["PUBLISH", "news", &message.to_string()]).map_err(text)?;
        ensure(count(&received) == CLIENTS as i64, || format!("{received:?} receive it"))?;
    }
    for listener in &mut listeners {
        for at in 0..MESSAGES {
            let message = listener.receive().map_err(text)?;
            let last = message.items().and_then(<[Reply]>::last).and_then(Reply::text);
            ensure(last == Some(at.to_string().as_bytes()), || format!("{at}: {message:?}"))?;
        }
    }
    slices::are_short(&mut client)?;
    drop(listeners);
    none_left(&mut client)?;
    slices::are_short(&mut client)
}

/// Waits until there is no subscription left.
fn none_left(client: &mut Client) -> Result<(), String> {
    let begun = Instant::now();
    for name in ["pubsub_channels", "pubsub_patterns"] {
        while number_of(client, name)? > 0 {
            ensure(begun.elapsed() < Duration::from_secs(20), || format!("{name} are left"))?;
        }
    }
    Ok(())
}

/// Clients with 100 000 channels and 50 000 patterns receive messages, unsubscribe from all at
/// once, and are closed.
fn crowd(stage: &Stage) -> Result<(), String> {
    const CLIENTS: usize = 10;
    const CHANNELS: usize = 10_000;
    const PATTERNS: usize = 5_000;
    let server = stage.server()?;
    let mut client = client(&server)?;
    client.set_patience(Duration::from_secs(60)).map_err(text)?;
    let before = number_of(&mut client, "used_memory")?;
    let mut listeners = Vec::new();
    for _ in 0..CLIENTS {
        let listener = server.client().map_err(text)?;
        listener.set_patience(Duration::from_secs(60)).map_err(text)?;
        listeners.push(listener);
    }
    client.words("CONFIG RESETSTAT").map_err(text)?;
    for (at, listener) in listeners.iter_mut().enumerate() {
        let channels = (at * CHANNELS..(at + 1) * CHANNELS).map(|at| format!("channel:{at}"));
        subscribe(listener, "SUBSCRIBE", channels)?;
        let patterns = (at * PATTERNS..(at + 1) * PATTERNS).map(|at| format!("*channel:{at}"));
        subscribe(listener, "PSUBSCRIBE", patterns)?;
    }
    slices::are_short(&mut client)?;
    for (at, listener) in listeners.iter_mut().enumerate() {
        // Channels below 50 000 also match a pattern of another client.
        let channel = format!("channel:{}", at * CHANNELS + 7);
        let receive = if at * CHANNELS + 7 < CLIENTS * PATTERNS { 2 } else { 1 };
        let received = client.command(&["PUBLISH", &channel, "x"]).map_err(text)?;
        ensure(count(&received) == receive, || format!("{received:?} receive {channel}"))?;
        let is_own = |message: &Reply| {
            message.items().and_then(|items| items.get(1)).and_then(Reply::text)
                == Some(channel.as_bytes())
        };
        // Skips messages received by a pattern.
        while !is_own(&listener.receive().map_err(text)?) {}
    }
    slices::are_short(&mut client)?;
    let half = listeners.split_off(CLIENTS / 2);
    for listener in &mut listeners {
        for (word, held) in [("UNSUBSCRIBE", CHANNELS), ("PUNSUBSCRIBE", PATTERNS)] {
            listener.send(&encode(&[word])).map_err(text)?;
            let mut given_up = 0;
            while given_up < held {
                let reply = listener.receive().map_err(text)?;
                let kind = reply.items().and_then(<[Reply]>::first).and_then(Reply::text);
                given_up += usize::from(kind == Some(word.to_lowercase().as_bytes()));
            }
        }
    }
    let left = number_of(&mut client, "pubsub_channels")?;
    ensure(left == (half.len() * CHANNELS) as u64, || format!("{left} channels are left"))?;
    slices::are_short(&mut client)?;
    drop(half);
    none_left(&mut client)?;
    memory_is_back(&mut client, before)?;
    slices::are_short(&mut client)
}

fn many_subscriptions(stage: &Stage) -> Result<(), String> {
    const COUNT: usize = 100_000;
    const BYTES_EACH: u64 = 600;
    let server = stage.server()?;
    let (mut client, mut listener) = (client(&server)?, client(&server)?);
    let before = number_of(&mut client, "used_memory")?;
    let names = (0..COUNT).map(|at| format!("channel:{at}"));
    let confirmed = subscribe(&mut listener, "SUBSCRIBE", names)?;
    ensure(confirmed == COUNT, || format!("{confirmed} confirmations"))?;
    let held = number_of(&mut client, "used_memory")? - before;
    ensure(held < COUNT as u64 * BYTES_EACH, || format!("{held} bytes for {COUNT}"))?;
    let list = client.words("CLIENT LIST TYPE pubsub").map_err(text)?;
    let list = String::from_utf8_lossy(list.text().unwrap_or_default()).into_owned();
    let told = list.split("tot-mem=").nth(1).and_then(|rest| rest.split(' ').next());
    let told: u64 = told.and_then(|told| told.parse().ok()).unwrap_or(0);
    ensure(told > held / 2 && told < held * 2, || format!("{held} bytes are held, {told} told"))?;
    ensure(list.contains("sub=100000 "), || list.clone())?;
    drop(listener);
    let begun = Instant::now();
    while number_of(&mut client, "pubsub_channels")? > 0 {
        ensure(begun.elapsed() < Duration::from_secs(20), || "channels are left".to_owned())?;
    }
    let after = number_of(&mut client, "used_memory")?;
    ensure(after < before + 2_000_000, || format!("{before} bytes, then {after}"))?;
    slices::are_short(&mut client)
}

/// Matching one pattern with one name takes a hundred million steps.
fn hostile_patterns(stage: &Stage) -> Result<(), String> {
    const LEN: usize = 10_000;
    const CLASS: usize = 15_000_000; // As long as `name-max-bytes` lets a pattern be.
    let server = stage.server()?;
    let (mut client, mut listener) = (client(&server)?, client(&server)?);
    let pattern = format!("*{}b", "a".repeat(LEN / 2));
    listener.command(&["PSUBSCRIBE", &pattern]).map_err(text)?;
    client.words("CONFIG RESETSTAT").map_err(text)?;
    let received = client.command(&["PUBLISH", &"a".repeat(LEN), "x"]).map_err(text)?;
    ensure(count(&received) == 0, || format!("{received:?}"))?;
    slices::are_short(&mut client)?;
    // One class of very many bytes, all of which are compared with each byte of the name.
    let class = format!("*[{}]b", "ac".repeat(CLASS / 2));
    listener.command(&["PSUBSCRIBE", &class]).map_err(text)?;
    client.words("CONFIG RESETSTAT").map_err(text)?;
    let received = client.words("PUBLISH xxab x").map_err(text)?;
    ensure(count(&received) == 1, || format!("{received:?}"))?;
    slices::are_short(&mut client)
}

/// Publishes to a channel whose receiver has an output limit of 4 MiB, to a channel without
/// receivers, and 300 messages to another.
const PUBLISHES: &str = "local message = ('m'):rep(10000)
    for i = 1, 900 do
        redis.call('publish', 'none', message) redis.call('publish', 'many', i .. message)
        if i <= 300 then redis.call('publish', 'few', i .. message) end
    end";

/// As in redis-server, receivers of more than their output limit are closed. Messages without
/// receivers are not kept, and the kept ones are reported.
fn from_a_script(stage: &Stage) -> Result<(), String> {
    let limits = "normal 0 0 0 pubsub 4mb 0 0";
    let server = stage.server_with(&["--client-output-buffer-limit", limits])?;
    let (mut client, mut script) = (client(&server)?, client(&server)?);
    let mut listeners = [server.client().map_err(text)?, server.client().map_err(text)?];
    for one in listeners.iter().chain([&script, &client]) {
        one.set_patience(Duration::from_secs(60)).map_err(text)?;
    }
    listeners[0].words("SUBSCRIBE many").map_err(text)?;
    listeners[1].words("PSUBSCRIBE fe*").map_err(text)?;
    is_kept_until_killed(&mut client, &mut script)?;
    let body = format!("{PUBLISHES} return redis.call('publish', 'few', 'last')");
    let replied = script.command(&["EVAL", &body, "0"]).map_err(text)?;
    ensure(count(&replied) == 1, || format!("{replied:?} receive the last"))?;
    for at in 1..=301 {
        let message = listeners[1].receive().map_err(text)?;
        let last = message.items().and_then(<[Reply]>::last).and_then(Reply::text);
        let begins = if at > 300 { "last".to_owned() } else { format!("{at}m") };
        ensure(last.is_some_and(|last| last.starts_with(begins.as_bytes())), || {
            format!("{at}: {message:?}")
        })?;
    }
    let mut received = 0;
    while listeners[0].receive().is_ok() {
        received += 1;
    }
    ensure(received < 420, || format!("{received} before it was closed"))?;
    let gone = client.words("PUBSUB NUMSUB many").map_err(text)?;
    ensure(gone.items().and_then(<[Reply]>::last).map(count) == Some(0), || format!("{gone:?}"))?;
    slices::are_short(&mut client)
}

/// The messages of a killed script are not sent; until then their memory is reported.
fn is_kept_until_killed(client: &mut Client, script: &mut Client) -> Result<(), String> {
    const MIB: u64 = 1 << 20;
    client.words("CONFIG RESETSTAT").map_err(text)?;
    let before = number_of(client, "used_memory")?;
    let body = format!("{PUBLISHES} while true do end");
    script.send(&encode(&["EVAL", &body, "0"])).map_err(text)?;
    let (begun, called) = (Instant::now(), "cmdstat_publish:calls=2100,");
    loop {
        let info = client.words("INFO commandstats").map_err(text)?;
        let info = String::from_utf8_lossy(info.text().unwrap_or_default()).into_owned();
        if info.contains(called) {
            break;
        }
        ensure(begun.elapsed() < Duration::from_secs(60), || info)?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let kept = number_of(client, "used_memory_vm_eval")?;
    let grown = number_of(client, "used_memory")?.saturating_sub(before);
    ensure((7 * MIB..12 * MIB).contains(&kept), || format!("{kept} bytes are kept"))?;
    ensure((7 * MIB..24 * MIB).contains(&grown), || format!("{grown} bytes more are used"))?;
    client.words("SCRIPT KILL").map_err(text)?;
    let killed = script.receive().map_err(text)?;
    ensure(killed.encode().starts_with(b"-ERR Script killed"), || format!("{killed:?}"))?;
    ensure(number_of(client, "used_memory_vm_eval")? < 4 * MIB, || "it is kept".into())
}
