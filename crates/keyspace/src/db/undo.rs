//! Keeping what may be undone, and undoing it: see `kept`.

use super::{Compaction, Db, Key};
use crate::Act;
use crate::Usage;
use crate::clocks::Clocks;
use crate::event::Events;
use crate::log::kept::{KeyStep, Was, WasValue};
use crate::object::Object;
use darter_structs::table::{New, PackedValue, Table};

/// All that a database holds.
#[derive(Default)]
pub(crate) struct Contents {
    keys: Table<Object>,
    usage: Usage,
    expires: usize,
    clocks: Clocks,
    compaction: Compaction,
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.clocks.clear(); // Memory is freed in slices; that of the table is, anyway.
    }
}

impl Db {
    /// Keeps a key that is about to be changed, if that may be undone.
    #[inline]
    pub(crate) fn keep(&mut self, key: &Key<'_>) {
        if let Some(log) = &mut self.log {
            log.keep(&self.keys, key);
        }
    }

    /// The key is as it was when it was kept.
    pub(crate) fn restore(&mut self, step: &mut KeyStep) {
        let key = Key::new(&step.name);
        let Some(Was { value, deadline, bits, stamp }) = step.was.take() else {
            if let Some(old) = self.keys.remove(key.hash, key.bytes) {
                self.forget(&key, &old);
            }
            return;
        };
        let bytes;
        let value = match value {
            WasValue::Text(text) => {
                bytes = text;
                New::Bytes(&bytes)
            }
            WasValue::Packed(note, pack) => {
                bytes = pack;
                New::Packed(PackedValue { note, bytes: &bytes })
            }
            WasValue::Out(object) => New::Out(object),
        };
        self.insert_stamped(&key, value, (deadline, bits, stamp));
        debug_assert!(self.keys.contains(key.hash, key.bytes), "{:?} is not restored", step.name);
    }

    /// Removes all keys. O(1): memory is freed in slices.
    pub fn flush(&mut self) {
        let contents = self.take_contents();
        if let Some(log) = &mut self.log {
            log.keep_flush(contents);
            log.hear_flush();
            log.push(Act::Flush, Events::default());
        }
    }

    /// [`Db::flush`], recorded elsewhere.
    pub(crate) fn clear(&mut self) {
        drop(self.take_contents());
    }

    /// Takes all keys out.
    pub(crate) fn take_contents(&mut self) -> Contents {
        self.changes += self.keys.len() as u64;
        let contents = Contents {
            keys: std::mem::take(&mut self.keys),
            usage: std::mem::take(&mut self.usage),
            expires: std::mem::take(&mut self.expires),
            clocks: std::mem::take(&mut self.clocks),
            compaction: std::mem::take(&mut self.compaction),
        };
        assert!(self.is_empty() && self.next_death().is_none(), "somebody is left to die");
        contents
    }

    /// Puts the removed contents back, in the place of the present ones.
    pub(crate) fn put_contents(&mut self, contents: &mut Contents) {
        std::mem::swap(&mut self.keys, &mut contents.keys);
        std::mem::swap(&mut self.usage, &mut contents.usage);
        std::mem::swap(&mut self.expires, &mut contents.expires);
        std::mem::swap(&mut self.clocks, &mut contents.clocks);
        std::mem::swap(&mut self.compaction, &mut contents.compaction);
        assert!(self.expires <= self.keys.len(), "{} of {}", self.expires, self.keys.len());
    }
}
