//! The memory of a reader: received bytes, and unpacked texts.
//!
//! Either may be as long as the longest string, so each step copies, sums, unpacks or frees at most
//! a portion of them.

use super::*;
use darter_base::lazyfree::{self, Dismantle};

/// Bytes that are unpacked at once.
pub(super) const UNPACKED_AT_ONCE: usize = 8 * 1024;
/// Memory up to this size is kept for later large elements.
const KEPT_BYTES: usize = 4 << 20;
/// Bytes freed at once.
const FREED_AT_ONCE: usize = 256 * 1024;

/// The progress of unpacking a long text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unpacking {
    /// The start of its packed bytes in the file, and the number of bytes used.
    origin: u64,
    used: usize,
    is_done: bool,
}

impl Reader {
    /// Room for at least `len` more bytes; report with [`filled`](Self::filled) how many were
    /// written.
    pub fn space(&mut self, len: usize) -> &mut [u8] {
        self.hash_known();
        let waiting = self.end - self.at;
        if self.at > 0 && self.at >= waiting {
            // Moves at most as many bytes as were consumed since the last move: O(1) per byte.
            self.buffer.copy_within(self.at..self.end, 0);
            self.base += self.at as u64;
            (self.hashed, self.at, self.end) = (self.hashed - self.at, 0, waiting);
            self.give_back(waiting + len);
        }
        if self.buffer.len() - self.end < len {
            self.reserve(len);
            self.buffer.resize(self.end + len, 0);
        }
        &mut self.buffer[self.end..]
    }

    /// Makes room for a whole long element of a payload, which its caller already has: growing step
    /// by step would copy the received bytes each time.
    fn reserve(&mut self, len: usize) {
        let Some(payload) = self.payload.filter(|_| self.buffer.capacity() < self.end + len) else {
            return;
        };
        let wanted = self.at.saturating_add(self.need).min(size(payload.saturating_sub(self.base)));
        self.buffer.reserve_exact(wanted.max(self.end + len) - self.buffer.len());
    }

    /// Adds to the checksum the bytes that were consumed, and those known to belong to the current
    /// element.
    fn hash_known(&mut self) {
        let known = match self.state {
            State::Trailer | State::Done | State::Failed(_) => self.at,
            _ => self.end.min(self.at.saturating_add(self.need)),
        };
        self.hash_to(known);
    }

    /// Adds the consumed bytes to the checksum.
    pub(super) fn hash_consumed(&mut self) {
        self.hash_to(self.at);
    }

    fn hash_to(&mut self, known: usize) {
        if known > self.hashed && !self.trusts {
            self.crc.update(&self.buffer[self.hashed..known]);
            self.hashed = known;
        }
    }

    /// Frees the memory of a past large element, which no event borrows any more.
    fn give_back(&mut self, needed: usize) {
        if self.buffer.len() > KEPT_BYTES && needed < self.buffer.len() / 4 {
            let rest = self.buffer[..self.end].to_vec();
            free(std::mem::replace(&mut self.buffer, rest));
        }
        let offset = self.offset();
        for (text, unpacking) in self.texts.iter_mut().zip(self.unpacking).take(WHOLE) {
            let is_past = unpacking.origin < offset;
            if text.capacity() > KEPT_BYTES && is_past {
                free(std::mem::take(text));
            }
        }
    }

    /// Unpacks a portion of a long text, whose packed bytes begin `start` bytes after `at`, into
    /// `texts[slot]`. Pauses after each portion until it is complete.
    pub(super) fn unpack_long(
        &mut self,
        (start, packed): (usize, usize),
        len: usize,
        slot: usize,
    ) -> Result<(), Stop> {
        let origin = self.offset() + start as u64;
        let (text, unpacking) = (&mut self.texts[slot], &mut self.unpacking[slot]);
        if unpacking.origin != origin {
            *unpacking = Unpacking { origin, ..Unpacking::default() };
            text.clear();
            // At most 88 times the received bytes (`lzf::absurd`).
            let room = len + lzf::SPARE_BYTES;
            if text.capacity() < room {
                free(std::mem::replace(text, Vec::with_capacity(room)));
            }
        }
        if unpacking.is_done {
            return Ok(());
        }
        let bytes = &self.buffer[self.at + start..self.at + start + packed];
        let (before, want) = (text.len(), len.min(text.len() + UNPACKED_AT_ONCE));
        let used = lzf::unpack(&bytes[unpacking.used..], text, want);
        let bad = |fault| Stop::Bad(start, Reason::Lzf(fault));
        unpacking.used += used.map_err(|(_, fault)| bad(fault))?;
        if text.len() < len && text.len() >= want {
            return Err(Stop::Paused(text.len() - before));
        }
        lzf::check(packed - unpacking.used, text.len(), len).map_err(bad)?;
        unpacking.is_done = true;
        Ok(())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        free(std::mem::take(&mut self.buffer));
        self.texts.iter_mut().for_each(|text| free(std::mem::take(text)));
    }
}

/// Frees memory: in portions later, if it is large.
fn free(mut memory: Vec<u8>) {
    if memory.capacity() > 2 * FREED_AT_ONCE {
        memory.clear();
        lazyfree::defer(Box::new(Freed(memory)));
    }
}

/// Memory waiting to be freed.
struct Freed(Vec<u8>);

impl Dismantle for Freed {
    fn dismantle(&mut self) -> bool {
        let left = self.0.capacity().saturating_sub(FREED_AT_ONCE);
        if left < FREED_AT_ONCE {
            return false;
        }
        // The server's allocator shrinks in place (`darter_runtime::heap`).
        self.0.shrink_to(left);
        true
    }

    fn bytes(&self) -> usize {
        self.0.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bounds, Encoding, Plan, Survey};

    static KINDS: &[&Kind] = &[&KIND];
    static KIND: Kind =
        Kind { encodings: &[Encoding::new(2, Layout::Singles)], packed: Bounds::DEFAULT, plan };

    fn plan(survey: &Survey) -> Plan {
        survey.entries(2)
    }

    #[test]
    fn bytes_of_a_long_element_are_counted_and_not_moved() {
        const PORTION: usize = 16 * 1024;
        let name = vec![b'n'; 3_000_000];
        let head = [&[2, 1, 0x80][..], &(name.len() as u32).to_be_bytes()].concat();
        let body = [&head[..], &name, &[0; 10]].concat();
        let mut reader = Reader::of_payload(KINDS, body.len() as u64, 11, Limits::default());
        let mut places = Vec::new();
        for piece in body.chunks(PORTION) {
            while let Ok(Some(event)) = reader.next() {
                assert!(!matches!(event, Event::EndOfKey), "all has come");
            }
            reader.push(piece);
            assert!(reader.end - reader.hashed <= 2 * PORTION, "{}", reader.hashed);
            places.push(reader.buffer.as_ptr());
        }
        places.dedup();
        assert!(places.len() <= 3, "{} places", places.len());
        while reader.next().is_ok_and(|event| event.is_some()) {}
        assert!(matches!(reader.next(), Err(Error { reason: Reason::Checksum { .. }, .. })));
    }
}
