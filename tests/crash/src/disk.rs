//! A file system of our own on a loop device, whose power can be cut.
//!
//! The cut is the ioctl of ext4 and XFS that shuts a file system down without a flush of its log:
//! what was not synced is gone, in folders too. It needs root, and tools.
//!
//! **Invariant:** nothing is left behind, however this process ends: see [`Janitor`].

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The size of an image. It is sparse.
const SIZE: u64 = 400 << 20;

/// Runs a program.
///
/// # Errors
/// With what it wrote to its standard error, when it fails.
pub(crate) fn run(words: &[&str]) -> Result<String, String> {
    let output = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", words[0]))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let out = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}: {out}{error}", words.join(" ")))
}

/// A mounted file system.
pub(crate) struct Disk {
    image: String,
    pub(crate) mount: PathBuf,
}

impl Disk {
    /// Makes and mounts one below `folder`.
    ///
    /// # Errors
    /// When a tool, a right or a loop device is missing.
    pub(crate) fn make(kind: &str, folder: &Path) -> Result<Self, String> {
        let image = folder.join(format!("{kind}.image"));
        let mount = folder.join(kind);
        let file = fs::File::create(&image).and_then(|file| file.set_len(SIZE));
        file.and_then(|()| fs::create_dir_all(&mount)).map_err(|error| error.to_string())?;
        let disk = Self { image: image.display().to_string(), mount };
        let force = if kind == "ext4" { "-F" } else { "-f" };
        run(&[&format!("mkfs.{kind}"), "-q", force, &disk.image])?;
        disk.mount()?;
        run(&["xfs_io", "-V"])?;
        Ok(disk)
    }

    fn mount(&self) -> Result<(), String> {
        // The loop device goes with the mount.
        run(&["mount", "-o", "loop", &self.image, &self.mount.display().to_string()]).map(drop)
    }

    /// Loses what is not synced; later calls of all processes fail.
    pub(crate) fn cut_power(&self) -> Result<(), String> {
        run(&["xfs_io", "-x", "-c", "shutdown", &self.mount.display().to_string()]).map(drop)
    }

    /// Mounts again, when nobody has a file open.
    pub(crate) fn restore_power(&self) -> Result<(), String> {
        run(&["umount", &self.mount.display().to_string()])?;
        self.mount()
    }
}

/// A process that removes all mounts and files when this one ends, for whatever reason: its input
/// is a pipe that closes then. It is in a session of its own, and does not heed signals.
pub(crate) struct Janitor {
    child: Child,
    /// The folder of all files of this run.
    pub(crate) folder: PathBuf,
}

const CLEAN: &str = "trap '' INT TERM HUP; cat >/dev/null; \
    for fs in ext4 xfs; do for try in 1 2 3 4 5 6 7 8 9; do \
    grep -q \" $0/$fs \" /proc/mounts || break; umount \"$0/$fs\" 2>/dev/null || sleep 0.2; done; \
    grep -q \" $0/$fs \" /proc/mounts && umount -l \"$0/$fs\"; done; \
    rm -rf --one-file-system \"$0\"";

impl Janitor {
    /// Makes the folder, and the process that removes it.
    pub(crate) fn hire() -> io::Result<Self> {
        let name = format!("darter-crash-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", CLEAN]).arg(&folder).stdin(Stdio::piped());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        Ok(Self { child, folder })
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
