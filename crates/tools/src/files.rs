//! The files that an operator names: RDB files, append-only files, and folders of them.

use darter_persist::aof::manifest::Manifest;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The end of a manifest's name.
const MANIFEST: &str = ".manifest";
/// The begin of the name of a manifest that is being written.
const TEMPORARY: &str = "temp-";

/// An append-only folder.
#[derive(Debug)]
pub(crate) struct Folder {
    /// The path of the folder.
    pub(crate) path: PathBuf,
    /// The manifest.
    pub(crate) manifest: Manifest,
}

impl Folder {
    /// Reads the manifest at `path`.
    ///
    /// Errors: a sentence that names the manifest.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let bytes = fs::read(path).map_err(|error| format!("{shown}: {error}"))?;
        let manifest = Manifest::parse(&bytes).map_err(|error| format!("{shown}: {error}"))?;
        Ok(Self { path: path.parent().unwrap_or(Path::new("")).to_owned(), manifest })
    }

    /// The files that a start loads, in this order: the base and the increments.
    pub(crate) fn loaded(&self) -> Vec<PathBuf> {
        let Manifest { base, increments, .. } = &self.manifest;
        base.iter().chain(increments).map(|file| file.path_in(&self.path)).collect()
    }
}

/// The paths of the manifests in a folder, in order of their names.
pub(crate) fn manifests(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if is_manifest(&path) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// True for the name of a manifest.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(MANIFEST) && !name.starts_with(TEMPORARY)
}

/// True for a file that begins as an RDB file.
pub(crate) fn is_rdb(path: &Path) -> io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(6).read_to_end(&mut head)?;
    Ok(head.starts_with(b"REDIS") || head == b"VALKEY")
}
