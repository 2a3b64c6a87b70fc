//! Examples, the independence of chunk sizes, and random bytes.

use super::*;
use crate::args::Note;
use darter_base::preempt::{Countdown, Never};
use darter_base::{Prng, lazyfree};

/// The requests read, and the error that ended them.
type Read = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// All requests in `input`, fed in pieces of `piece` bytes. Whether and when requests are parsed
/// ahead makes no difference.
fn parse(input: &[u8], piece: usize) -> Read {
    let read = parse_ahead(input, piece, |_| false);
    assert_eq!(parse_ahead(input, piece, |_| true), read, "parsed ahead, piece {piece}");
    assert_eq!(parse_ahead(input, piece, |step| step % 3 == 0), read, "at times, piece {piece}");
    read
}

fn parse_ahead(input: &[u8], piece: usize, is_ahead: fn(usize) -> bool) -> Read {
    let mut step = 0;
    let mut parser = Parser::new(512 << 20, true);
    let mut requests = Vec::new();
    let mut parts = input.chunks(piece.max(1)).peekable();
    while let Some(part) = parts.next() {
        parser.feed(part);
        loop {
            step += 1;
            // Bytes arrive while requests are waiting.
            if step % 7 == 0 && parser.lookahead().count() > 0 && parts.peek().is_some() {
                break;
            }
            if is_ahead(step) {
                let cut = parser.parse_ahead();
                assert!(cut == 0 || cut == parser.lookahead().count());
            }
            match parser.next_portion(1 + piece % 5) {
                Ok(Parsed::Request(args)) => {
                    let (total, held) = (args.total_bytes(), args.held_bytes());
                    let between = 0..=32 * args.len();
                    assert!(held >= total && between.contains(&(held - total)), "{held}, {total}");
                    requests.push(args.iter().map(<[u8]>::to_vec).collect());
                }
                Ok(Parsed::Portion | Parsed::Empty) => {}
                Ok(Parsed::Wanting) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}

fn encode(requests: &[Vec<Vec<u8>>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for request in requests {
        bytes.extend_from_slice(format!("*{}\r\n", request.len()).as_bytes());
        for arg in request {
            bytes.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            bytes.extend_from_slice(arg);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    bytes
}

#[test] // Thousands of short arguments, with long ones and an empty block between them.
fn every_argument_is_found_in_its_block() {
    let runs = [(3_000, 2), (5, 70_000), (1, 200_000), (2_047, 30), (1_024, 1), (20_000, 9)];
    let lens = || runs.iter().flat_map(|&(count, len)| std::iter::repeat_n(len, count));
    let arg = |at: usize, len: usize| [format!("{at}:").into_bytes(), vec![b'x'; len]].concat();
    let words: Vec<Vec<u8>> = lens().enumerate().map(|(at, len)| arg(at, len)).collect();
    let bytes = encode(std::slice::from_ref(&words));
    for piece in [997, 100_000] {
        let mut parser = Parser::new(512 << 20, true);
        let mut found = false;
        for part in bytes.chunks(piece) {
            parser.feed(part);
            if let Some(args) = parser.next_request().unwrap() {
                assert!(args.is_owned() && args.len() == words.len());
                assert!(words.iter().enumerate().all(|(at, word)| args.get(at) == word));
                found = true;
            }
        }
        assert!(found, "{piece}");
    }
}

#[test]
fn requests_split_anywhere_are_parsed_the_same() {
    for seed in 0..60 {
        let mut prng = Prng::from_seed(seed);
        let requests: Vec<Vec<Vec<u8>>> = (0..1 + prng.below(4))
            .map(|_| {
                let longest = *prng.weighted(&[(5, 30), (2, 3_000), (1, 200_000)]);
                (0..1 + prng.below(40)).map(|_| prng.bytes(0..=longest)).collect()
            })
            .collect();
        let bytes = encode(&requests);
        for piece in [1 + usize::try_from(prng.below(50)).unwrap(), 16_384, bytes.len()] {
            if bytes.len() / piece > 200_000 {
                continue;
            }
            assert_eq!(parse(&bytes, piece), (requests.clone(), None), "seed {seed} piece {piece}");
        }
    }
}

#[test]
fn protocol_errors_have_the_texts_of_redis() {
    #[rustfmt::skip] // A table.
    let cases: &[(&[u8], &str)] = &[
        (b"*abc\r\n",              "invalid multibulk length"),
        (b"*2147483648\r\n",       "invalid multibulk length"),
        (b"*1\r\n$abc\r\n",        "invalid bulk length"),
        (b"*1\r\n$-1\r\n",         "invalid bulk length"),
        (b"*1\r\n$536870913\r\n",  "invalid bulk length"),
        (b"*1\r\n:1\r\n",          "expected '$', got ':'"),
        (b"set 'a\r\n",            "unbalanced quotes in request"),
    ];
    let strange = parse(b"*1\r\n\xff\r\n", 7).1.map(|error| error.line());
    assert_eq!(strange, Some(b"ERR Protocol error: expected '$', got '\xff'".to_vec()));
    for (input, expected) in cases {
        let error = parse(input, input.len()).1.map(|error| error.line());
        assert_eq!(error, Some(format!("ERR Protocol error: {expected}").into_bytes()));
    }
    let endless = vec![b'a'; LINE_MAX_BYTES + 2];
    assert_eq!(parse(&endless, 4_096).1, Some(ProtocolError::Text("too big inline request")));
}

#[test] // As in Redis.
fn line_ends_after_a_nul_are_not_seen() {
    for input in [&b"PI\0NG\r\n"[..], b"\0\r\n", b"*1\0\r\n", b"*1\r\n$4\0\r\nPING\r\n"] {
        let mut long = input.to_vec();
        assert_eq!(parse(input, input.len()), (vec![], None), "{input:?}");
        long.resize(LINE_MAX_BYTES + 100, b'\n');
        assert!(parse(&long, 4_096).1.is_some(), "{input:?}");
    }
}

#[test]
fn empty_requests_are_skipped() {
    let (requests, error) = parse(b"*0\r\n*-1\r\n\r\n\n*1\r\n$4\r\nPING\r\nPING\r\n", 3);
    assert_eq!(error, None);
    assert_eq!(requests, vec![vec![b"PING".to_vec()]; 2]);
}

#[test] // A billion elements, or 512 MB, before the bytes arrive.
fn headers_of_huge_requests_allocate_nothing() {
    for header in [&b"*1000000000\r\n"[..], b"*2\r\n$3\r\nSET\r\n$536870912\r\n"] {
        let mut parser = Parser::new(512 << 20, true);
        parser.feed(header);
        assert!(parser.next_request().unwrap().is_none());
        assert!(parser.memory_bytes() < 1_024, "{}", parser.memory_bytes());
    }
}

#[test] // The buffer drains in between.
fn a_request_of_many_arguments_is_parsed_in_portions() {
    let request: Vec<Vec<u8>> = (0..100_000).map(|at| format!("key:{at}").into_bytes()).collect();
    let mut parser = Parser::new(512 << 20, true);
    parser.feed(&encode(std::slice::from_ref(&request)));
    let (whole, mut portions) = (parser.pending_bytes(), 0);
    let args = loop {
        match parser.next_portion(1_000).unwrap() {
            Parsed::Request(args) => break args.iter().map(<[u8]>::to_vec).collect::<Vec<_>>(),
            Parsed::Portion => {}
            Parsed::Wanting | Parsed::Empty => panic!("all is at hand"),
        }
        portions += 1;
        let seen = portions * 1_000 * 12; // This is a lower bound.
        assert!(parser.pending_bytes() <= whole + CHUNK_BYTES - seen.min(whole), "{portions}");
    };
    assert_eq!((portions, args == request), (99, true));
}

/// The outcome of one feed of `bytes`: a request, nothing yet, or the error's text.
fn outcome(parser: &mut Parser, bytes: &[u8]) -> &'static str {
    parser.feed(bytes);
    match parser.next_request() {
        Ok(Some(_)) => "request",
        Ok(None) => "wanting",
        Err(ProtocolError::Text(text)) => text,
        Err(ProtocolError::ExpectedDollar(_)) => "no dollar",
    }
}

#[test]
fn requests_at_the_limits_pass_and_beyond_them_fail() {
    let line = |start: &str, len: usize| [start, &"1".repeat(len - start.len())].concat();
    let bulk = |len: usize| format!("*1\r\n${len}\r\n");
    #[rustfmt::skip] // A table.
    let cases: &[(bool, String, &str)] = &[
        // (authenticated, input, outcome)
        (false, "*10\r\n".into(),                   "wanting"),
        (false, "*11\r\n".into(),                   "unauthenticated multibulk length"),
        (true,  "*11\r\n".into(),                   "wanting"),
        (false, bulk(16_384),                       "wanting"),
        (false, bulk(16_385),                       "unauthenticated bulk length"),
        (true,  bulk(16_385),                       "wanting"),
        (true,  bulk(1_000_000),                    "wanting"),
        (true,  bulk(1_000_001),                    "invalid bulk length"),
        (true,  "*2147483647\r\n".into(),           "wanting"),
        (true,  "*2147483648\r\n".into(),           "invalid multibulk length"),
        (true,  line("*", LINE_MAX_BYTES),          "wanting"),
        (true,  line("*", LINE_MAX_BYTES + 1),      "too big mbulk count string"),
        (true,  line("*1\r\n$", LINE_MAX_BYTES + 4), "wanting"),
        (true,  line("*1\r\n$", LINE_MAX_BYTES + 5), "too big bulk count string"),
        (true,  line("set ", LINE_MAX_BYTES),       "wanting"),
        (true,  line("set ", LINE_MAX_BYTES + 1),   "too big inline request"),
        (true,  "*1\r\n\r\n".into(),                "no dollar"),
    ];
    for (authenticated, input, expected) in cases {
        let mut parser = Parser::new(1_000_000, *authenticated);
        let start: String = input.chars().take(30).collect();
        assert_eq!(outcome(&mut parser, input.as_bytes()), *expected, "{start:?} {}", input.len());
    }
}

#[test] // Also to requests that were parsed ahead.
fn changed_limits_apply_from_the_next_header_on() {
    let ten = encode(&[vec![b"PING".to_vec()], vec![vec![b'x'; 10]; 11]]);
    let mut parser = Parser::new(9, true);
    assert_eq!(outcome(&mut parser, &ten), "request");
    parser.set_bulk_max(10);
    assert_eq!(outcome(&mut parser, b""), "request");

    let mut parser = Parser::new(512, true);
    parser.feed(&ten);
    assert_eq!((parser.parse_ahead(), outcome(&mut parser, b"")), (2, "request"));
    parser.set_authenticated(false);
    assert_eq!(parser.lookahead().count(), 0);
    assert_eq!(outcome(&mut parser, b""), "unauthenticated multibulk length");

    let mut parser = Parser::new(512, false);
    parser.feed(&ten);
    assert_eq!(parser.parse_ahead(), 0, "each request may change what is allowed");
    assert_eq!(outcome(&mut parser, b""), "request");
    parser.set_authenticated(true);
    assert_eq!((parser.parse_ahead(), outcome(&mut parser, b"")), (1, "request"));
}

#[test] // Nothing is parsed ahead while requests wait, or in the middle of one.
fn requests_are_parsed_ahead_once() {
    let mut parser = Parser::new(512 << 20, true);
    parser.feed(&encode(&vec![vec![b"PING".to_vec()]; 20]));
    assert_eq!(parser.parse_ahead(), 16);
    for left in (0..16).rev() {
        assert_eq!(parser.parse_ahead(), 0);
        assert_eq!(outcome(&mut parser, b""), "request");
        assert_eq!(parser.lookahead().count(), left);
    }
    assert_eq!(parser.parse_ahead(), 4);
    for _ in 0..4 {
        assert_eq!(outcome(&mut parser, b""), "request");
    }
    assert_eq!(outcome(&mut parser, b"*2\r\n$4\r\nECHO\r\n"), "wanting");
    parser.feed(b"$1\r\nx\r\n*1\r\n$4\r\nPING\r\n");
    assert_eq!(parser.parse_ahead(), 0, "in the middle of a request");
    assert_eq!(outcome(&mut parser, b""), "request");
    assert_eq!(parser.parse_ahead(), 1);
}

#[test] // Pending bytes, incomplete requests, and freeable memory.
fn parsers_count_the_bytes_they_hold() {
    let mut parser = Parser::new(512 << 20, true);
    assert_eq!((parser.pending_bytes(), parser.memory_bytes()), (0, 0));
    assert!(!parser.is_amid_request() && !parser.release());

    assert_eq!(outcome(&mut parser, b"*1\r\n$4\r\nPI"), "wanting");
    assert_eq!((parser.pending_bytes(), parser.is_amid_request()), (10, true));
    assert!(!parser.release(), "in the middle of a request");
    assert_eq!(outcome(&mut parser, b"NG\r\n*"), "request");
    assert_eq!((parser.pending_bytes(), parser.is_amid_request()), (1, true));
    assert_eq!(outcome(&mut parser, b"0\r\n"), "wanting");
    assert_eq!((parser.pending_bytes(), parser.is_amid_request()), (0, false));
    assert!(parser.memory_bytes() >= 19 + size_of::<Span>(), "{}", parser.memory_bytes());
    assert!(parser.release() && !parser.release());
    assert_eq!(parser.memory_bytes(), 0);
    assert_eq!(outcome(&mut parser, b"*1\r\n$4\r\nPING\r\n"), "request");

    // All received bytes of a long argument may be in blocks: then nothing is pending, though the
    // request has started.
    let header = format!("*1\r\n${}\r\n", 2 * CHUNK_BYTES);
    assert_eq!(outcome(&mut parser, header.as_bytes()), "wanting");
    assert_eq!(outcome(&mut parser, &vec![b'x'; CHUNK_BYTES]), "wanting");
    assert_eq!((parser.pending_bytes(), parser.is_amid_request()), (0, true));
    assert!(!parser.release());
    assert_eq!(outcome(&mut parser, &vec![b'x'; CHUNK_BYTES]), "wanting");
    assert_eq!(outcome(&mut parser, b"\r"), "wanting");
    assert_eq!(outcome(&mut parser, b"\n"), "request");
}

#[test]
fn memory_of_short_arguments_includes_their_spans() {
    let mut parser = Parser::new(512 << 20, true);
    parser.feed(b"*999999\r\n");
    for _ in 0..100 {
        parser.feed(&b"$1\r\na\r\n".repeat(1_000));
        assert!(parser.next_request().unwrap().is_none());
    }
    let each = b"$1\r\na\r\n".len() + size_of::<Span>();
    let told = parser.argument_bytes() + parser.spans.len() * each;
    assert!((100_000 * each..101_000 * each).contains(&told), "{told}");
    assert!(parser.memory_bytes() >= told);
}

#[test]
fn memory_of_requests_parsed_ahead_includes_their_spans() {
    const ARGS: usize = 4;
    let requests = vec![vec![b"GET".to_vec(); ARGS]; lookahead::LOOKAHEAD_MAX];
    let mut parser = Parser::new(512 << 20, true);
    parser.feed(&encode(&requests));
    let before = parser.memory_bytes();
    assert_eq!(parser.parse_ahead(), requests.len());
    let places = requests.len() * (size_of::<Cut>() + ARGS * size_of::<Span>());
    let grown = parser.memory_bytes() - before;
    assert!((places..2 * places).contains(&grown), "{grown} for {places}");
}

#[test]
fn requests_parsed_ahead_are_found_after_the_buffer_moves() {
    const FIRST: usize = 12;
    let request = |at: usize| vec![format!("{at}").into_bytes(), vec![at as u8; 12_000]];
    let requests: Vec<Vec<Vec<u8>>> = (0..16).map(request).collect();
    let mut parser = Parser::new(512 << 20, true);
    parser.feed(&encode(&requests[..FIRST]));
    assert_eq!(parser.parse_ahead(), FIRST);
    let (mut later, mut moved_with) = (encode(&requests[FIRST..]), 0);
    for (at, request) in requests.iter().enumerate() {
        let args = parser.next_request().unwrap().unwrap();
        assert!(args.iter().eq(request.iter().map(Vec::as_slice)), "request {at}");
        let rest = later.split_off(later.len().min(7_000));
        let before = parser.base;
        parser.feed(&std::mem::replace(&mut later, rest));
        if parser.base < before {
            moved_with = moved_with.max(parser.lookahead().count());
        }
    }
    assert!(moved_with > 1, "{moved_with} waited when the buffer moved");
}

#[test] // After the client disconnects.
fn bytes_of_an_incomplete_request_are_freed_in_portions() {
    let mid_big = b"*2\r\n$3\r\nSET\r\n$99999999\r\n".to_vec();
    let amid_many = b"*999999\r\n".to_vec();
    let cases: [(Vec<u8>, &[u8], usize); 3] = [
        // (head, bytes repeated after it, times)
        (mid_big.clone(), b"", 0),
        (mid_big, &[b'x'; CHUNK_BYTES], 100),
        (amid_many, b"$1\r\na\r\n", 100_000),
    ];
    for (head, rest, times) in cases {
        let mut parser = Parser::new(1 << 30, true);
        parser.feed(&head);
        for _ in 0..times {
            parser.feed(rest);
            assert!(parser.next_request().unwrap().is_none());
        }
        let held = parser.arriving_bytes() + parser.argument_bytes();
        assert!(held + 2 * CHUNK_BYTES > times * rest.len(), "{held}");
        drop(parser);
        let (_, waiting) = lazyfree::waiting();
        assert_eq!(waiting, held, "{times} of {}", rest.len());
        while lazyfree::run(&Never) {}
        assert_eq!(lazyfree::waiting(), (0, 0));
    }
}

#[test] // For any amount of input, split anywhere.
fn the_buffer_stays_small() {
    let small = encode(&vec![vec![vec![b'x'; 100]; 3]; 30_000]);
    let many = encode(&[vec![vec![b'x'; 10]; 500_000]]);
    let big = encode(&[vec![vec![b'x'; 9_000_000]; 1]]);
    let longish = encode(&vec![vec![vec![b'x'; CHUNK_BYTES - 1]; 2]; 60]);
    for (input, requests) in [(small, 30_000), (many, 1), (big, 1), (longish, 60)] {
        for piece in [10_000, 16_384, 40_000] {
            let (mut parser, mut found, mut held_max) = (Parser::new(512 << 20, true), 0, 0);
            for part in input.chunks(piece) {
                parser.feed(part);
                while parser.next_request().unwrap().is_some() {
                    found += 1;
                }
                let long = parser.argument_bytes() + parser.query_bytes() - parser.pending_bytes();
                held_max = held_max.max(parser.memory_bytes() - long);
            }
            assert_eq!((found, parser.pending_bytes()), (requests, 0), "piece {piece}");
            assert!(held_max <= 8 * CHUNK_BYTES, "{requests} requests, {piece}: {held_max}");
        }
    }
}

#[test]
fn only_arguments_longer_than_a_chunk_are_moved() {
    for (arg_bytes, moved) in [(100, false), (CHUNK_BYTES / 2, false), (CHUNK_BYTES - 8, true)] {
        let mut parser = Parser::new(512 << 20, true);
        let before = encode(&vec![vec![b"PING".to_vec()]; 3_000]);
        let request = encode(&[vec![vec![b'x'; arg_bytes], b"k".to_vec()]]);
        // The last bytes come later.
        let (now, later) = request.split_at(request.len() - 3);
        parser.feed(&[&before, now].concat());
        for _ in 0..3_000 {
            assert!(parser.next_request().unwrap().is_some());
        }
        assert!(parser.next_request().unwrap().is_none());
        parser.feed(later);
        let args = parser.next_request().unwrap().unwrap();
        assert_eq!((args.get(0).len(), args.get(1)), (arg_bytes, &b"k"[..]));
        assert_eq!(args.is_owned(), moved, "{arg_bytes}");
    }
}

#[test] // Doubling would move a large buffer several times.
fn a_large_buffer_grows_once_to_its_full_size() {
    let half = BUFFER_MAX_BYTES / 2;
    for (first, expected) in [(half - 1, 2 * (half - 1)), (half, half + BUFFER_MAX_BYTES)] {
        let mut parser = Parser::new(512 << 20, true);
        parser.feed(&vec![b'*'; first]);
        assert_eq!(parser.memory_bytes(), first);
        parser.feed(b"*");
        assert_eq!(parser.memory_bytes(), expected, "{first}");
        let room = expected - first - 1;
        parser.feed(&vec![b'*'; room]);
        assert_eq!(parser.memory_bytes(), expected, "{first}: it had room for that");
    }
}

#[test]
fn notes_on_requests_are_kept_while_more_requests_arrive() {
    let requests: Vec<Vec<Vec<u8>>> = (0..5)
        .map(|at| format!("GET key:{at} more rest"))
        .map(|words| words.split(' ').map(|word| word.as_bytes().to_vec()).collect())
        .collect();
    let mut parser = Parser::new(512 << 20, true);
    parser.feed(&encode(&requests[..4]));
    assert_eq!(parser.parse_ahead(), 4);
    for (command, args) in parser.lookahead().enumerate().skip(1) {
        let mut note = Note::of(command);
        // A note holds two arguments, in any order: there is no room for a third.
        [2, 1, 3].into_iter().for_each(|index| note.add(index, (7 * index + command) as u64));
        args.keep(note);
    }
    for (at, request) in requests.iter().enumerate() {
        let args = parser.next_request().unwrap().unwrap();
        let is_noted = (1..4).contains(&at);
        assert_eq!(args.noted().map(|note| note.command), is_noted.then_some(at));
        for (index, arg) in request.iter().enumerate().skip(1) {
            let hash = darter_base::hash::of(arg);
            let is_noted = is_noted && index < 3;
            assert_eq!(args.hash(index), if is_noted { (7 * index + at) as u64 } else { hash });
        }
        if at == 0 {
            parser.feed(&encode(&requests[4..]));
        }
    }
}

#[test] // Requests, long arguments and a request of many arguments, split anywhere by blocks.
fn pending_bytes_beyond_the_buffer_are_parsed_in_order() {
    let many = vec![b"argument".to_vec(); 100_000];
    let long = vec![b"SET".to_vec(), b"k".to_vec(), vec![b'x'; 3 * BUFFER_MAX_BYTES]];
    let mut requests = vec![many, long];
    requests.extend((0..50_000).map(|at| vec![b"GET".to_vec(), format!("key:{at}").into_bytes()]));
    let bytes = encode(&requests);
    for piece in [1_000, 16 * 1024, 1 << 20] {
        let mut parser = Parser::new(512 << 20, true);
        bytes.chunks(piece).for_each(|piece| parser.feed(piece));
        assert_eq!((parser.pending_bytes(), parser.has_backlog()), (bytes.len(), true));
        assert!(parser.memory_bytes() < bytes.len() * 11 / 10 + (2 << 20), "piece {piece}");
        for request in &requests {
            parser.parse_ahead();
            let args = parser.next_request().unwrap().expect("it is at hand");
            assert!(args.iter().eq(request.iter().map(Vec::as_slice)), "piece {piece}");
        }
        assert_eq!((parser.pending_bytes(), parser.has_backlog()), (0, false));
    }
}

#[test] // After the client disconnects, no step frees more than a block.
fn a_backlog_is_freed_in_slices() {
    let mut parser = Parser::new(512 << 20, true);
    (0..100).for_each(|_| parser.feed(&vec![b'*'; BUFFER_MAX_BYTES]));
    drop(parser);
    let mut steps = 0;
    while lazyfree::run(&Countdown::new(0)) {
        steps += 1;
    }
    assert!(steps + 1 >= 99 * BUFFER_MAX_BYTES / CHUNK_BYTES, "{steps}");
}

/// Random bytes, biased towards those of the protocol, never panic; requests end within the input.
#[test]
fn random_bytes_cause_no_panic() {
    let alphabet = b"*$\r\n0123456789-\"'\\xabPING \0";
    for seed in 0..2_000 {
        let mut prng = Prng::from_seed(seed);
        let input: Vec<u8> = (0..prng.below(200))
            .map(|_| alphabet[usize::try_from(prng.below(alphabet.len() as u64)).unwrap()])
            .collect();
        let whole = parse(&input, input.len().max(1));
        assert_eq!(parse(&input, 1), whole, "seed {seed}: {input:?}");
    }
}
