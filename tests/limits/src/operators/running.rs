//! Commands beside running servers.

use super::{FOLDER, ON, Scratch, darter_good, shown};
use crate::append_only::copy_folder;
use crate::append_only::written::{Written, check_numbers, write_numbers};
use crate::saving::{SOON, digest, expect, fill, say, wait_for};
use crate::{Stage, ensure, text};
use darter_base::Prng;
use darter_testkit::Server;
use darter_testkit::server::{dies_with_us, subject_path};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Clients that write at the same time.
const WRITERS: usize = 3;
/// The number of backups.
const BACKUPS: usize = 6;
/// The number of commands to follow.
const COMMANDS: u64 = 3_000;

pub(super) fn backup(stage: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("backup")?;
    let server = stage.server_with(ON)?;
    let (written, is_over) = (Default::default(), AtomicBool::new(false));
    let written: [Written; WRITERS] = written;
    let taken = std::thread::scope(|scope| {
        for (writer, written) in written.iter().enumerate() {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || write_numbers(server, writer, 0, written, is_over));
        }
        let rewrites = scope.spawn(|| rewrite_until(&server, &is_over));
        let taken = backups(&server, &scratch, &written);
        is_over.store(true, Ordering::Relaxed);
        let rewrites = rewrites.join().unwrap_or_else(|_| Err("a panic".into()))?;
        ensure(rewrites >= 3, || format!("only {rewrites} rewrites"))?;
        taken
    })?;
    let mut last = 0;
    for (number, states) in taken.iter().enumerate() {
        let folder = scratch.path(&number.to_string());
        darter_good(&["check", shown(&folder)])?;
        let place = |to: &Path| copy_folder(&folder.join(FOLDER), &to.join(FOLDER));
        let here = Server::subject_in(stage.shape, ON, place).map_err(text)?;
        let there = Server::oracle_in(ON, place).map_err(text)?;
        for server in [&here, &there] {
            let mut client = server.client().map_err(text)?;
            for (writer, state) in states.iter().enumerate() {
                last = check_numbers(&mut client, writer, state)?;
            }
        }
    }
    ensure(last > 20, || format!("only {last} transactions were written"))
}

/// Makes backups. Returns for each what had been answered before it, and sent before its end.
fn backups(
    server: &Server,
    scratch: &Scratch,
    written: &[Written; WRITERS],
) -> Result<Vec<[Written; WRITERS]>, String> {
    let mut taken = Vec::new();
    for number in 0..BACKUPS {
        std::thread::sleep(Duration::from_millis(60));
        let states: [Written; WRITERS] = Default::default();
        for (state, written) in states.iter().zip(written) {
            state.answered.store(written.answered.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        let target = scratch.path(&number.to_string());
        // The server is found by its port or by its folder.
        let port = server.port().to_string();
        let source = match number % 2 {
            0 => ["--port", &port],
            _ => ["--dir", shown(server.folder())],
        };
        darter_good(&[&["backup", shown(&target)], &source[..]].concat())?;
        for (state, written) in states.iter().zip(written) {
            state.sent.store(written.sent.load(Ordering::SeqCst), Ordering::SeqCst);
        }
        taken.push(states);
    }
    Ok(taken)
}

/// Rewrites, one after the other. Returns their number.
fn rewrite_until(server: &Server, is_over: &AtomicBool) -> Result<usize, String> {
    let mut client = server.client().map_err(text)?;
    let mut count = 0;
    while !is_over.load(Ordering::Relaxed) {
        expect(&mut client, "BGREWRITEAOF", "Background")?;
        wait_for(&mut client, "aof_rewrite_in_progress:0")?;
        count += 1;
        std::thread::sleep(Duration::from_millis(30));
    }
    Ok(count)
}

pub(super) fn backup_of_redis(stage: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("backup-redis")?;
    let there = Server::oracle_with(ON).map_err(text)?;
    let mut client = there.client().map_err(text)?;
    fill(&mut client, &mut Prng::from_seed(8))?;
    let sum = digest(&mut client)?;
    let target = scratch.path("b");
    darter_good(&["backup", shown(&target), "--port", &there.port().to_string()])?;
    let place = |to: &Path| copy_folder(&target.join(FOLDER), &to.join(FOLDER));
    for server in [Server::subject_in(stage.shape, ON, place), Server::oracle_in(ON, place)] {
        let found = digest(&mut server.map_err(text)?.client().map_err(text)?)?;
        ensure(found == sum, || format!("{sum}, but {found} in the backup"))?;
    }
    // Without a journal, the snapshot is taken.
    let here = stage.server()?;
    let mut client = here.client().map_err(text)?;
    for line in ["SET k v", "SAVE"] {
        expect(&mut client, line, "OK")?;
    }
    let target = scratch.path("snapshot");
    darter_good(&["backup", shown(&target), "--port", &here.port().to_string()])?;
    let [one, two] = [here.folder(), &target].map(|folder| fs::read(folder.join("dump.rdb")));
    ensure(one.map_err(text)? == two.map_err(text)?, || "the snapshot differs".into())
}

pub(super) fn tail(stage: &Stage) -> Result<(), String> {
    let scratch = Scratch::new("tail")?;
    let kept = scratch.path(FOLDER);
    let mut server = stage.server_with(ON)?;
    // Followed by a name that stays while servers come and go.
    std::os::unix::fs::symlink(server.folder().join(FOLDER), &kept).map_err(text)?;
    let mut child = dies_with_us(&subject_path(), None)
        .args(["journal", "tail", "-f", "-n", "0", shown(&kept)])
        .stdout(Stdio::piped())
        .spawn()
        .map_err(text)?;
    let output = child.stdout.take().ok_or("no output")?;
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let write = |from: u64, server: &Server| -> Result<(), String> {
        let mut client = server.client().map_err(text)?;
        for number in from..from + COMMANDS / 3 {
            say(&mut client, &format!("SET followed {number}"))?;
            if number % 400 == 399 {
                expect(&mut client, "BGREWRITEAOF", "Background")?;
                wait_for(&mut client, "aof_rewrite_in_progress:0")?;
                // Files that live for less than 10 ms may be missed.
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(())
    };
    // The first command says that following has begun.
    let result = wait_for_begin(&server, &lines).and_then(|()| {
        write(0, &server)?;
        write(COMMANDS / 3, &server)?;
        let files = scratch.path("files");
        server.signal(rustix::process::Signal::TERM).map_err(text)?;
        server.wait_for_exit(SOON).map_err(text)?;
        copy_folder(&server.folder().join(FOLDER), &files).map_err(text)?;
        let place = |to: &Path| copy_folder(&files, &to.join(FOLDER));
        let next = Server::subject_in(stage.shape, ON, place).map_err(text)?;
        let (new, link) = (scratch.path("new"), next.folder().join(FOLDER));
        std::os::unix::fs::symlink(link, &new).map_err(text)?;
        fs::rename(&new, &kept).map_err(text)?;
        write(2 * (COMMANDS / 3), &next)?;
        let start = Instant::now();
        for number in 0..COMMANDS {
            let line = loop {
                let left = SOON.saturating_sub(start.elapsed());
                let line = lines.recv_timeout(left).map_err(|_| format!("no line of {number}"))?;
                if line.contains("\"followed\"") {
                    break line;
                }
            };
            let end = format!("\"SET\" \"followed\" \"{number}\"");
            ensure(line.ends_with(&end), || format!("{line}, but wanted {end}"))?;
        }
        Ok(())
    });
    let _ = child.kill();
    let _ = child.wait();
    result
}

/// Writes until the first line arrives.
fn wait_for_begin(
    server: &Server,
    lines: &std::sync::mpsc::Receiver<String>,
) -> Result<(), String> {
    let mut client = server.client().map_err(text)?;
    let start = Instant::now();
    while lines.recv_timeout(Duration::from_millis(20)).is_err() {
        ensure(start.elapsed() < SOON, || "nothing is printed".into())?;
        say(&mut client, "INCR begin")?;
    }
    Ok(())
}
