//! The writer of whole files. It appends to the caller's vectors, and keeps only the running
//! checksum; values pass through [`Survey`](crate::Survey) and [`Encoder`].

use crate::crc64::Crc64;
use crate::encode;
use crate::items::Item;
use crate::lzf::Packer;
use crate::types;
use crate::value::{Encoder, Plan};
use darter_base::UnixMillis;

/// Appends a key's deadline, idle time, type number and name. The last bytes of the name may follow
/// separately: `key_len` includes them.
pub fn write_key(
    out: &mut Vec<u8>,
    (deadline_ms, idle_s): (Option<UnixMillis>, Option<u64>),
    encoding: u8,
    (key, key_len): (&[u8], usize),
) {
    if let Some(deadline) = deadline_ms {
        out.push(types::OP_EXPIRE_MS);
        out.extend_from_slice(&deadline.to_le_bytes());
    }
    if let Some(seconds) = idle_s {
        out.push(types::OP_IDLE);
        encode::length(out, seconds);
    }
    out.push(encoding);
    if key.len() == key_len {
        return encode::text(out, key);
    }
    encode::length(out, key_len as u64);
    out.extend_from_slice(key);
}

/// Appends a string as a value of type 0; compressed if there is a packer and that makes it
/// shorter.
pub fn write_text(out: &mut Vec<u8>, bytes: &[u8], packer: Option<&mut Packer>) {
    match packer {
        Some(packer) => encode::packed_text(out, bytes, packer),
        None => encode::text(out, bytes),
    }
}

/// Writes a file of version 10, or of a later one where field deadlines need it.
///
/// Order: [`start`](Self::start), metadata, databases with their keys, [`eof`](Self::eof). A key is
/// [`key`](Self::key), its [`item`](Self::item)s, [`end_of_key`](Self::end_of_key).
#[derive(Clone, Default)]
pub struct Writer {
    crc: Crc64,
    value: Option<Encoder>,
}

impl Writer {
    /// A writer before the header.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends the header. `version` is 10 for Redis 7.0, 12 where hashes have field deadlines.
    pub fn start(&mut self, version: u16, out: &mut Vec<u8>) {
        self.put(out, |out| out.extend_from_slice(format!("REDIS{version:04}").as_bytes()));
    }

    /// Appends metadata, such as `redis-ver`.
    pub fn aux(&mut self, key: &[u8], value: &[u8], out: &mut Vec<u8>) {
        self.put(out, |out| {
            out.push(types::OP_AUX);
            encode::text(out, key);
            encode::text(out, value);
        });
    }

    /// Appends the number of the database that the next keys belong to.
    pub fn select_db(&mut self, database: u32, out: &mut Vec<u8>) {
        self.put(out, |out| {
            out.push(types::OP_SELECT_DB);
            encode::length(out, database.into());
        });
    }

    /// Appends the number of keys in the database, and the number of those with a deadline.
    pub fn resize_db(&mut self, keys: u64, expires: u64, out: &mut Vec<u8>) {
        self.put(out, |out| {
            out.push(types::OP_RESIZE_DB);
            encode::length(out, keys);
            encode::length(out, expires);
        });
    }

    /// Appends a key with its deadline, and the head of its value.
    ///
    /// Panics inside a value.
    pub fn key(
        &mut self,
        key: &[u8],
        expiry_ms: Option<UnixMillis>,
        plan: Plan,
        out: &mut Vec<u8>,
    ) {
        assert!(self.value.is_none(), "the value before has not ended");
        let encoding = plan.encoding;
        let mut encoder = Encoder::new(plan);
        self.put(out, |out| {
            write_key(out, (expiry_ms, None), encoding, (key, key.len()));
            encoder.head(out);
        });
        self.value = Some(encoder);
    }

    /// Appends an item of the current value. Panics if there is none.
    pub fn item(&mut self, item: Item<'_>, out: &mut Vec<u8>) {
        let mut encoder = self.value.take().expect("an item belongs to a key");
        self.put(out, |out| encoder.item(item, out));
        self.value = Some(encoder);
    }

    /// Ends the value. Panics if its items differ from those surveyed.
    pub fn end_of_key(&mut self, out: &mut Vec<u8>) {
        let mut encoder = self.value.take().expect("an end belongs to a key");
        self.put(out, |out| encoder.end(out));
    }

    /// Adds `bytes` to the checksum: whole keys, or a part of one, that were encoded elsewhere.
    pub fn follow(&mut self, bytes: &[u8]) {
        self.crc.update(bytes);
    }

    /// Appends the end mark, and 0 in place of a checksum.
    pub fn eof_unsummed(&mut self, out: &mut Vec<u8>) {
        out.push(types::OP_EOF);
        out.extend_from_slice(&[0; 8]);
    }

    /// Appends the end mark and the checksum.
    pub fn eof(&mut self, out: &mut Vec<u8>) {
        assert!(self.value.is_none(), "the value before has not ended");
        self.put(out, |out| out.push(types::OP_EOF));
        out.extend_from_slice(&self.crc.value().to_le_bytes());
    }

    fn put(&mut self, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        write(out);
        self.crc.update(&out[start..]);
    }
}
