//! The manifest of an append-only folder: the list of its files, as Redis 7 writes and reads it.
//!
//! ```text
//! file appendonly.aof.2.base.rdb seq 2 type b
//! file appendonly.aof.1.base.rdb seq 1 type h
//! file appendonly.aof.3.incr.aof seq 3 type i
//! ```
//! Bases and increments have separate sequence numbers. Lines that begin with `#` are comments.

use darter_base::number;
use darter_resp::split_words;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The longest line that Redis reads, in bytes, with its line feed.
const LINE_MAX_BYTES: usize = 1_024;

/// The end of an increment's name.
const INCREMENT: &[u8] = b".incr.aof";

/// A file of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The name of the file. It may be any bytes but `/`.
    pub name: Vec<u8>,
    /// The sequence number. It is never 0.
    pub sequence: i64,
}

impl Listed {
    /// True for the name of an increment. The history does not say which files were bases.
    fn is_increment(&self) -> bool {
        self.name.ends_with(INCREMENT)
    }

    /// The path of the file in the folder `folder`.
    #[must_use]
    pub fn path_in(&self, folder: &Path) -> PathBuf {
        folder.join(OsStr::from_bytes(&self.name))
    }
}

/// The files of an append-only folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The file that is loaded first.
    pub base: Option<Listed>,
    /// Files that are no longer needed.
    pub history: Vec<Listed>,
    /// The increments, in ascending order of their numbers.
    pub increments: Vec<Listed>,
}

/// A base, and the increments that led to the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// The base. The first generation may have none.
    pub base: Option<Listed>,
    /// The increments, in ascending order of their numbers.
    pub increments: Vec<Listed>,
}

/// The format of a base file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseFormat {
    /// An RDB file: `aof-use-rdb-preamble yes`.
    Rdb,
    /// Commands.
    Aof,
}

/// The reason why a manifest is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadManifest {
    /// Redis's text.
    pub text: &'static str,
    /// The number of the line, from 1 on, and its bytes. `None` where Redis shows no line.
    pub line: Option<(usize, Vec<u8>)>,
}

impl fmt::Display for BadManifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((number, line)) = &self.line {
            write!(f, "reading the manifest file, at line {number}: '{}': ", line.escape_ascii())?;
        }
        f.write_str(self.text)
    }
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// Errors: those of Redis 7.0, with its texts.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadManifest> {
        let (mut manifest, mut left, mut number) = (Self::default(), bytes, 0);
        if left.is_empty() {
            return Err(BadManifest { text: "Found an empty AOF manifest", line: None });
        }
        while !left.is_empty() {
            number += 1;
            let (line, rest) = next_line(left);
            left = rest;
            if line.starts_with(b"#") {
                continue;
            }
            // Redis reads a line as a string of C, so a zero byte ends it.
            let line = line.split(|byte| *byte == 0).next().unwrap_or_default();
            if !line.ends_with(b"\n") {
                let text = "The AOF manifest file contains too long line";
                return Err(BadManifest { text, line: None });
            }
            let line = trim(line);
            manifest
                .take_in(line)
                .map_err(|text| BadManifest { text, line: Some((number, line.to_vec())) })?;
        }
        Ok(manifest)
    }

    fn take_in(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let (listed, kind) = listed(line)?;
        match kind {
            b'b' if self.base.is_some() => return Err("Found duplicate base file information"),
            b'b' => self.base = Some(listed),
            b'h' => self.history.push(listed),
            b'i' => {
                if listed.sequence <= last(&self.increments) {
                    return Err("Found a non-monotonic sequence number");
                }
                self.increments.push(listed);
            }
            _ => return Err("Unknown AOF file type"),
        }
        Ok(())
    }

    /// The bytes of the manifest, in Redis's order: base, history, increments.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let base = self.base.iter().map(|file| (file, b'b'));
        let history = self.history.iter().map(|file| (file, b'h'));
        let increments = self.increments.iter().map(|file| (file, b'i'));
        for (file, kind) in base.chain(history).chain(increments) {
            out.extend_from_slice(b"file ");
            write_name(&mut out, &file.name);
            out.extend_from_slice(b" seq ");
            number::write_i64(&mut out, file.sequence);
            out.extend_from_slice(b" type ");
            out.extend_from_slice(&[kind, b'\n']);
        }
        out
    }

    /// The base that the next rewrite makes. `filename` is the setting `appendfilename`.
    #[must_use]
    pub fn next_base(&self, filename: &str, format: BaseFormat) -> Listed {
        let sequence = self.base.as_ref().map_or(0, |base| base.sequence) + 1;
        let suffix = match format {
            BaseFormat::Rdb => "base.rdb",
            BaseFormat::Aof => "base.aof",
        };
        Listed { name: format!("{filename}.{sequence}.{suffix}").into_bytes(), sequence }
    }

    /// The increment after the last one.
    #[must_use]
    pub fn next_increment(&self, filename: &str) -> Listed {
        let sequence = last(&self.increments) + 1;
        Listed { name: format!("{filename}.{sequence}.incr.aof").into_bytes(), sequence }
    }

    /// The generations, the newest first: the current one, then those of the history.
    ///
    /// The data at the end of a generation are those of the next base, but changes between them may
    /// be in no file: so the increments of one generation must not follow those of another.
    #[must_use]
    pub fn generations(&self) -> Vec<Generation> {
        let current = Generation { base: self.base.clone(), increments: self.increments.clone() };
        let mut generations = vec![current];
        let mut next = Generation::default();
        for file in &self.history {
            if file.is_increment() {
                next.increments.push(file.clone());
            } else {
                next.base = Some(file.clone());
                generations.push(std::mem::take(&mut next));
            }
        }
        if !next.increments.is_empty() {
            generations.push(next);
        }
        generations
    }

    /// Removes all but the newest `kept` generations from the history, and returns their files.
    pub fn take_old(&mut self, kept: usize) -> Vec<Listed> {
        let generations = self.generations();
        let files = |it: &Generation| it.increments.len() + usize::from(it.base.is_some());
        let kept = generations.iter().skip(1).take(kept).map(files).sum();
        self.history.split_off(kept)
    }

    /// Makes `base` the base. The previous base, and the increments up to the number `covered`,
    /// become history, in Redis's order.
    pub fn replace_base(&mut self, base: Listed, covered: i64) {
        if let Some(previous) = self.base.replace(base) {
            self.history.insert(0, previous);
        }
        let kept = self.increments.partition_point(|file| file.sequence <= covered);
        for file in self.increments.drain(..kept).rev() {
            self.history.insert(0, file);
        }
    }
}

/// The name of the manifest.
#[must_use]
pub fn name(filename: &str) -> String {
    format!("{filename}.manifest")
}

/// The name of the file that becomes the manifest by a rename.
#[must_use]
pub fn temporary_name(filename: &str) -> String {
    format!("temp-{filename}.manifest")
}

/// The name of the server's ring: the changes that are in no increment yet.
#[must_use]
pub fn ring_name(filename: &str) -> String {
    format!("{filename}.ring")
}

/// The number of the last increment, or 0.
fn last(increments: &[Listed]) -> i64 {
    increments.last().map_or(0, |file| file.sequence)
}

/// The next line, with its line feed unless it is too long or torn; and the bytes after it.
fn next_line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let most = &bytes[..bytes.len().min(LINE_MAX_BYTES)];
    let end = most.iter().position(|byte| *byte == b'\n').map_or(most.len(), |at| at + 1);
    bytes.split_at(end)
}

fn trim(line: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = line.iter().take_while(|byte| is_blank(byte)).count();
    let line = &line[start..];
    let end = line.len() - line.iter().rev().take_while(|byte| is_blank(byte)).count();
    &line[..end]
}

/// The file of a line, and the letter of its type.
fn listed(line: &[u8]) -> Result<(Listed, u8), &'static str> {
    const FORMAT: &str = "Invalid AOF manifest file format";
    let words = split_words(line).ok_or(FORMAT)?;
    if words.len() < 6 || words.len() % 2 != 0 {
        return Err(FORMAT);
    }
    let (mut name, mut sequence, mut kind) = (None, 0, 0);
    for pair in words.chunks_exact(2) {
        let [key, value] = pair else { return Err(FORMAT) };
        // Redis reads values as strings of C.
        let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
        if key.eq_ignore_ascii_case(b"file") {
            if value.contains(&b'/') || value.contains(&b'\\') {
                return Err("File can't be a path, just a filename");
            }
            name = Some(value.to_vec());
        } else if key.eq_ignore_ascii_case(b"seq") {
            sequence = number::leading_i64(value);
        } else if key.eq_ignore_ascii_case(b"type") {
            kind = value.first().copied().unwrap_or(0);
        }
    }
    match name {
        Some(name) if sequence != 0 && kind != 0 => Ok((Listed { name, sequence }, kind)),
        _ => Err(FORMAT),
    }
}

/// Appends a name; in quotes, with escapes, where Redis writes it so.
fn write_name(out: &mut Vec<u8>, name: &[u8]) {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"');
    if !name.is_empty() && name.iter().all(is_plain) {
        out.extend_from_slice(name);
        return;
    }
    out.push(b'"');
    for byte in name {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            b' ' => out.push(b' '),
            byte if byte.is_ascii_graphic() => out.push(*byte),
            byte => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, sequence: i64) -> Listed {
        Listed { name: name.into(), sequence }
    }

    fn refused(bytes: &[u8]) -> &'static str {
        Manifest::parse(bytes).expect_err("a bad manifest").text
    }

    #[test]
    fn manifest_is_read_and_written_as_by_redis() {
        let text = b"file appendonly.aof.2.base.rdb seq 2 type b\n\
                     file appendonly.aof.1.base.rdb seq 1 type h\n\
                     file appendonly.aof.1.incr.aof seq 1 type i\n\
                     file \"a b\\x01\\\"\\n.incr.aof\" seq 7 type i\n";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.base, Some(file("appendonly.aof.2.base.rdb", 2)));
        assert_eq!(manifest.history, [file("appendonly.aof.1.base.rdb", 1)]);
        assert_eq!(manifest.increments[1], file("a b\x01\"\n.incr.aof", 7));
        assert_eq!(manifest.to_bytes().escape_ascii().to_string(), text.escape_ascii().to_string());
    }

    #[test]
    fn comments_blanks_and_unknown_keys_are_skipped() {
        let text = b"# a comment\n \tSEQ 3 Type i startoffset 5 FILE x \r\nfile y seq 1 type b\n";
        let manifest = Manifest::parse(text).unwrap();
        assert_eq!(manifest.increments, [file("x", 3)]);
        assert_eq!(manifest.base, Some(file("y", 1)));
        assert_eq!(Manifest::parse(b"#\n"), Ok(Manifest::default()));
    }

    #[test]
    fn bad_manifests_are_refused_with_redis_texts() {
        let long = [b"file ", &[b'x'; 1_024][..], b" seq 1 type b\n"].concat();
        for (bytes, text) in [
            (&b""[..], "Found an empty AOF manifest"),
            (b"file x seq 1 type b", "The AOF manifest file contains too long line"),
            (&long, "The AOF manifest file contains too long line"),
            (b"file x\0 seq 1 type b\n", "The AOF manifest file contains too long line"),
            (b"\n", "Invalid AOF manifest file format"),
            (b"file x seq 1\n", "Invalid AOF manifest file format"),
            (b"file x seq 1 type b more\n", "Invalid AOF manifest file format"),
            (b"file \"x seq 1 type b\n", "Invalid AOF manifest file format"),
            (b"file x seq 0 type b\n", "Invalid AOF manifest file format"),
            (b"file x seq 1 type \"\"\n", "Invalid AOF manifest file format"),
            (b"name x seq 1 type b\n", "Invalid AOF manifest file format"),
            (b"file a/x seq 1 type b\n", "File can't be a path, just a filename"),
            (b"file x seq 1 type z\n", "Unknown AOF file type"),
            (
                b"file x seq 1 type b\nfile y seq 2 type b\n",
                "Found duplicate base file information",
            ),
            (
                b"file x seq 2 type i\nfile y seq 2 type i\n",
                "Found a non-monotonic sequence number",
            ),
        ] {
            assert_eq!(refused(bytes), text, "{}", bytes.escape_ascii());
        }
        let shown = Manifest::parse(b"#\n file x seq 1 \n").unwrap_err().to_string();
        assert_eq!(
            shown,
            "reading the manifest file, at line 2: 'file x seq 1': Invalid AOF manifest file format"
        );
    }

    #[test]
    fn a_rewrite_makes_covered_files_history() {
        let mut manifest = Manifest::default();
        let base = manifest.next_base("a.aof", BaseFormat::Rdb);
        assert_eq!(base, file("a.aof.1.base.rdb", 1));
        manifest.replace_base(base, 0);
        for _ in 0..3 {
            let next = manifest.next_increment("a.aof");
            manifest.increments.push(next);
        }
        manifest.replace_base(manifest.next_base("a.aof", BaseFormat::Aof), 2);
        let text = "file a.aof.2.base.aof seq 2 type b\n\
                    file a.aof.1.incr.aof seq 1 type h\n\
                    file a.aof.2.incr.aof seq 2 type h\n\
                    file a.aof.1.base.rdb seq 1 type h\n\
                    file a.aof.3.incr.aof seq 3 type i\n";
        assert_eq!(String::from_utf8(manifest.to_bytes()).unwrap(), text);
        assert_eq!(manifest.next_increment("a.aof"), file("a.aof.4.incr.aof", 4));
        let names = |generation: &Generation| -> Vec<i64> {
            generation.base.iter().chain(&generation.increments).map(|it| it.sequence).collect()
        };
        let found: Vec<_> = manifest.generations().iter().map(names).collect();
        assert_eq!(found, [vec![2, 3], vec![1, 1, 2]]);
        let next = manifest.next_increment("a.aof");
        manifest.increments.push(next);
        manifest.replace_base(manifest.next_base("a.aof", BaseFormat::Rdb), 3);
        let found: Vec<_> = manifest.generations().iter().map(names).collect();
        assert_eq!(found, [vec![3, 4], vec![2, 3], vec![1, 1, 2]]);
        assert_eq!(manifest.clone().take_old(0).len(), 5);
        assert_eq!(manifest.take_old(1).len(), 3);
        assert_eq!((manifest.take_old(1).len(), manifest.generations().len()), (0, 2));
        assert_eq!(
            (name("a.aof"), temporary_name("a.aof")),
            ("a.aof.manifest".into(), "temp-a.aof.manifest".into())
        );
    }
}
