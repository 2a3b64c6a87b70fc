//! The arguments of a script's command: words, quoted strings, and generators for arguments that
//! are too long to write out.
//!
//! ```text
//! %rep(1000,ab)          one argument: `ab`, 1000 times
//! %seq(1,500)            500 arguments 1..500; %seq(1,500,f#) puts the number where # is
//! %pairs(1,500,f#,v#)    f1 v1 f2 v2 …
//! %now(+10) %nowms(-5)   this second or millisecond of the Unix epoch, moved
//! %var(name) %flip(name) the text saved by `@save(name)`; with its last bit flipped
//! %cursor                the cursor of `@scan`
//! ```

use darter_testkit::notation;
use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// An argument as parsed, before the run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arg {
    Fixed(Vec<u8>),
    NowSeconds(i64),
    NowMillis(i64),
    Variable(String),
    Flipped(String),
    Cursor,
}

/// Splits a line into arguments, and expands the constant generators.
pub(crate) fn parse(line: &str) -> Result<Vec<Arg>, String> {
    let mut args = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        if rest.starts_with('"') {
            let (bytes, len) = notation::unquote(rest.as_bytes())?;
            args.push(Arg::Fixed(bytes));
            rest = rest[len..].trim_start();
            continue;
        }
        let len = rest.find(' ').unwrap_or(rest.len());
        let (word, after) = rest.split_at(len);
        rest = after.trim_start();
        match word.strip_prefix('%') {
            Some(generator) => generate(generator, &mut args)?,
            None => args.push(Arg::Fixed(word.as_bytes().to_vec())),
        }
    }
    if args.is_empty() { Err("a command without words".to_owned()) } else { Ok(args) }
}

fn generate(text: &str, args: &mut Vec<Arg>) -> Result<(), String> {
    let (name, values) = text.split_once('(').unwrap_or((text, ""));
    let values: Vec<&str> = values.trim_end_matches(')').split(',').collect();
    let value = |index: usize| values.get(index).copied();
    let number = |index: usize| -> Result<i64, String> {
        let text = value(index).unwrap_or_default();
        text.parse().map_err(|_| format!("no number in %{name}: `{text}`"))
    };
    let place =
        |form: &str, number: i64| Arg::Fixed(form.replace('#', &number.to_string()).into_bytes());
    match name {
        "rep" => {
            let times = usize::try_from(number(0)?).map_err(|_| "%rep(N,text)")?;
            args.push(Arg::Fixed(value(1).unwrap_or("x").repeat(times).into_bytes()));
        }
        "seq" => {
            args.extend((number(0)?..=number(1)?).map(|i| place(value(2).unwrap_or("#"), i)));
        }
        "pairs" => {
            let (key, item) = (value(2).unwrap_or("f#"), value(3).unwrap_or("v#"));
            let pair = |i| [place(key, i), place(item, i)];
            args.extend((number(0)?..=number(1)?).flat_map(pair));
        }
        "now" => args.push(Arg::NowSeconds(number(0)?)),
        "nowms" => args.push(Arg::NowMillis(number(0)?)),
        "var" => args.push(Arg::Variable(value(0).unwrap_or_default().to_owned())),
        "flip" => args.push(Arg::Flipped(value(0).unwrap_or_default().to_owned())),
        "cursor" => args.push(Arg::Cursor),
        other => return Err(format!("unknown generator %{other}")),
    }
    Ok(())
}

/// The bytes to send: saved values come from `variables`, separate for each server.
pub(crate) fn resolve(
    args: &[Arg],
    variables: &HashMap<String, Vec<u8>>,
    cursor: &[u8],
    now_ms: i64,
) -> Result<Vec<Vec<u8>>, String> {
    let saved = |name: &String| {
        variables.get(name).cloned().ok_or_else(|| format!("nothing was saved as {name}"))
    };
    args.iter()
        .map(|arg| {
            Ok(match arg {
                Arg::Fixed(bytes) => bytes.clone(),
                Arg::NowSeconds(delta) => (now_ms / 1000 + delta).to_string().into_bytes(),
                Arg::NowMillis(delta) => (now_ms + delta).to_string().into_bytes(),
                Arg::Variable(name) => saved(name)?,
                Arg::Flipped(name) => {
                    let mut bytes = saved(name)?;
                    if let Some(last) = bytes.last_mut() {
                        *last ^= 1;
                    }
                    bytes
                }
                Arg::Cursor => cursor.to_vec(),
            })
        })
        .collect()
}

/// Milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        let bytes = resolve(&parse(line).unwrap(), &HashMap::new(), b"7", 5_000).unwrap();
        bytes.iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect()
    }

    #[test]
    fn argument_generators_are_expanded() {
        assert_eq!(words("SET \"a b\" %rep(3,xy)"), ["SET", "a b", "xyxyxy"]);
        assert_eq!(words("DEL %seq(1,3,k#)"), ["DEL", "k1", "k2", "k3"]);
        assert_eq!(words("HSET h %pairs(1,2,f#,v#)"), ["HSET", "h", "f1", "v1", "f2", "v2"]);
        assert_eq!(words("X %now(+10) %nowms(-5) %cursor"), ["X", "15", "4995", "7"]);
        assert!(parse("%bogus(1)").is_err());
        assert!(parse("").is_err());
    }
}
