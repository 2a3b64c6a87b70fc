//! The target of the request parser: any bytes, in one piece or in many, give the same requests and
//! the same error, and memory follows the bytes received.

use darter_resp::{Parser, ProtocolError};

const BULK_MAX: usize = 512 << 20;
/// The parser's allowance beyond a multiple of the input.
const MEMORY_BASE: usize = 256 * 1024;

type Outcome = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Parses `data` whole and in pieces.
///
/// Panics if splitting makes a difference, or if memory does not follow the input.
pub(crate) fn fuzz_requests(data: &[u8]) {
    let piece = usize::from(data.last().copied().unwrap_or(0)) % 97 + 1;
    for authenticated in [true, false] {
        let whole = parse(data, data.len().max(1), authenticated, 0);
        assert_eq!(whole, parse(data, piece, authenticated, 0), "pieces of {piece} matter");
        for every in [1, 3] {
            let ahead = parse(data, piece, authenticated, every);
            assert_eq!(whole, ahead, "cutting ahead matters, pieces of {piece}, at each {every}");
        }
    }
}

/// Parses requests ahead at every `every`th step; never if it is 0.
fn parse(data: &[u8], piece: usize, authenticated: bool, every: usize) -> Outcome {
    let mut parser = Parser::new(BULK_MAX, authenticated);
    let (mut requests, mut step) = (Vec::new(), 0);
    for part in data.chunks(piece) {
        parser.feed(part);
        loop {
            let memory = parser.memory_bytes();
            assert!(memory <= MEMORY_BASE + 32 * data.len(), "{memory} bytes for {}", data.len());
            step += 1;
            if every > 0 && step % every == 0 {
                parser.parse_ahead();
            }
            match parser.next_request() {
                Ok(Some(args)) => requests.push(args.iter().map(<[u8]>::to_vec).collect()),
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
    }
    (requests, None)
}
