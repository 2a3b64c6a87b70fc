//! The backends of [`FileSystem`]: the simulated one behaves like the kernel, and loses no more and
//! no less than it says.

use darter_base::Prng;
use darter_runtime::disk::Disk;
use darter_runtime::fs::{self, Call, Fault, Faults, Faulty, File, FileSystem, Kernel, Mode};
use darter_runtime::fs::{Simulated, write_all_at};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const CAPACITY: u64 = 1 << 20;

fn simulated(seed: u64) -> (Simulated, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    (Simulated::new(seed, CAPACITY, Arc::clone(&faults)), faults)
}

/// A temporary folder that is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let place = std::env::temp_dir().join(format!("darter-fs-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        Self(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Makes random calls on a file system, and returns their results as text.
fn results(fs: &dyn FileSystem, folder: &Path, seed: u64) -> Vec<String> {
    let mut prng = Prng::from_seed(seed);
    let mut open: BTreeMap<u64, Box<dyn File>> = BTreeMap::new();
    let mut results = Vec::new();
    for _ in 0..300 {
        let mut name = || folder.join(format!("file-{}", prng.below(4)));
        let (one, other) = (name(), name());
        let (call, slot, offset) = (prng.below(12), prng.below(4), prng.below(3_000));
        let bytes = prng.bytes(0..=1_500);
        let file = open.get(&slot);
        let result = match (call, file) {
            (0..=2, _) => {
                let modes = [Mode::Read, Mode::Write, Mode::Create, Mode::CreateNew];
                let mode = modes[usize::try_from(prng.below(4)).unwrap()];
                let opened = fs.open(&one, mode);
                let result = opened.as_ref().map(|_| String::new()).map_err(std::io::Error::kind);
                if let Ok(file) = opened {
                    open.insert(slot, file);
                }
                format!("open {result:?}")
            }
            (3, _) => format!("rename {:?}", fs.rename(&one, &other).map_err(|error| error.kind())),
            (4, _) => format!("remove {:?}", fs.remove(&one).map_err(|error| error.kind())),
            (5, _) => {
                let names = fs.list(folder).map(BTreeSet::from_iter);
                format!("list {names:?} {:?}", fs.sync_folder(folder).is_ok())
            }
            (6, Some(file)) => {
                let mut space = vec![0; bytes.len()];
                let count = file.read_at(&mut space, offset).unwrap();
                format!("read {:?}", &space[..count])
            }
            (7..=8, Some(file)) => {
                let halves = bytes.split_at(bytes.len() / 2);
                let parts = [IoSlice::new(halves.0), IoSlice::new(halves.1)];
                format!("write {:?}", file.write_at(&parts, offset).map_err(|_| ()))
            }
            (9, Some(file)) => format!("cut {:?}", file.set_length(offset).map_err(|_| ())),
            (10, Some(file)) => format!("lock {:?}", file.try_lock().unwrap()),
            (_, Some(file)) => format!("{:?} {:?}", file.length().unwrap(), file.sync().is_ok()),
            (_, None) => String::new(),
        };
        results.push(result);
    }
    results
}

#[test]
fn simulated_files_behave_like_the_kernels() {
    for seed in 0..40 {
        let place = Place::new(&format!("model-{seed}"));
        let real = results(&Kernel, &place.0, seed);
        let (disk, _) = simulated(seed);
        let simulated = results(&disk, Path::new(""), seed);
        for (at, (real, simulated)) in real.iter().zip(&simulated).enumerate() {
            assert_eq!(real, simulated, "seed {seed}, call {at}");
        }
    }
}

#[test] // Whatever the seed: synced contents stay, and each later sector is there or not.
fn synced_contents_survive_a_loss_of_power() {
    let (mut lost, mut kept) = (0, 0);
    for seed in 0..200 {
        let (disk, _) = simulated(seed);
        let path = Path::new("file");
        let file = disk.open(path, Mode::Create).unwrap();
        write_all_at(&*file, &[1; 2_048], 0).unwrap();
        file.sync().unwrap();
        disk.sync_folder(Path::new("")).unwrap();
        write_all_at(&*file, &[2; 2_048], 2_048).unwrap();
        disk.lose_power();
        assert!(file.length().is_err(), "its process has ended");
        let bytes = fs::read(&disk, path).unwrap();
        assert_eq!(bytes[..2_048], [1; 2_048], "seed {seed}");
        assert!(bytes[2_048..].iter().all(|byte| [0, 2].contains(byte)), "seed {seed}");
        let whole = bytes.get(2_048..).unwrap_or_default().chunks(512);
        let there = whole.filter(|sector| **sector == [2; 512]).count();
        lost += 4 - there;
        kept += there;
    }
    assert!(lost > 200 && kept > 200, "lost {lost}, kept {kept}");
}

#[test] // The second sync succeeds, as on ext4, XFS and btrfs.
fn a_failed_sync_loses_bytes_that_can_still_be_read() {
    let (disk, faults) = simulated(1);
    let file = disk.open(Path::new("file"), Mode::Create).unwrap();
    disk.sync_folder(Path::new("")).unwrap();
    faults.plan(Some(Call::Sync), 1, Fault::Error(5));
    write_all_at(&*file, b"lost", 0).unwrap();
    assert_eq!(file.sync().unwrap_err().raw_os_error(), Some(5));
    file.sync().unwrap();
    assert_eq!(fs::read(&disk, Path::new("file")).unwrap(), b"lost");
    disk.lose_power();
    assert_eq!(fs::read(&disk, Path::new("file")).unwrap(), [0; 4]);
}

#[test]
fn names_are_durable_in_order_and_after_a_sync_of_the_folder() {
    let mut seen = BTreeSet::new();
    for seed in 0..100 {
        let (disk, _) = simulated(seed);
        let root = Path::new("");
        fs::write(&disk, Path::new("old"), b"1").unwrap();
        disk.sync_folder(root).unwrap();
        fs::write(&disk, Path::new("new"), b"2").unwrap();
        disk.rename(Path::new("new"), Path::new("old")).unwrap();
        disk.remove(Path::new("old")).unwrap();
        disk.lose_power();
        let mut names = disk.list(root).unwrap();
        names.sort();
        seen.insert(names.into_iter().map(|name| name.into_string().unwrap()).collect::<Vec<_>>());
    }
    let seen: Vec<String> = seen.into_iter().map(|names| names.join(" ")).collect();
    assert_eq!(seen, ["", "new old", "old"]);
}

#[test] // A kill keeps the page cache.
fn a_kill_loses_nothing_and_releases_locks() {
    let (disk, _) = simulated(1);
    let path = Path::new("file");
    let file = disk.open(path, Mode::Create).unwrap();
    write_all_at(&*file, b"there", 0).unwrap();
    assert!(file.try_lock().unwrap());
    assert!(!disk.open(path, Mode::Read).unwrap().try_lock().unwrap(), "it is locked");
    disk.kill();
    assert_eq!(fs::read(&disk, path).unwrap(), b"there");
    assert!(disk.open(path, Mode::Read).unwrap().try_lock().unwrap());
    assert!(file.write_at(&[IoSlice::new(b"late")], 0).is_err(), "its process has ended");
}

#[test]
fn writes_to_a_full_disk_are_short_or_fail() {
    let (disk, _) = simulated(1);
    let file = disk.open(Path::new("file"), Mode::Create).unwrap();
    let bytes = vec![7; 1_000_000];
    assert_eq!(file.write_at(&[IoSlice::new(&bytes)], 0).unwrap(), bytes.len());
    let rest = usize::try_from(disk.free_bytes(Path::new("")).unwrap()).unwrap();
    assert_eq!(file.write_at(&[IoSlice::new(&bytes)], 1_000_000).unwrap(), rest);
    let error = file.write_at(&[IoSlice::new(&bytes)], CAPACITY).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    disk.remove(Path::new("file")).unwrap();
    drop(file);
    assert!(Kernel.free_bytes(Path::new("")).unwrap() > 0);
}

/// Writes a file as snapshots are written.
fn save(fs: &dyn FileSystem, folder: &Path) -> std::io::Result<()> {
    let temp = folder.join("temp");
    let mut disk = Disk::create(fs, &temp)?;
    disk.write_all(&[9; 3_000])?;
    disk.sync()?;
    disk.write_all(&[8; 3_000])?;
    disk.finish()?;
    fs.rename(&temp, &folder.join("final"))?;
    fs.sync_folder(folder)
}

#[test] // At each call, by a kill and by a loss of power.
fn a_saved_file_is_complete_wherever_the_process_dies() {
    let (disk, faults) = simulated(0);
    save(&disk, Path::new("")).unwrap();
    let calls = faults.calls();
    assert!(calls > 6, "{calls}");
    for (at, seed) in (1..=calls).flat_map(|at| (0..20).map(move |seed| (at, seed))) {
        let (disk, faults) = simulated(seed);
        let path = Path::new("final");
        fs::write(&disk, path, b"before").unwrap();
        disk.open(path, Mode::Write).unwrap().sync().unwrap();
        disk.sync_folder(Path::new("")).unwrap();
        faults.plan(None, at, Fault::Crash);
        assert!(save(&disk, Path::new("")).is_err());
        if seed % 2 == 0 {
            disk.kill()
        } else {
            disk.lose_power()
        }
        let found = fs::read(&disk, path).unwrap();
        let whole = [[9; 3_000], [8; 3_000]].concat();
        assert!(found == b"before" || found == whole, "call {at}, seed {seed}: {}", found.len());
    }
}

#[test] // Around the kernel: each kind of fault at the planned call, and not before.
fn planned_faults_come_at_their_call() {
    let place = Place::new("faults");
    let faults = Arc::new(Faults::default());
    let faulty = Faulty::new(Kernel, Arc::clone(&faults));
    let path = place.0.join("file");
    let file = faulty.open(&path, Mode::Create).unwrap();
    faults.plan(Some(Call::Write), 2, Fault::Short(3));
    faults.plan(Some(Call::Write), 3, Fault::Error(28));
    let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cd")];
    assert_eq!(file.write_at(&parts, 0).unwrap(), 4);
    assert_eq!(file.write_at(&parts, 4).unwrap(), 3);
    assert_eq!(file.write_at(&parts, 7).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.length().unwrap(), 7);
    faults.plan(Some(Call::Rename), 1, Fault::Crash);
    assert!(faulty.rename(&path, &place.0.join("other")).is_err());
    assert!(faulty.remove(&path).is_err() && path.exists(), "nothing happens after a crash");
    faults.restart();
    assert_eq!(fs::read(&faulty, &path).unwrap(), b"abcdabc");
}
