//! The commands of a file are dealt to the cores: any number of them gives the same data.

use super::{FOLDER, INCREMENT, MANIFEST, ON, ONE, commands};
use crate::saving::digest;
use crate::{Asks, Check, Stage, ensure, text};
use darter_base::Prng;
use darter_testkit::{Server, Shape};
use std::fs;
use std::path::Path;

pub(crate) const CHECKS: &[Check] =
    &[("commands of a file give the same data on any number of cores", Asks::More, any_cores)];

/// Commands that redis-server may have written, and others. `K` is a random key, `N` a small number.
const LINES: &[&str] = &[
    "SET K N",
    "APPEND K N",
    "SETRANGE K N x",
    "INCRBY n:N N",
    "PEXPIREAT K 9999999999999",
    "PERSIST K",
    "DEL K",
    "UNLINK K",
    "RPUSH list:N N N",
    "LPOP list:N",
    "LSET list:N 0 N",
    "HSET hash:N fN N g N",
    "HDEL hash:N fN",
    "SADD set:N N x",
    "SREM set:N N",
    "ZADD zset:N N mN",
    "ZREM zset:N mN",
    "PFADD hll:N N",
    "SETBIT bits:N N 1",
    "XADD stream:N * f N",
    "XTRIM stream:N MAXLEN N",
    "GEOADD geo:N 13.3 38.1 mN",
];

/// Commands over several keys, or over all.
const BARRIERS: &[&str] = &[
    "MSET K N K N K N",
    "DEL K K K",
    "RENAME K K",
    "COPY K K REPLACE",
    "LMOVE list:N list:N LEFT RIGHT",
    "SMOVE set:N set:N N",
    "SUNIONSTORE set:N set:N set:N",
    "ZUNIONSTORE zset:N 2 zset:N zset:N",
    "BITOP AND bits:N bits:N bits:N",
    "PFMERGE hll:N hll:N",
    "SORT list:N ALPHA STORE list:N",
    "MOVE K 1",
    "SWAPDB 1 2",
    "FLUSHDB",
    "FUNCTION FLUSH",
];

/// Fills in the keys and the numbers of a line. IDs of stream entries ascend with `at`.
fn filled(line: &str, at: usize, prng: &mut Prng) -> String {
    let mut out = String::new();
    for letter in line.chars() {
        match letter {
            'K' if !out.ends_with(|before: char| before.is_ascii_alphabetic()) => {
                out.push_str(&format!("key:{}", prng.below(40)));
            }
            'N' if !out.ends_with(|before: char| before.is_ascii_uppercase()) => {
                out.push_str(&prng.below(12).to_string());
            }
            '*' => out.push_str(&format!("{}-1", at + 1)),
            other => out.push(other),
        }
    }
    out
}

/// Random commands. `barriers` is the share of [`BARRIERS`] in a thousand.
fn random_lines(prng: &mut Prng, barriers: u64) -> Vec<String> {
    const COUNT: usize = 20_000;
    let mut lines = Vec::new();
    while lines.len() < COUNT {
        let table = if prng.below(1_000) < barriers { BARRIERS } else { LINES };
        let line = filled(table[prng.below(table.len() as u64) as usize], lines.len(), prng);
        match prng.below(100) {
            0 => lines.push(format!("SELECT {}", prng.below(4))),
            // A transaction on the keys of one slot, or of any.
            1..3 => {
                let is_near = prng.chance(70);
                let tag = prng.below(20);
                lines.push("MULTI".to_owned());
                for _ in 0..prng.below(6) {
                    let key = if is_near { format!("{{t{tag}}}") } else { String::new() };
                    lines.push(format!("APPEND {key}key:{} {}", prng.below(9), prng.below(9)));
                    lines.push(format!("SADD {key}set {}", prng.below(9)));
                }
                if prng.chance(20) {
                    lines.push(format!("SELECT {}", prng.below(4)));
                }
                lines.push("EXEC".to_owned());
            }
            _ => lines.push(line),
        }
    }
    lines
}

fn any_cores(stage: &Stage) -> Result<(), String> {
    for (seed, barriers) in [(1, 0), (2, 1), (3, 30), (4, 400)] {
        let lines = random_lines(&mut Prng::from_seed(seed), barriers);
        let bytes = commands(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        let place = |folder: &Path| {
            fs::create_dir_all(folder.join(FOLDER))?;
            fs::write(folder.join(MANIFEST), ONE)?;
            fs::write(folder.join(INCREMENT), &bytes)
        };
        let there = Server::oracle_in(ON, place).map_err(text)?;
        let sum = digest(&mut there.client().map_err(text)?)?;
        for cores in 1..=4 {
            let here = Server::subject_in(Shape { cores, ..stage.shape }, ON, place);
            let ours = digest(&mut here.map_err(text)?.client().map_err(text)?)?;
            ensure(ours == sum, || {
                format!("seed {seed}, {cores} cores: {sum} in redis-server, {ours} here")
            })?;
        }
    }
    Ok(())
}
