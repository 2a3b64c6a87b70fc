//! What a run has counted, so that a try which is undone leaves nothing of it in INFO.
//!
//! Commands are counted as they run: INFO shows those of a script that runs for long, and a script that
//! asks sees its own. What they took stays counted, as it was taken.

use super::super::stats::{CoreStats, Errors, count_code};
use darter_command::Refusal;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How often the counters had been reset when this last counted.
    resets: u64,
    /// By the rows of commands: few, and the next is likely the last one.
    commands: Vec<(usize, Calls)>,
    errors: Errors,
    error_replies: u64,
}

/// What was counted of one command.
#[derive(Clone, Copy, Debug, Default)]
struct Calls {
    calls: u64,
    failed: u64,
    rejected: u64,
}

impl Tally {
    /// A command has run, and was counted.
    #[inline]
    pub(crate) fn note(&mut self, stats: &CoreStats, row: usize, refusal: Option<&Refusal>) {
        let of_row = self.of_row(stats, row);
        of_row.calls += 1;
        if let Some(refusal) = refusal {
            of_row.failed += 1;
            self.note_error(&refusal.text());
        }
    }

    /// A command was refused before it ran, which was counted.
    pub(crate) fn note_refused(&mut self, stats: &CoreStats, row: Option<usize>, line: &[u8]) {
        match row {
            Some(row) => self.of_row(stats, row).rejected += 1,
            None => self.forget_reset(stats),
        }
        self.note_error(line);
    }

    fn note_error(&mut self, line: &[u8]) {
        self.error_replies += 1;
        count_code(&mut self.errors, line);
    }

    fn of_row(&mut self, stats: &CoreStats, row: usize) -> &mut Calls {
        self.forget_reset(stats);
        let at = self.commands.iter().rposition(|(one, _)| *one == row).unwrap_or_else(|| {
            self.commands.push((row, Calls::default()));
            self.commands.len() - 1
        });
        &mut self.commands[at].1
    }

    /// What was counted before CONFIG RESETSTAT is counted no more.
    #[inline]
    fn forget_reset(&mut self, stats: &CoreStats) {
        if self.resets != stats.resets {
            self.clear();
            self.resets = stats.resets;
        }
    }

    /// Nothing has been counted.
    pub(crate) fn clear(&mut self) {
        self.commands.clear();
        self.errors.clear();
        self.error_replies = 0;
    }

    /// The run is undone: it will count all of this again.
    pub(crate) fn take_back(&mut self, stats: &mut CoreStats) {
        self.forget_reset(stats);
        for (row, Calls { calls, failed, rejected }) in self.commands.drain(..) {
            let of_row = &mut stats.by_command[row];
            of_row.calls -= calls;
            of_row.failed -= failed;
            of_row.rejected -= rejected;
            stats.commands -= calls;
        }
        for (code, count) in std::mem::take(&mut self.errors) {
            let Some(counted) = stats.errors.get_mut(&code) else { continue };
            // Of a code that was not counted as there were very many, less may be there.
            *counted = counted.saturating_sub(count);
            if *counted == 0 {
                stats.errors.remove(&code);
            }
        }
        stats.error_replies -= std::mem::take(&mut self.error_replies);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::stats::CommandStats;
    use super::*;

    fn run(stats: &mut CoreStats, tally: &mut Tally) {
        for (row, refusal) in [(1, None), (3, Some(Refusal::WrongType)), (1, None), (3, None)] {
            stats.commands += 1;
            stats.by_command[row].count(refusal.is_some());
            refusal.iter().for_each(|refusal| stats.count_refusal(refusal));
            tally.note(stats, row, refusal.as_ref());
        }
        stats.by_command[2].rejected += 1;
        for (row, line) in [(Some(2), &b"ERR no"[..]), (None, b"ERR unknown")] {
            stats.count_error(line);
            tally.note_refused(stats, row, line);
        }
    }

    fn counted(stats: &CoreStats) -> String {
        let of = |one: &CommandStats| (one.calls, one.failed, one.rejected);
        let rows: Vec<_> = stats.by_command.iter().map(of).collect();
        format!("{} {rows:?} {} {:?}", stats.commands, stats.error_replies, stats.errors)
    }

    #[test] // What others have counted stays, and so does what follows upon a reset.
    fn what_is_undone_is_not_counted() {
        let by_command = vec![CommandStats::default(); 4];
        let mut stats = CoreStats { by_command, ..CoreStats::default() };
        let (mut tally, none) = (Tally::default(), counted(&stats));
        run(&mut stats, &mut Tally::default());
        let once =
            "4 [(0, 0, 0), (2, 0, 0), (0, 0, 1), (2, 1, 0)] 3 {\"ERR\": 2, \"WRONGTYPE\": 1}";
        assert_eq!(counted(&stats), once);
        run(&mut stats, &mut tally);
        tally.take_back(&mut stats);
        assert_eq!(counted(&stats), once);

        run(&mut stats, &mut tally);
        stats.reset();
        run(&mut stats, &mut tally);
        tally.take_back(&mut stats);
        assert_eq!(counted(&stats), none);
        run(&mut stats, &mut tally);
        stats.reset();
        tally.take_back(&mut stats);
        assert_eq!(counted(&stats), none);
    }
}
