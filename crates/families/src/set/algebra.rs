//! SINTER, SUNION, SDIFF: replies with the combination of several sets.
//!
//! There are two passes: the first decides which members belong to the result, the second sends
//! them. In between there is one bit a member (1.25 MB for ten million). So the exact count can be
//! sent first, and no member is copied. A result of up to [`KEPT_BYTES`] is encoded in the first
//! pass, and needs no second one.

use super::build::Build;
use super::plan::{Act, Inputs, Leg};
use super::reply::{Bits, Chosen, Form, Members, flow};
use super::walk::Walk;
use crate::counted_reply::CountedReply;
use crate::multi_input;
use crate::pinned_values::PinnedValues;
use darter_command::{Answer, Args, Call, Cx, Flow, Refusal, Stream};
use darter_resp::{Output, Reply};
use darter_structs::Watch;
use darter_structs::table::{Never, Table, Text};
use std::collections::VecDeque;

/// Bytes of encoded members that are kept in addition to the bits.
const KEPT_BYTES: usize = 64 * 1024;
/// Lookups and decisions in one portion.
const PORTION: usize = 400;

/// `SINTER key [key ...]`: the members that are in all the sets. An absent key is an empty set.
///
/// Reply: set (array in RESP2); computed in slices and streamed when large, from cuts of all
/// inputs. Refusals: `WrongType` of any key. Cost: O(smallest set * sets).
/// Source: <https://redis.io/commands/sinter> (1.0.0).
pub(super) fn sinter_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Act::Inter)
}

/// `SUNION key [key ...]`: the members that are in any of the sets.
///
/// Otherwise as SINTER. Cost: O(members of all sets).
/// Source: <https://redis.io/commands/sunion> (1.0.0).
pub(super) fn sunion_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Act::Union)
}

/// `SDIFF key [key ...]`: the members of the first set that are in no other.
///
/// Otherwise as SINTER. Cost: O(members of all sets).
/// Source: <https://redis.io/commands/sdiff> (1.0.0).
pub(super) fn sdiff_here(cx: &mut Cx<'_>, args: Args<'_>) -> Result<Flow, Refusal> {
    here(cx, args, Act::Diff)
}

fn here(cx: &mut Cx<'_>, args: Args<'_>, act: Act) -> Result<Flow, Refusal> {
    let cuts = multi_input::here(cx.db, cx.stats, args, args.left())?;
    let inputs = Inputs::here(act, cuts);
    let small = inputs.is_small();
    let combine = Combine::new(inputs, cx.now);
    Ok(flow(cx, small, combine))
}

/// SINTER, SUNION or SDIFF for sets on several cores, or for very many.
pub(super) async fn anywhere(call: Call, act: Act) -> Result<Answer, Refusal> {
    let cuts = multi_input::anywhere(&call, call.first..call.len()).await?;
    let now = call.tx.home().shard.now();
    let combine = Combine::new(Inputs::anywhere(&call, act, cuts).await, now);
    Ok(Answer::Stream(Output::default(), Box::new(combine)))
}

/// A reply being sent.
pub(super) struct Combine {
    stage: SetAlgebraStage,
    /// The inputs, until the first pass is done.
    inputs: PinnedValues<Watch>,
}

enum SetAlgebraStage {
    Deciding(Deciding),
    Building(Box<Build>, u64),
    Sending(Box<dyn Stream>),
}

/// The first pass.
struct Deciding {
    walks: VecDeque<Walk>,
    /// The inputs for the second pass.
    cuts: VecDeque<Table<Never>>,
    bits: Bits,
    count: usize,
    /// The encoded members so far, until they are too many.
    kept: Option<CountedReply>,
    kept_bytes: usize,
    now: u64,
}

impl Combine {
    /// The combination of `inputs` as of `now`. Nothing of the reply is encoded yet.
    pub(super) fn new(mut inputs: Inputs, now: u64) -> Self {
        let watched = inputs.watch();
        if inputs.is_built() {
            let build = Box::new(Build::new(inputs, now));
            return Self { stage: SetAlgebraStage::Building(build, now), inputs: watched };
        }
        let bits = Bits::with_capacity(inputs.walked());
        let mut legs = inputs.legs();
        let walks = legs.iter_mut().map(|leg| leg.walk(now)).collect();
        let cuts = legs.into_iter().map(|leg: Leg| leg.walked).collect();
        let kept = Some(CountedReply::default());
        let deciding = Deciding { walks, cuts, bits, count: 0, kept, kept_bytes: 0, now };
        Self { stage: SetAlgebraStage::Deciding(deciding), inputs: watched }
    }
}

impl Deciding {
    /// Continues the first pass. Returns true while it is unfinished.
    fn step(&mut self) -> bool {
        let Some(walk) = self.walks.front_mut() else { return false };
        let (bits, count) = (&mut self.bits, &mut self.count);
        let (kept, kept_bytes) = (&mut self.kept, &mut self.kept_bytes);
        let more = walk.step(PORTION, &mut |member, keep| {
            bits.push(keep);
            if !keep {
                return;
            }
            *count += 1;
            let Some(list) = kept else { return };
            *kept_bytes += member.len();
            if *kept_bytes > KEPT_BYTES {
                (*kept, *kept_bytes) = (None, 0);
            } else {
                list.push(Text::raw(member));
            }
        });
        if !more {
            self.walks.pop_front();
        }
        !self.walks.is_empty()
    }

    /// Starts the reply.
    fn send(&mut self, reply: &mut Reply<'_>) -> Box<dyn Stream> {
        Form::Set.header(reply, self.count);
        match self.kept.take() {
            Some(kept) => Box::new(kept),
            None => {
                let (cuts, bits) = (std::mem::take(&mut self.cuts), std::mem::take(&mut self.bits));
                Box::new(Chosen::new(cuts, bits, self.count, self.now))
            }
        }
    }
}

impl Stream for Combine {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let stream: Box<dyn Stream> = match &mut self.stage {
            SetAlgebraStage::Sending(stream) => return stream.pump(reply),
            SetAlgebraStage::Deciding(deciding) => {
                if deciding.step() {
                    return true;
                }
                deciding.send(reply)
            }
            SetAlgebraStage::Building(build, now) => {
                if build.step() {
                    return true;
                }
                let build = std::mem::replace(&mut **build, Build::empty());
                let own = build.own_bytes();
                let cut = build.into_set().members().clone();
                Box::new(Members::made(cut, own, Form::Set, *now))
            }
        };
        (self.stage, self.inputs) = (SetAlgebraStage::Sending(stream), PinnedValues::new([]));
        true
    }

    fn pinned_bytes(&self) -> usize {
        let own = match &self.stage {
            SetAlgebraStage::Sending(stream) => stream.pinned_bytes(),
            SetAlgebraStage::Deciding(deciding) => {
                deciding.bits.memory_bytes() + deciding.kept_bytes
            }
            SetAlgebraStage::Building(build, _) => build.own_bytes(),
        };
        self.inputs.pinned_bytes() + own
    }
}
