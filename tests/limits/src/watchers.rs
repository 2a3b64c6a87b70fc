//! MONITOR: a watcher sees every command once, of any length and in its client's order, and other
//! clients do not wait for it.

use crate::{Asks, Check, Stage, ensure, slices, text};
use darter_testkit::client::encode;
use darter_testkit::{Client, Server, Shape};

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("MONITOR shows what each client sends, in its order", Asks::AsRedis, monitor),
    ("MONITOR shows a command that had to wait once",      Asks::AsRedis, monitor_once),
    ("MONITOR shows a huge command whole",                 Asks::AsRedis, monitor_huge),
    ("output that a MONITOR does not read counts",         Asks::AsRedis, monitor_deaf),
    ("a slice stays short beside a MONITOR",               Asks::More,    monitor_slices),
];

/// Clients of several cores: the interleaving of their commands is unspecified.
fn monitor(stage: &Stage) -> Result<(), String> {
    const EACH: usize = 200;
    let server = stage.server()?;
    let client = || server.client().map_err(text);
    let (mut watcher, mut clients) = (client()?, [client()?, client()?, client()?]);
    watcher.words("MONITOR").map_err(text)?;
    for number in 0..EACH {
        for (who, client) in clients.iter_mut().enumerate() {
            client
                .send(&encode(&["SET", &format!("key:{who}"), &number.to_string()]))
                .map_err(text)?;
        }
    }
    let mut shown = [0; 3];
    for _ in 0..EACH * clients.len() {
        let line = watcher.receive().map_err(text)?;
        let line = String::from_utf8_lossy(line.text().unwrap_or_default()).into_owned();
        let who = (0..clients.len()).find(|who| line.contains(&format!("key:{who}")));
        let who = who.ok_or_else(|| format!("nobody's: {line}"))?;
        let expected = format!("\"SET\" \"key:{who}\" \"{}\"", shown[who]);
        ensure(line.ends_with(&expected), || format!("{line}, and not {expected}"))?;
        shown[who] += 1;
    }
    Ok(())
}

/// The next line that a watcher receives.
fn line_of(watcher: &mut Client) -> Result<String, String> {
    let line = watcher.receive().map_err(text)?;
    Ok(String::from_utf8_lossy(line.text().unwrap_or_default()).into_owned())
}

/// DBSIZE visits all cores, and so waits until the replies of the other core have arrived.
fn monitor_once(stage: &Stage) -> Result<(), String> {
    const KEYS: usize = 50;
    let server = Server::subject(Shape { cores: 2, ..stage.shape }).map_err(text)?;
    let (mut watcher, mut client) = watched(&server)?;
    let mut pipeline: Vec<u8> =
        (0..KEYS).flat_map(|at| encode(&["GET", &format!("key:{at}")])).collect();
    pipeline.extend(encode(&["DBSIZE"]));
    pipeline.extend(encode(&["ECHO", "end"]));
    client.send(&pipeline).map_err(text)?;
    for _ in 0..KEYS + 2 {
        client.receive().map_err(text)?;
    }
    let mut shown = 0;
    loop {
        let line = line_of(&mut watcher)?;
        if line.ends_with("\"ECHO\" \"end\"") {
            return ensure(shown == 1, || format!("DBSIZE was shown {shown} times"));
        }
        shown += usize::from(line.ends_with("\"DBSIZE\""));
    }
}

/// A command of a hundred thousand arguments, and one whose argument has 16 MB, most of them to be
/// quoted.
fn huge() -> Vec<Vec<Vec<u8>>> {
    let mut many = vec![b"SADD".to_vec(), b"set".to_vec()];
    many.extend((0..100_000).map(|at| format!("member \"{at}\"").into_bytes()));
    let long = b"long and \x00 binary\r\n".repeat(800_000);
    vec![many, vec![b"SET".to_vec(), b"key".to_vec(), long], vec![b"GET".to_vec(), b"k".to_vec()]]
}

fn quoted(words: &[Vec<u8>]) -> String {
    let quote = |word: &Vec<u8>| {
        let word = String::from_utf8_lossy(word).replace('"', "\\\"").replace('\r', "\\r");
        format!(" \"{}\"", word.replace('\n', "\\n").replace('\0', "\\x00"))
    };
    words.iter().map(quote).collect()
}

/// A client that watches a server with MONITOR, and another one.
fn watched(server: &Server) -> Result<(Client, Client), String> {
    let (mut watcher, client) = (server.client().map_err(text)?, server.client().map_err(text)?);
    watcher.words("MONITOR").map_err(text)?;
    Ok((watcher, client))
}

fn monitor_huge(stage: &Stage) -> Result<(), String> {
    let server = stage.server()?;
    let (mut watcher, mut client) = watched(&server)?;
    for words in huge() {
        client.command(&words).map_err(text)?;
    }
    for words in huge() {
        let (line, expected) = (line_of(&mut watcher)?, quoted(&words));
        let shown = line.get(..80).unwrap_or(&line);
        ensure(line.ends_with(&expected), || format!("{} bytes: {shown}", line.len()))?;
    }
    Ok(())
}

/// `omem` and `tot-mem` of the connection of this name.
fn memory_of(client: &mut Client, name: &str) -> Result<(u64, u64), String> {
    let list = client.words("CLIENT LIST").map_err(text)?;
    let list = String::from_utf8_lossy(list.text().unwrap_or_default()).into_owned();
    let line = list.lines().find(|line| line.contains(name)).ok_or("it is gone")?;
    let word = |name: &str| {
        let value = line.split(' ').find_map(|word| word.strip_prefix(name));
        value.and_then(|value| value.parse().ok()).ok_or_else(|| line.to_owned())
    };
    Ok((word("omem=")?, word("tot-mem=")?))
}

/// A watcher that does not read is sent 40 MB of commands. Other clients do not wait, and the
/// memory for it is reported. When it reads, everything arrives.
fn monitor_deaf(stage: &Stage) -> Result<(), String> {
    const COUNT: usize = 200;
    const UNREAD_MIN: u64 = 25_000_000; // The sockets may hold some megabytes.
    let server = stage.server()?;
    let (mut watcher, mut client) =
        (server.client().map_err(text)?, server.client().map_err(text)?);
    watcher.words("CLIENT SETNAME deaf").map_err(text)?;
    watcher.words("MONITOR").map_err(text)?;
    let value = "v".repeat(200_000);
    for at in 0..COUNT {
        client.command(&["SET", &format!("key:{}", at % 10), &value]).map_err(text)?;
    }
    let (output, memory) = memory_of(&mut client, "name=deaf")?;
    ensure(output > UNREAD_MIN && memory > output, || format!("{output} bytes, {memory} in all"))?;
    for at in 0..COUNT {
        let line = line_of(&mut watcher)?;
        ensure(line.len() > value.len(), || format!("line {at}: {line}"))?;
    }
    client.words("PING").map_err(text)?;
    line_of(&mut watcher)?;
    let (output, _) = memory_of(&mut client, "name=deaf")?;
    ensure(output < 1_000, || format!("{output} bytes are left"))
}

/// The bound is a tenth of the time for the whole line.
fn monitor_slices(stage: &Stage) -> Result<(), String> {
    let server = Server::subject(Shape { cores: 1, ..stage.shape }).map_err(text)?;
    let (mut watcher, mut client) = watched(&server)?;
    client.words("CONFIG RESETSTAT").map_err(text)?;
    for words in huge() {
        client.command(&words).map_err(text)?;
        line_of(&mut watcher)?;
    }
    slices::are_short(&mut client)
}
