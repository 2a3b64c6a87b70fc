//! The count of a run: what passed, what failed, and the closing line that `./check` reads.

use std::process::ExitCode;
use std::time::Instant;

/// How many checks passed, and which ones failed.
#[derive(Debug, Default)]
pub struct Tally {
    passed: usize,
    failed: Vec<String>,
}

impl Tally {
    /// Counts one check, and prints it when it failed.
    pub fn count(&mut self, name: &str, outcome: Result<(), String>) {
        match outcome {
            Ok(()) => self.passed += 1,
            Err(why) => {
                println!("FAIL {name}\n     {}", why.replace('\n', "\n     "));
                self.failed.push(name.to_owned());
            }
        }
    }

    /// Runs one named check, prints it with its time and counts it. A panic inside counts as a
    /// failure.
    pub fn run(&mut self, name: &str, check: impl FnOnce() -> Result<(), String>) {
        let start = Instant::now();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check));
        let outcome = caught.unwrap_or_else(|_| Err("it panicked".to_owned()));
        if outcome.is_ok() {
            println!("  ok {name} ({:.1} s)", start.elapsed().as_secs_f64());
        }
        self.count(name, outcome);
    }

    /// Adds another tally's counts.
    pub fn absorb(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed.extend(other.failed);
    }

    /// Checks that passed, and checks that failed.
    #[must_use]
    pub fn counts(&self) -> (usize, usize) {
        (self.passed, self.failed.len())
    }

    /// Prints the closing line, and returns the process's exit code.
    #[must_use]
    pub fn close(&self) -> ExitCode {
        println!("{} passed, {} failed", self.passed, self.failed.len());
        if self.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_failures_errors_and_panics_are_counted() {
        let mut tally = Tally::default();
        tally.run("good", || Ok(()));
        tally.run("bad", || Err("no".to_owned()));
        tally.run("worse", || panic!("on purpose"));
        assert_eq!(tally.counts(), (1, 2));
    }
}
