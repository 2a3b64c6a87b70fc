//! HSCAN: a hash, a few fields a call, with cursors that survive its growth.

use super::value::Hash;
use super::whole::Part;
use crate::cursor;
use crate::lookup::find_value;
use crate::scan::{Options, PORTION, Walk};
use crate::unsent::{Unsent, flow};
use darter_command::{Args, Cx, Flow, Refusal, Stream};
use darter_keyspace::Value;
use darter_resp::Reply;
use darter_structs::blob::Blob;
use std::sync::Arc;

/// The encoding of hashes that are returned whole.
const WHOLE: &str = "listpack";

/// `HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES]`: some fields with their values, and
/// the cursor to continue with.
///
/// Reply: array of the cursor and a flat array. A hash that Redis keeps packed is returned whole.
/// With a large count the reply is made in slices, from a cut. Refusals: an invalid cursor,
/// `WrongType`, `NotAnInteger`, `Syntax`, in this order; no option is looked at when the key is
/// absent. Cost: O(count). Source: <https://redis.io/commands/hscan> (2.8.0; NOVALUES 7.4.0).
pub(super) fn hscan(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let cursor = cursor::parse(args.bytes()?)?;
    let Some(hash) = find_value::<Hash>(cx.db, cx.stats, &key)? else {
        header(&mut cx.reply, 0, Part::Flat, 0);
        return Ok(Flow::Done);
    };
    let mut part = Part::Flat;
    let mut options = Options::parse(args, |args| {
        let alone = args.option("NOVALUES");
        part = if alone { Part::Field } else { part };
        alone
    })?;
    let is_whole = hash.encoding() == WHOLE;
    options.count = if is_whole { usize::MAX } else { options.count };
    let first = if is_whole { 0 } else { cursor };
    let walk = Walk::new(hash.fields().clone(), options, first, cx.now);
    let scan = Scan { part, walk, matches: 0, phase: Phase::Counting, unsent: Unsent::default() };
    Ok(flow(&mut cx.reply, scan))
}

/// The start of a reply.
fn header(reply: &mut Reply<'_>, cursor: u64, part: Part, fields: usize) {
    reply.array(2);
    reply.bulk(cursor.to_string().as_bytes());
    part.header(reply, fields);
}

/// How far a call has got.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Counting,
    Sending,
    Sent,
}

/// A call: counts, then sends.
struct Scan {
    part: Part,
    walk: Walk<Arc<Blob>>,
    matches: usize,
    phase: Phase,
    unsent: Unsent,
}

impl Scan {
    fn count(&mut self, reply: &mut Reply<'_>) {
        let mut matches = 0;
        let more = self.walk.place(&mut |_| matches += 1);
        self.matches += matches;
        if !more {
            header(reply, self.walk.cursor(), self.part, self.matches);
            self.phase = if self.matches > 0 { Phase::Sending } else { Phase::Sent };
            self.walk.restart();
        }
    }

    fn send(&mut self, reply: &mut Reply<'_>) {
        let (part, mut unsent) = (self.part, std::mem::take(&mut self.unsent));
        let more = self.walk.place(&mut |entry| {
            part.encode(reply, &mut unsent, entry);
        });
        self.unsent = unsent;
        if !more {
            self.phase = Phase::Sent;
        }
    }
}

impl Stream for Scan {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if !self.unsent.is_empty() {
            return self.unsent.pump(reply) || self.phase != Phase::Sent;
        }
        for _ in 0..PORTION {
            match self.phase {
                Phase::Counting => self.count(reply),
                Phase::Sending if self.unsent.is_empty() => self.send(reply),
                Phase::Sending | Phase::Sent => break,
            }
        }
        self.phase != Phase::Sent || !self.unsent.is_empty()
    }
}
