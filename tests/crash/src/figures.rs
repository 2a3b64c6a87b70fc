//! The figures of a run, and how they are printed.

use std::time::Duration;

/// Upper ends of the rows of losses, in milliseconds.
const LOSSES: [u128; 7] = [0, 10, 100, 500, 1_000, 1_500, u128::MAX];

/// The figures of a run, or of a part of it.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) kills: u64,
    pub(crate) kills_at_start: u64,
    pub(crate) power: u64,
    pub(crate) clean: u64,
    pub(crate) answered: u64,
    pub(crate) unknown: u64,
    pub(crate) longest_start: Duration,
    /// Losses of power by what `everysec` lost; the last row would be a fault.
    losses: [u64; LOSSES.len()],
}

impl Figures {
    pub(crate) fn lost(&mut self, loss: Duration) {
        let row = LOSSES.iter().position(|end| loss.as_millis() <= *end).unwrap_or_default();
        self.losses[row] += 1;
    }

    pub(crate) fn absorb(&mut self, other: &Self) {
        self.kills += other.kills;
        self.kills_at_start += other.kills_at_start;
        self.power += other.power;
        self.clean += other.clean;
        self.answered += other.answered;
        self.unknown += other.unknown;
        self.longest_start = self.longest_start.max(other.longest_start);
        for (mine, other) in self.losses.iter_mut().zip(other.losses) {
            *mine += other;
        }
    }

    pub(crate) fn print(&self) {
        println!(
            "kills                 {}, of them {} while starting",
            self.kills, self.kills_at_start
        );
        println!("losses of power       {}", self.power);
        println!("clean shutdowns       {}", self.clean);
        println!("answered              {} operations", self.answered);
        println!("unknown               {} operations", self.unknown);
        println!("longest start         {} ms", self.longest_start.as_millis());
        if self.losses.iter().sum::<u64>() > 0 {
            println!("lost with everysec    losses of power");
        }
        let mut from = String::from("nothing");
        for (end, count) in LOSSES.iter().zip(self.losses).filter(|(_, count)| *count > 0) {
            if *end > 0 {
                from = format!("up to {end} ms");
            }
            println!("  {from:<20}{count}");
        }
    }
}
