//! The patterns of BY and GET: the keys that they construct, and the values at these keys.
//!
//! Such keys depend on the elements, and may be on any core. They are read in cuts of the keyspace
//! of all cores, taken at the same instant as the cut of the elements. Several keys are looked up
//! together, so that their cache misses overlap. For the reasons, see docs/design/0021-sort.md.

use super::texts::{Shown, TextId, Texts};
use crate::cut::{Cut, Cuts};
use crate::hash::{self, value_of};
use darter_base::limits::{ENTRIES_AT_ONCE, name_max_bytes};
use darter_base::slot::owner_of;
use darter_command::{Args, Call, Refusal, until_nul};
use darter_keyspace::{Found, Key, ShardStats, Str};
use darter_tx::{CoreId, Home};
use std::sync::Arc;

/// Bytes of names that are constructed together, or of elements that are sent together, unless a
/// single one has more.
pub(super) const NAME_BYTES: usize = 64 * 1024;
/// The longest pattern: its names are constructed and hashed in one step.
const PATTERN_BYTES_MAX: usize = 64 * 1024;
/// The number of missed keys that are published together.
pub(super) const MISSED_AT_ONCE: usize = ENTRIES_AT_ONCE;
const MISSED_BYTES: usize = 64 * 1024;

/// A pattern of BY or GET.
#[derive(Debug)]
pub(super) enum Pattern {
    /// `#`: the element itself.
    Element,
    /// A pattern without a star: no key.
    Nothing,
    /// A key with the element between two texts; perhaps a field of the hash at that key.
    Key {
        /// The text before the element.
        prefix: Vec<u8>,
        /// The text after the element.
        suffix: Vec<u8>,
        /// The field of the hash, if any.
        field: Option<Vec<u8>>,
    },
}

impl Pattern {
    /// Takes the next argument as a pattern. A pattern that is too long is refused without copying
    /// it.
    pub(super) fn take(args: &mut Args<'_>) -> Result<Self, Refusal> {
        if args.all().arg(args.position()).len() > PATTERN_BYTES_MAX {
            return Err(Refusal::line("ERR BY or GET pattern is too long"));
        }
        args.bytes().map(Self::parse)
    }

    /// Parses a pattern. As in Redis, the star and the arrow are searched only before the first
    /// NUL.
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

    /// True if the pattern constructs keys.
    pub(super) fn names_keys(&self) -> bool {
        matches!(self, Self::Key { .. })
    }

    /// The number of copies of the element in the result, and the number of other bytes.
    fn around(&self) -> (usize, usize) {
        match self {
            Self::Element => (1, 0),
            Self::Nothing => (0, 0),
            Self::Key { prefix, suffix, field } => {
                (1, prefix.len() + suffix.len() + field.as_ref().map_or(0, Vec::len))
            }
        }
    }

    /// The pattern's value at a key that was found; `None` if its type differs, or the field is
    /// missing.
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

/// How many of the first `elements` are looked up or sent together: as many as keep the names
/// short, but at least one.
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

/// The first of `patterns` whose names for the first of `elements` are short together; at least
/// one.
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
    /// The names of the current keys, concatenated, and the end of each.
    names: Vec<u8>,
    ends: Vec<usize>,
    /// The numbers of hits and misses.
    pub(super) stats: ShardStats,
    /// The names of missed keys, if a subscriber wants them.
    pub(super) missed: Option<Vec<Vec<u8>>>,
    missed_bytes: usize,
}

impl Lookup {
    /// Looks up keys in `cuts`, which are of all cores.
    pub(super) fn new(cuts: Cuts, notes_missed: bool) -> Self {
        let (names, ends) = (Vec::new(), Vec::new());
        let (stats, missed) = (ShardStats::default(), notes_missed.then(Vec::new));
        Self { cuts, names, ends, stats, missed, missed_bytes: 0 }
    }

    /// Calls `f` with the value of each pattern for each of `elements`: all patterns of the first
    /// element, then of the second, and so on. The keys are looked up together, so pass only a few.
    /// Stops when `f` returns false; later lookups are not counted.
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

    /// Bytes that only the cuts keep alive.
    pub(super) fn pinned_bytes(&self) -> usize {
        self.cuts.pinned_bytes()
    }

    /// Writes the names of the keys. If an element is longer than any name may be, only one byte
    /// more than that limit is written, which matches no key.
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

/// Splits concatenated names at `ends`.
fn names_of<'a>(names: &'a [u8], ends: &[usize]) -> impl Iterator<Item = &'a [u8]> {
    let starts = std::iter::once(&0).chain(ends);
    starts.zip(ends).map(|(start, end)| &names[*start..*end])
}

/// The values at some keys, each with the cut of its core and its name. The keys are prefetched
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
