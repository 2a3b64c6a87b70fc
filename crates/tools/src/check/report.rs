//! The sentences about files.

use super::CheckedFile;
use super::census::Content;
use crate::files::Folder;
use crate::needs::Needs;
use crate::time;
use crate::verify::{FaultKind, RdbFacts};
use std::fmt::Write as _;

/// Appends the lines about a file.
pub(super) fn file(out: &mut String, file: &CheckedFile, is_in_folder: bool) {
    let CheckedFile { verified, content, lost } = file;
    let _ = writeln!(out, "{}", verified.path.display());
    let mut line = |text: String| {
        let _ = writeln!(out, "  {text}");
    };
    if let Some(facts) = &verified.rdb {
        line(rdb(facts));
    }
    let has_commands = verified.rdb.is_none() || verified.good > verified.commands_from;
    if has_commands && !verified.follows_fault {
        let writer = if verified.has_batches { "Darter's" } else { "Redis's" };
        line(format!("{writer} commands: {}", summary(content)));
    }
    if let Some((first, last)) = content.times {
        line(format!("from {} to {}", time::show(first), time::show(last)));
    }
    if let Some(run) = content.run {
        line(format!("written by run {run:016x}"));
    }
    if !content.unknown.is_empty() {
        let names: Vec<String> =
            content.unknown.iter().map(|(name, count)| format!("{name} ({count})")).collect();
        line(format!("unknown commands, which a start passes over: {}", names.join(", ")));
    }
    let (bytes, rest) = (verified.bytes, verified.bytes - verified.good);
    match (&verified.fault, verified.follows_fault) {
        (None, false) if rest == 0 => line(format!("good: {bytes} bytes")),
        (None, false) => {
            line(format!("good: {} bytes, and {rest} reserved for later commands", verified.good))
        }
        (Some(fault), _) => {
            let kind = match fault.kind {
                FaultKind::Torn => "torn end: a start cuts it",
                FaultKind::Damage => "DAMAGE: a start is refused",
            };
            line(format!("{kind}. At offset {}: {}", fault.offset, fault.reason));
            line(format!("{} of {bytes} bytes are good", verified.good));
        }
        (None, true) => {
            line(format!("not loaded, because a file before has a fault: {bytes} bytes"))
        }
    }
    if let (Some((lost, lost_bytes)), true) = (lost, has_commands || !is_in_folder) {
        line(loss(content, lost, *lost_bytes));
    }
}

fn rdb(facts: &RdbFacts) -> String {
    let RdbFacts { version, keys, deadlines, libraries, server, .. } = facts;
    let format = if facts.is_valkey { "Valkey" } else { "Redis" };
    let mut text = format!("RDB file, {format}'s version {version}");
    if !server.is_empty() {
        let _ = write!(text, " (as of {server})");
    }
    let _ = write!(text, ": {}, {deadlines} with a deadline", counted(*keys, "key", "keys"));
    if *libraries > 0 {
        let _ = write!(text, ", {}", counted(*libraries, "library", "libraries"));
    }
    if !facts.modules.is_empty() {
        let _ = write!(text, "; data of modules is skipped: {}", facts.modules.join(", "));
    }
    if !facts.has_sum {
        text.push_str("; it has no checksum");
    }
    if let Some(unix_s) = facts.unix_s {
        let _ = write!(text, "; made at {}", time::show(unix_s.saturating_mul(1_000)));
    }
    text
}

fn summary(content: &Content) -> String {
    let Content { batches, commands, .. } = content;
    let commands = counted(*commands, "command", "commands");
    if *batches > 0 {
        format!("{commands} in {}", counted(*batches, "batch", "batches"))
    } else {
        commands
    }
}

/// A number and the noun that belongs to it.
fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The loss by a cut.
fn loss(good: &Content, lost: &Content, bytes: u64) -> String {
    let mut text = format!("a cut loses {bytes} bytes: {}, as far as recognized", summary(lost));
    if let (Some((_, from)), Some((_, to))) = (good.times, lost.times) {
        let _ = write!(text, ", the last {:.3} s", to.saturating_sub(from) as f64 / 1_000.0);
    }
    text
}

/// Appends the lines about files that a start loads together.
pub(super) fn set(
    out: &mut String,
    files: &[CheckedFile],
    needs: &Needs,
    unlisted: &[String],
    folder: Option<&Folder>,
) {
    if let Some(folder) = folder {
        let _ = writeln!(out, "{}", folder.path.join(&folder.manifest_name).display());
        let ring = folder.ring_name();
        if folder.path.join(&ring).exists() {
            let _ = writeln!(
                out,
                "  {ring} has the last changes of a server that runs or was killed. The next start \
                 of Darter adds them, unless this machine is booted before"
            );
        }
        if !unlisted.is_empty() {
            let _ =
                writeln!(out, "  files that the manifest does not name: {}", unlisted.join(", "));
        }
    }
    let has_zeros = files.iter().any(|file| {
        let verified = &file.verified;
        verified.has_batches && verified.fault.is_none() && verified.good < verified.bytes
    });
    let after = if has_zeros { ", after the reserved bytes are cut (--cut)" } else { "" };
    let _ = writeln!(out, "  loaded by Darter and {needs}{after}\n");
}
