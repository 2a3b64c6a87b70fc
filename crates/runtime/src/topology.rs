//! Which processors the process may use, and pinned_threads_stay_on_their_processor a thread to one.
//!
//! Not here: the assignment of cores. See `server`.

use std::io;
use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The processors that the calling thread may run on, in order; never empty.
#[must_use]
pub fn processors() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return vec![0] };
    let found: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    if found.is_empty() { vec![0] } else { found }
}

/// The default number of cores: the processors that we may run on, or the control group's quota if
/// that is less, rounded up.
#[must_use]
pub fn default_cores() -> usize {
    let processors = processors().len();
    let Some(quota) = quota(Path::new("/sys/fs/cgroup"), Path::new("/proc/self/cgroup")) else {
        return processors;
    };
    processors.min(quota.ceil() as usize).max(1)
}

/// Pins the calling thread to `processor`.
///
/// Errors: it does not exist, or we may not use it.
pub fn pin_thread(processor: usize) -> io::Result<()> {
    spread_thread(&[processor])
}

/// Lets the calling thread run on all of `processors`: a thread begins where the one that starts it
/// may run.
///
/// Errors: one does not exist, or we may use none of them.
pub fn spread_thread(processors: &[usize]) -> io::Result<()> {
    if processors.iter().any(|processor| *processor >= CpuSet::MAX_CPU) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    processors.iter().for_each(|processor| set.set(*processor));
    Ok(sched_setaffinity(None, &set)?)
}

/// Yields the processor to another thread that wants it, if there is one.
pub fn give_way() {
    std::thread::yield_now();
}

/// Processors' worth of time that the control group and its ancestors allow: the least of them.
fn quota(root: &Path, membership: &Path) -> Option<f64> {
    let text = std::fs::read_to_string(membership).ok()?;
    let groups = text.lines().filter_map(|line| group_folder(root, line));
    let quotas = groups.flat_map(|(top, folder)| {
        folder
            .ancestors()
            .take_while(|above| above.starts_with(&top))
            .filter_map(quota_of)
            .collect::<Vec<_>>()
    });
    quotas.min_by(f64::total_cmp)
}

/// Resolves a line of `/proc/self/cgroup` (`id:controllers:/path`): the hierarchy's root, and our
/// directory in it. Only the unified hierarchy and the old one for `cpu` count.
fn group_folder(root: &Path, line: &str) -> Option<(PathBuf, PathBuf)> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let top = match controllers {
        "" => root.to_path_buf(),
        old if old.split(',').any(|controller| controller == "cpu") => root.join("cpu"),
        _ => return None,
    };
    let folder = top.join(path.trim_start_matches('/'));
    // In a container the path may be the host's, and only the root is visible.
    if folder.exists() { Some((top, folder)) } else { Some((top.clone(), top)) }
}

fn quota_of(folder: &Path) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|&number| number > 0.0);
    if let Ok(text) = std::fs::read_to_string(folder.join("cpu.max")) {
        let (quota, period) = text.trim().split_once(' ')?;
        return Some(number(quota)? / number(period)?);
    }
    let read = |name| std::fs::read_to_string(folder.join(name)).ok();
    let (quota, period) = (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?);
    Some(number(&quota)? / number(&period)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Until they are pinned elsewhere.
    fn pinned_threads_stay_on_their_processor() {
        let allowed = processors();
        assert!((1..=allowed.len()).contains(&default_cores()));
        let last = *allowed.last().unwrap();
        let pinned = std::thread::spawn(move || {
            pin_thread(last).unwrap();
            let pinned = processors();
            spread_thread(&allowed).unwrap();
            (pinned, processors() == allowed)
        });
        assert_eq!(pinned.join().unwrap(), (vec![last], true));
        assert!(pin_thread(CpuSet::MAX_CPU).is_err());
    }

    #[test] // In both cgroup hierarchies.
    fn the_smallest_cpu_quota_of_all_ancestors_applies() {
        let root = std::env::temp_dir().join(format!("darter-cgroup-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("a/b/cpu.max", "max 100000\n");
        write("a/cpu.max", "250000 100000\n");
        write("cpu/x/cpu.cfs_quota_us", "150000\n");
        write("cpu/x/cpu.cfs_period_us", "100000\n");
        write("cpu/y/cpu.cfs_quota_us", "-1\n");
        write("cpu/y/cpu.cfs_period_us", "100000\n");
        for (membership, expected) in [
            ("0::/a/b\n", Some(2.5)),
            ("3:cpuset:/x\n2:cpu,cpuacct:/x\n0::/a/b\n", Some(1.5)),
            ("2:cpu,cpuacct:/y\n", None),
            ("0::/elsewhere\n", None),
            ("nonsense", None),
        ] {
            write("membership", membership);
            assert_eq!(quota(&root, &root.join("membership")), expected, "{membership}");
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
