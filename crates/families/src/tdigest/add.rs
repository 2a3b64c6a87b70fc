//! TDIGEST.ADD: a few observations are added at once; many change a copy in portions.

use super::value::TDigest;
use super::{MISSING, OVERFLOW, refuse};
use darter_base::score;
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Draft, Key};
use darter_resp::{self as resp, Request};
use std::sync::Arc;

/// Observations that are added at once, including the merge of a buffer.
const AT_ONCE: usize = 256;
/// Observations that are read, or added, between two checks of the slice.
const PORTION: usize = 64;

/// `TDIGEST.ADD key value [value ...]`: adds observations.
///
/// Reply: `OK`. Refusals: an absent key, `WrongType`, a value that is not a finite number; then
/// nothing is added. Cost: O(values), in slices if they are many.
/// Source: <https://redis.io/commands/tdigest.add> (RedisBloom 2.4.0).
pub(super) fn add(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let key = args.key()?;
    let found = cx.db.read_value::<TDigest>(&key)?.ok_or_else(|| refuse(MISSING))?;
    let has_room = found.digest().has_room(args.left() as u64);
    if args.left() > AT_ONCE {
        let (request, first) = (args.all().to_request(), args.position());
        return Ok(Flow::Job(Box::new(Adding {
            request,
            checked: first,
            next: first,
            draft: None,
        })));
    }
    let values: Vec<f64> = (args.position()..args.all().len())
        .map(|at| value(args.all(), at))
        .collect::<Result<_, _>>()?;
    if !has_room {
        return Err(refuse(OVERFLOW));
    }
    cx.db.edit::<TDigest, _>(&key, false, |edit| {
        let are_added = values.into_iter().all(|value| edit.add(value));
        debug_assert!(are_added, "there was room");
    })?;
    cx.reply.ok();
    Ok(Flow::Done)
}

/// The observation given by the argument at this index.
fn value(all: resp::Args<'_>, at: usize) -> Result<f64, Refusal> {
    let value = score::parse(all.head(at));
    let value = value.ok_or_else(|| refuse("ERR T-Digest: error parsing val parameter"))?;
    if value.is_infinite() {
        return Err(refuse("ERR T-Digest: val parameter needs to be a finite number"));
    }
    Ok(value)
}

/// A TDIGEST.ADD of very many observations.
struct Adding {
    request: Arc<Request>,
    /// The indexes of the next observation to check and to add.
    checked: usize,
    next: usize,
    draft: Option<Draft<TDigest>>,
}

impl Adding {
    /// Checks the next arguments; once all are checked, adds the next ones. Returns true when all
    /// are added.
    fn go_on(&mut self, draft: &mut Draft<TDigest>, now: u64) -> Result<bool, Refusal> {
        let all = resp::Args::owned(&self.request);
        if self.checked < all.len() {
            let end = all.len().min(self.checked + PORTION);
            (self.checked..end).try_for_each(|at| value(all, at).map(drop))?;
            self.checked = end;
            return Ok(false);
        }
        let end = all.len().min(self.next + PORTION);
        let mut edit = draft.edit(now);
        for at in self.next..end {
            if !edit.add(value(all, at)?) {
                return Err(refuse(OVERFLOW));
            }
        }
        self.next = end;
        Ok(end == all.len())
    }
}

impl Job for Adding {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        let request = Arc::clone(&self.request);
        let key = Key::new(resp::Args::owned(&request).get(crate::unshare::KEY));
        let mut draft = match self.draft.take() {
            Some(draft) => draft,
            None => cx.db.draft::<TDigest>(&key)?,
        };
        if draft.is_new() {
            return Err(refuse(MISSING));
        }
        while !self.go_on(&mut draft, cx.now)? {
            if cx.preempt.must_yield() {
                self.draft = Some(draft);
                return Ok(Step::More);
            }
        }
        cx.db.install_draft(&key, draft);
        cx.reply.ok();
        Ok(Step::Done(Flow::Done))
    }
}
