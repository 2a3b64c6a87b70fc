//! A working copy of a HyperLogLog, which is changed and then stored.

use super::format::{
    CARDINALITY, Encoding, HEADER_BYTES, REGISTERS, STALE, STALE_BYTE, corrupt, new_header,
    set_encoding,
};
use super::hash::Place;
use super::sparse::{Cursor, Raised};
use super::{dense, sparse};
use darter_command::Refusal;
use darter_keyspace::HLL_SPARSE_MAX_BYTES;

/// A working copy; see the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Sketch {
    bytes: Vec<u8>,
    encoding: Encoding,
}

impl Default for Sketch {
    fn default() -> Self {
        let bytes = [&new_header(Encoding::Sparse)[..], &sparse::empty()].concat();
        Self { bytes, encoding: Encoding::Sparse }
    }
}

impl Sketch {
    /// A copy of a HyperLogLog.
    pub(super) fn new(bytes: &[u8], encoding: Encoding) -> Self {
        Self { bytes: bytes.to_vec(), encoding }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The value of a register of a dense sketch.
    pub(super) fn dense_register(&self, register: usize) -> u8 {
        dense::get(&self.bytes[HEADER_BYTES..], register)
    }

    /// Raises a register. Returns true if that is a change.
    pub(super) fn add(&mut self, place: Place) -> Result<bool, Refusal> {
        self.add_after(place, &mut Cursor::default())
    }

    /// [`Sketch::add`] for registers in ascending order.
    pub(super) fn add_after(&mut self, place: Place, cursor: &mut Cursor) -> Result<bool, Refusal> {
        let Place { register, rank } = place;
        if self.encoding == Encoding::Sparse {
            let bytes_max = HLL_SPARSE_MAX_BYTES.get();
            match sparse::raise(&mut self.bytes, (register, rank), bytes_max, cursor) {
                Raised::Yes => return Ok(true),
                Raised::No => return Ok(false),
                Raised::Corrupt => return Err(corrupt()),
                Raised::TooLarge => self.make_dense()?,
            }
        }
        Ok(dense::raise(&mut self.bytes[HEADER_BYTES..], register, rank))
    }

    /// Makes the encoding dense; registers stay the same. Returns false if it was dense already.
    pub(super) fn make_dense(&mut self) -> Result<(), Refusal> {
        if self.encoding == Encoding::Dense {
            return Ok(());
        }
        let mut registers = vec![0; REGISTERS * 6 / 8];
        let raise = |from: usize, run: sparse::Run| {
            for register in from..from + run.len {
                dense::raise(&mut registers, register, run.rank);
            }
        };
        if !sparse::ranks(&self.bytes, raise) {
            return Err(corrupt());
        }
        self.bytes.truncate(HEADER_BYTES);
        self.bytes.append(&mut registers);
        self.encoding = Encoding::Dense;
        set_encoding(&mut self.bytes, Encoding::Dense);
        Ok(())
    }

    /// Marks the cardinality in the header as stale.
    pub(super) fn invalidate(&mut self) {
        self.bytes[STALE_BYTE] |= STALE;
    }

    /// Writes the cardinality into the header.
    pub(super) fn set_cardinality(&mut self, count: u64) {
        self.bytes[CARDINALITY].copy_from_slice(&count.to_le_bytes());
    }
}
