//! Examples, the independence of chunk sizes, and random bytes.

use super::*;
use darter_base::Prng;

/// What was read: requests, and the error that ended them.
type Read = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// All requests in `input`, fed in pieces of `piece` bytes. Whether requests are cut ahead, and
/// when, makes no difference.
fn parse(input: &[u8], piece: usize) -> Read {
    let read = parse_ahead(input, piece, |_| false);
    assert_eq!(parse_ahead(input, piece, |_| true), read, "cut ahead, piece {piece}");
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
            // Bytes arrive while requests wait for their turn.
            if step % 7 == 0 && parser.ahead().count() > 0 && parts.peek().is_some() {
                break;
            }
            if is_ahead(step) {
                let cut = parser.cut_ahead();
                assert!(cut == 0 || cut == parser.ahead().count());
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

#[test] // Whatever the sizes of requests and of pieces, what was sent is what is read.
fn requests_survive_any_cut() {
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
fn errors_have_redis_texts() {
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

#[test] // Redis looks for the end of a line up to the first NUL.
fn behind_a_nul_no_line_ends() {
    for input in [&b"PI\0NG\r\n"[..], b"\0\r\n", b"*1\0\r\n", b"*1\r\n$4\0\r\nPING\r\n"] {
        let mut long = input.to_vec();
        assert_eq!(parse(input, input.len()), (vec![], None), "{input:?}");
        long.resize(LINE_MAX_BYTES + 100, b'\n');
        assert!(parse(&long, 4_096).1.is_some(), "{input:?}");
    }
}

#[test]
fn empty_requests_are_passed_over() {
    let (requests, error) = parse(b"*0\r\n*-1\r\n\r\n\n*1\r\n$4\r\nPING\r\nPING\r\n", 3);
    assert_eq!(error, None);
    assert_eq!(requests, vec![vec![b"PING".to_vec()]; 2]);
}

#[test] // A header of a billion elements, or of 512 MB, costs nothing before the bytes arrive.
fn announcements_allocate_nothing() {
    for header in [&b"*1000000000\r\n"[..], b"*2\r\n$3\r\nSET\r\n$536870912\r\n"] {
        let mut parser = Parser::new(512 << 20, true);
        parser.feed(header);
        assert!(parser.next_request().unwrap().is_none());
        assert!(parser.memory_bytes() < 1_024, "{}", parser.memory_bytes());
    }
}

#[test] // Of what has arrived at once, a portion is looked at in a call, and the buffer drains.
fn a_request_of_many_arguments_is_cut_in_portions() {
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
        let seen = portions * 1_000 * 12; // At least.
        assert!(parser.pending_bytes() <= whole + CHUNK_BYTES - seen.min(whole), "{portions}");
    };
    assert_eq!((portions, args == request), (99, true));
}

#[test]
fn unauthenticated_clients_announce_little() {
    let mut parser = Parser::new(512 << 20, false);
    parser.feed(b"*11\r\n");
    assert_eq!(
        parser.next_request().unwrap_err(),
        ProtocolError::Text("unauthenticated multibulk length")
    );
}

/// Random bytes, biased towards the protocol's own, never panic; requests end within the input.
#[test]
fn random_bytes_do_no_harm() {
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
