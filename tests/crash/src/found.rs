//! The data of a server, read key by key, and split among the writers.

use crate::model::{ACCOUNTS, Keys, LISTS, SHARED, Value};
use darter_testkit::{Client, Reply};
use std::collections::BTreeMap;

/// Reads the data of `writers` writers, and checks what concerns all of them.
///
/// # Errors
/// When the accounts' sum is not zero, when a short-lived key lacks its deadline, or when the
/// server does not answer.
pub(crate) fn read(client: &mut Client, writers: usize) -> Result<Vec<Keys>, String> {
    let mut found = Vec::new();
    for me in 0..writers {
        let mut keys = Keys::new();
        for db in [2 * me, 2 * me + 1] {
            read_database(client, u8::try_from(db).unwrap_or_default(), &mut keys)?;
        }
        found.push(keys);
    }
    say(client, &format!("SELECT {SHARED}"))?;
    let mut sum = 0;
    for i in 0..ACCOUNTS {
        let text = text_of(&say(client, &format!("GET b{i}"))?);
        sum += text.parse::<i64>().unwrap_or_default();
    }
    if sum != 0 {
        return Err(format!("a transfer is there in halves: the accounts' sum is {sum}"));
    }
    for (me, keys) in found.iter_mut().enumerate() {
        if let Reply::Bulk(count) = say(client, &format!("GET n{me}"))? {
            let count = String::from_utf8_lossy(&count).into_owned();
            keys.insert((SHARED, format!("n{me}")), Value::Text(count, -1));
        }
    }
    for i in 0..LISTS {
        let list = format!("L{i}");
        for element in list_of(&say(client, &format!("LRANGE {list} 0 -1"))?) {
            let writer = element.split(':').next().and_then(|it| it.parse::<usize>().ok());
            let keys = writer.and_then(|writer| found.get_mut(writer));
            let keys = keys.ok_or_else(|| format!("{list} has {element:?}, which nobody sent"))?;
            let empty = Value::List(Vec::new());
            if let Value::List(items) = keys.entry((SHARED, list.clone())).or_insert(empty) {
                items.push(element);
            }
        }
    }
    Ok(found)
}

fn read_database(client: &mut Client, db: u8, keys: &mut Keys) -> Result<(), String> {
    say(client, &format!("SELECT {db}"))?;
    for name in list_of(&say(client, "KEYS *")?) {
        let value = match name.as_bytes().first() {
            Some(b'l') => Value::List(list_of(&say(client, &format!("LRANGE {name} 0 -1"))?)),
            Some(b'h') => {
                let flat = list_of(&say(client, &format!("HGETALL {name}"))?);
                let pairs = flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone()));
                Value::Hash(pairs.collect::<BTreeMap<_, _>>())
            }
            Some(b'e') => {
                let left = say(client, &format!("PTTL {name}"))?.int().unwrap_or_default();
                if left == -1 || left > 40 {
                    return Err(format!("{name} should die within 40 ms, and has {left} ms"));
                }
                continue;
            }
            _ => {
                let text = text_of(&say(client, &format!("GET {name}"))?);
                let at = say(client, &format!("PEXPIRETIME {name}"))?.int().unwrap_or_default();
                Value::Text(text, at)
            }
        };
        keys.insert((db, name), value);
    }
    Ok(())
}

/// DEBUG DIGEST, without the keys that die by themselves.
pub(crate) fn digest(client: &mut Client, writers: usize) -> Result<String, String> {
    for db in 0..2 * writers {
        say(client, &format!("SELECT {db}"))?;
        say(client, "DEL e0 e1 e2 e3 e4 e5")?;
    }
    Ok(text_of(&say(client, "DEBUG DIGEST")?))
}

/// Sends a command, and fails with its error.
pub(crate) fn say(client: &mut Client, line: &str) -> Result<Reply, String> {
    let reply = client.words(line).map_err(|error| format!("{line}: {error}"))?;
    if reply.is_error() { Err(format!("{line}: {reply:?}")) } else { Ok(reply) }
}

pub(crate) fn text_of(reply: &Reply) -> String {
    String::from_utf8_lossy(reply.text().unwrap_or_default()).into_owned()
}

fn list_of(reply: &Reply) -> Vec<String> {
    reply.items().unwrap_or_default().iter().map(text_of).collect()
}
