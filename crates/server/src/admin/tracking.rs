//! CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO.
//!
//! Not here: sending invalidations (`engine::tracking`).

use crate::engine::state::tracking::Prefix;
use crate::engine::state::tracking::mode::{Mode, Reads};
use crate::engine::state::tracking::trackers::Prefixes;
use crate::engine::tracking::Tracks;
use crate::engine::{Core, ServerCall, SessionCx};
use darter_command::{Answer, Args, Refusal};
use darter_resp::{Output, Reply};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::rc::Rc;

const NO_TARGET: &str = "ERR The client ID you want redirect to does not exist";
const TWO_TARGETS: &str = "ERR A client can only redirect to a single other client";
const NO_BROADCAST: &str = "ERR PREFIX option requires BCAST mode to be enabled";
const OTHER_BROADCAST: &str = "ERR You can't switch BCAST mode on/off before disabling tracking for \
    this client, and then re-enabling it with a different mode.";
const OTHER_OPT: &str = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this \
    client, and then re-enabling it with a different mode.";
const OPT_BROADCAST: &str = "ERR OPTIN and OPTOUT are not compatible with BCAST";
const BOTH_OPTS: &str = "ERR You can't specify both OPTIN mode and OPTOUT mode";
const NOT_TRACKING: &str = "ERR CLIENT CACHING can be called only when the client is in tracking mode \
    with OPTIN or OPTOUT mode enabled";
const NOT_OPTIN: &str =
    "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.";
const NOT_OPTOUT: &str =
    "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.";

/// Prefixes checked between two pauses: a few microseconds.
const AT_ONCE: usize = 16;

/// The parsed arguments of CLIENT TRACKING.
#[derive(Default)]
struct Options {
    redirect: u64,
    target: u64,
    is_broadcast: bool,
    is_optin: bool,
    is_optout: bool,
    is_quiet: bool,
    prefixes: Vec<Prefix>,
}

/// `CLIENT TRACKING ON | OFF [REDIRECT id] [PREFIX prefix [PREFIX prefix ...]] [BCAST] [OPTIN]
/// [OPTOUT] [NOLOOP]`.
///
/// Reply: OK. Cost: O(prefixes), in portions.
pub(super) async fn tracking(call: ServerCall) -> Result<Answer, Refusal> {
    let mut args = call.args();
    let word = args.word()?.to_ascii_lowercase();
    let options = Options::read(&call, &mut args).await?;
    let core = &call.core;
    match word.as_slice() {
        b"on" => {
            let before = call.session.tracking;
            let mode = options.mode(before)?;
            let prefixes = options.prefixes;
            if mode.reads == Reads::Broadcast {
                check_overlaps(&call, &prefixes).await?;
            }
            let Some(tracks) = Tracks::begin(core, call.session.handle, mode) else {
                return Ok(call.answer(|reply| reply.ok()));
            };
            if mode.reads == Reads::Broadcast && prefixes.is_empty() {
                tracks.add(&[Prefix::from(&b""[..])]).await;
            }
            tracks.add(&prefixes).await;
        }
        b"off" => {
            let id = call.session.handle;
            let before =
                core.with_client(id, |conn| std::mem::take(&mut conn.lane.session.tracking));
            core.stop_tracking(id, before.unwrap_or_default());
        }
        _ => return Err(Refusal::Syntax),
    }
    Ok(call.answer(|reply| reply.ok()))
}

impl Options {
    async fn read(call: &ServerCall, args: &mut Args<'_>) -> Result<Self, Refusal> {
        let mut options = Self::default();
        while args.left() > 0 {
            let word = args.word()?.to_ascii_lowercase();
            match word.as_slice() {
                b"redirect" if args.left() > 0 => {
                    if options.redirect > 0 {
                        return Err(Refusal::line(TWO_TARGETS));
                    }
                    (options.redirect, options.target) = target(call, args.int()?).await?;
                }
                b"bcast" => options.is_broadcast = true,
                b"optin" => options.is_optin = true,
                b"optout" => options.is_optout = true,
                b"noloop" => options.is_quiet = true,
                b"prefix" if args.left() > 0 => {
                    options.prefixes.push(Prefix::from(args.bytes()?));
                    call.core.tx.pause().await;
                }
                _ => return Err(Refusal::Syntax),
            }
        }
        Ok(options)
    }

    /// The new tracking mode of a client whose current mode is `before`.
    fn mode(&self, before: Mode) -> Result<Mode, Refusal> {
        let refuse = |text| Err(Refusal::line(text));
        let was_broadcast = before.reads == Reads::Broadcast;
        if !self.is_broadcast && !self.prefixes.is_empty() {
            return refuse(NO_BROADCAST);
        }
        if before.is_on && was_broadcast != self.is_broadcast {
            return refuse(OTHER_BROADCAST);
        }
        if self.is_broadcast && (self.is_optin || self.is_optout) {
            return refuse(OPT_BROADCAST);
        }
        if self.is_optin && self.is_optout {
            return refuse(BOTH_OPTS);
        }
        if (self.is_optin && before.reads == Reads::OptOut)
            || (self.is_optout && before.reads == Reads::OptIn)
        {
            return refuse(OTHER_OPT);
        }
        let reads = match (self.is_broadcast, self.is_optin, self.is_optout) {
            (true, ..) => Reads::Broadcast,
            (_, true, _) => Reads::OptIn,
            (.., true) => Reads::OptOut,
            _ => Reads::All,
        };
        let Self { redirect, target, is_quiet, .. } = *self;
        Ok(Mode { is_on: true, reads, is_quiet, redirect, target, ..Mode::default() })
    }
}

/// The id and the handle of the client that shall receive redirected invalidations. From now on it
/// does not move to another core.
async fn target(call: &ServerCall, id: i64) -> Result<(u64, u64), Refusal> {
    let gone = || Refusal::line(NO_TARGET);
    let id = u64::try_from(id).ok().filter(|id| *id > 0).ok_or_else(gone)?;
    let _held = call.core.hold_moves().await;
    let handles = call.core.ask_all(|| move |core: &Rc<Core>| core.keep_target(id)).await;
    let handle = handles.into_iter().flatten().next();
    Ok((id, handle.ok_or_else(gone)?))
}

/// Refuses prefixes that overlap: one begins with the other, whether it is new or already tracked
/// by the client. The error names the first such prefix in the order of the request, and the first
/// prefix that it overlaps with.
async fn check_overlaps(call: &ServerCall, prefixes: &[Prefix]) -> Result<(), Refusal> {
    let client = call.session.handle;
    for (at, prefix) in prefixes.iter().enumerate() {
        let other = {
            let trackers = call.core.tracking.trackers.borrow();
            trackers.prefixes_of(client).and_then(|own| overlapping(own, prefix)).cloned()
        };
        if let Some(other) = other {
            return Err(overlap(prefix, " overlaps with an existing prefix '", &other));
        }
        if at % AT_ONCE == AT_ONCE - 1 {
            call.core.tx.pause().await;
        }
    }
    let mut seen = Prefixes::new();
    let mut is_alone = true;
    for (at, prefix) in prefixes.iter().enumerate() {
        is_alone &= overlapping(&seen, prefix).is_none();
        seen.insert(prefix.clone());
        if at % AT_ONCE == AT_ONCE - 1 {
            call.core.tx.pause().await;
        }
    }
    if is_alone {
        return Ok(());
    }
    for (at, prefix) in prefixes.iter().enumerate() {
        for (more, other) in prefixes[at + 1..].iter().enumerate() {
            if prefix.starts_with(other) || other.starts_with(prefix) {
                return Err(overlap(prefix, " overlaps with another provided prefix '", other));
            }
            if more % AT_ONCE == AT_ONCE - 1 {
                call.core.tx.pause().await;
            }
        }
    }
    Ok(())
}

fn overlap(prefix: &[u8], what: &str, other: &[u8]) -> Refusal {
    let text = [
        b"ERR Prefix '",
        prefix,
        b"'",
        what.as_bytes(),
        other,
        b"'. Prefixes for a single client must not overlap.",
    ];
    Refusal::Line(text.concat().into())
}

/// The first of `prefixes` that overlaps with `prefix`, which means that one begins with the other.
/// The prefixes of the set do not overlap, except for the empty one, so few need to be compared.
fn overlapping<'a>(prefixes: &'a BTreeSet<Prefix>, prefix: &[u8]) -> Option<&'a Prefix> {
    let before = prefixes.range::<[u8], _>((Bound::Unbounded, Bound::Included(prefix))).next_back();
    let after = prefixes.range::<[u8], _>((Bound::Excluded(prefix), Bound::Unbounded)).next();
    let is_first = |first: &&Prefix| prefix.starts_with(first);
    let all = prefixes.first().filter(|first| first.is_empty());
    all.or(before.filter(is_first)).or(after.filter(|after| after.starts_with(prefix)))
}

/// `CLIENT CACHING YES | NO`: applies to the next command or transaction.
pub(super) fn caching(cx: &mut SessionCx<'_>, mut args: Args<'_>) -> Result<(), Refusal> {
    let mode = &mut cx.session.tracking;
    if !mode.is_on {
        return Err(Refusal::line(NOT_TRACKING));
    }
    let (reads, text) = match args.word()?.to_ascii_lowercase().as_slice() {
        b"yes" => (Reads::OptIn, NOT_OPTIN),
        b"no" => (Reads::OptOut, NOT_OPTOUT),
        _ => return Err(Refusal::Syntax),
    };
    if mode.reads != reads {
        return Err(Refusal::line(text));
    }
    mode.is_excepted = true;
    cx.reply.ok();
    Ok(())
}

/// `CLIENT GETREDIR`: replies -1 without tracking, and 0 without redirection.
pub(super) fn getredir(cx: &mut SessionCx<'_>, _args: Args<'_>) -> Result<(), Refusal> {
    cx.reply.int(cx.session.tracking.redirection());
    Ok(())
}

/// `CLIENT TRACKINGINFO`: replies with the flags, the id of the client that gets the invalidations,
/// and the prefixes.
pub(super) async fn trackinginfo(call: ServerCall) -> Result<Answer, Refusal> {
    let (mode, resp3) = (call.session.tracking, call.session.resp3);
    let except = |yes| mode.is_excepted.then_some(yes);
    let reads = match mode.reads {
        Reads::All => [None, None],
        Reads::Broadcast => [Some("bcast"), None],
        Reads::OptIn => [Some("optin"), except("caching-yes")],
        Reads::OptOut => [Some("optout"), except("caching-no")],
    };
    let rest = [mode.is_quiet.then_some("noloop"), mode.is_broken.then_some("broken_redirect")];
    let flags = reads.into_iter().chain(rest).flatten();
    let flags = std::iter::once(if mode.is_on { "on" } else { "off" }).chain(flags);
    let mut out = Output::default();
    let mut reply = Reply::new(&mut out, resp3);
    reply.map(3);
    reply.bulk(b"flags");
    reply.set(flags.clone().count());
    flags.for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"redirect");
    reply.int(mode.redirection());
    reply.bulk(b"prefixes");
    let of = |after: Option<&Prefix>| -> Vec<Prefix> {
        let trackers = call.core.tracking.trackers.borrow();
        let from = after.map_or(Bound::Unbounded, |after| Bound::Excluded(&**after));
        let own = trackers.prefixes_of(call.session.handle).into_iter();
        own.flat_map(|own| own.range::<[u8], _>((from, Bound::Unbounded)))
            .take(AT_ONCE)
            .cloned()
            .collect()
    };
    let count = {
        let trackers = call.core.tracking.trackers.borrow();
        trackers.prefixes_of(call.session.handle).map_or(0, Prefixes::len)
    };
    reply.array(count);
    let mut some = of(None);
    while let Some(last) = some.last().cloned() {
        for prefix in &some {
            out.part_tail();
            let mut reply = Reply::new(&mut out, resp3);
            reply.bulk_header(prefix.len());
            reply.out.share(prefix, 0..prefix.len());
            reply.crlf();
        }
        call.core.tx.pause().await;
        some = of(Some(&last));
    }
    Ok(Answer::Done(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    #[test] // A model compares all pairs of random words of two letters.
    fn the_first_overlapping_prefix_is_found() {
        for seed in 0..2_000 {
            let mut prng = Prng::from_seed(seed);
            let mut word = || -> Vec<u8> {
                (0..prng.below(5)).map(|_| b'a' + u8::from(prng.chance(50))).collect()
            };
            let mut own = Prefixes::new();
            for _ in 0..6 {
                let new = word();
                let collides = |other: &&Prefix| other.starts_with(&new) || new.starts_with(other);
                let expected = own.iter().find(collides);
                assert_eq!(overlapping(&own, &new), expected, "seed {seed}: {new:?} and {own:?}");
                if expected.is_none() {
                    own.insert(Prefix::from(&new[..]));
                }
            }
        }
    }
}
