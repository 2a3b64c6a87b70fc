//! The patterns of BY and GET: the keys that they name, and the values there.
//!
//! Such keys depend on the elements, and may be on any core. They are read in cuts of the keyspace
//! of all cores, taken at the same instant as the cut of the elements, some keys at a time, so that
//! their cache misses overlap. docs/design/0021-sort.md says why.

use super::texts::{Shown, TextId, Texts};
use crate::cut::{Cut, Cuts};
use crate::hash::{self, value_of};
use darter_base::limits::{ENTRIES_AT_ONCE, name_max_bytes};
use darter_base::slot::owner_of;
use darter_command::{Args, Call, Refusal, until_nul};
use darter_keyspace::{Found, Key, ShardStats, Str};
use darter_tx::{CoreId, Home};
use std::sync::Arc;

/// Bytes of names that are made, and of elements that are shown, together, unless one alone has
/// more.
pub(super) const NAME_BYTES: usize = 64 * 1024;
/// The longest pattern: the names that it makes are built and hashed in one go.
const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// Names of missed keys that are published together, and their bytes.
pub(super) const MISSED_AT_ONCE: usize = ENTRIES_AT_ONCE;
const MISSED_BYTES: usize = 64 * 1024;

/// A pattern of BY or GET.
#[derive(Debug)]
pub(super) enum Pattern {
    /// `#`: the element itself.
    Element,
    /// Without a star: no key.
    Nothing,
    /// The element stands between two texts; perhaps a field of the hash at that key is meant.
    Key {
        /// The text before the element.
        prefix: Vec<u8>,
        /// The text after it.
        suffix: Vec<u8>,
        /// The field.
        field: Option<Vec<u8>>,
    },
}

impl Pattern {
    /// The next argument, which is a pattern. One that is too long is not brought into one piece.
    pub(super) fn take(args: &mut Args<'_>) -> Result<Self, Refusal> {
        if args.all().arg(args.position()).len() > PATTERN_BYTES_MAX {
            return Err(Refusal::line("ERR BY or GET pattern is too long"));
        }
        args.bytes().map(Self::parse)
    }

    /// Parses a pattern. As in Redis the star and the arrow are looked for before the first NUL.
    pub(super) fn parse(pattern: &[u8]) -> Self {
        let text = until_nul(pattern);
        if text == b"#" {
            return Self::Element;
        }
        let Some(star) = text.iter().position(|byte| *byte == b'*') else { return Self::Nothing };
        let arrow = text[star + 1..].windows(2).position(|two| two == b"->");
        let arrow = arrow.map(|at| star + 1 + at).filter(|at| at + 2 < text.len());
        let end = arrow.unwrap_or(pattern.len());
        Self::Key {
            prefix: pattern[..star].to_vec(),
            suffix: pattern[star + 1..end].to_vec(),
            field: arrow.map(|at| pattern[at + 2..].to_vec()),
        }
    }

    /// True when it names keys.
    pub(super) fn names_keys(&self) -> bool {
        matches!(self, Self::Key { .. })
    }

    /// How often it copies the element, and how many bytes beside it.
    fn around(&self) -> (usize, usize) {
        match self {
            Self::Element => (1, 0),
            Self::Nothing => (0, 0),
            Self::Key { prefix, suffix, field } => {
                (1, prefix.len() + suffix.len() + field.as_ref().map_or(0, Vec::len))
            }
        }
    }

    /// The pattern's value at a key that was found: none if its type differs, or without such a
    /// field.
    fn value<'a>(&self, found: Found<'a>, now: u64) -> Option<Str<'a>> {
        match self {
            Self::Key { field: Some(field), .. } => {
                let entry = hash::Hash::look(&found, &Key::new(field), now).ok().flatten()?;
                Some(value_of(&entry))
            }
            _ => found.text().ok(),
        }
    }
}

/// How many of the first `elements` are looked up, or shown, together: those whose names are of few
/// bytes, and one in any case.
pub(super) fn together(patterns: &[Pattern], (elements, texts): (&[TextId], &Texts)) -> usize {
    let (mut names, mut around, mut bytes) = (0, 0, 0_usize);
    for pattern in patterns {
        let (count, len) = pattern.around();
        (names, around) = (names + count, around + len);
    }
    let fits = |element: &&TextId| {
        bytes += around + names * texts.len(**element);
        bytes <= NAME_BYTES
    };
    elements.iter().take_while(fits).count().max(1).min(elements.len())
}

/// The first of `patterns` whose names for the first of `elements` are short; at least one.
pub(super) fn few<'a>(
    patterns: &'a [Pattern],
    (elements, texts): (&[TextId], &Texts),
) -> &'a [Pattern] {
    let len = elements.first().map_or(0, |first| texts.len(*first));
    let mut bytes = 0_usize;
    let fits = |pattern: &&Pattern| {
        let (count, around) = pattern.around();
        bytes += around + count * len;
        bytes <= NAME_BYTES
    };
    &patterns[..patterns.iter().take_while(fits).count().max(1).min(patterns.len())]
}

/// Looks keys up for patterns, and counts hits and misses.
pub(super) struct Lookup {
    cuts: Cuts,
    /// The names of the keys at hand, one after the other, and where each ends.
    names: Vec<u8>,
    ends: Vec<usize>,
    /// The numbers of hits and misses.
    pub(super) stats: ShardStats,
    /// The names of the misses, if a subscriber wants them.
    pub(super) missed: Option<Vec<Vec<u8>>>,
    missed_bytes: usize,
}

impl Lookup {
    /// Looks in `cuts`, those of all cores.
    pub(super) fn new(cuts: Cuts, notes_missed: bool) -> Self {
        let (names, ends) = (Vec::new(), Vec::new());
        let (stats, missed) = (ShardStats::default(), notes_missed.then(Vec::new));
        Self { cuts, names, ends, stats, missed, missed_bytes: 0 }
    }

    /// Calls `f`, in their order, with what each of the patterns stands for for each of `elements`:
    /// all of the first element, then all of the second. These are looked up together: a few. Ends
    /// when `f` is false: no more is counted.
    pub(super) fn each(
        &mut self,
        patterns: &[Pattern],
        (elements, texts): (&[TextId], &Texts),
        mut f: impl FnMut(Shown<'_>) -> bool,
    ) {
        self.name(patterns, (elements, texts));
        let mut found = find(&self.cuts, names_of(&self.names, &self.ends));
        let (mut found, mut stats) = (found.drain(..), self.stats);
        for (element, pattern) in pairs(elements, patterns) {
            let goes_on = match pattern {
                Pattern::Element => texts.show(element, &mut f),
                Pattern::Nothing => f(Shown::Nothing),
                Pattern::Key { .. } => {
                    let (cut, name, found) = found.next().expect("one for each that names a key");
                    stats.count(found.is_some());
                    if let (None, Some(missed)) = (&found, &mut self.missed) {
                        missed.push(name.to_vec());
                        self.missed_bytes += name.len();
                    }
                    let value = found.and_then(|found| pattern.value(found, cut.now));
                    f(value.as_ref().map_or(Shown::Nothing, Shown::Text))
                }
            };
            if !goes_on {
                break;
            }
        }
        drop(found);
        self.stats = stats;
    }

    /// Publishes the missed keys, if there are at least `least`, or many bytes of them.
    pub(super) async fn tell_missed(&mut self, call: &Call, least: usize) {
        let is_due =
            |missed: &&mut Vec<_>| missed.len() >= least || self.missed_bytes >= MISSED_BYTES;
        let Some(missed) = self.missed.as_mut().filter(is_due).map(std::mem::take) else { return };
        self.missed_bytes = 0;
        let (db, cores, missed) = (call.db, call.tx.cores(), Arc::new(missed));
        let tell = |core: CoreId| {
            let missed = Arc::clone(&missed);
            move |home: &mut Home| {
                let all = missed.iter().map(Vec::as_slice);
                let own = all.filter(|key| owner_of(key, cores) == core);
                home.shard.db_mut(db).tell_missed(own);
            }
        };
        call.tx.on_each(0..cores, tell).await;
    }

    /// Bytes that only the cuts hold.
    pub(super) fn pinned_bytes(&self) -> usize {
        self.cuts.pinned_bytes()
    }

    /// Writes the names of the keys. An element that is longer than a name may be names no key: only
    /// one byte more than that is written of it.
    fn name(&mut self, patterns: &[Pattern], (elements, texts): (&[TextId], &Texts)) {
        self.names.clear();
        self.ends.clear();
        for (element, pattern) in pairs(elements, patterns) {
            if let Pattern::Key { prefix, suffix, .. } = pattern {
                self.names.extend_from_slice(prefix);
                let end = texts.len(element).min(name_max_bytes() + 1);
                texts.with(element, |text| text.write_range(0..end, &mut self.names));
                self.names.extend_from_slice(suffix);
                self.ends.push(self.names.len());
            }
        }
    }
}

fn pairs<'a>(
    elements: &'a [TextId],
    patterns: &'a [Pattern],
) -> impl Iterator<Item = (TextId, &'a Pattern)> {
    elements.iter().flat_map(|element| patterns.iter().map(|pattern| (*element, pattern)))
}

/// Names that are written one after the other, each up to one of `ends`.
fn names_of<'a>(names: &'a [u8], ends: &[usize]) -> impl Iterator<Item = &'a [u8]> {
    let starts = std::iter::once(&0).chain(ends);
    starts.zip(ends).map(|(start, end)| &names[*start..*end])
}

/// The values at some keys, each with the cut of its core and its name. They are prefetched
/// together.
fn find<'a>(
    cuts: &'a Cuts,
    names: impl Iterator<Item = &'a [u8]>,
) -> Vec<(&'a Cut, &'a [u8], Option<Found<'a>>)> {
    let key = |name| (&cuts.0[owner_of(name, cuts.0.len())], Key::new(name));
    let keys: Vec<_> = names.map(key).collect();
    keys.iter().for_each(|(cut, key)| cut.keys.prefetch(key.hash));
    keys.iter().for_each(|(cut, key)| cut.keys.prefetch_entry(key.hash));
    keys.into_iter().map(|(cut, key)| (cut, key.bytes, cut.get(&key))).collect()
}
