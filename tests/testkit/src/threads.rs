//! Jobs spread over the processors that this process may use.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs `job` for each index below `count`, on a thread per processor; returns the outcomes in the
/// order of the indices. Each thread takes the next index as soon as it is done with one. A panic
/// fails its job and no other.
pub fn over_threads(
    count: usize,
    job: impl Fn(usize) -> Result<(), String> + Sync,
) -> Vec<Result<(), String>> {
    let outcomes: Vec<_> = (0..count).map(|_| Mutex::new(Ok(()))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = outcomes.get(at) else { break };
            let caught = catch_unwind(AssertUnwindSafe(|| job(at)));
            let outcome = caught.unwrap_or_else(|_| Err("it panicked".to_owned()));
            *slot.lock().expect("no holder panics") = outcome;
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    outcomes.into_iter().map(|slot| slot.into_inner().expect("no holder panics")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_jobs() {
        let outcomes = over_threads(100, |at| match at {
            7 => panic!("on purpose"),
            _ if at % 10 == 0 => Err(at.to_string()),
            _ => Ok(()),
        });
        assert_eq!(outcomes.len(), 100);
        for (at, outcome) in outcomes.iter().enumerate() {
            let expected = match at {
                7 => Err("it panicked".to_owned()),
                _ if at % 10 == 0 => Err(at.to_string()),
                _ => Ok(()),
            };
            assert_eq!(*outcome, expected, "{at}");
        }
    }
}
