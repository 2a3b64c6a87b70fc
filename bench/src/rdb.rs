//! Writes RDB files (version 9) with plain string encodings: the data that both servers load.
//!
//! A file is better than a million commands: it is the article's way, it is the same bytes for
//! every server, and loading it is a measurement of its own. Lengths are announced, so that a
//! server can size its tables as it would for its own files.
//!
//! ```text
//! "REDIS0009" | FE db | FB keys expiries | (type, key, value)* | FF | CRC64, little endian
//! string: length, bytes      hash: length, (field, value)*      set: length, member*
//! list: length, element*     sorted set: length, (member, score: 8)*
//! stream: length of nodes, (ID of 16, listpack)* | entries | last ID: ms, seq | groups
//! length: 00xxxxxx | 01xxxxxx x | 80 xxxx (big endian)
//! ```

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use crc::{CRC_64_REDIS, Crc, Table};

use crate::fault::{Fault, Outcome};

const STRING: u8 = 0;
const LIST: u8 = 1;
const SET: u8 = 2;
/// With scores of 8 bytes.
const ZSET: u8 = 5;
const HASH: u8 = 4;
/// As Redis 5 wrote it.
const STREAM: u8 = 15;
/// Entries of a node of a stream.
const NODE_ENTRIES: u64 = 100;
/// Bytes gathered before they are checksummed and written.
const CHUNK_BYTES: usize = 1 << 20;

static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// An RDB file that is being written.
pub(crate) struct Writer {
    file: BufWriter<File>,
    chunk: Vec<u8>,
    sum: crc::Digest<'static, u64, Table<16>>,
}

impl Writer {
    /// Starts a file with one database that will hold `keys` keys.
    pub(crate) fn create(path: &Path, keys: u64) -> Outcome<Writer> {
        let file = BufWriter::new(File::create(path)?);
        let mut writer = Writer { file, chunk: b"REDIS0009".to_vec(), sum: CRC64.digest() };
        writer.chunk.extend_from_slice(&[0xfe, 0, 0xfb]);
        writer.length(keys)?;
        writer.length(0)?;
        Ok(writer)
    }

    /// Adds a string key.
    pub(crate) fn string(&mut self, key: &[u8], value: &[u8]) -> Outcome<()> {
        self.chunk.push(STRING);
        self.bytes(key)?;
        self.bytes(value)
    }

    /// Adds the head of a hash; `pairs` fields with values must follow as [`Writer::bytes`].
    pub(crate) fn hash(&mut self, key: &[u8], pairs: u64) -> Outcome<()> {
        self.chunk.push(HASH);
        self.bytes(key)?;
        self.length(pairs)
    }

    /// Adds the head of a list; `elements` must follow as [`Writer::bytes`].
    pub(crate) fn list(&mut self, key: &[u8], elements: u64) -> Outcome<()> {
        self.chunk.push(LIST);
        self.bytes(key)?;
        self.length(elements)
    }

    /// Adds the head of a set; `members` must follow as [`Writer::bytes`].
    pub(crate) fn set(&mut self, key: &[u8], members: u64) -> Outcome<()> {
        self.chunk.push(SET);
        self.bytes(key)?;
        self.length(members)
    }

    /// Adds the head of a sorted set; `members` must follow, each as [`Writer::bytes`] and
    /// [`Writer::score`].
    pub(crate) fn zset(&mut self, key: &[u8], members: u64) -> Outcome<()> {
        self.chunk.push(ZSET);
        self.bytes(key)?;
        self.length(members)
    }

    /// Adds the score of the member before it.
    pub(crate) fn score(&mut self, score: f64) {
        self.chunk.extend_from_slice(&score.to_le_bytes());
    }

    /// Adds a stream whose entries have the fields `sensor` and `value`: number `n` has the ID and the
    /// values that `entry(n)` returns, below 2^31.
    pub(crate) fn stream(
        &mut self,
        key: &[u8],
        entries: u64,
        entry: impl Fn(u64) -> (u64, [u32; 2]),
    ) -> Outcome<()> {
        self.chunk.push(STREAM);
        self.bytes(key)?;
        self.length(entries.div_ceil(NODE_ENTRIES))?;
        for first in (0..entries).step_by(NODE_ENTRIES as usize) {
            let numbers = first..entries.min(first + NODE_ENTRIES);
            let master = entry(first).0;
            self.bytes(&(u128::from(master) << 64).to_be_bytes())?;
            let mut node = Listpack::default();
            node.int((numbers.end - first) as u32);
            node.int(0);
            node.int(2);
            node.text(b"sensor");
            node.text(b"value");
            node.int(0);
            for number in numbers {
                let (ms, values) = entry(number);
                // The fields of the master entry; the ID after the node's; the values; the number
                // of entries before this one.
                let [sensor, value] = values;
                let ints = [2, (ms - master) as u32, 0, sensor, value, 5];
                ints.into_iter().for_each(|int| node.int(int));
            }
            self.bytes(&node.finish())?;
        }
        self.length(entries)?;
        self.length(entries.checked_sub(1).map_or(0, |last| entry(last).0))?;
        self.length(0)?;
        self.length(0)
    }

    /// Adds one string of a key or collection.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.length(bytes.len() as u64)?;
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    fn length(&mut self, length: u64) -> Outcome<()> {
        match length {
            0..0x40 => self.chunk.push(length as u8),
            0x40..0x4000 => {
                self.chunk.extend_from_slice(&[0x40 | (length >> 8) as u8, length as u8]);
            }
            _ => {
                let length = u32::try_from(length)
                    .map_err(|_| Fault::Setup(format!("{length} is too long for an RDB")))?;
                self.chunk.push(0x80);
                self.chunk.extend_from_slice(&length.to_be_bytes());
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Outcome<()> {
        self.sum.update(&self.chunk);
        self.file.write_all(&self.chunk)?;
        self.chunk.clear();
        Ok(())
    }

    /// Ends the file with its checksum.
    pub(crate) fn finish(mut self) -> Outcome<()> {
        self.chunk.push(0xff);
        self.flush()?;
        let sum = self.sum.finalize();
        self.file.write_all(&sum.to_le_bytes())?;
        Ok(self.file.flush()?)
    }
}

/// A listpack being written: each entry is followed by its length.
#[derive(Default)]
struct Listpack {
    body: Vec<u8>,
    entries: u16,
}

impl Listpack {
    fn int(&mut self, int: u32) {
        let bytes = int.to_le_bytes();
        match int {
            0..0x80 => self.entry(&bytes[..1], &[]),
            0x80..0x1000 => self.entry(&[0xc0 | bytes[1], bytes[0]], &[]),
            0x1000..0x8000 => self.entry(&[0xf1], &bytes[..2]),
            0x8000..0x80_0000 => self.entry(&[0xf2], &bytes[..3]),
            _ => self.entry(&[0xf3], &bytes),
        }
    }

    /// A text of less than 64 bytes.
    fn text(&mut self, text: &[u8]) {
        self.entry(&[0x80 | text.len() as u8], text);
    }

    fn entry(&mut self, head: &[u8], bytes: &[u8]) {
        self.body.extend_from_slice(head);
        self.body.extend_from_slice(bytes);
        self.body.push((head.len() + bytes.len()) as u8);
        self.entries += 1;
    }

    fn finish(self) -> Vec<u8> {
        let len = self.body.len() as u32 + 7;
        let head = [&len.to_le_bytes()[..], &self.entries.to_le_bytes()].concat();
        [head, self.body, vec![0xff]].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // The polynomial is Redis's: its own check value.
    fn crc64_equals_that_of_redis() {
        assert_eq!(CRC64.checksum(b"123456789"), 0xe9c6_d914_c4b8_d9ca);
    }

    #[test]
    fn a_small_file_has_the_documented_bytes() {
        let path = std::env::temp_dir().join(format!("darter-bench-rdb-{}", std::process::id()));
        let mut writer = Writer::create(&path, 2).unwrap();
        writer.string(b"k", b"v").unwrap();
        writer.set(b"s", 1).unwrap();
        writer.bytes(&[b'm'; 100]).unwrap();
        writer.finish().unwrap();
        let file = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut wanted = b"REDIS0009\xfe\0\xfb\x02\0\0\x01k\x01v\x02\x01s\x01\x40\x64".to_vec();
        wanted.extend_from_slice(&[b'm'; 100]);
        wanted.push(0xff);
        let sum = CRC64.checksum(&wanted);
        wanted.extend_from_slice(&sum.to_le_bytes());
        assert_eq!(file, wanted);
    }
}
