//! SUBSCRIBE, UNSUBSCRIBE and PUBLISH, their variants for patterns and shard channels, and PUBSUB.
//!
//! Not here: delivery of messages (`engine::pubsub`).

use super::{container, now, row, syntax, task};
use crate::engine::pubsub::Subscribing;
use crate::engine::state::pubsub::SubscriptionKind;
use crate::engine::state::pubsub::name::Name;
use crate::engine::{Core, Runner, ServerCall, SessionCx};
use darter_base::glob::{Case, Walk};
use darter_command::{
    Answer, Args, Command, Flags, Group, KeyFlags, KeySpec, Keys, Place, Refusal, Stream,
};
use darter_resp::{self as resp, Output, Reply};
use std::rc::Rc;

const OPEN: Flags = Flags::PUBSUB.and(Flags::LOADING).and(Flags::STALE);
const CHANGE: Flags = OPEN.and(Flags::NOSCRIPT).and(Flags::WHILE_SUBSCRIBED);
const PUBLISH: Flags = OPEN.and(Flags::FAST).and(Flags::MAY_REPLICATE);
const P: Group = Group::PubSub;

const fn slots(last: isize) -> [KeySpec; 1] {
    [KeySpec::new(Place::Range { first: 1, last, step: 1 }, KeyFlags::NOT_KEY)]
}
const ONE_SLOT: &[KeySpec] = &slots(1);
const SLOTS: &[KeySpec] = &slots(-1);

/// Adds names, which begin at the first argument, to a row. `slots` describes the names that have a
/// slot.
const fn named(row: (Command, Runner), slots: &'static [KeySpec]) -> (Command, Runner) {
    (Command { keys: Keys(slots), ..row.0.elements_from(1) }, row.1)
}

const fn publish(
    name: &'static str,
    since: &'static str,
    kind: SubscriptionKind,
    doc: (&'static str, &'static str),
) -> (Command, Runner) {
    (row(name, since, 3, PUBLISH, P).doc(doc.0, doc.1), Runner::Publish(kind))
}

#[rustfmt::skip] // A table.
pub(super) const TABLE: &[(Command, Runner)] = &[
    named(syntax(publish("publish", "2.0.0", SubscriptionKind::Channel, ("Post a message to a channel", "O(N+M) where N is the number of clients subscribed to the receiving channel and M is the total number of subscribed patterns (by any client).")), "channel message"), &[]),
    named(syntax(publish("spublish", "7.0.0", SubscriptionKind::Shard, ("Post a message to a shard channel", "O(N) where N is the number of clients subscribed to the receiving shard channel.")), "shardchannel message"), ONE_SLOT),
    named(syntax(task("subscribe", "2.0.0", -2, CHANGE, P, |call| Box::pin(subscribe(call, SubscriptionKind::Channel)), ("Listen for messages published to the given channels", "O(N) where N is the number of channels to subscribe to.")), "channel..."), &[]),
    named(syntax(task("unsubscribe", "2.0.0", -1, CHANGE, P, |call| Box::pin(unsubscribe(call, SubscriptionKind::Channel)), ("Stop listening for messages posted to the given channels", "O(N) where N is the number of clients already subscribed to a channel.")), "[channel...]"), &[]),
    named(syntax(task("psubscribe", "2.0.0", -2, CHANGE, P, |call| Box::pin(subscribe(call, SubscriptionKind::Pattern)), ("Listen for messages published to channels matching the given patterns", "O(N) where N is the number of patterns the client is already subscribed to.")), "(pattern: pattern:pattern)..."), &[]),
    named(syntax(task("punsubscribe", "2.0.0", -1, CHANGE, P, |call| Box::pin(unsubscribe(call, SubscriptionKind::Pattern)), ("Stop listening for messages posted to channels matching the given patterns", "O(N+M) where N is the number of patterns the client is already subscribed and M is the number of total patterns subscribed in the system (by any client).")), "[pattern:pattern...]"), &[]),
    named(syntax(task("ssubscribe", "7.0.0", -2, CHANGE, P, |call| Box::pin(subscribe(call, SubscriptionKind::Shard)), ("Listen for messages published to the given shard channels", "O(N) where N is the number of shard channels to subscribe to.")), "shardchannel..."), SLOTS),
    named(syntax(task("sunsubscribe", "7.0.0", -1, CHANGE, P, |call| Box::pin(unsubscribe(call, SubscriptionKind::Shard)), ("Stop listening for messages posted to the given shard channels", "O(N) where N is the number of clients already subscribed to a shard channel.")), "[shardchannel...]"), SLOTS),
    container("pubsub", "2.8.0", Flags::NONE, P, "A container for Pub/Sub commands"),
    syntax(task("pubsub|channels", "2.8.0", -2, OPEN, P, |call| Box::pin(channels(call, SubscriptionKind::Channel)), ("List active channels", "O(N) where N is the number of active channels, and assuming constant time pattern matching (relatively short channels and patterns)")), "[pattern:pattern]"),
    syntax(task("pubsub|numsub", "2.8.0", -2, OPEN, P, |call| Box::pin(numsub(call, SubscriptionKind::Channel)), ("Get the count of subscribers for channels", "O(N) for the NUMSUB subcommand, where N is the number of requested channels")), "[channel...]"),
    now("pubsub|numpat", "2.8.0", 2, OPEN, P, numpat, ("Get the count of unique patterns pattern subscriptions", "O(1)")),
    syntax(task("pubsub|shardchannels", "7.0.0", -2, OPEN, P, |call| Box::pin(channels(call, SubscriptionKind::Shard)), ("List active shard channels", "O(N) where N is the number of active shard channels, and assuming constant time pattern matching (relatively short shard channels).")), "[pattern:pattern]"),
    syntax(task("pubsub|shardnumsub", "7.0.0", -2, OPEN, P, |call| Box::pin(numsub(call, SubscriptionKind::Shard)), ("Get the count of subscribers for shard channels", "O(N) for the SHARDNUMSUB subcommand, where N is the number of requested shard channels")), "[shardchannel...]"),
    now("pubsub|help", "6.2.0", 2, Flags::LOADING.and(Flags::STALE), P, help, ("Show helpful text about the different subcommands", "O(1)")),
];

/// `SUBSCRIBE channel [channel ...]`, PSUBSCRIBE and SSUBSCRIBE: confirm each name, even with
/// CLIENT REPLY OFF.
async fn subscribe(call: ServerCall, kind: SubscriptionKind) -> Result<Answer, Refusal> {
    if call.is_inside() && kind == SubscriptionKind::Shard {
        let text = "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client";
        return Err(Refusal::line(text));
    }
    Ok(Answer::Done(change_named(&call, kind, true).await))
}

/// `UNSUBSCRIBE [channel ...]`, PUNSUBSCRIBE and SUNSUBSCRIBE: confirm each name. Without names,
/// they end all subscriptions.
async fn unsubscribe(call: ServerCall, kind: SubscriptionKind) -> Result<Answer, Refusal> {
    Ok(Answer::Done(match call.args().left() {
        0 => give_up_all(&call, kind).await,
        _ => change_named(&call, kind, false).await,
    }))
}

/// Changes the subscriptions named in the request. Returns the confirmations that are not sent yet:
/// none, except in EXEC.
async fn change_named(call: &ServerCall, kind: SubscriptionKind, joins: bool) -> Output {
    let begun = Subscribing::begin(&call.core, call.session.handle, kind, joins);
    let Some(mut subscribing) = begun else { return Output::default() };
    let args = resp::Args::owned(&call.request);
    for from in (call.first..args.len()).step_by(Subscribing::AT_ONCE) {
        let to = args.len().min(from + Subscribing::AT_ONCE);
        subscribing.change((from..to).map(|at| Name::of(args, at)).collect()).await;
        call.core.tx.pause().await;
    }
    end(subscribing, call)
}

fn end(subscribing: Subscribing, call: &ServerCall) -> Output {
    if call.is_inside() {
        return subscribing.end_inside();
    }
    subscribing.end();
    Output::default()
}

async fn give_up_all(call: &ServerCall, kind: SubscriptionKind) -> Output {
    let begun = Subscribing::begin(&call.core, call.session.handle, kind, false);
    let Some(mut subscribing) = begun else { return Output::default() };
    let mut held = subscribing.held();
    if held.is_empty() {
        subscribing.nothing();
    }
    while !held.is_empty() {
        subscribing.change(held).await;
        call.core.tx.pause().await;
        held = subscribing.held();
    }
    end(subscribing, call)
}

/// `PUBSUB CHANNELS [pattern]` and `PUBSUB SHARDCHANNELS [pattern]`: reply in unspecified order.
async fn channels(call: ServerCall, kind: SubscriptionKind) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let pattern = args.next().map(<[u8]>::to_vec);
    if args.left() > 0 {
        return Err(super::wrong_subcommand(args));
    }
    let found = call.core.run_on_all(|| {
        let pattern = pattern.clone();
        move |core: Rc<Core>| async move { named_here(&core, kind, pattern.as_deref()).await }
    });
    let blocks: Vec<Vec<Name>> = found.await.into_iter().flatten().collect();
    let (mut out, resp3) = (Output::default(), call.session.resp3);
    Reply::new(&mut out, resp3).array(blocks.iter().map(Vec::len).sum());
    Ok(Answer::Stream(out, Box::new(Names { blocks })))
}

/// Names in one block of the result. A single long list would be copied as it grows.
const BLOCK: usize = 256;

/// The matching channels that have this core as their home, in blocks.
async fn named_here(core: &Core, kind: SubscriptionKind, pattern: Option<&[u8]>) -> Vec<Vec<Name>> {
    /// Channels checked between two pauses: about 10 us.
    const AT_ONCE: usize = 64;
    let (mut blocks, mut after) = (vec![Vec::new()], None);
    loop {
        let names: Vec<Name> = {
            let registry = core.pubsub.registry.borrow();
            let names = registry.names_after(kind, after.as_ref());
            names.take(AT_ONCE).map(|(name, _)| name.clone()).collect()
        };
        let Some(last) = names.last() else { return blocks };
        after = Some(last.clone());
        for name in names {
            if matches(core, pattern, &name).await {
                if blocks.last().is_none_or(|block| block.len() == BLOCK) {
                    blocks.push(Vec::new());
                }
                blocks.last_mut().expect("there is one").push(name);
            }
        }
        core.tx.pause().await;
    }
}

/// True if the name of a channel matches `pattern`. Runs in portions.
async fn matches(core: &Core, pattern: Option<&[u8]>, name: &Name) -> bool {
    /// Steps of matching between two pauses: about 10 us.
    const STEPS: usize = 8 * 1024;
    let Some(pattern) = pattern else { return true };
    let mut walk = Walk::default();
    loop {
        let matches = walk.go_on(pattern, name.bytes(), Case::Sensitive, &mut { STEPS });
        if let Some(matches) = matches {
            return matches;
        }
        core.tx.pause().await;
    }
}

/// The stream that encodes the names of a PUBSUB reply.
struct Names {
    blocks: Vec<Vec<Name>>,
}

impl Stream for Names {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        for name in self.blocks.pop().into_iter().flatten() {
            reply.bulk(name.bytes());
        }
        !self.blocks.is_empty()
    }

    fn held_bytes(&self) -> usize {
        self.blocks.len() * BLOCK * size_of::<Name>()
    }
}

/// `PUBSUB NUMSUB [channel ...]` and `PUBSUB SHARDNUMSUB [channel ...]`: reply with the number of
/// subscribers of each channel.
async fn numsub(call: ServerCall, kind: SubscriptionKind) -> Result<Answer, Refusal> {
    let args = resp::Args::owned(&call.request);
    let (mut out, resp3) = (Output::default(), call.session.resp3);
    Reply::new(&mut out, resp3).array(2 * (args.len() - call.first));
    for at in call.first..args.len() {
        let name = Name::of(args, at);
        let (home, asked) = (name.home(call.core.tx.cores()), name.clone());
        let count = call.core.ask(home, move |core| {
            let registry = core.pubsub.registry.borrow();
            registry.counts(kind, &asked).map_or(0, |counts| counts.sum())
        });
        let count = count.await;
        out.part_tail();
        let mut reply = Reply::new(&mut out, resp3);
        reply.bulk(name.bytes());
        reply.count(count);
        call.core.tx.pause().await;
    }
    Ok(Answer::Done(out))
}

/// `PUBSUB NUMPAT`: every core counts all patterns, so no other core is asked.
fn numpat(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    cx.reply.count(cx.core.pubsub.registry.borrow().len(SubscriptionKind::Pattern));
    Ok(())
}

fn help(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    super::help(
        cx,
        "PUBSUB",
        &[
            "CHANNELS [<pattern>]",
            "    Return the currently active channels matching a <pattern> (default: '*').",
            "NUMPAT",
            "    Return number of subscriptions to patterns.",
            "NUMSUB [<channel> ...]",
            "    Return the number of subscribers for the specified channels, excluding",
            "    pattern subscriptions(default: no channels).",
            "SHARDCHANNELS [<pattern>]",
            "    Return the currently active shard level channels matching a <pattern> (default: '*').",
            "SHARDNUMSUB [<shardchannel> ...]",
            "    Return the number of subscribers for the specified shard level channel(s)",
        ],
    );
    Ok(())
}
