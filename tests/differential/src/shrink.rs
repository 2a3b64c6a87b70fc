//! Delta debugging: removes ever smaller parts of a failing sequence while the rest still fails
//! (Zeller, Hildebrandt: "Simplifying and isolating failure-inducing input", 2002).

/// The most candidates that are tried.
const TRIES_MAX: usize = 600;

/// A part of `items` that still fails, and from which no single item can be removed (unless the
/// tries ran out before).
pub(crate) fn shrink<T: Clone>(items: Vec<T>, mut fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut current = items;
    let mut tries = 0;
    let mut width = current.len().div_ceil(2);
    while width > 0 && tries < TRIES_MAX {
        let mut at = 0;
        let mut removed = false;
        while at < current.len() && tries < TRIES_MAX {
            let end = (at + width).min(current.len());
            let candidate = [&current[..at], &current[end..]].concat();
            tries += 1;
            if fails(&candidate) {
                current = candidate;
                removed = true;
            } else {
                at = end;
            }
        }
        if width > 1 || !removed {
            width /= 2;
        }
    }
    current
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Whatever their distance.
    fn shrinking_finds_the_two_failing_items_among_a_hundred() {
        for (first, second) in [(3, 77), (0, 99), (50, 51)] {
            let items: Vec<usize> = (0..100).collect();
            let fails = |part: &[usize]| part.contains(&first) && part.contains(&second);
            assert_eq!(shrink(items, fails), vec![first, second]);
        }
    }
}
