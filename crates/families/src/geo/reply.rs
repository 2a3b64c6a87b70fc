//! The encoding of hits.

use super::cell::{point_of, to_i64};
use super::earth::Point;
use super::hits::{Hits, Shown};
use super::text;
use crate::pending_values::{PORTION_BYTES, PendingValues};
use darter_command::Stream;
use darter_resp::Reply;
use darter_structs::table::Text;

/// Hits in one portion; and hits with coordinates, which take longer to write.
const PORTION: usize = 512;
const PORTION_NESTED: usize = 128;

/// The facts shown about a hit besides its member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Form {
    pub(super) distance: bool,
    pub(super) hash: bool,
    pub(super) coordinates: bool,
    /// The length of the distances' unit, in metres.
    pub(super) unit: f64,
}

impl Default for Form {
    fn default() -> Self {
        Self { distance: false, hash: false, coordinates: false, unit: 1.0 }
    }
}

impl Form {
    /// True if a hit is an array of its own.
    pub(super) fn is_nested(self) -> bool {
        self.distance || self.hash || self.coordinates
    }

    /// Encodes a hit. Returns the bytes to charge to this portion.
    fn encode(self, reply: &mut Reply<'_>, unsent: &mut PendingValues, hit: &Shown<'_>) -> usize {
        if self.is_nested() {
            let parts = [self.distance, self.hash, self.coordinates];
            unsent.array(reply, 1 + parts.into_iter().filter(|part| *part).count());
        }
        let bytes = unsent.held_or_text(reply, &Text::raw(hit.member), || hit.long.cloned());
        unsent.encoded(reply, |reply| {
            if self.distance {
                reply.bulk(text::distance(hit.distance / self.unit).as_bytes());
            }
            if self.hash {
                reply.int(to_i64(hit.score));
            }
            if self.coordinates {
                coordinates(reply, point_of(hit.score));
            }
        });
        bytes
    }

    /// Encodes the next hits, or sends waiting values. Returns true while some are left.
    pub(super) fn pump(
        self,
        reply: &mut Reply<'_>,
        hits: &mut Hits,
        unsent: &mut PendingValues,
    ) -> bool {
        /// Hits in one step: 8 KiB with the longest members that are copied.
        const AT_ONCE: usize = 8;
        if !unsent.is_empty() {
            return unsent.pump(reply) || hits.len() > 0;
        }
        let portion = if self.is_nested() { PORTION_NESTED } else { PORTION };
        let (mut bytes, mut done) = (0, 0);
        while bytes < PORTION_BYTES && done < portion {
            done += AT_ONCE;
            if !hits.next_slice(AT_ONCE, &mut |hit| bytes += self.encode(reply, unsent, hit)) {
                break;
            }
        }
        !unsent.is_empty() || hits.len() > 0
    }
}

/// Encodes a point: two doubles.
pub(super) fn coordinates(reply: &mut Reply<'_>, place: Point) {
    reply.array(2);
    reply.double_text(&text::coordinate(place.longitude));
    reply.double_text(&text::coordinate(place.latitude));
}
