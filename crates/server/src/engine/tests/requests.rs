//! Requests, from received bytes to replies: refusals, order, counters, and releasing memory.

use super::*;
use crate::engine::Hot;
use crate::engine::state::receiving::Receiving;
use darter_base::Prng;
use std::collections::BTreeMap;

/// The number of keys that each client of the model test uses.
const KEYS: u64 = 12;

/// A client of the model test. It uses only its own keys, so a map can predict its replies.
#[derive(Default)]
struct Model {
    data: BTreeMap<String, String>,
    expected: String,
    sent: u64,
}

impl Model {
    fn bulk(value: Option<&String>) -> String {
        value.map_or("$-1\r\n".to_owned(), |value| format!("${}\r\n{value}\r\n", value.len()))
    }

    /// A text with a length on either side of the bounds for copying, sharing and streaming.
    fn value(prng: &mut Prng) -> String {
        let longest = *prng.weighted(&[(8, 20), (2, 5_000), (1, 20_000), (1, 300_000)]);
        let letter = char::from(b'a' + u8::try_from(prng.below(26)).unwrap());
        letter.to_string().repeat(1 + usize::try_from(prng.below(longest)).unwrap())
    }

    /// Makes a random request, and records the expected reply.
    fn request(&mut self, prng: &mut Prng, prefix: &str) -> String {
        let key = |prng: &mut Prng| format!("{prefix}:{}", prng.below(KEYS));
        self.sent += 1;
        let (one, two) = (key(prng), key(prng));
        match prng.below(10) {
            0 | 1 => {
                let value = Self::value(prng);
                self.expected += "+OK\r\n";
                let line = format!("SET {one} {value}");
                self.data.insert(one, value);
                line
            }
            2 | 3 => {
                self.expected += &Self::bulk(self.data.get(&one));
                format!("GET {one}")
            }
            4 => {
                let value = Self::value(prng);
                let text = self.data.entry(one.clone()).or_default();
                text.push_str(&value);
                self.expected += &format!(":{}\r\n", text.len());
                format!("APPEND {one} {value}")
            }
            5 => {
                let gone = [&one, &two].map(|key| usize::from(self.data.remove(key).is_some()));
                self.expected += &format!(":{}\r\n", gone[0] + gone[1]);
                format!("DEL {one} {two}")
            }
            6 => {
                let values = [Self::value(prng), Self::value(prng)];
                self.expected += "+OK\r\n";
                let line = format!("MSET {one} {} {two} {}", values[0], values[1]);
                let [first, second] = values;
                self.data.insert(one, first);
                self.data.insert(two, second);
                line
            }
            7 => {
                let both = [&one, &two].map(|key| Self::bulk(self.data.get(key)));
                self.expected += &format!("*2\r\n{}", both.concat());
                format!("MGET {one} {two}")
            }
            8 => {
                self.expected += &format!(":{}\r\n", self.data.get(&one).map_or(0, String::len));
                format!("STRLEN {one}")
            }
            _ => {
                self.expected += "+PONG\r\n";
                "PING".to_owned()
            }
        }
    }
}

/// Encodes the words of a line as a request, without the last CRLF. (Inline requests have a limit
/// of 64 KiB.)
fn encode(line: &str) -> String {
    let words: Vec<String> =
        line.split(' ').map(|word| format!("${}\r\n{word}", word.len())).collect();
    format!("*{}\r\n{}", words.len(), words.join("\r\n"))
}

#[test] // There are several cores, short slices, and clients that read slowly.
fn replies_of_random_pipelines_come_in_order() {
    for seed in 0..12 {
        let mut prng = Prng::from_seed(seed);
        let cores = 1 + usize::try_from(seed % 3).unwrap();
        let bench = Bench::new(cores);
        let mut models: Vec<Model> = (0..cores).map(|_| Model::default()).collect();
        for _ in 0..25 {
            bench.short.set(prng.chance(50));
            for (client, model) in models.iter_mut().enumerate() {
                bench.clients[client].reads.set(prng.chance(60));
                let prefix = format!("client {client}").replace(' ', "-");
                let lines: Vec<String> =
                    (0..prng.below(30)).map(|_| model.request(&mut prng, &prefix)).collect();
                if !lines.is_empty() {
                    let requests: Vec<String> = lines.iter().map(|line| encode(line)).collect();
                    bench.send(client, &requests.join("\r\n"));
                }
            }
            (0..prng.below(6)).for_each(|_| bench.round());
        }
        bench.short.set(false);
        bench.clients.iter().for_each(|client| client.reads.set(true));
        for _ in 0..3_000 {
            bench.round();
        }
        let mut sent = 0;
        for (client, model) in models.iter().enumerate() {
            let got = bench.got(client);
            assert!(got == model.expected, "seed {seed}, client {client}: {}", got.len());
            check_settled(&bench, client, got.len());
            sent += model.sent;
        }
        // A command that ran on another core is counted there, and only there.
        let commands = |core: &Rc<Core>| core.stats.borrow().commands;
        assert_eq!(bench.cores.iter().map(commands).sum::<u64>(), sent, "seed {seed}");
        assert!(bench.cores.iter().all(|core| core.is_quiet()), "seed {seed}");
    }
}

/// Checks that no bytes of a client are held any more, and that all were counted.
fn check_settled(bench: &Bench, client: usize, sent_bytes: usize) {
    let Client { core, token, .. } = bench.clients[client];
    bench.cores[core].with_conn(token, |conn| {
        assert_eq!(
            (conn.lane.away.bytes, conn.lane.waiting_bytes(), conn.query_bytes()),
            (0, 0, 0)
        );
        assert_eq!(conn.lane.sending.bytes, sent_bytes as u64);
        assert!(
            conn.lane.is_settled()
                && !conn.lane.is_working()
                && conn.lane.input.receiving == Receiving::Open
        );
    });
}

#[test]
fn refused_requests_get_the_errors_of_redis() {
    let mut bench = Bench::new(1);
    #[rustfmt::skip] // A table.
    let cases = [
        ("GET",             "-ERR wrong number of arguments for 'get' command"),
        ("GET a b",         "-ERR wrong number of arguments for 'get' command"),
        ("CONFIG",          "-ERR wrong number of arguments for 'config' command"),
        ("CONFIG NOPE",     "-ERR unknown subcommand 'NOPE'. Try CONFIG HELP."),
        ("CONFIG|GET a",    "-ERR unknown command 'CONFIG|GET', with args beginning with: 'a' "),
        ("nope",            "-ERR unknown command 'nope', with args beginning with: "),
        ("nope a b",        "-ERR unknown command 'nope', with args beginning with: 'a' 'b' "),
        ("ping",            "+PONG"),
        ("PiNg hello",      "$5\r\nhello"),
    ];
    for (line, reply) in cases {
        assert_eq!(bench.ask(0, line), format!("{reply}\r\n"), "{line}");
    }
    let long = format!("{} {} x", "n".repeat(200), "a".repeat(100));
    let shown = format!("'{}', with args beginning with: '{}' ", "n".repeat(128), "a".repeat(100));
    let rest = "'x' ";
    assert_eq!(bench.ask(0, &long), format!("-ERR unknown command {shown}{rest}\r\n"));

    let hot = |change: fn(&mut Hot)| change(&mut bench.cores[0].hot.borrow_mut());
    hot(|hot| hot.loading = true);
    assert!(bench.ask(0, "GET key").starts_with("-LOADING "));
    assert_eq!(bench.ask(0, "CLIENT GETNAME"), "$-1\r\n");
    hot(|hot| hot.loading = false);
    assert_eq!(bench.ask(0, "SET other v"), "+OK\r\n");
    bench.pass_ms(2_000);
    bench.settle(); // Memory is measured at intervals, so wait for the next measurement.
    hot(|hot| hot.maxmemory = 1);
    assert!(bench.ask(0, "SET key v").starts_with("-OOM "));
    assert_eq!(bench.ask(0, "GET key"), "$-1\r\n");
    hot(|hot| hot.maxmemory = 0);
    assert_eq!(bench.ask(0, "SET key v"), "+OK\r\n");
    let stats = bench.cores[0].stats.borrow().clone();
    let rejected: u64 = stats.by_command.iter().map(|one| one.rejected).sum();
    assert_eq!((stats.error_replies, rejected), (10, 5));
    assert_eq!(stats.errors.get("ERR"), Some(&8));
    assert_eq!((stats.errors.get("OOM"), stats.errors.get("LOADING")), (Some(&1), Some(&1)));

    hot(|hot| hot.password = Some("secret".into()));
    let stranger = bench.connect(0);
    for line in ["GET key", "PING", "CONFIG GET port"] {
        assert_eq!(bench.ask(stranger, line), "-NOAUTH Authentication required.\r\n", "{line}");
    }
    assert_eq!(bench.ask(0, "GET key"), "$1\r\nv\r\n", "who was here before may go on");
}

#[test] // Refused connections do not count as accepted ones.
fn refused_connections_get_an_error_and_are_closed() {
    let mut bench = Bench::new(1);
    let refused = |bench: &mut Bench, is_local: bool| {
        let client = bench.connect_from(0, Peer { is_local, ..Peer::default() });
        bench.settle();
        (bench.got(client).chars().take(8).collect::<String>(), bench.is_closed(client))
    };
    assert_eq!(refused(&mut bench, true), (String::new(), false));
    assert_eq!(refused(&mut bench, false), ("-DENIED ".to_owned(), true));
    bench.cores[0].hot.borrow_mut().protected = false;
    assert_eq!(refused(&mut bench, false), (String::new(), false));
    bench.cores[0].hot.borrow_mut().protected = true;
    bench.cores[0].hot.borrow_mut().password = Some("secret".into());
    assert_eq!(refused(&mut bench, false), (String::new(), false), "a password protects");
    bench.cores[0].hot.borrow_mut().clients_max = 5;
    assert_eq!(bench.cores[0].conns_len(), 4);
    assert_eq!(refused(&mut bench, true), (String::new(), false));
    assert_eq!(refused(&mut bench, true), ("-ERR max".to_owned(), true));
    let stats = bench.cores[0].stats.borrow().clone();
    assert_eq!((stats.connections, stats.rejected_connections), (5, 2));
    assert_eq!(bench.cores[0].conns_len(), 5);
}

#[test] // The causes are QUIT, the end of the input, and protocol errors.
fn a_connection_is_closed_after_its_pending_replies() {
    let cases: [(&str, bool, &str, bool); 6] = [
        // (sent, whether the peer half-closes, received, whether the connection is closed)
        ("PING\r\nQUIT\r\nPING", false, "+PONG\r\n+OK\r\n", true),
        ("PING", true, "+PONG\r\n", true),
        ("*2\r\n$4\r\nECHO", true, "", true),
        (
            "PING\r\n*1\r\n:1\r\n",
            false,
            "+PONG\r\n-ERR Protocol error: expected '$', got ':'\r\n",
            true,
        ),
        ("PING\r\nPOST / HTTP/1.1\r\nPING", false, "", true),
        ("PING", false, "+PONG\r\n", false),
    ];
    for (sent, ends, got, closed) in cases {
        let bench = Bench::new(1);
        bench.send(0, sent);
        if ends {
            bench.cores[0].ended(bench.clients[0].token);
        }
        bench.settle();
        assert_eq!((&*bench.got(0), bench.is_closed(0)), (got, closed), "{sent:?}");
        assert_eq!(bench.cores[0].conns_len(), usize::from(!closed), "{sent:?}");
    }
}

#[test] // The commands run on this core, or on another one.
fn client_reply_off_and_skip_keep_the_order_of_replies() {
    let bench = Bench::new(2);
    for core in 0..2 {
        let key = bench.key(core);
        let lines = format!(
            "SET {key} v\r\nCLIENT REPLY SKIP\r\nGET {key}\r\nGET {key}\r\nCLIENT REPLY OFF\r\n\
             GET {key}\r\nPING\r\nCLIENT REPLY ON\r\nSTRLEN {key}\r\nCLIENT REPLY SKIP\r\nPING\r\nPING"
        );
        assert_eq!(bench.ask(0, &lines), "+OK\r\n$1\r\nv\r\n+OK\r\n:1\r\n+PONG\r\n", "{core}");
    }
}

#[test] // Protocol and database change within the pipeline.
fn requests_on_another_core_use_the_session_of_the_time_they_were_sent() {
    let bench = Bench::new(2);
    for core in 0..2 {
        let key = bench.key(core);
        let lines = format!(
            "GET {key}\r\nHELLO 3\r\nGET {key}\r\nHELLO 2\r\nGET {key}\r\nSELECT 3\r\n\
             SET {key} three\r\nSELECT 0\r\nGET {key}\r\nSELECT 3\r\nGET {key}\r\nFLUSHDB\r\nSELECT 0"
        );
        let got = bench.ask(0, &lines);
        assert!(got.starts_with("$-1\r\n%7\r\n"), "{got}");
        assert!(got.contains("\r\n_\r\n*14\r\n"), "{got}");
        let end = "$-1\r\n+OK\r\n+OK\r\n+OK\r\n$-1\r\n+OK\r\n$5\r\nthree\r\n+OK\r\n+OK\r\n";
        assert!(got.ends_with(end), "{got}");
    }
}

#[test] // Receiving is resumed when the requests were parsed.
fn receiving_is_paused_for_a_client_that_sends_too_fast() {
    let bench = Bench::new(1);
    let value = "v".repeat(100_000);
    bench.ask(0, &format!("SET key {value}"));
    bench.clients[0].reads.set(false);
    let line = format!("GET key{}", " ".repeat(5_000));
    let lines = vec![line; 60].join("\r\n");
    bench.send(0, &lines);
    (0..5).for_each(|_| bench.round());
    assert!(bench.clients[0].paused.get(), "300 KB wait");
    bench.clients[0].reads.set(true);
    bench.settle();
    assert!(!bench.clients[0].paused.get());
    assert_eq!(bench.got(0).len(), 60 * (value.len() + "$100000\r\n\r\n".len()));
}

#[test] // A connection counts as silent after two seconds.
fn the_buffers_of_a_silent_connection_are_released() {
    let bench = Bench::new(1);
    bench.ask(0, &vec!["PING"; 20_000].join("\r\n"));
    let Client { core, token, .. } = bench.clients[0];
    let memory = || bench.cores[core].with_conn(token, |conn| conn.sizes().total).unwrap();
    assert!(memory() > 100_000, "{}", memory());
    bench.pass_ms(1_900);
    bench.settle();
    assert!(memory() > 100_000, "not yet");
    for _ in 0..10 {
        bench.pass_ms(100);
        bench.settle();
    }
    assert!(memory() < 10_000, "{}", memory());
}

#[test] // The client writes all its requests before it reads a reply.
fn requests_of_a_client_that_does_not_read_are_received_up_to_the_limit() {
    const LIMIT: usize = 2 << 20;
    let bench = Bench::new(1);
    bench.cores[0].hot.borrow_mut().client_limits.query = LIMIT;
    bench.ask(0, &format!("SET key {}", "v".repeat(1_000)));
    let client = &bench.clients[0];
    client.reads.set(false);
    let piece = vec!["GET key"; 5_000].join("\r\n");
    let send = || {
        let mut pieces = 0;
        while !client.paused.get() && pieces < 1_000 {
            bench.send(0, &piece);
            bench.turn(0);
            pieces += 1;
        }
        pieces
    };
    let mut pieces = send();
    assert!((1..20).contains(&pieces), "{pieces}: paused while the core may still catch up");
    bench.pass_ms(19);
    bench.turn(0);
    assert!(client.paused.get(), "too early");
    bench.pass_ms(1);
    bench.turn(0);
    assert!(!client.paused.get(), "no progress for 20 ms");
    pieces += send();
    let pending = bench.cores[0].with_conn(client.token, |conn| conn.query_bytes()).unwrap();
    assert!((LIMIT..LIMIT + 2 * piece.len()).contains(&pending), "{pending}");
    bench.pass_ms(1_000);
    bench.settle();
    assert!(client.paused.get() && !bench.is_closed(0), "the limit slows it down");
    client.reads.set(true);
    let replies = "$1000\r\n".len() + 1_000 + 2;
    let mut got = 0;
    while got < pieces * 5_000 * replies {
        bench.settle();
        let now = bench.got(0).len();
        assert!(now > 0, "{got} bytes of replies");
        got += now;
    }
    check_settled(&bench, 0, got + "+OK\r\n".len());
    assert!(!client.paused.get());
}

#[test] // All bytes arrive at once, so most are unparsed when they are counted.
fn an_incomplete_request_beyond_the_limit_closes_its_client() {
    let bench = Bench::new(1);
    bench.cores[0].hot.borrow_mut().client_limits.query = 1 << 20;
    bench.send(0, &format!("*2\r\n$3\r\nGET\r\n$3000000\r\n{}", "x".repeat(2_000_000)));
    bench.settle();
    assert!(bench.is_closed(0));
}

#[test] // CLIENT LIST and CLIENT KILL ask all cores.
fn client_ids_are_unique_across_cores() {
    let mut bench = Bench::new(3);
    let more: Vec<usize> = (0..3).map(|core| bench.connect(core)).collect();
    let clients: Vec<usize> = (0..3).chain(more).collect();
    let mut ids: Vec<String> =
        clients.iter().map(|client| bench.ask(*client, "CLIENT ID")).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 6, "{ids:?}");
    let list = bench.ask(0, "CLIENT LIST");
    assert_eq!(list.lines().filter(|line| line.starts_with("id=")).count(), 6, "{list}");
    for core in 0..3 {
        bench.ask(core, &format!("SET {} v", bench.key(core)));
    }
    assert_eq!(bench.ask(1, "DBSIZE"), ":3\r\n");
    assert_eq!(bench.ask(1, &format!("CLIENT KILL ID {}", &ids[0][1..].trim_end())), ":1\r\n");
    assert_eq!(clients.iter().filter(|client| bench.is_closed(**client)).count(), 1);
}

#[test] // MONITOR does not show administration commands.
fn monitor_shows_quoted_requests_of_any_length() {
    let mut bench = Bench::new(2);
    let client = bench.connect(0);
    assert_eq!(bench.ask(1, "MONITOR"), "+OK\r\n");
    let seen = |bench: &Bench, line: &str| {
        bench.ask(client, line);
        let got = bench.got(1);
        got.split_once("] ").map(|(_, words)| words.trim_end().to_owned())
    };
    let many: Vec<String> = (0..200).map(|at| format!("k{at}")).collect();
    let quoted: Vec<String> = many.iter().map(|key| format!("\"{key}\"")).collect();
    #[rustfmt::skip] // A table.
    let cases = [
        ("PING".to_owned(),                         Some("\"PING\"".to_owned())),
        (r#"SET key "a\"\\\n\x00\xff""#.to_owned(),    Some(r#""SET" "key" "a\"\\\n\x00\xff""#.to_owned())),
        (format!("ECHO {}", "v".repeat(4_096)),     Some(format!("\"ECHO\" \"{}\"", "v".repeat(4_096)))),
        (format!("ECHO {}", "v".repeat(50_000)),    Some(format!("\"ECHO\" \"{}\"", "v".repeat(50_000)))),
        (format!("DEL {}", many.join(" ")),         Some(format!("\"DEL\" {}", quoted.join(" ")))),
        ("CONFIG GET port".to_owned(),              None),
        ("AUTH secret".to_owned(),                  Some(r#""AUTH" "(redacted)""#.to_owned())),
    ];
    for (line, expected) in cases {
        let start: String = line.chars().take(20).collect();
        assert!(seen(&bench, &line) == expected, "{start}");
    }
}

#[test]
fn a_command_run_as_a_job_counts_as_one_call_with_its_whole_time() {
    let bench = Bench::new(1);
    let members: Vec<String> = (0..2_000).map(|at| format!("m{at}")).collect();
    bench.short.set(true);
    bench.send(0, &format!("SADD set {}", members.join(" ")));
    let mut rounds = 0;
    while bench.clients[0].got.borrow().is_empty() {
        bench.round();
        bench.pass_ms(7);
        rounds += 1;
    }
    assert_eq!(bench.got(0), ":2000\r\n");
    assert!(rounds > 3, "{rounds}");
    let index = bench.cores[0].table.find(b"sadd").unwrap().index;
    let stats = bench.cores[0].stats.borrow().by_command[index];
    assert_eq!((stats.calls, stats.failed, stats.rejected), (1, 0, 0));
    assert!(stats.ns >= (rounds - 3) * 7_000_000, "{} ns in {rounds} rounds", stats.ns);
}

#[test]
fn a_command_that_fails_is_counted_as_a_failed_call() {
    let bench = Bench::new(1);
    assert_eq!(
        bench.ask(0, "SADD set m\r\nGET set\r\nINCR set\r\nSCARD set"),
        format!(
            ":1\r\n{0}{0}:1\r\n",
            "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
        )
    );
    let stats = bench.cores[0].stats.borrow().clone();
    let of = |name: &[u8]| stats.by_command[bench.cores[0].table.find(name).unwrap().index];
    assert_eq!((of(b"get").calls, of(b"get").failed, of(b"scard").failed), (1, 1, 0));
    assert_eq!((stats.error_replies, stats.errors.get("WRONGTYPE")), (2, Some(&2)));
    assert_eq!((stats.commands, stats.bytes_in, stats.bytes_out > 0), (4, 42, true));
}

/// Sends a request in pieces as large as packets.
fn send_words(bench: &Bench, words: &[&[u8]]) {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    for piece in bytes.chunks(100_000) {
        bench.cores[0].begin_turn();
        bench.cores[0].received(bench.clients[0].token, piece);
        bench.turn(0);
    }
}

#[test] // The names are longer than a chunk of the receive buffer.
fn keys_fields_and_members_of_many_chunks_are_found() {
    let long = vec![b'n'; 2_200_000];
    let near = [&long[..long.len() - 1], b"m"].concat();
    let (name, near, value) = (&long[..], &near[..], &long[..]);
    #[rustfmt::skip] // A table.
    let cases: &[(&[&[u8]], &str)] = &[
        (&[b"SET", name, b"v"], "+OK"),
        (&[b"GET", name], "$1\r\nv"),
        (&[b"GET", near], "$-1"),
        (&[b"SET", b"short", value], "+OK"),
        (&[b"DEL", b"none", name], ":1"),
        (&[b"HSET", b"h", name, b"v"], ":1"),
        (&[b"HSET", b"h", b"f", value], ":1"),
        (&[b"HMGET", b"h", b"none", name], "*2\r\n$-1\r\n$1\r\nv"),
        (&[b"HDEL", b"h", near, name], ":1"),
        (&[b"SADD", b"s", name], ":1"),
        (&[b"SISMEMBER", b"s", near], ":0"),
        (&[b"SREM", b"s", name], ":1"),
    ];
    for cores in [1, 2] {
        let bench = Bench::new(cores);
        bench.short.set(true);
        for (words, expected) in cases {
            send_words(&bench, words);
            bench.send(0, "PING");
            let shown = String::from_utf8_lossy(words[0]);
            for _ in 0..500 {
                bench.round();
            }
            assert_eq!(bench.got(0), format!("{expected}\r\n+PONG\r\n"), "{shown}");
        }
    }
}
