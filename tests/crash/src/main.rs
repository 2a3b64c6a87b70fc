//! Servers that die at random times, and what their data is afterwards.
//!
//! ```text
//! darter-crash [--kills N] [--power N] [--seconds S] [--seed N] [--fs ext4|xfs] [--cores N]
//!              [--known yes]
//! ```
//! Kills are SIGKILLs on the disk of the temporary folder; losses of power shut a file system on a
//! loop device down, which needs root. Without root they are skipped, and the output says so. A run
//! ends after S seconds with the figures reached. Half of the kills, and each file system, have a
//! thread of their own. A seed repeats settings and commands, but not the instant of a death.
//!
//! Shape: [`lane`] (a folder and its servers), [`writers`] (what they are asked to do), [`model`]
//! (what that means), [`ledger`] (what a death may leave), [`found`] (what it left), [`disk`].
//!
//! Not here: deaths at each call of the file face, which the simulated disk tests in
//! `crates/server`; reordered and torn sectors.

#![forbid(unsafe_code)]

mod disk;
mod figures;
mod found;
mod lane;
mod ledger;
mod life;
mod model;
mod writers;

use darter_testkit::Tally;
use disk::{Disk, Janitor};
use figures::Figures;
use lane::Lane;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The command line.
pub(crate) struct Options {
    kills: u64,
    power: u64,
    seconds: u64,
    seed: u64,
    fs: Option<String>,
    cores: Option<u64>,
    /// Also does what is known to fail: pipelines over several cores, and switching the journal off
    /// there, lose the order of changes; a death in the first start of a folder refuses the next.
    all: bool,
}

/// A part of the run that has a thread of its own.
struct Part {
    name: &'static str,
    /// The file system whose power is cut.
    fs: Option<&'static str>,
    deaths: u64,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        kills: 150,
        power: 60,
        seconds: 3_600,
        seed: 1,
        fs: None,
        cores: None,
        all: false,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"));
        match word.as_str() {
            "--kills" => options.kills = number?,
            "--power" => options.power = number?,
            "--seconds" => options.seconds = number?,
            "--seed" => options.seed = number?,
            "--cores" => options.cores = Some(number?),
            "--known" if value == "yes" => options.all = true,
            "--fs" if ["ext4", "xfs"].contains(&value.as_str()) => options.fs = Some(value),
            _ => return Err(format!("unknown: {word} {value}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let janitor = match Janitor::hire() {
        Ok(janitor) => janitor,
        Err(error) => {
            eprintln!("setsid: {error}");
            return ExitCode::from(2);
        }
    };
    let mut parts = vec![
        Part { name: "kills-1", fs: None, deaths: options.kills.div_ceil(2) },
        Part { name: "kills-2", fs: None, deaths: options.kills / 2 },
    ];
    let kinds: Vec<&str> = ["ext4", "xfs"]
        .into_iter()
        .filter(|kind| options.fs.as_deref().is_none_or(|wanted| wanted == *kind))
        .collect();
    for kind in &kinds {
        let deaths = options.power / kinds.len() as u64;
        let name = if *kind == "ext4" { "ext4" } else { "xfs" };
        parts.push(Part { name, fs: Some(name), deaths });
    }
    let end = Instant::now() + Duration::from_secs(options.seconds);
    let mut figures = Figures::default();
    let mut tally = Tally::default();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let (options, folder) = (&options, &janitor.folder);
        let start = |(at, part)| scope.spawn(move || play(part, at, options, folder, end));
        let threads: Vec<_> = (0..).zip(&parts).map(start).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    for outcome in outcomes {
        let Ok((part, more)) = outcome else {
            tally.count("a thread", Err("it panicked".to_owned()));
            continue;
        };
        tally.absorb(part);
        figures.absorb(&more);
    }
    figures.print();
    tally.close()
}

/// Lets servers die until there are enough deaths, or no time is left.
fn play(part: &Part, at: u64, options: &Options, folder: &Path, end: Instant) -> (Tally, Figures) {
    let (mut tally, mut figures) = (Tally::default(), Figures::default());
    if part.deaths == 0 {
        return (tally, figures);
    }
    let disk = match part.fs.map(|kind| Disk::make(kind, folder)).transpose() {
        Ok(disk) => disk,
        Err(why) => {
            println!("  losses of power on {} are skipped: {why}", part.name);
            return (tally, figures);
        }
    };
    let seed = options.seed.wrapping_mul(4).wrapping_add(at);
    let mut lane = match Lane::new(&folder.join(format!("of-{}", part.name)), disk, seed, options) {
        Ok(lane) => lane,
        Err(why) => {
            tally.count(part.name, Err(why));
            return (tally, figures);
        }
    };
    let mut lives = 0;
    while lane.figures.kills + lane.figures.power < part.deaths && Instant::now() < end {
        lives += 1;
        let outcome = lane.live();
        let failed = outcome.is_err();
        tally.count(&format!("{} {lives}, seed {}", part.name, options.seed), outcome);
        if failed && lane.empty().is_err() {
            break;
        }
        if tally.counts().1 >= 10 {
            break;
        }
    }
    figures.absorb(&lane.figures);
    (tally, figures)
}
