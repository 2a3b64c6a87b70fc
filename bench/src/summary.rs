//! Latencies as percentiles, and numbers as medians.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest latency that can be recorded: an hour, in nanoseconds.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// One request of a paced stream: when it was due, and how long after that its answer came.
/// Nanoseconds, the first since the stream's epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// When it was due.
    pub(crate) due_ns: u64,
    /// From then to its reply.
    pub(crate) latency_ns: u64,
}

/// Percentiles of a part of a stream, in nanoseconds; all 0 where there was no sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Summary {
    /// The median.
    pub(crate) p50_ns: u64,
    /// The 99th percentile.
    pub(crate) p99_ns: u64,
    /// The 99.9th percentile.
    pub(crate) p999_ns: u64,
    /// The longest.
    pub(crate) max_ns: u64,
}

impl Summary {
    /// Summarises latencies.
    pub(crate) fn of(latencies_ns: impl Iterator<Item = u64>) -> Summary {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, LATENCY_NS_MAX, 3)
            .expect("the bounds are constants that the histogram accepts");
        let mut max_ns = 0;
        for latency_ns in latencies_ns {
            histogram.saturating_record(latency_ns.max(1));
            max_ns = max_ns.max(latency_ns);
        }
        Summary {
            p50_ns: histogram.value_at_quantile(0.5).min(max_ns),
            p99_ns: histogram.value_at_quantile(0.99).min(max_ns),
            p999_ns: histogram.value_at_quantile(0.999).min(max_ns),
            max_ns,
        }
    }

    /// Summarises the samples that were due in `from_ns..to_ns`.
    pub(crate) fn between(samples: &[Sample], from_ns: u64, to_ns: u64) -> Summary {
        let inside = samples.iter().filter(|sample| (from_ns..to_ns).contains(&sample.due_ns));
        Summary::of(inside.map(|sample| sample.latency_ns))
    }
}

/// The median; `None` for no values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// Nanoseconds of a duration; durations here are hours at most.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A time with three digits and a unit: `12.3 ms`.
pub(crate) fn time_text(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000_000 => (ns as f64 / 1e3, "µs"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// A ratio that reads well at both extremes: `0.35`, `12`, `0.0004`.
pub(crate) fn ratio_text(ratio: f64) -> String {
    match ratio {
        ratio if !ratio.is_finite() => "–".to_owned(),
        ratio if ratio >= 10.0 => format!("{ratio:.0}"),
        ratio if ratio >= 0.1 => format!("{ratio:.2}"),
        ratio => format!("{ratio:.4}"),
    }
}

/// Bytes as MiB, for tables.
pub(crate) fn mib_text(bytes: u64) -> String {
    format!("{:.0}", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_a_ramp_are_its_values() {
        let summary = Summary::of((1..=1_000).map(|step| step * 1_000));
        assert_eq!(summary.max_ns, 1_000_000);
        assert!(summary.p50_ns.abs_diff(500_000) < 1_000, "{summary:?}");
        assert!(summary.p999_ns.abs_diff(999_000) < 2_000, "{summary:?}");
        assert_eq!(Summary::of(std::iter::empty()).max_ns, 0);
    }

    #[test]
    fn medians_of_few_or_no_values_are_defined() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn times_are_printed_with_a_fitting_unit() {
        for (ns, text) in [(900, "0.90 µs"), (12_345, "12.3 µs"), (1_500_000, "1.50 ms")] {
            assert_eq!(time_text(ns), text);
        }
        assert_eq!(time_text(17_000_000_000), "17.0 s");
    }
}
