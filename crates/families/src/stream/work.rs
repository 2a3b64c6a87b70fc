//! Changes of a group that may take more than a slice: at once if they are short, otherwise aside.

use super::value::{Stream, StreamEdit};
use darter_command::{Args, Cx, Flow, Job, Refusal, Step};
use darter_keyspace::{Draft, Key};
use darter_resp::{self as resp, Reply, Request};
use std::sync::Arc;

/// A change of one stream, in steps of about 20 us.
pub(super) trait Work: Send + 'static {
    /// Does some of it. True while there is more.
    fn step(&mut self, edit: &mut StreamEdit<'_>, now: u64) -> bool;

    /// Replies, once all is done.
    fn reply(&mut self, reply: &mut Reply<'_>, stream: &Stream) -> Flow;
}

/// Work aside.
struct Aside<W: Work> {
    request: Arc<Request>,
    /// Of the key among the arguments.
    key: usize,
    draft: Draft<Stream>,
    work: W,
}

/// Does `work` on the stream at a key, which is there: the argument with this index. If it is long, a
/// cut is changed, and installed at the end; writers wait, readers see what was before.
pub(super) fn run<W: Work>(
    cx: &mut Cx<'_>,
    args: Args<'_>,
    key: usize,
    is_long: bool,
    mut work: W,
) -> Result<Flow, Refusal> {
    let name = Key::new(args.all().get(key));
    if is_long {
        let (request, draft) = (args.all().to_request(), cx.db.draft::<Stream>(&name)?);
        return Ok(Flow::Job(Box::new(Aside { request, key, draft, work })));
    }
    let (now, reply) = (cx.now, &mut cx.reply);
    let flow = cx.db.edit::<Stream, _>(&name, false, |edit| {
        while work.step(edit, now) {}
        work.reply(reply, edit.stream())
    })?;
    Ok(flow.expect("the stream is there"))
}

impl<W: Work> Job for Aside<W> {
    fn step(&mut self, cx: &mut Cx<'_>) -> Result<Step, Refusal> {
        loop {
            if !self.work.step(&mut self.draft.edit(cx.now), cx.now) {
                break;
            }
            if cx.preempt.must_yield() {
                return Ok(Step::More);
            }
        }
        let flow = self.work.reply(&mut cx.reply, self.draft.value());
        let key = Key::new(resp::Args::owned(&self.request).get(self.key));
        cx.db.install_draft(&key, std::mem::take(&mut self.draft));
        Ok(Step::Done(flow))
    }
}
