//! Shared parts of the tests of all families: one shard or several cores that run commands, a real
//! redis-server alongside them, and replies read as values.

pub(crate) mod engine;
pub(crate) mod oracle;
pub(crate) mod value;
pub(crate) mod world;

use darter_base::UnixMillis;
use darter_command::{Command, Refusal};
use darter_families::TABLES;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) type Bytes = Vec<u8>;

/// The request as a client sends it.
pub(crate) fn encode(words: &[&[u8]]) -> Bytes {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The row of a request, and where its arguments begin; or the refusal that the engine gives.
pub(crate) fn row(words: &[&[u8]]) -> Result<(&'static Command, usize), Refusal> {
    let lower = |word: &[u8]| String::from_utf8_lossy(word).to_lowercase();
    let find = |name: &str| TABLES.iter().copied().flatten().find(|row| row.name == name);
    let name = lower(words[0]);
    let sub = words.get(1).and_then(|word| find(&format!("{name}|{}", lower(word))));
    let (row, first) = match sub {
        Some(row) => (row, 2),
        None => (find(&name).unwrap_or_else(|| panic!("no command {name}")), 1),
    };
    if row.accepts(words.len()) { Ok((row, first)) } else { Err(Refusal::Arity(row.name.into())) }
}

pub(crate) fn unix_millis() -> UnixMillis {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}
