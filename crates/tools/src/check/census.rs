//! Counts the batches and commands of a part of a file: of its good bytes, and of those that a cut
//! would lose.

use crate::commands::{Entry, FoundCommand, Splitter};
use crate::files::read;
use crate::needs::{Needs, Vocabulary};
use darter_persist::aof::annotation::TAG;
use memchr::memmem;
use std::collections::BTreeMap;
use std::path::Path;

/// The bytes of a command that are kept: enough for the name and the begin of RESTORE's payload
/// after a key of usual length.
const KEPT_MAX: usize = 4 << 10;
/// The most names of unknown commands that are kept.
const UNKNOWN_MAX: usize = 10;

/// The content of a part of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// The number of batches of Darter's.
    pub(crate) batches: u64,
    /// The number of commands.
    pub(crate) commands: u64,
    /// The first and the last time, in Unix milliseconds.
    pub(crate) times: Option<(u64, u64)>,
    /// The run of the last batch.
    pub(crate) run: Option<u64>,
    /// The number of commands for each name that no command here has.
    pub(crate) unknown: BTreeMap<String, u64>,
}

impl Content {
    fn add_time(&mut self, unix_ms: u64) {
        let first = self.times.map_or(unix_ms, |(first, _)| first);
        self.times = Some((first, unix_ms));
    }

    fn add(&mut self, entry: &Entry<'_>) {
        match entry {
            Entry::Batch(annotation, _) => {
                self.batches += 1;
                self.run = Some(annotation.head.run);
                self.add_time(annotation.head.unix_ms);
            }
            Entry::Time(unix_ms, _) => self.add_time(*unix_ms),
            Entry::Command(_) => self.commands += 1,
        }
    }
}

/// Counts the verified bytes `range` of a file, and adds what they need to `needs`.
///
/// Errors: the file cannot be read; a sentence.
pub(crate) fn count(
    path: &Path,
    range: (u64, u64),
    vocabulary: &Vocabulary,
    needs: &mut Needs,
) -> Result<Content, String> {
    let mut content = Content::default();
    let mut splitter = Splitter::new(range.0, KEPT_MAX);
    let mut fault = None;
    read(path, range, &mut |bytes| {
        let fed = splitter.feed(bytes, &mut |entry| {
            content.add(&entry);
            if let Entry::Command(command) = entry {
                note(command, vocabulary, needs, &mut content);
            }
        });
        fault = fed.err();
        fault.is_none()
    })?;
    match fault {
        None => Ok(content),
        Some(why) => Err(format!("{}: the file changes: {why}", path.display())),
    }
}

/// Notes the version that a command needs.
fn note(
    command: &FoundCommand<'_>,
    vocabulary: &Vocabulary,
    needs: &mut Needs,
    content: &mut Content,
) {
    let name = command.name();
    if !vocabulary.add(&name, needs) && content.unknown.len() < UNKNOWN_MAX {
        *content.unknown.entry(name.clone()).or_default() += 1;
    }
    if name == "RESTORE"
        && let Some(encoding) = command.arguments().nth(3).and_then(|it| it.bytes.first())
    {
        needs.add_encoding(*encoding);
    }
}

/// Counts the batches and commands in bytes after a fault, as far as they can be recognized. Returns
/// the content, and the number of bytes up to the last that is not zero.
///
/// Errors: the file cannot be read; a sentence.
pub(crate) fn count_lost(path: &Path, from: u64) -> Result<(Content, u64), String> {
    let mut lost = Lost { content: Content::default(), splitter: None, window: Vec::new() };
    lost.splitter = Some(Splitter::new(from, KEPT_MAX));
    let (mut at, mut end) = (from, from);
    read(path, (from, u64::MAX), &mut |bytes| {
        if let Some(last) = bytes.iter().rposition(|byte| *byte != 0) {
            end = at + last as u64 + 1;
        }
        at += bytes.len() as u64;
        lost.feed(bytes);
        true
    })?;
    Ok((lost.content, end - from))
}

/// The state of counting bytes after a fault.
struct Lost {
    content: Content,
    /// Splits items. `None` while a line that begins a batch is searched.
    splitter: Option<Splitter>,
    /// The last bytes of the search, in which a line may have begun.
    window: Vec<u8>,
}

impl Lost {
    fn feed(&mut self, bytes: &[u8]) {
        let mut bytes = [&std::mem::take(&mut self.window)[..], bytes].concat();
        let mut at = 0;
        loop {
            if let Some(splitter) = &mut self.splitter {
                let (content, begin) = (&mut self.content, splitter.offset());
                if splitter.feed(&bytes[at..], &mut |entry| content.add(&entry)).is_ok() {
                    return;
                }
                let taken = usize::try_from(splitter.offset() - begin).unwrap_or(usize::MAX);
                at = bytes.len().min(at.saturating_add(taken.max(1)));
                self.splitter = None;
            }
            let Some(found) = memmem::find(&bytes[at..], TAG) else {
                let kept = (bytes.len() - at).min(TAG.len() - 1);
                self.window = bytes.split_off(bytes.len() - kept);
                return;
            };
            at += found;
            self.splitter = Some(Splitter::new(0, KEPT_MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::FOLDERS;
    use crate::sample::{Sample, command};
    use std::fs;

    #[test]
    fn verified_bytes_are_counted() {
        let sample = Sample::new("count");
        let file = sample.path.join("a");
        let mut chain = sample.chain();
        chain.add(1_000, &[command(&["SET", "k", "v"])]);
        chain.add(2_500, &[command(&["HPEXPIREAT", "h", "1"]), command(&["NOPE"])]);
        fs::write(&file, &chain.bytes).unwrap();
        let (vocabulary, mut needs) = (Vocabulary::new(), Needs::new(FOLDERS));
        let range = (0, chain.bytes.len() as u64);
        let content = count(&file, range, &vocabulary, &mut needs).unwrap();
        assert_eq!((content.batches, content.commands), (2, 3));
        assert_eq!(content.times, Some((1_000, 2_500)));
        assert_eq!(content.unknown, BTreeMap::from([("NOPE".into(), 1)]));
        assert!(needs.to_string().contains("7.4"), "{needs}");
    }

    #[test]
    fn private_payloads_of_restore_are_needs() {
        let sample = Sample::new("private");
        let file = sample.path.join("a");
        for (number, wanted) in [("\x02", "redis-server 7.0"), ("\u{cf}", "only Darter")] {
            // The number as one byte, and the rest of a payload.
            let payload: Vec<u8> = number.chars().map(|it| it as u8).chain(*b"xyz").collect();
            let bytes =
                [&b"*4\r\n$7\r\nRESTORE\r\n$1\r\nk\r\n$1\r\n0\r\n$4\r\n"[..], &payload, b"\r\n"];
            fs::write(&file, bytes.concat()).unwrap();
            let mut needs = Needs::new(FOLDERS);
            count(&file, (0, u64::MAX), &Vocabulary::new(), &mut needs).unwrap();
            assert!(needs.to_string().starts_with(wanted), "{needs}");
        }
    }

    #[test]
    fn lost_batches_are_counted_after_damage() {
        let sample = Sample::new("lost");
        let file = sample.path.join("a");
        let mut chain = sample.chain();
        chain.add(1_000, &[command(&["SET", "k", "v"])]);
        let good = chain.bytes.len() as u64;
        chain.add(2_000, &[command(&["SET", "k", "w"]), command(&["SET", "l", "w"])]);
        let damaged = chain.bytes.len();
        chain.add(3_000, &[command(&["SET", "k", "x"])]);
        chain.bytes[damaged - 2] = b'!'; // The end of an argument.
        let end = chain.bytes.len() as u64;
        chain.bytes.extend([0; 3_000]);
        fs::write(&file, &chain.bytes).unwrap();
        let (lost, bytes) = count_lost(&file, good).unwrap();
        assert_eq!((lost.batches, lost.commands, bytes), (2, 2, end - good));
        assert_eq!(lost.times, Some((2_000, 3_000)));
    }
}
