//! The ranks of the server's modules: what needs no core ◄ the core ◄ what it does ◄ what runs it.
//!
//! A module may name those of a lower rank and none of its own, as with crates, so there are no
//! cycles. A row also covers the modules below it, unless they have rows of their own; among
//! themselves these are free.

use crate::paths::{Crate, Module};
use std::path::Path;

/// The crate whose modules have ranks.
const CRATE: &str = "crates/server/src";

#[rustfmt::skip] // A table.
const RANKS: &[(u8, &[&str])] = &[
    // State, and whatever else needs no core.
    (0, &["absent", "journal", "libraries", "listeners", "saving", "settings", "spent", "spin", "engine::moving::policy",
          "engine::point", "engine::scripts::registry", "engine::state::requests", "engine::stats"]),
    (1, &["doors", "log", "shared", "supervisor", "engine::presence",
          "engine::scripts::recent", "engine::transaction::queued"]),
    (2, &["files", "load", "machine", "engine::owed", "engine::queue", "engine::scripts::machines",
          "engine::slices",
          "engine::state::background", "engine::state::batches", "engine::state::census",
          "engine::state::changes", "engine::state::clock", "engine::state::hot", "engine::state::latency",
          "engine::state::moves", "engine::state::outgoing", "engine::state::patience", "engine::state::pubsub",
          "engine::state::receiving",
          "engine::state::tracking",
          "engine::state::waits",
          "engine::state::watchers"]),
    (3, &["engine::conn", "engine::scripts::evaluation", "engine::state::meter"]),
    (4, &["engine::state::clients", "engine::state::slowlog", "engine::state::writers"]),
    (5, &["engine::state::idle", "engine::state::local", "engine::state::release", "engine::state::saving"]),
    (6, &["engine::state"]),
    // The core.
    (7, &["engine::entry"]),
    (8, &["engine::core"]),
    // The path to the journal, which all work takes.
    (9, &["engine::journal"]),
    // The work of a core.
    (10, &["engine::client_line", "engine::monitor", "engine::moving",
          "engine::prefetch",
          "engine::pubsub", "engine::replay", "engine::tracking"]),
    (11, &["engine::unit::admit", "engine::unit::place", "engine::unit::settle", "engine::census", "engine::saving"]),
    (12, &["engine::unit", "engine::conn::outbound", "engine::conn::receive", "engine::upkeep", "engine::wanted",
           "engine::writers"]),
    (13, &["engine::batch", "engine::serve"]),
    (14, &["engine::transaction", "engine::turn", "engine::waiting"]),
    (15, &["engine::lifecycle", "engine::scripts", "engine::sleep"]),
    (16, &["engine"]),
    // The commands of connections and of the server.
    (17, &["admin"]),
    // The threads that run cores.
    (18, &["clock", "knock", "post", "replay"]),
    (19, &["arrivals"]),
    (20, &["thread"]),
    (21, &["boot"]),
    (22, &[""]),
];

/// Names that point to a module of the same or a higher rank, and are still to be corrected.
#[rustfmt::skip] // A table.
const EXCEPTIONS: &[(&str, &str)] = &[
    // A row has a function that is called with the core, and the core has the table of rows.
    ("engine::entry", "engine::core"),
];

/// Returns a sentence for every name that points the wrong way, and for every module without a
/// rank.
pub(crate) fn faults<'a>(
    root: &Path,
    sources: impl Iterator<Item = (&'a Path, &'a str)>,
) -> Vec<String> {
    let server = Crate::new(&root.join(CRATE), sources);
    let (mut faults, mut needed) = (Vec::new(), Vec::new());
    for module in server.modules() {
        let Some((row, rank)) = rank(module) else {
            faults.push(format!("{} has no rank", name(module)));
            continue;
        };
        for named in server.named_by(module) {
            let is_lower = match self::rank(&named) {
                Some((other, below)) => other == row || below < rank,
                None => true, // A module without a rank has its own fault.
            };
            match (is_lower, exception(module, &named)) {
                (true, _) => {}
                (false, Some(exception)) => needed.push(exception),
                (false, None) => {
                    faults.push(format!("{} must not name {}", name(module), name(&named)));
                }
            }
        }
    }
    let spare = EXCEPTIONS.iter().filter(|exception| !needed.contains(exception));
    faults.extend(spare.map(|(from, to)| format!("no longer an exception: {from} names {to}")));
    faults
}

/// The row that covers a module, and its rank. The longest match counts.
fn rank(module: &Module) -> Option<(&'static str, u8)> {
    let name = name(module);
    let rows = RANKS.iter().flat_map(|(rank, rows)| rows.iter().map(|row| (*row, *rank)));
    let fits = |row: &str| {
        name == row || name.strip_prefix(row).is_some_and(|rest| rest.starts_with("::"))
    };
    rows.filter(|(row, _)| fits(row)).max_by_key(|(row, _)| row.len())
}

fn name(module: &Module) -> String {
    module.join("::")
}

fn exception(from: &Module, to: &Module) -> Option<&'static (&'static str, &'static str)> {
    EXCEPTIONS.iter().find(|(one, other)| *one == name(from) && *other == name(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let root = Path::new("/w");
        let paths: Vec<_> = files.iter().map(|(path, _)| root.join(CRATE).join(path)).collect();
        let texts = files.iter().map(|(_, text)| *text);
        let all = faults(root, paths.iter().map(|path| path.as_path()).zip(texts));
        all.into_iter().filter(|fault| !fault.starts_with("no longer")).collect()
    }

    #[test] // Also a module without a rank.
    fn names_of_higher_or_equal_rank_are_found() {
        let files = [
            ("engine/mod.rs", "pub use turn::Turn;"),
            ("engine/turn.rs", "use super::sleep::Wait;\nuse super::stats::CoreStats;"),
            ("engine/sleep.rs", "use super::turn::AHEAD_BYTES;"),
            ("engine/stats.rs", "use crate::engine::Turn;"),
            ("settings/mod.rs", "use crate::spin;"),
            ("settings/cli.rs", "use super::Settings;"),
            ("spin.rs", ""),
            ("new.rs", ""),
        ];
        assert_eq!(
            found(&files),
            [
                "engine::stats must not name engine::turn",
                "engine::turn must not name engine::sleep",
                "new has no rank",
                "settings must not name spin",
            ]
        );
    }

    #[test]
    fn unused_exceptions_are_faults() {
        let all = faults(Path::new("/w"), std::iter::empty());
        assert_eq!(all.len(), EXCEPTIONS.len());
    }
}
