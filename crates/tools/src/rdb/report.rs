//! `darter rdb FILE`: counts keys and their memory, by type, by prefix and by deadline.

use super::filter::Filter;
use super::input::{Place, Visitor};
use super::measure::{KeySize, Meter};
use super::prefixes::{Prefixes, Sums};
use darter_base::UnixMillis;
use darter_rdb::Event;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Write;

/// The lengths of time until a deadline, in milliseconds, and their names.
#[rustfmt::skip] // A table.
const SPANS: &[(u64, &str)] = &[
    (0,                      "passed"),
    (60_000,                 "1 minute"),
    (3_600_000,              "1 hour"),
    (86_400_000,             "1 day"),
    (7 * 86_400_000,         "7 days"),
    (30 * 86_400_000,        "30 days"),
    (365 * 86_400_000,       "1 year"),
    (u64::MAX,               "later"),
];

/// The key with the most bytes or elements first.
type Largest = BinaryHeap<Reverse<(u64, Vec<u8>, u32, Row)>>;

/// The type, elements, bytes in Redis and bytes in Darter of a large key.
type Row = (&'static str, u64, Option<u64>, u64);

/// Receives the size of a key.
type Each = Box<dyn FnMut(&KeySize) -> Result<(), String>>;

/// Collects the figures of a report.
pub(crate) struct Report {
    filter: Filter,
    meter: Meter,
    now: UnixMillis,
    largest: usize,
    total: Sums,
    file_bytes: u64,
    types: BTreeMap<&'static str, (Sums, u64)>,
    /// The patterns.
    pub(crate) prefixes: Prefixes,
    by_bytes: Largest,
    by_elements: Largest,
    /// The number of keys for each of [`SPANS`], and of those without a deadline.
    deadlines: Vec<Sums>,
    lasting: Sums,
    commands: BTreeMap<String, u64>,
    /// Receives each key as it is measured.
    each: Option<Each>,
}

impl Report {
    /// A report with the `largest` largest keys.
    pub(crate) fn new(filter: Filter, prefixes: Prefixes, largest: usize, now: UnixMillis) -> Self {
        Self {
            filter,
            meter: Meter::new(),
            now,
            largest,
            total: Sums::default(),
            file_bytes: 0,
            types: BTreeMap::new(),
            prefixes,
            by_bytes: BinaryHeap::new(),
            by_elements: BinaryHeap::new(),
            deadlines: vec![Sums::default(); SPANS.len()],
            lasting: Sums::default(),
            commands: BTreeMap::new(),
            each: None,
        }
    }

    /// Passes each key to `each`.
    pub(crate) fn with_each(
        mut self,
        each: impl FnMut(&KeySize) -> Result<(), String> + 'static,
    ) -> Self {
        self.each = Some(Box::new(each));
        self
    }

    fn add(&mut self, size: &KeySize) -> Result<(), String> {
        if let Some(each) = &mut self.each {
            return each(size);
        }
        self.total.add(size);
        let of_type = self.types.entry(size.kind).or_default();
        of_type.0.add(size);
        of_type.1 += size.elements;
        self.prefixes.add(size);
        match size.deadline {
            None => self.lasting.add(size),
            Some(at) => {
                let left = at.saturating_sub(self.now);
                let span = SPANS.iter().position(|span| left <= span.0).unwrap_or(0);
                self.deadlines[span].add(size);
            }
        }
        let bytes = size.redis_bytes.unwrap_or(0).max(size.darter_bytes);
        keep(&mut self.by_bytes, self.largest, bytes, size);
        keep(&mut self.by_elements, self.largest, size.elements, size);
        Ok(())
    }

    /// Writes tables.
    pub(crate) fn write_table(self, out: &mut dyn Write) -> std::io::Result<()> {
        let total = self.total;
        writeln!(out, "{} keys, {} in the file", total.keys, shown(self.file_bytes))?;
        writeln!(
            out,
            "{} in Redis 7.0, {} in Darter",
            shown(total.redis_bytes),
            shown(total.darter_bytes)
        )?;
        writeln!(out, "\ntype           keys      elements       Redis      Darter")?;
        for (name, (sums, elements)) in &self.types {
            writeln!(
                out,
                "{name:<10} {:>8} {elements:>13} {:>11} {:>11}",
                sums.keys,
                shown(sums.redis_bytes),
                shown(sums.darter_bytes)
            )?;
        }
        writeln!(out, "\n    keys       Redis      Darter  prefix")?;
        let sorted = self.prefixes.sorted();
        for (pattern, sums) in sorted.iter().take(self.largest) {
            write_sums(out, sums, &pattern.escape_ascii().to_string())?;
        }
        if let Some(rest) = sorted.get(self.largest..).filter(|rest| !rest.is_empty()) {
            writeln!(out, "          and {} prefixes more", rest.len())?;
        }
        writeln!(out, "\n    keys       Redis      Darter  deadline")?;
        write_sums(out, &self.lasting, "none")?;
        for ((_, name), sums) in SPANS.iter().zip(&self.deadlines).filter(|row| row.1.keys > 0) {
            let within = if matches!(*name, "passed" | "later") { "" } else { "within " };
            write_sums(out, sums, &format!("{within}{name}"))?;
        }
        for (title, heap) in [("bytes", self.by_bytes), ("elements", self.by_elements)] {
            writeln!(out, "\nThe largest keys by {title}:")?;
            writeln!(out, "elements       Redis      Darter  database, type and key")?;
            for Reverse((_, key, database, (kind, elements, redis, darter))) in
                heap.into_sorted_vec()
            {
                writeln!(
                    out,
                    "{elements:>8} {:>11} {:>11}  {database} {kind} {}",
                    redis.map_or_else(|| "unknown".to_owned(), shown),
                    shown(darter),
                    key.escape_ascii()
                )?;
            }
        }
        if !self.commands.is_empty() {
            writeln!(out, "\nCommands after the snapshot, which are counted and not run:")?;
            for (name, count) in &self.commands {
                writeln!(out, "{count:>10} {name}")?;
            }
        }
        Ok(())
    }

    /// The report as JSON.
    pub(crate) fn into_json(self) -> Value {
        let largest = |heap: Largest| -> Vec<Value> {
            let rows = heap.into_sorted_vec().into_iter();
            rows.map(|Reverse((_, key, database, (kind, elements, redis, darter)))| {
                json!({
                    "database": database,
                    "key": key.escape_ascii().to_string(),
                    "type": kind,
                    "elements": elements,
                    "redis_bytes": redis,
                    "darter_bytes": darter,
                })
            })
            .collect()
        };
        let types: BTreeMap<_, _> = self
            .types
            .iter()
            .map(|(name, (sums, elements))| {
                let mut value = of_sums(sums);
                value["elements"] = json!(elements);
                (*name, value)
            })
            .collect();
        let prefixes: Vec<Value> = self
            .prefixes
            .sorted()
            .iter()
            .map(|(pattern, sums)| {
                let mut value = of_sums(sums);
                value["prefix"] = json!(pattern.escape_ascii().to_string());
                value
            })
            .collect();
        let mut deadlines: BTreeMap<_, _> =
            SPANS.iter().zip(&self.deadlines).map(|(span, sums)| (span.1, of_sums(sums))).collect();
        deadlines.insert("none", of_sums(&self.lasting));
        json!({
            "total": of_sums(&self.total),
            "file_bytes": self.file_bytes,
            "types": types,
            "prefixes": prefixes,
            "deadlines": deadlines,
            "largest_by_bytes": largest(self.by_bytes),
            "largest_by_elements": largest(self.by_elements),
            "commands": self.commands,
        })
    }
}

impl Visitor for Report {
    fn event(&mut self, event: &Event<'_>) -> Result<(), String> {
        self.filter.event(event);
        self.meter.event(event);
        Ok(())
    }

    fn end_of_key(&mut self, place: Place<'_>) -> Result<(), String> {
        let size = self.meter.end().map_err(|why| format!("{why} at offset {}", place.begin))?;
        if !self.filter.takes(place.bytes()) {
            return Ok(());
        }
        self.file_bytes += place.bytes();
        self.add(&size)
    }

    fn command(&mut self, bytes: &[u8]) -> Result<(), String> {
        let name = super::resp::words(bytes).next().unwrap_or_default().to_ascii_uppercase();
        *self.commands.entry(name.escape_ascii().to_string()).or_default() += 1;
        Ok(())
    }
}

fn write_sums(out: &mut dyn Write, sums: &Sums, name: &str) -> std::io::Result<()> {
    let (redis, darter) = (shown(sums.redis_bytes), shown(sums.darter_bytes));
    writeln!(out, "{:>8} {redis:>11} {darter:>11}  {name}", sums.keys)
}

fn of_sums(sums: &Sums) -> Value {
    json!({
        "keys": sums.keys,
        "redis_bytes": sums.redis_bytes,
        "darter_bytes": sums.darter_bytes,
    })
}

/// Keeps the `most` keys with the largest `weight`.
fn keep(heap: &mut Largest, most: usize, weight: u64, size: &KeySize) {
    let is_small = heap.peek().is_some_and(|Reverse(least)| least.0 >= weight);
    if most == 0 || heap.len() >= most && is_small {
        return;
    }
    let row = (size.kind, size.elements, size.redis_bytes, size.darter_bytes);
    heap.push(Reverse((weight, size.key.clone(), size.database, row)));
    if heap.len() > most {
        heap.pop();
    }
}

/// Bytes with a unit.
fn shown(bytes: u64) -> String {
    const UNITS: &[&str] = &["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1_024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1_024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// The header of the table of keys; its first columns are those of rdbtools.
pub(crate) const COLUMNS: &str = "database,type,key,size_in_bytes,encoding,num_elements,\
    len_largest_element,expiry,darter_bytes";

/// A key as a line of CSV. Bytes beyond printable ASCII are shown as `\xNN`; the deadline is in UTC,
/// in rdbtools's form.
pub(crate) fn csv_line(size: &KeySize) -> String {
    let key = size.key.escape_ascii().to_string().replace("\\\"", "\"").replace("\\'", "'");
    let key =
        if key.contains([',', '"']) { format!("\"{}\"", key.replace('"', "\"\"")) } else { key };
    format!(
        "{},{},{key},{},{},{},{},{},{}",
        size.database,
        if size.kind == "zset" { "sortedset" } else { size.kind },
        size.redis_bytes.map_or_else(String::new, |bytes| bytes.to_string()),
        size.encoding,
        size.elements,
        size.longest,
        size.deadline.map_or_else(String::new, date),
        size.darter_bytes
    )
}

/// A time as `2026-11-28T23:36:27.000000`, in UTC. A time beyond the calendar stays empty.
fn date(at: UnixMillis) -> String {
    let time = i64::try_from(at).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(String::new, |time| time.strftime("%Y-%m-%dT%H:%M:%S%.6f").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (at, expected) in [
            (0, "1970-01-01T00:00:00.000000"),
            (951_782_399_000, "2000-02-28T23:59:59.000000"),
            (951_782_400_000, "2000-02-29T00:00:00.000000"),
            (1_795_908_987_123, "2026-11-28T23:36:27.123000"),
        ] {
            assert_eq!(date(at), expected);
        }
    }

    #[test]
    fn the_largest_keys_are_kept() {
        let mut heap = Largest::new();
        for weight in [3, 9, 1, 7, 5] {
            let size = KeySize { key: weight.to_string().into_bytes(), ..KeySize::default() };
            keep(&mut heap, 2, weight, &size);
        }
        let kept: Vec<u64> = heap.into_sorted_vec().iter().map(|row| row.0.0).collect();
        assert_eq!(kept, [9, 7]);
    }

    #[test]
    fn lines_of_csv_quote_keys_and_escape_bytes() {
        let key = b"a,\"\xff'".to_vec();
        let size = KeySize { key, kind: "zset", encoding: "listpack", ..KeySize::default() };
        assert_eq!(csv_line(&size), "0,sortedset,\"a,\"\"\\xff'\",,listpack,0,0,,0");
    }
}
