//! What a point command has at hand.

use crate::{Flow, Stream};
use darter_base::{Preempt, Prng, UnixMillis};
use darter_keyspace::{Db, Found, Key, ShardStats, Str};
use darter_resp::Reply;
use darter_structs::blob::Blob;

/// Longer strings are streamed to the client, not encoded at once: about 10 us.
const STREAM_MIN_BYTES: usize = 128 * 1024;

/// One database of one shard, the reply, and the outside world as arguments.
pub struct Cx<'a> {
    /// The database that the client has selected: this core's part.
    pub db: &'a mut Db,
    /// Where the reply goes.
    pub reply: Reply<'a>,
    /// Unix milliseconds, constant while the command runs.
    pub now: UnixMillis,
    /// Randomness for samples.
    pub prng: &'a mut Prng,
    /// Counters.
    pub stats: &'a mut ShardStats,
    /// For loops that are bounded by the arguments: is the slice over?
    pub preempt: &'a dyn Preempt,
}

impl Cx<'_> {
    /// The entry of `key` for a command that reads it, which is an access; counts the hit or the
    /// miss.
    pub fn find(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        let found = self.db.find(key);
        self.stats.count(found.is_some());
        found
    }

    /// [`Cx::find`] for a command that asks about the key only, which is not an access.
    pub fn peek(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        let found = self.db.peek(key);
        self.stats.count(found.is_some());
        found
    }

    /// [`Cx::peek`] for a command that asks about the value's representation: a miss is no event.
    pub fn inspect(&mut self, key: &Key<'_>) -> Option<Found<'_>> {
        let found = self.db.get(key);
        self.stats.count(found.is_some());
        found
    }
}

/// Encodes a string as a bulk reply: at once when it is short, as a stream when it is long.
pub fn reply_str(reply: &mut Reply<'_>, value: &Str<'_>) -> Flow {
    match value {
        Str::Inline(text) => {
            reply.bulk(text.bytes(&mut darter_structs::table::Scratch::default()));
            Flow::Done
        }
        Str::Blob(blob) => {
            reply.bulk_header(blob.len());
            send_blob(reply, blob)
        }
    }
}

/// Encodes a text with its format, as [`Reply::verbatim`] does: a long one, as a stream.
pub fn reply_text(reply: &mut Reply<'_>, format: [u8; 3], text: &Blob) -> Flow {
    reply.verbatim_header(format, text.len());
    send_blob(reply, text)
}

/// What follows the header.
fn send_blob(reply: &mut Reply<'_>, blob: &Blob) -> Flow {
    let mut stream = BlobStream { blob: blob.reader(), next: 0 };
    if blob.len() > STREAM_MIN_BYTES {
        return Flow::Stream(Box::new(stream));
    }
    while stream.pump(reply) {}
    Flow::Done
}

/// Sends a long string piece by piece, without copying it.
struct BlobStream {
    blob: Blob,
    next: usize,
}

impl Stream for BlobStream {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if self.next < self.blob.pieces() {
            let (piece, range) = self.blob.piece(self.next);
            reply.out.share(piece, range);
            self.next += 1;
        }
        let more = self.next < self.blob.pieces();
        if !more {
            reply.crlf();
        }
        more
    }

    fn pinned_bytes(&self) -> usize {
        self.blob.pinned_bytes()
    }
}
