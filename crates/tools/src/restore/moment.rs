//! Finds the place in the files that belongs to a moment.

use super::begins_with;
use crate::commands::{Entry, Splitter};
use crate::files::read;
use crate::verify::Verified;
use darter_persist::aof::annotation::{Annotation, Head};

/// The bytes of a command that are kept, to compare and to show it.
const KEPT_MAX: usize = 4 << 10;

/// The moment to restore.
#[derive(Clone, Debug)]
pub(super) struct Moment {
    /// The last time, in Unix milliseconds.
    pub(super) to_ms: Option<u64>,
    /// The first arguments of the command.
    pub(super) before: Option<Vec<Vec<u8>>>,
}

/// The place at which the files are cut.
#[derive(Clone, Debug)]
pub(super) struct Cut {
    /// The index of the last file.
    pub(super) file: usize,
    /// The length of that file.
    pub(super) offset: u64,
    /// The batch that is cut, and the file offset of its line.
    pub(super) batch: Option<(Annotation, u64)>,
    /// The time of the last change, in Unix milliseconds.
    pub(super) unix_ms: Option<u64>,
    /// The command that is the first to be left out.
    pub(super) before: Option<String>,
}

/// Passes the items of all good bytes to `take`, with the index of their file, until it returns false.
///
/// Errors: a file cannot be read, or has changed; a sentence.
pub(super) fn walk(
    files: &[Verified],
    take: &mut dyn FnMut(usize, &Entry<'_>) -> bool,
) -> Result<(), String> {
    let mut goes_on = true;
    for (index, file) in files.iter().enumerate() {
        let mut splitter = Splitter::new(file.commands_from, KEPT_MAX);
        let mut fault = None;
        read(&file.path, (file.commands_from, file.good), &mut |bytes| {
            let fed = splitter.feed(bytes, &mut |entry| goes_on = goes_on && take(index, &entry));
            fault = fed.err();
            goes_on && fault.is_none()
        })?;
        if let Some(why) = fault {
            return Err(format!("{}: the file changes: {why}", file.path.display()));
        }
    }
    Ok(())
}

/// The cut for a moment.
///
/// Errors: there is no such command, or the files have no times; a sentence.
pub(super) fn find(files: &[Verified], moment: &Moment) -> Result<Cut, String> {
    let last = files.iter().rposition(|file| !file.follows_fault).unwrap_or(0);
    let end = files.get(last).map_or(0, |file| file.good);
    let mut cut = Cut { file: last, offset: end, batch: None, unix_ms: None, before: None };
    let (mut found, mut batch, mut now) = (None, None, None);
    walk(files, &mut |file, entry| {
        let (Entry::Batch(Annotation { head: Head { unix_ms, .. }, .. }, offset)
        | Entry::Time(unix_ms, offset)) = entry
        else {
            let (Entry::Command(command), Some(words)) = (entry, &moment.before) else {
                return true;
            };
            if begins_with(command, words) {
                let offset = command.multi.unwrap_or(command.offset);
                let before = Some(command.show());
                found = Some(Cut { file, offset, batch, unix_ms: now, before });
            }
            return true;
        };
        if moment.to_ms.is_some_and(|to_ms| *unix_ms > to_ms) {
            cut = Cut { file, offset: *offset, batch: None, unix_ms: now, before: None };
            return false;
        }
        now = Some(*unix_ms);
        batch = match entry {
            Entry::Batch(annotation, offset) => Some((*annotation, *offset)),
            _ => None,
        };
        true
    })?;
    if moment.to_ms.is_some() && now.is_none() && cut.offset == end && cut.file == last {
        return Err("the files have no times: see aof-timestamp-enabled".into());
    }
    cut.unix_ms = now;
    match (&moment.before, found) {
        (None, _) => Ok(cut),
        (Some(_), Some(found)) => Ok(found),
        (Some(words), None) => {
            let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
            Err(format!("no command in the increments begins with {}", words.join(" ")))
        }
    }
}
