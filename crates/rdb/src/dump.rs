//! One value as bytes, as `DUMP` replies and `RESTORE` reads it.
//!
//! ```text
//! | type u8 | value as in an RDB file | version u16 | CRC-64 of all before, u64 |
//! ```
//! Both directions work in slices. [`Dumper`] finds the length before the first byte, and fills a
//! vector piece by piece. [`Reader::of_payload`] takes a payload in chunks and computes the
//! checksum on the way, so a value is built first and installed after `Eof`.
//!
//! Not here: replies and keys.

use crate::crc64::Crc64;
use crate::{Encoder, Kind, Limits, Reader, Source, Survey, types};

/// Entries that may be skipped before a [`Dumper::fill`] ends.
const LOOKS_AT_ONCE: usize = 1_024;
/// The number of skipped entries that cost as much as one short item.
const ITEM_LOOKS: usize = 2;

/// Bytes after the value: version and checksum.
pub const TRAILER_BYTES: usize = 10;

/// Writes a payload in pieces: [`survey`](Self::survey) until it returns the length, then
/// [`fill`](Self::fill) until it is done.
pub struct Dumper<S> {
    source: S,
    stage: DumpStage,
    crc: Crc64,
    version: u16,
    kind: &'static Kind,
    items: u64,
}

enum DumpStage {
    Survey(Survey),
    Head(Encoder),
    Items(Encoder),
    Done,
}

impl<S: Source> Dumper<S> {
    /// A dumper of the value of type `kind` with the items of `source`.
    #[must_use]
    pub fn new(source: S, kind: &'static Kind) -> Self {
        let stage = DumpStage::Survey(Survey::new(kind));
        let version = types::VERSION_WRITTEN;
        Self { source, stage, crc: Crc64::new(), version, kind, items: 0 }
    }

    /// Whether the survey found no items in a collection, because all have expired.
    #[must_use]
    pub fn is_hollow(&self) -> bool {
        self.items == 0 && !self.kind.is_text()
    }

    /// Surveys at most `items_max` items; returns the payload's length in bytes once all are seen.
    ///
    /// Panics after [`fill`](Self::fill) has begun, and when called again after it returned the
    /// length.
    pub fn survey(&mut self, items_max: usize) -> Option<u64> {
        let DumpStage::Survey(survey) = &mut self.stage else {
            unreachable!("surveyed already");
        };
        let mut looks = items_max;
        while looks > 0 && self.source.find(&mut looks) {
            looks = looks.saturating_sub(1);
            let Some(item) = self.source.next() else {
                let plan = survey.plan();
                let bytes = plan.body_bytes.expect("it was surveyed");
                (self.version, self.items) = (plan.version(), plan.items());
                self.stage = DumpStage::Head(Encoder::new(plan));
                self.source.rewind();
                return Some(1 + bytes + TRAILER_BYTES as u64);
            };
            survey.item(item);
        }
        None
    }

    /// Appends about `bytes_max` bytes (the last item may exceed it, or a packed collection), fewer
    /// where items are short or the source skips most of its entries; true when the payload is
    /// complete.
    ///
    /// Cost: O(`bytes_max`), for packed collections O(n log n) of their few entries. Small items
    /// are gathered without output; their number is bounded by [`Bounds`](crate::Bounds).
    ///
    /// Panics before the survey is done, and where the items differ from those surveyed.
    pub fn fill(&mut self, out: &mut Vec<u8>, bytes_max: usize) -> bool {
        let start = out.len();
        loop {
            match &mut self.stage {
                DumpStage::Survey(_) => unreachable!("the length is told before the bytes"),
                DumpStage::Done => return true,
                DumpStage::Head(encoder) => {
                    out.push(encoder.plan().encoding);
                    encoder.head(out);
                    self.stage = DumpStage::Items(encoder.clone());
                }
                DumpStage::Items(encoder) => {
                    let mut looks = LOOKS_AT_ONCE;
                    while looks > 0 && out.len() - start < bytes_max && self.source.find(&mut looks)
                    {
                        looks = looks.saturating_sub(ITEM_LOOKS);
                        let Some(item) = self.source.next() else {
                            encoder.end(out);
                            self.crc.update(&out[start..]);
                            self.end(out);
                            return true;
                        };
                        encoder.item(item, out);
                    }
                    self.crc.update(&out[start..]);
                    return false;
                }
            }
        }
    }

    fn end(&mut self, out: &mut Vec<u8>) {
        let version = self.version.to_le_bytes();
        self.crc.update(&version);
        out.extend_from_slice(&version);
        out.extend_from_slice(&self.crc.value().to_le_bytes());
        self.stage = DumpStage::Done;
    }
}

/// The whole payload of a value at once: for small ones.
#[must_use]
pub fn write<S: Source>(source: S, kind: &'static Kind) -> Vec<u8> {
    let mut dumper = Dumper::new(source, kind);
    let len = dumper.survey(usize::MAX).unwrap_or(0);
    let mut out = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
    while !dumper.fill(&mut out, usize::MAX) {}
    assert!(out.len() as u64 == len, "len={len} written={}", out.len());
    out
}

/// The reason why a payload is refused before its value is read; Redis has one text for all three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Shorter than a trailer.
    Short,
    /// An unsupported version.
    Version(u16),
    /// The checksum does not match.
    Checksum,
}

/// The version in a payload's trailer.
///
/// # Errors
/// [`Invalid::Short`] and [`Invalid::Version`].
pub fn version(payload: &[u8]) -> Result<u16, Invalid> {
    let Some((_, &[low, high, ..])) = payload.split_last_chunk::<TRAILER_BYTES>() else {
        return Err(Invalid::Short);
    };
    let version = u16::from_le_bytes([low, high]);
    match version {
        0..=types::VERSION_MAX | types::VALKEY_VERSION_MIN..=types::VALKEY_VERSION_MAX => {
            Ok(version)
        }
        _ => Err(Invalid::Version(version)),
    }
}

/// Checks version and checksum of a whole payload.
///
/// Cost: O(bytes); see [`Verifier`] for large ones.
///
/// # Errors
/// Any [`Invalid`].
pub fn verify(payload: &[u8]) -> Result<u16, Invalid> {
    let mut verifier = Verifier::new();
    loop {
        if let Some(result) = verifier.step(payload, usize::MAX) {
            return result;
        }
    }
}

/// Checks version and checksum in slices.
#[derive(Clone, Default)]
pub struct Verifier {
    at: usize,
    crc: Crc64,
}

impl Verifier {
    /// A verifier before the first byte.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next `bytes_max` bytes of `payload`, which is the same in every call; returns the
    /// result once all are seen.
    pub fn step(&mut self, payload: &[u8], bytes_max: usize) -> Option<Result<u16, Invalid>> {
        let version = match version(payload) {
            Ok(version) => version,
            Err(invalid) => return Some(Err(invalid)),
        };
        let (summed, stored) = payload.split_last_chunk::<8>()?;
        let end = summed.len().min(self.at.saturating_add(bytes_max));
        self.crc.update(&summed[self.at..end]);
        self.at = end;
        if end < summed.len() {
            return None;
        }
        let fits = self.crc.value() == u64::from_le_bytes(*stored);
        Some(if fits { Ok(version) } else { Err(Invalid::Checksum) })
    }
}

/// A reader of `payload`, which is still to be pushed, in chunks of any size.
///
/// # Errors
/// [`Invalid::Short`] and [`Invalid::Version`]; a wrong checksum is found at the end, or earlier
/// with a [`Verifier`].
pub fn reader(
    payload: &[u8],
    kinds: &'static [&'static Kind],
    limits: Limits,
) -> Result<Reader, Invalid> {
    let version = version(payload)?;
    Ok(Reader::of_payload(kinds, payload.len() as u64, version, limits))
}
