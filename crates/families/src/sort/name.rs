//! The name of a key that holds an element of megabytes, made in portions.
//!
//! Copying a megabyte, and finding its hash and its slot, takes milliseconds. In a block of its own
//! (`darter_base::long`) it is copied portion by portion, and these are known where it is looked up.

use super::pattern::NAME_BYTES;
use darter_base::long::{Draft, KNOWN_MIN, Long};
use darter_keyspace::Str;

/// Bytes copied at once, with their hash and slot.
const COPIED_AT_ONCE: usize = 16 * 1024;

const _: () = assert!(NAME_BYTES >= KNOWN_MIN); // The hash of a shorter one is not known.

/// See the module.
#[derive(Default)]
pub(super) struct LongName {
    draft: Option<Draft>,
    made: Option<Long>,
}

impl LongName {
    /// Makes a portion of the name: `prefix`, `text` and `suffix`, the same at each call. True while
    /// there is more.
    pub(super) fn make(&mut self, (prefix, suffix): (&[u8], &[u8]), text: &Str<'_>) -> bool {
        if self.made.is_some() {
            return false;
        }
        let bytes = prefix.len() + text.len() + suffix.len();
        let mut draft = self.draft.take().unwrap_or_else(|| {
            let mut draft = Draft::with_slot(bytes);
            draft.push(prefix);
            draft
        });
        let from = draft.len() - prefix.len();
        let end = text.len().min(from + COPIED_AT_ONCE);
        let mut copy = Vec::with_capacity(end - from);
        text.write_range(from..end, &mut copy);
        draft.push(&copy);
        if end < text.len() {
            self.draft = Some(draft);
            return true;
        }
        draft.push(suffix);
        self.made = Some(draft.finish());
        false
    }

    /// The name, once it is made.
    pub(super) fn get(&self) -> Option<&[u8]> {
        self.made.as_deref()
    }

    /// The next name is another one.
    pub(super) fn clear(&mut self) {
        debug_assert!(self.draft.is_none(), "a name is looked up before it is made");
        self.made = None;
    }
}

impl Drop for LongName {
    /// An unfinished name is freed in slices, like a finished one.
    fn drop(&mut self) {
        if let Some(draft) = self.draft.take() {
            draft.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::{hash, slot};
    use darter_structs::blob::Blob;

    #[test] // Whatever its length, and wherever portions end: the same bytes, and what is known of them.
    fn names_are_made_of_three_parts() {
        let mut name = LongName::default();
        for len in [NAME_BYTES, NAME_BYTES + 1, 10 * COPIED_AT_ONCE, 1_000_000] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * at / 7) as u8).collect();
            let (blob, mut steps) = (Blob::from(&bytes[..]), 1);
            while name.make((b"key:", b"{slot}"), &Str::Blob(&blob)) {
                assert_eq!(name.get(), None);
                steps += 1;
            }
            assert_eq!(steps, len.div_ceil(COPIED_AT_ONCE), "{len} bytes");
            let expected = [&b"key:"[..], &bytes, b"{slot}"].concat();
            let made = name.get().expect("it is made");
            assert!(made == expected, "{len} bytes");
            assert_eq!(hash::of(made), hash::of(&expected), "{len} bytes");
            assert_eq!(slot::of(made), slot::of(&expected), "{len} bytes");
            name.clear();
            assert_eq!(name.get(), None);
        }
    }
}
