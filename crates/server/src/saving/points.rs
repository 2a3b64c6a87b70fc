//! Save points: a snapshot is made after a number of seconds, if there were enough changes.

/// A save point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    /// The seconds that must have passed since the last snapshot.
    pub(crate) seconds: u64,
    /// The changes that must have been made since then.
    pub(crate) changes: u64,
}

impl Point {
    /// Parses the save points of the setting `save`, whose value was validated before.
    pub(crate) fn all(setting: &str) -> Vec<Self> {
        let numbers = setting.split_ascii_whitespace().filter_map(|word| word.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        let pairs = numbers.chunks_exact(2);
        pairs.map(|pair| Self { seconds: pair[0], changes: pair[1] }).collect()
    }

    /// True if the point is reached after these changes and seconds. As in Redis, that is one
    /// second later than the setting says.
    pub(crate) fn is_reached(self, changes: u64, seconds: u64) -> bool {
        changes >= self.changes && seconds > self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_save_point_is_reached_after_its_seconds_and_changes() {
        let points = Point::all("3600 1 300 100");
        let [hour, minutes] = points[..] else { panic!("{points:?}") };
        assert_eq!((hour.seconds, hour.changes), (3_600, 1));
        assert!(minutes.is_reached(100, 301) && !minutes.is_reached(99, 301));
        assert!(!minutes.is_reached(1_000, 300));
        assert_eq!(Point::all(""), []);
    }
}
