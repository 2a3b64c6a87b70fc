//! Cuts torn ends, as a start does, and keeps the bytes.
//!
//! The bytes after the cut are copied to `NAME.cut-OFFSET` and synced before the file is cut. To undo
//! a cut, append them to the file again.

use crate::files::named;
use crate::verify::{FaultKind, Verified};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Cuts files at their good bytes, if their fault is of the kind `allowed`, or a lesser one. Also
/// cuts reserved zeros. Appends a line for each cut to `out`. Returns false if a fault is left.
///
/// Errors: a sentence; also if a process has one of the files open.
pub(super) fn cut(
    files: &[&Verified],
    allowed: FaultKind,
    out: &mut String,
) -> Result<bool, String> {
    let fault = files.iter().find_map(|file| file.fault.as_ref().map(|fault| (file, fault)));
    if let Some((file, fault)) = fault {
        let is_rdb = file.good == 0 && file.commands_from == 0 && fault.kind == FaultKind::Damage;
        if fault.kind == FaultKind::Damage && (allowed != FaultKind::Damage || is_rdb) {
            let _ = writeln!(out, "not cut: {} is damaged, not torn", file.path.display());
            return Ok(false);
        }
    }
    for file in files.iter().filter(|file| file.good < file.bytes) {
        if let Some(process) = user(&file.path)? {
            return Err(named(&file.path, format!("not cut: process {process} has the file open")));
        }
        let is_reserve = file.fault.is_none() && !file.follows_fault;
        let cut = if is_reserve { Ok(None) } else { keep(&file.path, file.good).map(Some) };
        let kept = cut.and_then(|kept| shorten(&file.path, file.good).map(|()| kept));
        let kept = kept.map_err(|error| named(&file.path, error))?;
        let _ = write!(out, "cut {} at offset {}", file.path.display(), file.good);
        let _ = match kept {
            Some(kept) => writeln!(out, "; the bytes after it are kept in {}", kept.display()),
            None => writeln!(out, ": only reserved bytes"),
        };
    }
    Ok(true)
}

/// Copies the bytes from `from` on into a new file beside, durably.
fn keep(path: &Path, from: u64) -> io::Result<PathBuf> {
    let mut name = OsString::from(path);
    name.push(format!(".cut-{from}"));
    let kept = PathBuf::from(name);
    let mut source = File::open(path)?;
    source.seek(SeekFrom::Start(from))?;
    let mut copy = OpenOptions::new().write(true).create_new(true).open(&kept)?;
    io::copy(&mut source, &mut copy)?;
    copy.sync_all()?;
    File::open(kept.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new(".")))?
        .sync_all()?;
    Ok(kept)
}

fn shorten(path: &Path, bytes: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(bytes)?;
    file.sync_all()
}

/// The number of a process that has the file open. Processes of other users are not seen.
fn user(path: &Path) -> Result<Option<String>, String> {
    let wanted = path.metadata().map_err(|error| named(path, error))?;
    let wanted = (wanted.dev(), wanted.ino());
    let processes = fs::read_dir("/proc").map_err(|error| named(Path::new("/proc"), error))?;
    for process in processes.flatten() {
        let process_id = process.file_name().to_string_lossy().into_owned();
        if !process_id.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let Ok(files) = fs::read_dir(process.path().join("fd")) else { continue };
        // The path of a descriptor leads to the open file itself.
        let mut open = files.flatten().filter_map(|file| file.path().metadata().ok());
        if open.any(|open| (open.dev(), open.ino()) == wanted) {
            return Ok(Some(process_id));
        }
    }
    Ok(None)
}
