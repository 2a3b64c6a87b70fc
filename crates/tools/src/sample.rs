//! Files for the tests of this crate.

use darter_persist::aof::annotation::{Annotation, Head};
use std::fs;
use std::path::PathBuf;

/// A folder that is removed at the end of a test.
pub(crate) struct Sample {
    pub(crate) path: PathBuf,
}

impl Sample {
    /// A fresh folder. No other test of this crate uses `name`.
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("darter-tools-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    /// An increment of run 7, without batches.
    pub(crate) fn chain(&self) -> Chain {
        Chain { bytes: Vec::new(), last: None }
    }

    /// Writes a folder with increments of these contents.
    pub(crate) fn folder(&self, increments: &[&[u8]]) -> PathBuf {
        let (folder, mut manifest) = (self.path.join("appendonlydir"), String::new());
        fs::create_dir_all(&folder).unwrap();
        for (index, bytes) in increments.iter().enumerate() {
            let sequence = index + 1;
            let name = format!("appendonly.aof.{sequence}.incr.aof");
            fs::write(folder.join(&name), bytes).unwrap();
            manifest.push_str(&format!("file {name} seq {sequence} type i\n"));
        }
        fs::write(folder.join("appendonly.aof.manifest"), manifest).unwrap();
        folder
    }
}

impl Drop for Sample {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Batches, one after the other.
pub(crate) struct Chain {
    pub(crate) bytes: Vec<u8>,
    pub(crate) last: Option<Annotation>,
}

impl Chain {
    /// Adds a batch of commands. All earlier batches were durable before.
    pub(crate) fn add(&mut self, unix_ms: u64, commands: &[Vec<u8>]) {
        let offset = self.last.map_or(0, |last| last.end());
        let head = Head {
            run: 7,
            batch: self.last.map_or(1, |last| last.head.batch + 1),
            offset,
            bytes: commands.iter().map(|command| command.len() as u64).sum(),
            stable: offset,
            unix_ms,
            previous: self.last.map_or(0, |last| last.link()),
        };
        let annotation = head.seal(commands.iter().map(|command| &command[..]));
        annotation.write(&mut self.bytes);
        self.bytes.extend(commands.iter().flatten());
        self.last = Some(annotation);
    }

    /// Continues in another file.
    pub(crate) fn next_file(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

/// A command in Redis's form.
pub(crate) fn command(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    bytes.into_bytes()
}
