//! Reading one string: GET, STRLEN, GETRANGE, SUBSTR, GETDEL, DIGEST.

use crate::lookup::{find, find_text};
use crate::text::{BYTES_AT_ONCE, pieces, to_blob};
use darter_base::hash::XxhDigest;
use darter_command::{Args, Cx, Flow, Refusal, Stream, reply_range, reply_str};
use darter_keyspace::{Fresh, Str};
use darter_resp::Reply;
use darter_structs::blob::Blob;
use darter_structs::table::Scratch;
use std::ops::Range;

/// `GET key`: replies with the string at `key`.
///
/// Reply: bulk, or null when the key is absent; streamed when long. Refusals: `WrongType`.
/// Cost: O(1) + bytes of the value. Source: <https://redis.io/commands/get> (1.0.0).
pub(super) fn get(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    match find_text(cx.db, cx.stats, &key)? {
        Some(text) => Ok(reply_str(&mut cx.reply, &text)),
        None => {
            cx.reply.null();
            Ok(Flow::Done)
        }
    }
}

/// `STRLEN key`: replies with the length of the string at `key`, 0 when it is absent.
///
/// Reply: integer. Refusals: `WrongType`. Cost: O(1).
/// Source: <https://redis.io/commands/strlen> (2.2.0).
pub(super) fn strlen(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let len = find_text(cx.db, cx.stats, &key)?.map_or(0, |text| text.len());
    cx.reply.count(len);
    Ok(Flow::Done)
}

/// `GETRANGE key start end`, and its old name SUBSTR: replies with a part of the string at `key`.
/// Both ends are included; negative ones count from the end of the string.
///
/// Reply: bulk, empty when nothing is in the range; streamed when long. Refusals:
/// `NotAnInteger`, `WrongType`. Cost: O(1) + bytes of the range.
/// Source: <https://redis.io/commands/getrange> (2.4.0).
pub(super) fn getrange(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let (start, end) = (args.int()?, args.int()?);
    let text = find_text(cx.db, cx.stats, &key)?;
    let range = text.map_or(0..0, |text| resolve(start, end, text.len()));
    match text {
        Some(text) if !range.is_empty() => Ok(reply_range(&mut cx.reply, &text, range)),
        _ => {
            cx.reply.bulk(b"");
            Ok(Flow::Done)
        }
    }
}

/// The bytes of `start..=end` in a string of `len` bytes.
fn resolve(start: i64, end: i64, len: usize) -> Range<usize> {
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let place = |at: i64| {
        let behind = usize::try_from(at.unsigned_abs()).unwrap_or(usize::MAX);
        if at < 0 { len.saturating_sub(behind) } else { behind }
    };
    let (start, end) = (place(start), place(end).saturating_add(1).min(len));
    if start < end { start..end } else { 0..0 }
}

/// `GETDEL key`: replies with the string at `key`, and removes the key.
///
/// Reply: bulk, or null when the key is absent. Refusals: `WrongType`; then nothing changes.
/// Cost: O(1) + bytes of the value. Source: <https://redis.io/commands/getdel> (6.2.0).
pub(super) fn getdel(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let Some(found) = find(cx.db, cx.stats, &key) else {
        cx.reply.null();
        return Ok(Flow::Done);
    };
    let flow = reply_str(&mut cx.reply, &found.text()?);
    cx.db.remove(&key);
    Ok(flow)
}

/// `DIGEST key`: replies with the XXH3 of the string at `key`, as 16 hexadecimal digits.
///
/// Reply: bulk, or null when the key is absent. Refusals: `WrongType`. Cost: O(bytes), in slices
/// when the string is long. Source: <https://redis.io/commands/digest> (8.4.0).
pub(super) fn digest(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let Some(text) = find_text(cx.db, cx.stats, &key)? else {
        cx.reply.null();
        return Ok(Flow::Done);
    };
    if text.len() <= BYTES_AT_ONCE {
        cx.reply.bulk(&digest_text(digest_of(&text)));
        return Ok(Flow::Done);
    }
    let stream = DigestStream { blob: to_blob(&text), next: 0, digest: XxhDigest::default() };
    Ok(Flow::Stream(Box::new(stream)))
}

/// The digest of a string. Cost: O(bytes): for short ones.
pub(super) fn digest_of(text: &Str<'_>) -> u64 {
    match text {
        Str::Inline(text) => darter_base::hash::digest(text.bytes(&mut Scratch::default())),
        Str::Blob(blob) => {
            let mut digest = XxhDigest::default();
            pieces(Fresh::Blob(blob)).for_each(|piece| digest.update(piece));
            digest.finish()
        }
    }
}

/// The text of a digest.
pub(super) fn digest_text(digest: u64) -> [u8; 16] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    std::array::from_fn(|at| HEX[usize::from((digest >> (60 - 4 * at)).to_le_bytes()[0] & 15)])
}

/// Hashes a long string; the reply is sent at the end.
struct DigestStream {
    blob: Blob,
    next: usize,
    digest: XxhDigest,
}

impl Stream for DigestStream {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        for piece in pieces(Fresh::Blob(&self.blob)).skip(self.next).take(2) {
            self.digest.update(piece);
        }
        self.next += 2;
        let more = self.next < self.blob.pieces();
        if !more {
            reply.bulk(&digest_text(self.digest.finish()));
        }
        more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Every pair of ends, against a slow reading of the rule.
    fn all_pairs_of_range_ends_give_the_bytes_that_redis_returns() {
        for len in 0..5_i64 {
            for start in -7..8 {
                for end in -7..8 {
                    let from = if start < 0 { (len + start).max(0) } else { start };
                    let to = if end < 0 { (len + end).max(0) } else { end };
                    let empty = start < 0 && end < 0 && start > end;
                    let expected: Vec<i64> =
                        (0..len).filter(|at| !empty && (from..=to).contains(at)).collect();
                    let range = resolve(start, end, usize::try_from(len).unwrap());
                    let found: Vec<i64> = range.map(|at| i64::try_from(at).unwrap()).collect();
                    assert_eq!(found, expected, "{start}..={end} of {len}");
                }
            }
        }
        assert_eq!(resolve(i64::MIN, i64::MAX, 3), 0..3);
    }

    #[test]
    fn the_digest_equals_the_example_in_redis_documentation() {
        let digest = darter_base::hash::digest(b"Hello world");
        assert_eq!(&digest_text(digest), b"b6acb9d84a38ff74");
        let mut portions = XxhDigest::default();
        portions.update(b"Hello ");
        portions.update(b"world");
        assert_eq!(portions.finish(), digest);
    }
}
