//! Append-only folders: loaded as redis-server does, cut, or refused.

pub(crate) mod dealt;
pub(crate) mod written;

use crate::saving::{digest, expect, fill, say, wait_for};
use crate::{Asks, Check, Stage, ensure, text};
use darter_base::Prng;
use darter_testkit::{Client, Server};
use std::fs;
use std::io;
use std::path::Path;

#[rustfmt::skip] // A table.
pub(crate) const CHECKS: &[Check] = &[
    ("an append-only folder of redis-server gives the same data", Asks::More, same_data),
    ("a single append-only file is moved into the folder",        Asks::More, single_file),
    ("expired keys of a base are live for later commands",        Asks::More, expired_base),
    ("a torn end is cut, and the rest is loaded",                 Asks::More, torn_ends),
    ("failed commands of a file are logged, and passed over",     Asks::More, failed_commands),
    ("damaged append-only folders are refused with reasons",      Asks::More, refused),
    ("without a journal, the RDB file is loaded",                 Asks::More, only_rdb),
];

const FOLDER: &str = "appendonlydir";
const MANIFEST: &str = "appendonlydir/appendonly.aof.manifest";
const INCREMENT: &str = "appendonlydir/appendonly.aof.1.incr.aof";
const ON: &[&str] = &["--appendonly", "yes"];

/// Commands whose effects redis-server logs in another form, or in a transaction.
const WRITES: &[&str] = &[
    "SET deadline v EX 100000",
    "SETEX other 100000 v",
    "INCRBYFLOAT float 1.5",
    "SADD popped a b c d e f",
    "SPOP popped 2",
    "SPOP popped",
    "RPUSH list a b c d e f",
    "LMPOP 1 list LEFT COUNT 2",
    "BLPOP list 1",
    "BLMOVE list moved LEFT RIGHT 1",
    "ZADD zset 1 a 2 b 3 c",
    "BZPOPMIN zset 1",
    "ZRANGESTORE stored zset 0 -1",
    "GEOADD geo 13.361389 38.115556 Palermo",
    "GETEX deadline PERSIST",
    "GETDEL other",
    "XADD stream * f v",
    "XADD stream MAXLEN ~ 10 * f w",
    "XGROUP CREATE stream g 0",
    "XREADGROUP GROUP g c COUNT 1 STREAMS stream >",
    "XAUTOCLAIM stream g d 0 0",
    "PFADD hll a b c",
    "PFCOUNT hll",
    "HSET hash a 1 b 2",
    "HINCRBYFLOAT hash a 0.5",
    "EVAL return{redis.call('incr',KEYS[1]),redis.call('rpush',KEYS[2],'x')} 2 n list",
    "MULTI",
    "INCR n",
    "SELECT 3",
    "SET there 1",
    "RPUSH list y",
    "EXEC",
    "SWAPDB 3 4",
    "SELECT 4",
    "MOVE there 0",
    "COPY list copied DB 7",
    "SELECT 0",
    "RENAME list renamed",
    "EXPIRE renamed 100000",
    "SETRANGE range 5 x",
    "APPEND range y",
    "SETBIT bits 7 1",
    "BITOP NOT inverse bits",
    "BITFIELD bits SET u8 0 200",
    "SORT moved ALPHA STORE sorted",
    "MSET {a}1 x {b}2 y {c}3 z",
    "UNLINK {b}2",
];

fn write_all(client: &mut Client) -> Result<(), String> {
    for line in WRITES {
        let reply = client.words(line).map_err(text)?;
        let is_error = reply.text().is_some_and(|text| text.starts_with(b"ERR"));
        ensure(!is_error, || format!("{line}: {reply:?}"))?;
    }
    let code = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    client.command(&["FUNCTION", "LOAD", code]).map_err(text)?;
    Ok(())
}

/// Copies the files of a folder.
pub(crate) fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

fn same_data(stage: &Stage) -> Result<(), String> {
    let plain: &[&str] = &["--aof-use-rdb-preamble", "no", "--aof-timestamp-enabled", "yes"];
    for (seed, more) in [(1, &[][..]), (2, plain)] {
        let there = Server::oracle_with(&[ON, more].concat()).map_err(text)?;
        let mut oracle = there.client().map_err(text)?;
        fill(&mut oracle, &mut Prng::from_seed(seed))?;
        write_all(&mut oracle)?;
        say(&mut oracle, "FUNCTION FLUSH")?;
        expect(&mut oracle, "BGREWRITEAOF", "Background")?;
        wait_for(&mut oracle, "aof_rewrite_in_progress:0")?;
        for line in ["DEL list moved zset n hll", "SET elsewhere 2"] {
            say(&mut oracle, line)?;
        }
        write_all(&mut oracle)?;
        // redis-server's own files may differ from its memory: in times of deliveries in a group.
        expect(&mut oracle, "DEBUG LOADAOF", "OK")?;
        let sum = digest(&mut oracle)?;
        let here = Server::subject_in(stage.shape, ON, |folder| {
            copy_folder(&there.folder().join(FOLDER), &folder.join(FOLDER))
        });
        let here = here.map_err(text)?;
        let mut client = here.client().map_err(text)?;
        let ours = digest(&mut client)?;
        ensure(ours == sum, || format!("seed {seed}: {sum} in redis-server, {ours} here"))?;
        let called = client.words("FCALL f 0").map_err(text)?;
        ensure(format!("{called:?}").contains("1"), || format!("FCALL: {called:?}"))?;
        let ttl = client.words("TTL renamed").map_err(text)?;
        let is_kept = ["Int(99", "Int(100000)"].iter().any(|it| format!("{ttl:?}").starts_with(it));
        ensure(is_kept, || format!("seed {seed}: a deadline is {ttl:?}"))?;
        let info = say(&mut client, "INFO")?;
        for line in ["loading:0", "connected_clients:1\r\n", "rdb_changes_since_last_save:0"] {
            ensure(info.contains(line), || format!("no {line} in\n{info}"))?;
        }
    }
    Ok(())
}

/// Redis's form of commands, one a line.
fn commands(lines: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            out.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
    }
    out
}

/// Files by their paths, in a server's folder.
type Files<'a> = &'a [(&'a str, &'a [u8])];

fn start(stage: &Stage, files: Files<'_>, more: &[&str]) -> Result<Server, String> {
    let place = |folder: &Path| {
        for (name, bytes) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap_or(folder))?;
            fs::write(path, bytes)?;
        }
        Ok(())
    };
    Server::subject_in(stage.shape, &[ON, more].concat(), place).map_err(text)
}

fn value(server: &Server, line: &str) -> Result<String, String> {
    say(&mut server.client().map_err(text)?, line)
}

const ONE: &[u8] = b"file appendonly.aof.1.incr.aof seq 1 type i\n";
const TWO: &[u8] = b"file appendonly.aof.1.incr.aof seq 1 type i\nfile second seq 2 type i\n";

fn single_file(stage: &Stage) -> Result<(), String> {
    let bytes = commands(&["SELECT 0", "SET k v"]);
    let server = start(stage, &[("appendonly.aof", &bytes)], &[])?;
    let found = value(&server, "GET k")?;
    ensure(found == "v", || format!("{found:?}\n{}", server.log()))?;
    let manifest = fs::read(server.folder().join(MANIFEST)).map_err(text)?;
    let is_base = manifest.starts_with(b"file appendonly.aof seq 1 type b\n");
    ensure(is_base, || manifest.escape_ascii().to_string())?;
    let is_moved = server.folder().join(FOLDER).join("appendonly.aof").exists()
        && !server.folder().join("appendonly.aof").exists();
    ensure(is_moved, || "the file was not moved".into())?;
    // A start that ended between the manifest and the move.
    let named = b"file appendonly.aof seq 1 type b\n";
    let server = start(stage, &[("appendonly.aof", &bytes), (MANIFEST, named)], &[])?;
    let found = value(&server, "GET k")?;
    ensure(found == "v", || format!("after an interrupted move: {found:?}"))
}

fn expired_base(stage: &Stage) -> Result<(), String> {
    let base =
        commands(&["SET p v PXAT 1000", "SET q v PXAT 1000", "RPUSH l a", "PEXPIREAT l 1000"]);
    let increment = commands(&["PERSIST p", "APPEND p w", "RPUSH l b", "PERSIST l"]);
    let manifest = [b"file base seq 1 type b\n", ONE].concat();
    let files = [("appendonlydir/base", &base[..]), (INCREMENT, &increment), (MANIFEST, &manifest)];
    let server = start(stage, &files, &[])?;
    for (line, wanted) in [("GET p", "vw"), ("LINDEX l 1", "b"), ("GET q", "Null")] {
        let found = value(&server, line)?;
        ensure(found.starts_with(wanted), || format!("{line}: {found}, not {wanted}"))?;
    }
    Ok(())
}

fn torn_ends(stage: &Stage) -> Result<(), String> {
    let good = commands(&["SET k v"]);
    let multi = commands(&["MULTI", "SET k w"]);
    let next = commands(&["SET k w"]);
    for (torn, words) in [
        (&next[..next.len() - 4], "within a command"),
        (&multi, "Revert incomplete MULTI/EXEC transaction"),
        (&[0; 100][..], "expected '*'"),
        (&[&next[..next.len() - 4], &[0; 99]].concat(), "does not end with CR LF"),
    ] {
        let bytes = [&good[..], torn].concat();
        let files = [(INCREMENT, &bytes[..]), (MANIFEST, ONE)];
        let server = start(stage, &files, &[])?;
        let (found, log) = (value(&server, "GET k")?, server.log());
        ensure(found == "v", || format!("{words}: {found}\n{log}"))?;
        for words in [words, "Truncating the AOF", "loaded anyway because aof-load-truncated"] {
            ensure(log.contains(words), || format!("no {words} in\n{log}"))?;
        }
        let length = fs::metadata(server.folder().join(INCREMENT)).map_err(text)?.len();
        ensure(length == good.len() as u64, || format!("{words}: {length} bytes are left"))?;
        let refused = start(stage, &files, &["--aof-load-truncated", "no"]);
        is_refused(refused, "Unexpected end of file reading the append only file")?;
    }
    Ok(())
}

fn failed_commands(stage: &Stage) -> Result<(), String> {
    let bytes = commands(&["SET k v", "RPUSH k a", "MULTI", "LPUSH k b", "SET l v", "EXEC"]);
    let server = start(stage, &[(INCREMENT, &bytes), (MANIFEST, ONE)], &[])?;
    let found = value(&server, "GET l")?;
    ensure(found == "v", || found.clone())?;
    let words = "2 commands failed; the first, at offset 27: WRONGTYPE";
    ensure(server.log().contains(words), || format!("no {words} in\n{}", server.log()))
}

fn is_refused(started: Result<Server, String>, words: &str) -> Result<(), String> {
    match started {
        Ok(server) => Err(format!("it has started, not said: {words}\n{}", server.log())),
        Err(log) => ensure(log.contains(words), || format!("no {words} in\n{log}")),
    }
}

fn refused(stage: &Stage) -> Result<(), String> {
    let good = commands(&["SET k v"]);
    let torn = &good[..good.len() - 1];
    let junk = [&good[..], b"junk"].concat();
    let unknown = commands(&["SET k v", "NOPE 1"]);
    let session = commands(&["SET k v", "CLIENT REPLY OFF"]);
    let queued = commands(&["MULTI", "NOPE 1", "EXEC"]);
    let base = b"file dump.rdb seq 1 type b\n";
    let second = "appendonlydir/second";
    #[rustfmt::skip] // A table.
    let cases: &[(Files<'_>, &str)] = &[
        (&[(INCREMENT, &good)],                     "no manifest"),
        (&[(MANIFEST, b"")],                        "Found an empty AOF manifest"),
        (&[(MANIFEST, &ONE[..20])],                 "The AOF manifest file contains too long line"),
        (&[(MANIFEST, ONE)],                        "length. stat: No such file or directory"),
        (&[(MANIFEST, ONE), (INCREMENT, &junk)],    "Bad file format reading the append only file"),
        (&[(MANIFEST, ONE), (INCREMENT, &unknown)], "Unknown command 'NOPE' reading the append only file"),
        (&[(MANIFEST, ONE), (INCREMENT, &queued)],  "Unknown command 'NOPE' reading the append only file"),
        (&[(MANIFEST, ONE), (INCREMENT, &session)], "is not allowed in append-only files"),
        (&[(MANIFEST, TWO), (INCREMENT, torn), (second, &good)], "the truncated file is not the last file"),
        (&[(MANIFEST, base), ("appendonlydir/dump.rdb", b"REDIS0010\xfa\x05")], "offset"),
        (&[(FOLDER, b"a file")],                    "Can't open or create append-only dir appendonlydir: Not a directory"),
    ];
    for (files, words) in cases {
        is_refused(start(stage, files, &[]), words)?;
    }
    for (option, words) in [
        ("--appendfilename", "appendfilename can't be a path, just a filename"),
        ("--appenddirname", "appenddirname can't be a path, just a dirname"),
    ] {
        is_refused(start(stage, &[], &[option, "a/b"]), words)?;
    }
    Ok(())
}

fn only_rdb(stage: &Stage) -> Result<(), String> {
    let first = stage.server()?;
    let mut client = first.client().map_err(text)?;
    expect(&mut client, "SET k v", "OK")?;
    expect(&mut client, "SAVE", "OK")?;
    let rdb = fs::read(first.folder().join("dump.rdb")).map_err(text)?;
    // A server that was killed during its first start leaves an increment of zeros.
    let server = start(stage, &[("dump.rdb", &rdb), (INCREMENT, &[0; 5_000])], &[])?;
    let found = value(&server, "GET k")?;
    ensure(found == "v", || found.clone())?;
    let words = "dump.rdb is loaded and becomes the first base";
    ensure(server.log().contains(words), || format!("no {words} in\n{}", server.log()))?;
    // The journal is newer than a snapshot.
    let bytes = commands(&["SET k journal"]);
    let files = [("dump.rdb", &rdb[..]), (INCREMENT, &bytes), (MANIFEST, ONE)];
    let server = start(stage, &files, &[])?;
    let found = value(&server, "GET k")?;
    ensure(found == "journal", || found.clone())
}
