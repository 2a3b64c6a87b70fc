//! Returns the result: as a reply, or as a list to store.

use super::gather::Sorted;
use super::pattern::{Lookup, MISSED_AT_ONCE, NAME_BYTES, Pattern, few, together};
use super::texts::{Shown, TextId};
use crate::list::List;
use crate::pending_values::PendingValues;
use darter_command::{Call, Stream};
use darter_keyspace::{Collection, Fresh, Str, Value};
use darter_resp::Reply;
use darter_structs::blob::Blob;
use darter_structs::list::End;
use darter_structs::table::{HeldKey, Scratch};

/// Values in one portion, whose keys are looked up together.
const VALUES: usize = 64;
/// Integers in one portion, if only elements are returned.
const NUMBERS: usize = 512;
/// Bytes of a long name that are copied in one step.
const COPIED_AT_ONCE: usize = 32 * 1024;

/// Sends the result, portion by portion.
pub(super) struct Show {
    sorted: Sorted,
    /// The GET patterns; if there are none, the element itself is returned.
    get: Vec<Pattern>,
    /// The cuts in which the keys are looked up.
    pub(super) lookup: Option<Lookup>,
    /// The current elements, and the next pattern of the first one, if its values exceeded a
    /// portion.
    elements: Vec<TextId>,
    shown: usize,
    unsent: PendingValues,
    /// Only elements are returned, and all are integers: the current ones.
    only_numbers: bool,
    numbers: Vec<i64>,
}

impl Show {
    /// Returns the values of the `get` patterns for all elements.
    pub(super) fn new(sorted: Sorted, get: Vec<Pattern>, lookup: Option<Lookup>) -> Self {
        let get = if get.is_empty() { vec![Pattern::Element] } else { get };
        let lookup = lookup.filter(|_| get.iter().any(Pattern::names_keys));
        let only_numbers = sorted.numbers.len() > 0 && matches!(get[..], [Pattern::Element]);
        Self {
            sorted,
            get,
            lookup,
            elements: Vec::new(),
            shown: 0,
            unsent: PendingValues::default(),
            only_numbers,
            numbers: Vec::new(),
        }
    }

    /// The number of values to return.
    pub(super) fn len(&self) -> usize {
        self.sorted.len() * self.get.len()
    }

    /// Builds a list of all values, in slices; a missing value is an empty string.
    pub(super) async fn build(&mut self, call: &Call) -> List {
        let mut list = List::new();
        while self.only_numbers && self.has_more() {
            list.take_numbers(self.take_numbers());
            call.tx.pause().await;
        }
        while self.has_more() {
            let mut name = None;
            {
                let mut edit = list.edit_aside(0);
                self.portion(|value| match value {
                    Shown::Nothing => edit.push(End::Back, Fresh::Bytes(b"")),
                    Shown::Text(Str::Inline(text)) => {
                        edit.push(End::Back, Fresh::Bytes(text.bytes(&mut Scratch::new())));
                    }
                    Shown::Text(Str::Blob(blob)) => edit.push(End::Back, Fresh::Blob(blob)),
                    // A value this long is a portion of its own, so it is the last.
                    Shown::Name(long) if long.bytes().len() > NAME_BYTES => {
                        assert!(name.is_none(), "two long names in a portion");
                        name = Some(long.clone());
                    }
                    Shown::Name(short) => edit.push(End::Back, Fresh::Bytes(short.bytes())),
                });
            }
            call.tx.pause().await;
            if let Some(name) = name {
                let blob = copied(&name, call).await;
                list.edit_aside(0).push(End::Back, Fresh::Blob(&blob));
            }
            if let Some(lookup) = &mut self.lookup {
                lookup.tell_missed(call, MISSED_AT_ONCE).await;
            }
        }
        list
    }

    /// The number of patterns to evaluate next, and for how many elements.
    fn next(&mut self) -> (usize, usize) {
        let Self { sorted, get, elements, shown, .. } = self;
        if elements.is_empty() {
            *elements = sorted.next((VALUES / get.len()).max(1));
        }
        let texts = &sorted.texts;
        let patterns = few(&get[*shown..get.len().min(*shown + VALUES)], (elements, texts));
        let count = match patterns.len() == get.len() {
            true => together(patterns, (elements, texts)),
            false => elements.len().min(1),
        };
        (patterns.len(), count)
    }

    /// Calls `f` with the next values.
    fn portion(&mut self, mut f: impl FnMut(Shown<'_>)) {
        let (patterns, count) = self.next();
        let Self { sorted, get, lookup, elements, shown, .. } = self;
        let texts = &sorted.texts;
        let (patterns, now) = (&get[*shown..*shown + patterns], &elements[..count]);
        match lookup {
            Some(lookup) => lookup.each(patterns, (now, texts), |value| {
                f(value);
                true
            }),
            None => {
                for element in now {
                    for pattern in patterns {
                        match pattern {
                            Pattern::Element => texts.show(*element, &mut f),
                            Pattern::Nothing | Pattern::Key { .. } => f(Shown::Nothing),
                        }
                    }
                }
            }
        }
        *shown += patterns.len();
        if *shown == get.len() {
            elements.drain(..count);
            *shown = 0;
        }
    }

    /// The next integers, if only elements are returned.
    fn take_numbers(&mut self) -> &[i64] {
        debug_assert!(self.only_numbers, "there may be patterns");
        self.numbers.clear();
        self.sorted.numbers.take(NUMBERS, &mut self.numbers);
        &self.numbers
    }

    /// True while values are left.
    fn has_more(&self) -> bool {
        self.sorted.len() > 0 || !self.elements.is_empty()
    }
}

impl Stream for Show {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        if self.only_numbers {
            self.take_numbers().iter().for_each(|number| reply.bulk_int(*number));
            return self.has_more();
        }
        let mut unsent = std::mem::take(&mut self.unsent);
        if !unsent.is_empty() {
            unsent.pump(reply);
        } else {
            self.portion(|value| match value {
                Shown::Text(value) => _ = unsent.value(reply, value),
                Shown::Name(name) => unsent.name(reply, name),
                Shown::Nothing => unsent.null(reply),
            });
        }
        self.unsent = unsent;
        !self.unsent.is_empty() || self.has_more()
    }

    fn pinned_bytes(&self) -> usize {
        let cuts = self.lookup.as_ref().map_or(0, Lookup::pinned_bytes);
        cuts + self.sorted.memory_bytes() + self.unsent.pinned_bytes()
    }
}

/// Copies a long name in portions.
async fn copied(name: &HeldKey, call: &Call) -> Blob {
    let mut blob = Blob::from(&b""[..]);
    for part in name.bytes().chunks(COPIED_AT_ONCE) {
        blob.append(part);
        call.tx.pause().await;
    }
    blob
}

impl Sorted {
    /// The number of elements left.
    fn len(&self) -> usize {
        self.numbers.len() + self.run.len()
    }

    /// Removes at most `most` of the next elements. If they are integers, the texts of earlier
    /// elements are dropped.
    fn next(&mut self, most: usize) -> Vec<TextId> {
        let Self { numbers, run, is_backwards, texts } = self;
        if numbers.len() > 0 {
            debug_assert_eq!(run.len(), 0, "there is nothing but integers");
            texts.clear();
            let mut next = Vec::with_capacity(most);
            numbers.take(most, &mut next);
            return next.into_iter().map(|number| texts.push_number(number)).collect();
        }
        let next = || if *is_backwards { run.pop_back() } else { run.pop_front() };
        std::iter::from_fn(next).take(most).map(|item| texts.element(item.text)).collect()
    }

    /// Bytes of memory held by the result.
    fn memory_bytes(&self) -> usize {
        self.numbers.memory_bytes() + self.run.memory_bytes() + self.texts.memory_bytes()
    }
}
