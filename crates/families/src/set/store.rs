//! SINTERSTORE, SUNIONSTORE, SDIFFSTORE: the combination of several sets, stored at a key.
//!
//! The shape *Build*, across cores: the destination is locked, cuts of the sources are taken at one
//! instant and their locks released, the result is built in slices on the coordinating core, and
//! installed in one step on the core of the destination. Only commands on the destination wait.

use super::build::Build;
use super::plan::{Act, Inputs};
use crate::multi_input;
use darter_command::{Answer, Call, Refusal};
use darter_keyspace::{Deadline, Event, Key, Object};
use darter_tx::Home;
use std::sync::Arc;

/// `SINTERSTORE destination key [key ...]` and relatives: store the result at `destination`,
/// replacing any value there. An empty result removes the key. The destination may be one of the
/// sources.
///
/// Reply: integer, the number of members of the result. Refusals: `WrongType` of any source; then
/// nothing changes. Cost: as SINTER, SUNION, SDIFF; in slices. Memory: a source that makes up most
/// of the result is shared with it. Source: <https://redis.io/commands/sinterstore> (1.0.0).
pub(super) async fn store(call: Call, act: Act) -> Result<Answer, Refusal> {
    let target = call.first;
    let (cuts, locked) = multi_input::for_target(&call, target + 1..call.len(), target).await?;
    let now = call.tx.home().shard.now();
    let mut build = Build::new(Inputs::anywhere(&call, act, cuts).await, now);
    while build.step() {
        call.tx.pause().await;
    }
    let set = build.into_set();
    let count = set.len();
    let (request, db, event) = (Arc::clone(&call.request), call.db, event_of(act));
    let install = move |home: &mut Home| {
        let key = Key::new(darter_resp::Args::owned(&request).get(target));
        home.shard.db_mut(db).install(&key, Object::new(set), Deadline::Clear, &[event]);
    };
    call.tx.on(call.owner(target), install).await;
    drop(locked);
    Ok(call.answer(|reply| reply.count(count)))
}

/// The event of the command.
fn event_of(act: Act) -> &'static Event {
    const SINTERSTORE: &Event = &Event::new("sinterstore", b's');
    const SUNIONSTORE: &Event = &Event::new("sunionstore", b's');
    const SDIFFSTORE: &Event = &Event::new("sdiffstore", b's');
    match act {
        Act::Inter => SINTERSTORE,
        Act::Union => SUNIONSTORE,
        Act::Diff => SDIFFSTORE,
    }
}
