//! Verifies the files that a start loads, as the start does: the base and the increments in order.
//!
//! ```text
//! base: RDB | commands       increment: commands | commands | zeros       increment …
//!                                                 ▲
//!                                                 good: what follows is reserved, torn or damaged
//! ```
//! Nothing is changed. [`crate::check`] reports the results, and may cut; a backup and a restored
//! folder end at the good bytes.

use crate::files::{is_rdb, length, read};
use darter_families::TYPES;
use darter_persist::aof::annotation::Annotation;
use darter_persist::aof::check::{Checked, Checker, Search, Verdict};
use darter_rdb::{Crc, Event, Limits, Product, Reader};
use std::path::{Path, PathBuf};

/// The facts about an RDB file.
#[derive(Clone, Debug, Default)]
pub(crate) struct RdbFacts {
    /// The version in the header.
    pub(crate) version: u16,
    /// True for a file of Valkey 9 or later.
    pub(crate) is_valkey: bool,
    /// The version of the server that wrote the file, as the file says.
    pub(crate) server: String,
    /// The time of the snapshot in Unix seconds.
    pub(crate) unix_s: Option<u64>,
    /// The number of keys.
    pub(crate) keys: u64,
    /// The number of keys with a deadline.
    pub(crate) deadlines: u64,
    /// The number of function libraries.
    pub(crate) libraries: u64,
    /// The names of the modules whose data no server here can load.
    pub(crate) modules: Vec<String>,
    /// The highest type number of a value.
    pub(crate) encoding: u8,
    /// True if the checksum was compared.
    pub(crate) has_sum: bool,
    /// The offset after the end.
    pub(crate) end: u64,
}

/// The meaning of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// The end of the data was not written. A start cuts it.
    Torn,
    /// Bytes that were written have changed. A start is refused.
    Damage,
}

/// The first fault of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundFault {
    /// The meaning.
    pub(crate) kind: FaultKind,
    /// The file offset of the fault.
    pub(crate) offset: u64,
    /// A sentence without its end.
    pub(crate) reason: String,
}

/// A verified file.
#[derive(Debug)]
pub(crate) struct Verified {
    /// The path.
    pub(crate) path: PathBuf,
    /// The length in bytes.
    pub(crate) bytes: u64,
    /// The RDB file at the begin, if it was complete.
    pub(crate) rdb: Option<RdbFacts>,
    /// The offset at which commands begin.
    pub(crate) commands_from: u64,
    /// The end of the bytes that can be loaded.
    pub(crate) good: u64,
    /// The last good batch, of this file or of one before.
    pub(crate) last: Option<Annotation>,
    /// True if the file has batches, so it is Darter's.
    pub(crate) has_batches: bool,
    /// The fault after the good bytes.
    pub(crate) fault: Option<FoundFault>,
    /// True if a file before has a fault. No byte of this file can be loaded.
    pub(crate) follows_fault: bool,
}

/// Verifies files that one start loads, in their order. After a fault, the other files are not
/// verified, since a start does not load them.
///
/// Errors: a file cannot be read; a sentence.
pub(crate) fn verify(files: &[PathBuf]) -> Result<Vec<Verified>, String> {
    let mut verified: Vec<Verified> = Vec::new();
    for index in 0..files.len() {
        let next = match verified.last() {
            Some(before) if before.follows_fault || before.fault.is_some() => {
                let bytes = length(&files[index])?;
                Verified { follows_fault: true, ..Verified::new(&files[index], bytes, before.last) }
            }
            before => verify_next(&files[index..], before, index == 0)?,
        };
        verified.push(next);
    }
    Ok(verified)
}

impl Verified {
    fn new(path: &Path, bytes: u64, last: Option<Annotation>) -> Self {
        Self {
            path: path.to_owned(),
            bytes,
            rdb: None,
            commands_from: 0,
            good: 0,
            last,
            has_batches: false,
            fault: None,
            follows_fault: false,
        }
    }

    fn with_damage(self, offset: u64, reason: impl Into<String>) -> Self {
        let fault = FoundFault { kind: FaultKind::Damage, offset, reason: reason.into() };
        Self { fault: Some(fault), ..self }
    }
}

/// Verifies the first of these files. `is_base` says whether it may be an RDB file.
fn verify_next(
    files: &[PathBuf],
    before: Option<&Verified>,
    is_base: bool,
) -> Result<Verified, String> {
    let path = &files[0];
    let mut file = Verified::new(path, length(path)?, before.and_then(|before| before.last));
    if is_rdb(path)? {
        if !is_base {
            return Ok(file.with_damage(0, "an increment must not be an RDB file"));
        }
        match verify_rdb(path, file.bytes)? {
            Ok(facts) => {
                (file.commands_from, file.good) = (facts.end, facts.end);
                file.rdb = Some(facts);
            }
            Err(error) => return Ok(file.with_damage(error.offset, error.reason.to_string())),
        }
        if path.extension().is_some_and(|extension| extension == "rdb") {
            return Ok(file); // Servers ignore the bytes after the end.
        }
    }
    let mut checker = Checker::new(file.commands_from, file.last);
    read(path, (file.commands_from, file.bytes), &mut |bytes| {
        checker.feed(bytes);
        !checker.is_done()
    })?;
    let Checked { good, last, has_batches, fault, .. } = checker.finish();
    (file.good, file.last, file.has_batches) = (good, last, has_batches);
    let Some((fault, offset, verdict)) = fault else { return Ok(file) };
    let is_torn = match verdict {
        Verdict::Torn => true,
        Verdict::Damaged => false,
        Verdict::Depends(search) => !is_damaged(files, good, search)?,
    };
    if is_torn && !has_batches && files.len() > 1 {
        return Ok(file.with_damage(offset, format!("{fault}, and it is not the last file")));
    }
    let kind = if is_torn { FaultKind::Torn } else { FaultKind::Damage };
    file.fault = Some(FoundFault { kind, offset, reason: fault.to_string() });
    Ok(file)
}

/// Searches the bytes after a fault, and the later files, for a batch that proves damage.
fn is_damaged(files: &[PathBuf], good: u64, mut search: Search) -> Result<bool, String> {
    for (index, path) in files.iter().enumerate() {
        if index > 0 {
            search.next_file();
        }
        read(path, (if index == 0 { good } else { 0 }, u64::MAX), &mut |bytes| {
            search.feed(bytes);
            !search.is_damage()
        })?;
    }
    Ok(search.is_damage())
}

/// Verifies an RDB file of `size` bytes, with each of its values.
///
/// Errors: the file cannot be read; a sentence. Inside: the fault of the format.
fn verify_rdb(path: &Path, size: u64) -> Result<Result<RdbFacts, darter_rdb::Error>, String> {
    let mut reader = Reader::new(TYPES.kinds(), Limits::default()).with_size(size).with_parts();
    let mut facts = RdbFacts::default();
    let mut state = Ok(false);
    read(path, (0, size), &mut |bytes| {
        reader.push(bytes);
        state = take_events(&mut reader, &mut facts);
        state == Ok(false)
    })?;
    if state == Ok(false) {
        reader.finish();
        state = take_events(&mut reader, &mut facts);
    }
    facts.end = reader.offset();
    Ok(state.map(|_| facts))
}

/// Takes the events that are complete. Returns true at the end of the RDB file.
fn take_events(reader: &mut Reader, facts: &mut RdbFacts) -> Result<bool, darter_rdb::Error> {
    while let Some(event) = reader.next()? {
        match event {
            Event::Start { product, version } => {
                (facts.version, facts.is_valkey) = (version, product == Product::Valkey);
            }
            Event::Aux { key: b"redis-ver", value } if facts.server.is_empty() => {
                facts.server = format!("Redis {}", String::from_utf8_lossy(value));
            }
            Event::Aux { key: b"valkey-ver", value } => {
                facts.server = format!("Valkey {}", String::from_utf8_lossy(value));
            }
            Event::Aux { key: b"ctime", value } => {
                facts.unix_s = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            }
            Event::Function { .. } => facts.libraries += 1,
            Event::ModuleSkipped { module } => {
                facts.modules.push(String::from_utf8_lossy(&module).into_owned());
            }
            Event::Key { encoding, expiry_ms, .. } => {
                facts.keys += 1;
                facts.deadlines += u64::from(expiry_ms.is_some());
                facts.encoding = facts.encoding.max(encoding);
            }
            Event::Eof { crc } => {
                facts.has_sum = crc == Crc::Verified;
                return Ok(true);
            }
            _ => {}
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Sample, command};
    use std::fs;

    /// For each file: its good bytes, and the kind of its fault.
    type Results = Vec<(u64, Option<FaultKind>)>;

    fn results(sample: &Sample, files: &[&[u8]]) -> Results {
        let write = |(index, bytes): (usize, &&[u8])| {
            let path = sample.path.join(index.to_string());
            fs::write(&path, bytes).unwrap();
            path
        };
        let paths: Vec<PathBuf> = files.iter().enumerate().map(write).collect();
        let verified = verify(&paths).unwrap();
        verified.iter().map(|file| (file.good, file.fault.as_ref().map(|it| it.kind))).collect()
    }

    #[test]
    fn torn_ends_and_damage_are_told_apart() {
        let sample = Sample::new("verify");
        let mut chain = sample.chain();
        chain.add(1, &[command(&["SET", "k", "v"])]);
        let first = chain.bytes.len();
        chain.add(2, &[command(&["SET", "k", "w"])]);
        let whole = chain.next_file();
        chain.add(3, &[command(&["SET", "k", "x"])]);
        let next = chain.next_file();
        let (good, bytes) = (first as u64, whole.len() as u64);
        let torn = [&whole[..whole.len() - 1], &[0; 50]].concat();
        let reserved = [&whole[..], &[0; 50]].concat();
        let mut damaged = whole.clone();
        damaged[first - 3] ^= 1;
        for (files, wanted) in [
            (&[&whole[..], &next][..], vec![(bytes, None), (next.len() as u64, None)]),
            (&[&reserved], vec![(bytes, None)]),
            (&[&torn], vec![(good, Some(FaultKind::Torn))]),
            (&[&torn, &next], vec![(good, Some(FaultKind::Damage)), (0, None)]),
            (&[&damaged], vec![(0, Some(FaultKind::Damage))]),
        ] {
            assert_eq!(results(&sample, files), wanted);
        }
    }

    #[test]
    fn files_of_redis_follow_its_rules() {
        let sample = Sample::new("verify-redis");
        let one = command(&["SET", "k", "v"]);
        let good = one.len() as u64;
        let torn = [&one[..], b"*1\r\n$4\r\nPI"].concat();
        let junk = [&one[..], b"junk"].concat();
        for (files, wanted) in [
            (&[&torn[..]][..], vec![(good, Some(FaultKind::Torn))]),
            (&[&torn, &one], vec![(good, Some(FaultKind::Damage)), (0, None)]),
            (&[&one, &torn], vec![(good, None), (good, Some(FaultKind::Torn))]),
            (&[&junk], vec![(good, Some(FaultKind::Damage))]),
        ] {
            assert_eq!(results(&sample, files), wanted);
        }
    }

    #[test]
    fn faults_of_an_rdb_file_have_an_offset() {
        let sample = Sample::new("verify-rdb");
        // Without keys: the end mark, and no checksum.
        let rdb = b"REDIS0010\xfa\x09redis-ver\x057.0.1\xff\0\0\0\0\0\0\0\0";
        let after = [&rdb[..], &command(&["SET", "k", "v"])].concat();
        assert_eq!(results(&sample, &[rdb]), [(rdb.len() as u64, None)]);
        assert_eq!(results(&sample, &[&after]), [(after.len() as u64, None)]);
        let path = sample.path.join("dump.rdb");
        fs::write(&path, &rdb[..20]).unwrap();
        let verified = verify(&[path]).unwrap();
        let fault = verified[0].fault.as_ref().unwrap();
        assert_eq!((fault.kind, fault.offset), (FaultKind::Damage, 20));
        assert!(fault.reason.contains("unexpected end of data"), "{}", fault.reason);
        let second = results(&sample, &[&command(&["PING"]), rdb]);
        assert_eq!(second[1], (0, Some(FaultKind::Damage)));
    }
}
