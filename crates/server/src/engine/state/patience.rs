//! How much writers may leave to a snapshot before they wait for it, and how that rises.
//!
//! ```text
//! room in the file:   a thirty-second of the cut: writers wait for its encoding
//! none:               a sixteenth: they wait for the disk
//! nothing of what is held has been given back for PATIENCE_MS: a sixteenth more each second
//! ```
//! So who writes waits for a slow disk at the disk's pace, and for one that hangs a while, and then as
//! long as what is copied meanwhile grows by a sixteenth a second: after a quarter of a minute nobody
//! waits. It never sinks while a snapshot lasts, as who was let go would then wait for their copies.

use darter_base::UnixMillis;
use std::cell::Cell;

/// What may be held while there is room in the file, in thousandths of the cut.
const HELD_PER_MILLE: u64 = 31;
/// The same while there is none; and how much more each second.
const HELD_WITHOUT_ROOM_PER_MILLE: u64 = 62;
/// How long nothing may be given back before that rises: longer than a sync takes.
const PATIENCE_MS: u64 = 250;
/// How often a core that would sleep looks whether it has risen.
pub(crate) const LOOK_MS: u64 = 10;

/// See the module. In Unix milliseconds.
#[derive(Default)]
pub(crate) struct Patience {
    looked_ms: Cell<UnixMillis>,
    /// When something was last given back.
    released_ms: Cell<UnixMillis>,
    /// What was held at the last look, in KiB.
    held_kib: Cell<u64>,
    /// Milliseconds in which writers waited beyond the patience, in all.
    lost_ms: Cell<u64>,
}

impl Patience {
    /// A snapshot begins.
    pub(crate) fn restart(&self) {
        self.lost_ms.set(0);
        self.looked_ms.set(0);
    }

    /// So much is held at `now`, and whether that makes writers wait.
    pub(crate) fn look(&self, now: UnixMillis, held_kib: u64, is_behind: bool) {
        let looked = self.looked_ms.replace(now);
        if held_kib < self.held_kib.get() || looked == 0 {
            self.released_ms.set(now);
        } else if is_behind {
            let since = looked.max(self.released_ms.get() + PATIENCE_MS);
            self.lost_ms.set(self.lost_ms.get() + now.saturating_sub(since));
        }
        self.held_kib.set(held_kib);
    }

    /// What may be held, in thousandths of the cut.
    pub(crate) fn held_per_mille(&self, has_room: bool) -> u64 {
        let least = if has_room { HELD_PER_MILLE } else { HELD_WITHOUT_ROOM_PER_MILLE };
        least + self.lost_ms.get() * HELD_WITHOUT_ROOM_PER_MILLE / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_disk_that_hangs_is_let_go() {
        let patience = Patience::default();
        patience.restart();
        let (begun, mut held_kib) = (1_000_000, 62);
        let mut most = 0;
        for now in begun..begun + 20_000 {
            let is_behind = held_kib >= patience.held_per_mille(false); // Of a thousand KiB.
            held_kib += u64::from(!is_behind);
            patience.look(now, held_kib, is_behind);
            most = most.max(held_kib);
            assert!(now > begun + PATIENCE_MS || held_kib == 62, "{held_kib} after {now}");
        }
        assert!(most >= 1_000, "{most} of a thousand after twenty seconds");
    }

    #[test] // Whatever is given back shows that the disk goes on.
    fn who_waits_for_a_slow_disk_waits_at_its_pace() {
        let patience = Patience::default();
        patience.restart();
        for now in 1_000..60_000 {
            patience.look(now, 70 + now % 100, true);
        }
        assert_eq!(patience.held_per_mille(false), HELD_WITHOUT_ROOM_PER_MILLE);
        assert_eq!(patience.held_per_mille(true), HELD_PER_MILLE);
    }
}
