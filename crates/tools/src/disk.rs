//! `darter disk`: measures how long a commit takes in a folder, and warns of disks whose syncs cannot
//! be true.
//!
//! The kinds of commits alternate, so that other load on the disk meets all of them.

use clap::{Arg, ArgMatches, Command, value_parser};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The size of a commit.
const COMMIT_BYTES: usize = 4 << 10;
/// The zeros that are written ahead of the commits.
const RESERVED_BYTES: u64 = 16 << 20;
/// A sync that takes less is no flush of a device, not even of one with a cache that survives a loss
/// of power: a round trip to it takes longer.
const FASTEST_SYNC: Duration = Duration::from_micros(8);
/// File systems on which a sync promises nothing, or depends on another machine.
const WEAK: &[&str] =
    &["tmpfs", "ramfs", "overlay", "nfs", "nfs4", "cifs", "smb3", "9p", "fuse", "vboxsf"];
/// Options of a mount that leave out flushes.
const NO_FLUSHES: &[&str] = &["nobarrier", "barrier=0"];

/// A kind of commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Commit {
    /// A write without a sync.
    Write,
    /// A write over zeros, and a sync.
    Reserved,
    /// A write at the end of the file, and a sync.
    Growing,
}

#[rustfmt::skip] // A table.
const COMMITS: &[(Commit, &str)] = &[
    (Commit::Write,    "write only (appendfsync no, everysec)"),
    (Commit::Reserved, "write and sync, reserved space (always)"),
    (Commit::Growing,  "write and sync, growing file (as Redis)"),
];

pub(crate) fn arguments(command: Command) -> Command {
    command
        .arg(
            Arg::new("folder")
                .value_name("FOLDER")
                .help(
                    "The folder to measure: that of the append-only files. Up to 40 MB are written",
                )
                .value_parser(value_parser!(PathBuf))
                .required(true),
        )
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("N")
                .help("Duration of the measurement")
                .value_parser(value_parser!(u64))
                .default_value("5"),
        )
}

pub(crate) fn run(matches: &ArgMatches) -> Result<ExitCode, String> {
    let folder = matches.get_one::<PathBuf>("folder").ok_or("no folder")?;
    let seconds = matches.get_one("seconds").copied().unwrap_or(5);
    let wrong = |error: io::Error| format!("{}: {error}", folder.display());
    let path = folder.canonicalize().map_err(wrong)?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = Mount::of(&path, &mounts);
    let times = measure(&path, Duration::from_secs(seconds)).map_err(wrong)?;
    let report = report(&path, mount.as_ref(), &times);
    let _ = std::io::stdout().write_all(report.as_bytes());
    Ok(ExitCode::SUCCESS)
}

/// A file that is removed in the end.
struct Temporary {
    file: File,
    path: PathBuf,
}

impl Temporary {
    fn create(folder: &Path, name: &str) -> io::Result<Self> {
        let path = folder.join(format!("darter-disk-{}-{name}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self { file, path })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The durations of the commits of each kind, in ascending order.
type Times = Vec<Vec<Duration>>;

fn measure(folder: &Path, limit: Duration) -> io::Result<Times> {
    let files = ["write", "reserved", "growing"].map(|name| Temporary::create(folder, name));
    let [write, reserved, growing] = files;
    let files = [write?, reserved?, growing?];
    for file in &files[..2] {
        for offset in (0..RESERVED_BYTES).step_by(1 << 20) {
            file.file.write_all_at(&[0; 1 << 20], offset)?;
        }
        file.file.sync_all()?;
    }
    File::open(folder)?.sync_all()?;
    let bytes: Vec<u8> = (0..COMMIT_BYTES).map(|byte| byte as u8).collect();
    let mut times: Times = vec![Vec::new(); COMMITS.len()];
    let begin = Instant::now();
    for round in 0..RESERVED_BYTES / COMMIT_BYTES as u64 {
        for (index, (commit, _)) in COMMITS.iter().enumerate() {
            let start = Instant::now();
            files[index].file.write_all_at(&bytes, round * COMMIT_BYTES as u64)?;
            if *commit != Commit::Write {
                files[index].file.sync_data()?;
            }
            times[index].push(start.elapsed());
        }
        if begin.elapsed() >= limit {
            break;
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable());
    Ok(times)
}

/// The duration below which this share of the commits lie. `times` has at least one.
fn percentile(times: &[Duration], percent: usize) -> Duration {
    times[(times.len() * percent / 100).min(times.len() - 1)]
}

fn report(path: &Path, mount: Option<&Mount>, times: &Times) -> String {
    let mut text = format!("{}", path.display());
    if let Some(mount) = mount {
        let _ = write!(text, ": {} on {} ({})", mount.kind, mount.source, mount.options);
    }
    let _ = writeln!(
        text,
        "\n{:<42} {:>9} {:>9} {:>11}",
        "a commit of 4 KiB", "P50 us", "P99 us", "a second"
    );
    for ((_, name), times) in COMMITS.iter().zip(times) {
        let (middle, late) = (percentile(times, 50), percentile(times, 99));
        let total: Duration = times.iter().sum();
        let rate = times.len() as f64 / total.as_secs_f64();
        let _ = writeln!(
            text,
            "{name:<42} {:>9.1} {:>9.1} {rate:>11.0}",
            middle.as_secs_f64() * 1e6,
            late.as_secs_f64() * 1e6
        );
    }
    text.push_str("With always, all clients that wait at the same time share one sync.\n");
    for warning in warnings(mount, times) {
        let _ = writeln!(text, "WARNING: {warning}");
    }
    text
}

/// The sentences about syncs that promise less than they should.
fn warnings(mount: Option<&Mount>, times: &Times) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(mount) = mount {
        if WEAK.contains(&&*mount.kind) || mount.kind.starts_with("fuse.") {
            warnings.push(format!(
                "on {} a sync may mean nothing: a loss of power may lose all data",
                mount.kind
            ));
        }
        let options = mount.options.split(',').chain(mount.file_system_options.split(','));
        for option in options.filter(|option| NO_FLUSHES.contains(option)) {
            warnings
                .push(format!("the mount option {option} leaves out flushes of the disk's cache"));
        }
    }
    let middle = |commit: Commit| {
        let index = COMMITS.iter().position(|(other, _)| *other == commit).unwrap_or(0);
        percentile(&times[index], 50)
    };
    let sync = middle(Commit::Reserved).saturating_sub(middle(Commit::Write));
    if sync < FASTEST_SYNC {
        warnings.push(format!(
            "a sync takes {:.1} us, which is faster than hardware: it does not reach a disk",
            sync.as_secs_f64() * 1e6
        ));
    }
    warnings
}

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    kind: String,
    source: String,
    options: String,
    file_system_options: String,
}

impl Mount {
    /// The mount that has `path`. `text` is the file `mountinfo` in `/proc`.
    fn of(path: &Path, text: &str) -> Option<Self> {
        let mut best: Option<(usize, Self)> = None;
        for line in text.lines() {
            let Some((mount, system)) = line.split_once(" - ") else { continue };
            let (mut mount, mut system) = (mount.split(' ').skip(4), system.split(' '));
            let (Some(place), Some(options)) = (mount.next(), mount.next()) else { continue };
            let place = PathBuf::from(unescaped(place));
            let depth = place.components().count();
            // A later mount on the same place hides the earlier one.
            if path.starts_with(&place) && best.as_ref().is_none_or(|(other, _)| depth >= *other) {
                let mut next = || system.next().map(unescaped).unwrap_or_default();
                let (kind, source, file_system_options) = (next(), next(), next());
                let options = options.to_owned();
                best = Some((depth, Self { kind, source, options, file_system_options }));
            }
        }
        best.map(|(_, mount)| mount)
    }
}

/// The text without the octal escapes of blanks and the like.
fn unescaped(text: &str) -> String {
    let mut text = text.to_owned();
    for (escape, letter) in [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")] {
        text = text.replace(escape, letter);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;

    const MOUNTS: &str = "\
        22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw,barrier=0\n\
        30 22 0:25 / /data rw,relatime shared:2 - tmpfs tmpfs rw,size=4k\n\
        31 22 0:26 / /data\\040two rw,nobarrier - xfs /dev/vdb rw\n\
        32 22 0:27 / /data rw,noatime - ext4 /dev/vdc rw\n";

    fn mount(path: &str) -> Mount {
        Mount::of(Path::new(path), MOUNTS).unwrap()
    }

    fn times(write_us: u64, sync_us: u64) -> Times {
        let [write, sync] = [write_us, sync_us].map(|us| vec![Duration::from_micros(us); 10]);
        vec![write, sync.clone(), sync]
    }

    #[test]
    fn the_mount_of_a_path_is_the_deepest_and_the_last() {
        assert_eq!(mount("/database").source, "/dev/vda1");
        assert_eq!(mount("/data/x").source, "/dev/vdc");
        assert_eq!(mount("/data two/x").kind, "xfs");
        assert_eq!(Mount::of(Path::new("/x"), ""), None);
    }

    #[test]
    fn syncs_that_cannot_be_true_are_warned_of() {
        let count = |path: &str, sync_us| warnings(Some(&mount(path)), &times(10, sync_us)).len();
        assert_eq!(count("/data/x", 200), 0);
        assert_eq!(count("/data/x", 17), 1); // Too fast.
        assert_eq!(count("/x", 200), 1); // barrier=0
        assert_eq!(count("/data two/x", 200), 1); // nobarrier
        let tmpfs = Mount { kind: "tmpfs".into(), ..mount("/data/x") };
        assert_eq!(warnings(Some(&tmpfs), &times(10, 11)).len(), 2);
        assert_eq!(warnings(None, &times(10, 100)), [""; 0]);
    }

    #[test]
    fn commits_are_measured_and_no_file_is_left() {
        let sample = Sample::new("disk");
        let times = measure(&sample.path, Duration::from_millis(20)).unwrap();
        assert!(times.iter().all(|times| !times.is_empty() && times.is_sorted()));
        let text = report(&sample.path, None, &times);
        assert_eq!(text.lines().filter(|line| line.contains("write")).count(), 3, "{text}");
        assert_eq!(fs::read_dir(&sample.path).unwrap().count(), 0);
        assert!(measure(&sample.path.join("none"), Duration::ZERO).is_err());
    }

    #[test]
    fn percentiles_are_those_of_sorted_times() {
        let times: Vec<Duration> = (0..200).map(Duration::from_micros).collect();
        let found = [0, 50, 99, 100].map(|percent| percentile(&times, percent).as_micros());
        assert_eq!(found, [0, 100, 198, 199]);
    }
}
