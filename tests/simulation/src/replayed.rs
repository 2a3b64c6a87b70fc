//! Replays records as files do: encoded as commands, which run on an empty shard.
//!
//! The shard's time stands still at 0, so nothing is dead. Acts of all cores are applied directly,
//! because they are commands of the server.

use darter_base::preempt::Never;
use darter_command::{Args, Command, Cx, Flow, PointFn, Run, Step};
use darter_keyspace::{Act, Commands, Record, Shard, apply, commands};
use darter_resp::{self as resp, Output, Parser, Reply};

/// The longest word.
const WORD_BYTES_MAX: usize = 512 * 1024 * 1024;

/// A shard made of commands.
pub(crate) struct Replayed {
    pub(crate) shard: Shard,
    families: Vec<&'static [Command]>,
    to: Commands,
    /// The number of commands so far.
    pub(crate) count: usize,
}

impl Replayed {
    pub(crate) fn new(databases: usize, families: Vec<&'static [Command]>) -> Self {
        Self { shard: Shard::new(databases, 0), families, to: Commands::default(), count: 0 }
    }

    /// Runs the commands of a record.
    pub(crate) fn follow(&mut self, record: &Record) -> Result<(), String> {
        if let Act::Flush | Act::FlushAll | Act::Swap(_) = &record.act {
            return apply(&mut self.shard, record).map_err(|_| "an act of all cores".to_owned());
        }
        commands::encode(record, &mut self.to);
        let count = self.to.count();
        let bytes = self.to.take().flatten();
        self.run_all(record.database, &bytes, count)
    }

    /// Runs these commands.
    fn run_all(&mut self, database: usize, bytes: &[u8], count: usize) -> Result<(), String> {
        let mut parser = Parser::new(WORD_BYTES_MAX, true);
        parser.feed(bytes);
        let mut ran = 0;
        while let Some(args) = parser.next_request().map_err(|error| format!("{error:?}"))? {
            let shown = shown(args);
            let reply = self.run(database, args)?;
            if reply.starts_with(b"-") {
                return Err(format!("{shown}: {}", String::from_utf8_lossy(&reply)));
            }
            ran += 1;
        }
        self.count += ran;
        if ran == count { Ok(()) } else { Err(format!("{ran} of {count} commands")) }
    }

    /// The function of a command, and where its arguments begin.
    fn function(&self, args: resp::Args<'_>) -> Option<(PointFn, usize)> {
        let lower = |at: usize| String::from_utf8_lossy(args.get(at)).to_lowercase();
        let rows = || self.families.iter().copied().flatten();
        let name = lower(0);
        let sub = (args.len() > 1)
            .then(|| rows().find(|row| row.name == format!("{name}|{}", lower(1))))
            .flatten();
        let (row, first) = match sub {
            Some(row) => (row, 2),
            None => (rows().find(|row| row.name == name)?, 1),
        };
        match row.run {
            Run::Point(run) | Run::Multi { here: Some(run), .. } => Some((run, first)),
            _ => None,
        }
    }

    fn run(&mut self, database: usize, args: resp::Args<'_>) -> Result<Vec<u8>, String> {
        let Some((run, first)) = self.function(args) else { return Err(shown(args)) };
        let (db, prng, stats) = self.shard.parts_for(database, false);
        let mut out = Output::default();
        let (now, reply) = (db.now(), Reply::new(&mut out, false));
        let mut cx = Cx { db, reply, now, prng, stats, preempt: &Never };
        let mut flow = run(&mut cx, Args::new(args, first));
        loop {
            flow = match flow {
                Err(refusal) => {
                    return Ok(refusal.text().to_vec()).map(|text| [b"-", &*text].concat());
                }
                Ok(Flow::Done) => return Ok(out.flatten()),
                Ok(Flow::Stream(mut stream)) => {
                    while stream.pump(&mut cx.reply) {}
                    Ok(Flow::Done)
                }
                Ok(Flow::Job(mut job)) => match job.step(&mut cx) {
                    Ok(Step::More) => Ok(Flow::Job(job)),
                    Ok(Step::Done(flow)) => Ok(flow),
                    Err(refusal) => Err(refusal),
                },
            };
        }
    }
}

/// The beginning of a command.
fn shown(args: resp::Args<'_>) -> String {
    let words = (0..args.len().min(8)).map(|at| {
        let word = args.get(at);
        String::from_utf8_lossy(&word[..word.len().min(40)]).into_owned()
    });
    format!("{:?} of {}", words.collect::<Vec<_>>(), args.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{bare_content, families, seen};
    use darter_keyspace::commands::Encoder;
    use darter_keyspace::{Act, Effect, Key, Wants};
    use darter_resp::{Part, Request};
    use std::sync::Arc;

    /// The most bytes copied for one portion, and the most words of one command besides those of a payload.
    const PORTION_BYTES: usize = 200_000;
    const WORDS: usize = 2 * 64 + 8;

    impl Replayed {
        fn words(&mut self, words: &[&[u8]]) -> Vec<u8> {
            let request = Arc::new(Request::from_args(words.iter().copied()));
            let reply = self.run(0, resp::Args::owned(&request)).unwrap();
            assert!(!reply.starts_with(b"-"), "{}", String::from_utf8_lossy(&reply));
            reply
        }

        fn line(&mut self, line: &str) -> Vec<u8> {
            self.words(&line.split(' ').map(str::as_bytes).collect::<Vec<_>>())
        }
    }

    /// Makes a large value of each type; the keys are the names of the types.
    fn fill(from: &mut Replayed) {
        let (long, name) = (vec![b'x'; 300_000], vec![b'n'; 20_000]);
        for at in 0..4_000 {
            from.line(&format!("HSET hash f{at} value-{at}"));
            from.line(&format!("SADD set member-{at}-of-many"));
            from.line(&format!("RPUSH list element-{at}-of-many"));
            from.line(&format!("ZADD zset {at}.5 member-{at}-of-many"));
            from.line(&format!("XADD stream 5-{} name value-{at} more {at}", at + 1));
        }
        for field in [&name[..], b"long"] {
            from.words(&[b"HSET", b"hash", field, &long]);
            from.words(&[b"HPEXPIREAT", b"hash", b"5000", b"FIELDS", b"1", field]);
        }
        from.words(&[b"HSET", b"hash", &long, b"short"]);
        from.line("HPEXPIREAT hash 7000 FIELDS 3 f1 f2 f3");
        from.words(&[b"SADDEX", b"set", b"PXAT", b"9000", &long, b"short", &name]);
        from.words(&[b"RPUSH", b"list", &long, b"", &name, &long]);
        from.words(&[b"ZADD", b"zset", b"-inf", &long, b"inf", &name]);
        from.words(&[b"XADD", b"stream", b"6-0", &name, &long]);
        from.line("XGROUP CREATE stream g 0");
        from.line("XGROUP CREATE stream empty 5-9 ENTRIESREAD 7");
        from.line("XREADGROUP GROUP g alice COUNT 900 STREAMS stream >");
        from.line("XREADGROUP GROUP g bob COUNT 90 STREAMS stream >");
        from.line("XNACK stream g FATAL IDS 2 5-7 5-8");
        from.line("XDEL stream 5-1 5-5 5-800 5-3999");
        from.line("XTRIM stream MAXLEN 3990");
        let text = format!("[{}1]", "{\"a\":[1,2.5,\"text\"]},".repeat(9_000));
        from.words(&[b"JSON.SET", b"json", b"$", text.as_bytes()]);
        from.words(&[b"SET", b"string", &long.repeat(5)]);
        for key in ["hash", "json", "stream"] {
            from.line(&format!("PEXPIREAT {key} 12345"));
        }
    }

    #[test]
    fn large_values_are_replayed_in_short_commands() {
        let mut from = Replayed::new(1, families());
        from.shard.join(Wants::CHANGES);
        fill(&mut from);
        let _ = from.shard.take_records();
        for key in ["hash", "set", "list", "zset", "stream", "json", "string"] {
            let name = format!("copy:{key}");
            let (key, copy) = (Key::new(key.as_bytes()), Key::new(name.as_bytes()));
            let held = from.shard.db_mut(0).read(&key).unwrap().hold_copy();
            from.shard.db_mut(0).put(&copy, held, &[]);
            let key = std::str::from_utf8(key.bytes).unwrap();
            let records = from.shard.take_records();
            let [record] = &records[..] else { panic!("{records:?}") };
            assert!(matches!(&record.act, Act::Key(_, Effect::Install { .. })), "{record:?}");
            let (mut to, mut encoder) = (Commands::default(), Encoder::default());
            let (mut bytes, mut count, mut portions) = (Vec::new(), 0, 0);
            loop {
                let more = encoder.step(record, &mut to);
                count += to.count();
                let mut copied = 0;
                for part in to.take().take() {
                    match part {
                        Part::Bytes(part) => {
                            copied += part.len();
                            bytes.extend_from_slice(&part);
                        }
                        Part::Shared(part, range) => bytes.extend_from_slice(&part[range]),
                    }
                }
                assert!(copied <= PORTION_BYTES, "{copied} bytes of {key}");
                portions += 1;
                if !more {
                    break;
                }
            }
            assert!(portions > 1 || key == "string", "{key} in {portions} portions");
            assert!(count >= 60 || key == "json" || key == "string", "{count} commands of {key}");
            let mut parser = Parser::new(WORD_BYTES_MAX, true);
            parser.feed(&bytes);
            while let Some(args) = parser.next_request().unwrap() {
                assert!(args.len() <= WORDS, "{}", shown(args));
            }
            let mut copy = Replayed::new(1, families());
            copy.line(&format!("SET copy:{key} older PX 1"));
            assert_eq!(copy.run_all(0, &bytes, count), Ok(()), "{key}");
            let [wanted, found] =
                [&from, &copy].map(|one| seen(&one.shard, 0, name.as_bytes(), bare_content));
            assert!(wanted.is_some() && wanted == found, "{key}");
            copy.shard.check_invariants();
        }
    }

    /// Lines whose effects have unusual commands; a number alone is a time.
    #[rustfmt::skip] // A table.
    const LINES: &[&str] = &[
        "1000",
        "SADDEX s PXAT 2000 a b c", "SADD s d", "SADDEX s PERSIST a e", "PEXPIREAT s 9000",
        "SADDEX t PXAT 2000 a", "PEXPIREAT t 9000",
        "HSET h a 1 b 2", "HPEXPIREAT h 2000 FIELDS 2 a b", "HPERSIST h FIELDS 1 a",
        "RPUSH l a b a c a b", "PEXPIREAT l 9000", "LINSERT l AFTER a x", "LINSERT l BEFORE c y",
        "LREM l -2 a", "LREM l 1 b",
        "ZADD z -0 a inf b -inf c 0.1 d", "ZPOPMAX z", "ZREMRANGEBYRANK z 0 0",
        "XADD x 1-1 a b", "XADD x 1-2 a b", "XADD x 1-3 a b", "XADD x 1-4 a b", "XGROUP CREATE x g 0",
        "XREADGROUP GROUP g c STREAMS x >", "XACK x g 1-2 1-3", "XTRIM x MAXLEN 2 ACKED",
        "XNACK x g FAIL IDS 1 1-1 RETRYCOUNT 7", "XDEL x 1-4", "1500",
        "XREADGROUP GROUP g d CLAIM 1 STREAMS x >", "XSETID x 2-0 ENTRIESADDED 9 MAXDELETEDID 1-9",
        "JSON.SET j $ {\"a\\\"b\":[1,2,3,4,5],\"\":{\"\\u0001'\":1.5e300},\"n\":18446744073709551615}",
        "JSON.ARRPOP j $..* 2", "JSON.ARRTRIM j $..* 1 2", "JSON.ARRINSERT j $..* 1 7 8 9",
        "JSON.NUMINCRBY j $..* 0.1", "JSON.DEL j $[''][*]", "JSON.ARRTRIM j $..* 5 9", "JSON.DEL j $.*",
        "TOPK.RESERVE k 2 3 2 0.5", "TOPK.ADD k a b c d e f g a a",
        "3000",
        // Here, some members and fields are dead.
        "SADD s b f", "SADD t a", "HSET h b 3",
    ];

    #[test]
    fn unusual_changes_are_replayed() {
        let (mut from, mut copy) = (Replayed::new(1, families()), Replayed::new(1, families()));
        from.shard.join(Wants::CHANGES);
        for line in LINES {
            if let Ok(now) = line.parse() {
                from.shard.set_now(now);
                continue;
            }
            from.line(line);
            for record in from.shard.take_records() {
                assert_eq!(copy.follow(&record), Ok(()), "{line}");
            }
            for key in ["s", "t", "h", "l", "z", "x", "j", "k"] {
                let [wanted, found] =
                    [&from, &copy].map(|one| seen(&one.shard, 0, key.as_bytes(), bare_content));
                assert_eq!(wanted, found, "{key} after {line}");
                let [wanted, found] = [&from, &copy]
                    .map(|one| seen(&one.shard, 0, key.as_bytes(), |found| found.deadline()));
                assert_eq!(wanted, found, "deadline of {key} after {line}");
            }
        }
        assert!(copy.count > 40, "{} commands", copy.count);
    }
}
