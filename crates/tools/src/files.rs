//! The files that an operator names: RDB files, append-only files, and folders of them.

use darter_persist::aof::manifest::{Manifest, ring_name};
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// The end of a manifest's name.
const MANIFEST: &str = ".manifest";
/// The begin of the name of a manifest that is being written.
const TEMPORARY: &str = "temp-";
/// The number of bytes read at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// An append-only folder.
#[derive(Debug)]
pub(crate) struct Folder {
    /// The path of the folder.
    pub(crate) path: PathBuf,
    /// The name of the manifest.
    pub(crate) manifest_name: String,
    /// The manifest.
    pub(crate) manifest: Manifest,
}

impl Folder {
    /// Reads the manifest at `path`.
    ///
    /// Errors: a sentence that names the manifest.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let bytes = fs::read(path).map_err(|error| named(path, error))?;
        let manifest = Manifest::parse(&bytes).map_err(|error| named(path, error))?;
        let manifest_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok(Self { path, manifest_name, manifest })
    }

    /// Finds the only manifest in the folder `path`, or in one of its folders.
    ///
    /// Errors: a sentence, also if there is no manifest, or more than one.
    pub(crate) fn find(path: &Path) -> Result<Self, String> {
        if is_manifest(path) {
            return Self::open(path);
        }
        match &manifests_below(path)?[..] {
            [] => Err(named(path, "the folder has no manifest of append-only files")),
            [manifest] => Self::open(manifest),
            [first, second, ..] => Err(format!(
                "{}: name one of its manifests: {}, {}",
                path.display(),
                first.display(),
                second.display()
            )),
        }
    }

    /// The name of the server's ring: changes that are not in a file yet.
    pub(crate) fn ring_name(&self) -> String {
        let name = self.manifest_name.strip_suffix(MANIFEST).unwrap_or(&self.manifest_name);
        ring_name(name)
    }

    /// The files that a start loads, in this order: the base and the increments.
    pub(crate) fn loaded(&self) -> Vec<PathBuf> {
        let Manifest { base, increments, .. } = &self.manifest;
        base.iter().chain(increments).map(|file| file.path_in(&self.path)).collect()
    }
}

/// The paths of the manifests in a folder, or else in its folders, in order of their names.
///
/// Errors: a sentence.
pub(crate) fn manifests_below(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let names = list(folder)?;
    let here: Vec<PathBuf> = names.iter().filter(|path| is_manifest(path)).cloned().collect();
    if !here.is_empty() {
        return Ok(here);
    }
    let mut found = Vec::new();
    for folder in names.iter().filter(|path| path.is_dir()) {
        // A folder that cannot be read has no files of this user's.
        found.extend(list(folder).unwrap_or_default().into_iter().filter(|path| is_manifest(path)));
    }
    Ok(found)
}

/// The paths in a folder, in order of their names.
///
/// Errors: a sentence.
pub(crate) fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| named(folder, error))?;
    let paths: io::Result<Vec<PathBuf>> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(|error| named(folder, error))?;
    paths.sort();
    Ok(paths)
}

/// True for the name of a manifest.
pub(crate) fn is_manifest(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.ends_with(MANIFEST) && !name.starts_with(TEMPORARY)
}

/// True for a file that begins as an RDB file.
///
/// Errors: a sentence.
pub(crate) fn is_rdb(path: &Path) -> Result<bool, String> {
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(6).read_to_end(&mut head));
    read.map_err(|error| named(path, error))?;
    Ok(darter_rdb::begins_file(&head))
}

/// The length of a file in bytes.
///
/// Errors: a sentence.
pub(crate) fn length(path: &Path) -> Result<u64, String> {
    path.metadata().map(|data| data.len()).map_err(|error| named(path, error))
}

/// Reads the bytes `from..to` of a file, until `take` returns false.
///
/// Errors: a sentence.
pub(crate) fn read(
    path: &Path,
    (from, to): (u64, u64),
    take: &mut dyn FnMut(&[u8]) -> bool,
) -> Result<(), String> {
    let mut file = File::open(path).map_err(|error| named(path, error))?;
    file.seek(SeekFrom::Start(from)).map_err(|error| named(path, error))?;
    let mut file = file.take(to.saturating_sub(from));
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let len = file.read(&mut block).map_err(|error| named(path, error))?;
        if len == 0 || !take(&block[..len]) {
            return Ok(());
        }
    }
}

/// An error about a file, as a sentence.
pub(crate) fn named(path: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", path.display())
}
