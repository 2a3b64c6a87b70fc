//! Trimming: XTRIM, and the options that it shares with XADD.

use super::id;
use super::refs::{Refs, Trimming};
use super::value::{NODE_ENTRIES, Stream};
use super::work;
use crate::option_names;
use darter_command::{Args, Cx, Flow, Refusal};
use darter_structs::stream::{Entries, StreamId};

/// The size that a stream is trimmed to.
#[derive(Clone, Copy, Debug)]
enum Keep {
    /// Keeps this many entries.
    Len(usize),
    /// Keeps the entries with this ID or later ones.
    From(StreamId),
}

/// How a stream is trimmed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trim {
    keep: Keep,
    /// Only multiples of [`NODE_ENTRIES`] are removed.
    is_approximate: bool,
    /// The most entries to remove.
    limit: Option<usize>,
}

/// The options of a request, as parsed so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    keep: Option<Keep>,
    is_approximate: bool,
    limit: Option<usize>,
    refs: Option<Refs>,
}

impl Options {
    /// Takes an option, if it comes next.
    pub(super) fn take(&mut self, args: &mut Args<'_>) -> Result<bool, Refusal> {
        if self.refs.is_none()
            && let Some(refs) = Refs::take(args)
        {
            self.refs = Some(refs);
            return Ok(true);
        }
        if args.left() < 2 {
            return Ok(false);
        }
        if args.option("MAXLEN") {
            self.begin(args)?;
            let len = usize::try_from(args.int()?);
            let refusal = || Refusal::line("ERR The MAXLEN argument must be >= 0.");
            self.keep = Some(Keep::Len(len.map_err(|_| refusal())?));
        } else if args.option("MINID") {
            self.begin(args)?;
            self.keep = Some(Keep::From(id::parse(args.word()?, 0)?));
        } else if args.option("LIMIT") {
            let limit = usize::try_from(args.int()?);
            let refusal = || Refusal::line("ERR The LIMIT argument must be >= 0.");
            self.limit = Some(limit.map_err(|_| refusal())?);
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// Parses the options before a threshold.
    fn begin(&mut self, args: &mut Args<'_>) -> Result<(), Refusal> {
        if self.keep.is_some() {
            return Err(Refusal::line(
                "ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
            ));
        }
        self.is_approximate = args.left() >= 2 && args.option("~");
        if !self.is_approximate && args.left() >= 2 {
            args.option("=");
        }
        Ok(())
    }

    /// True if there is no threshold, and none is required.
    fn is_empty(self) -> bool {
        self.keep.is_none() && self.limit.is_none_or(|limit| limit == 0)
    }

    /// The treatment of pending references.
    pub(super) fn refs(self) -> Refs {
        self.refs.unwrap_or_default()
    }

    /// Checks the combination of options, and returns the trim they describe.
    pub(super) fn trim(self) -> Result<Option<Trim>, Refusal> {
        let Self { keep, is_approximate, limit, .. } = self;
        if keep.is_none() && !self.is_empty() {
            return Err(Refusal::line(
                "ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
            ));
        }
        if limit.is_some() && !is_approximate {
            return Err(Refusal::line(
                "ERR syntax error, LIMIT cannot be used without the special ~ option",
            ));
        }
        let Some(keep) = keep else { return Ok(None) };
        let limit = match limit {
            None if is_approximate => Some(default_limit()),
            limit => limit.filter(|limit| *limit > 0),
        };
        Ok(Some(Trim { keep, is_approximate, limit }))
    }
}

/// The default limit of approximate trimming.
fn default_limit() -> usize {
    match NODE_ENTRIES.get().saturating_mul(100) {
        0 => 10_000,
        limit => limit.min(1_000_000),
    }
}

impl Trim {
    /// True if the ID alone permits removing the entry.
    pub(super) fn concerns(self, id: StreamId) -> bool {
        match self.keep {
            Keep::Len(_) => true,
            Keep::From(first) => id < first,
        }
    }

    /// The number of entries to remove at the front.
    pub(super) fn count(self, entries: &Entries) -> usize {
        self.count_with(entries, 0)
    }

    /// [`Trim::count`] after `added` more entries; those without an ID yet count as removable.
    pub(super) fn count_with(self, entries: &Entries, added: usize) -> usize {
        let len = entries.len() + added;
        let beyond = match self.keep {
            Keep::Len(most) => len.saturating_sub(most),
            Keep::From(id) => match entries.rank_of(id) {
                rank if rank == entries.len() => len,
                rank => rank,
            },
        };
        if !self.is_approximate {
            return beyond;
        }
        let most = beyond.min(self.limit.unwrap_or(usize::MAX));
        // If a node is unlimited, there is only one.
        match NODE_ENTRIES.get() {
            0 if most == len => most,
            0 => 0,
            _ if most == len => most,
            node => most - most % node,
        }
    }
}

/// `XTRIM key MAXLEN | MINID [= | ~] threshold [LIMIT count] [KEEPREF | DELREF | ACKED]`: removes
/// entries at the front, until `threshold` are left, or until the first has this ID or a later one.
/// With `~` it removes a multiple of `stream-node-max-entries` of them, and not more than `count`.
///
/// - `DELREF`: pending references to removed entries are removed, too.
/// - `ACKED`: entries that some group has not read or not acknowledged stay, and later entries are
///   removed instead.
///
/// Reply: integer, the number of removed entries. Refusals: options that exclude each other,
/// `NotAnInteger`, `Syntax`, `WrongType`. Cost: O(log n), and memory is freed later; with DELREF or
/// ACKED O(log n) for each entry in each group, in portions if that takes long.
/// Source: <https://redis.io/commands/xtrim> (5.0.0; `MINID`, `LIMIT` 6.2.0; references 8.2).
pub(super) fn xtrim(cx: &mut Cx<'_>, mut args: Args<'_>) -> Result<Flow, Refusal> {
    let at = args.position();
    let key = args.key()?;
    let mut options = Options::default();
    let mut said = option_names::Count::default();
    while args.left() > 0 {
        said.add()?;
        if !options.take(&mut args)? {
            return Err(Refusal::Syntax);
        }
    }
    let trim = if options.is_empty() { None } else { options.trim()? };
    let Some(trim) = trim else {
        return Err(Refusal::line(
            "ERR syntax error, XTRIM must be called with a trimming strategy",
        ));
    };
    if options.refs() != Refs::Keep
        && let Some(stream) = cx.db.read_value::<Stream>(&key)?
        && !stream.groups().is_empty()
    {
        let work = Trimming::new(trim, options.refs());
        let is_long = work.is_long(&stream, 0);
        return work::run(cx, args, at, is_long, work);
    }
    let count = cx.db.edit::<Stream, _>(&key, false, |edit| {
        let count = trim.count(edit.stream().entries());
        edit.trim(count);
        count
    })?;
    cx.reply.count(count.unwrap_or(0));
    Ok(Flow::Done)
}
