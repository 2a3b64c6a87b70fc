//! Tables, the description of the machine, and the files in `bench/results/`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::fault::Outcome;
use crate::process::Processors;

/// A table whose columns line up as text, and which is also Markdown.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub(crate) fn new(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|cell| (*cell).to_owned()).collect()] }
    }

    /// Adds a row; short rows are filled with empty cells.
    pub(crate) fn row(&mut self, mut cells: Vec<String>) {
        cells.resize(self.rows[0].len(), String::new());
        self.rows.push(cells);
    }

    /// The Markdown: the first column to the left, the others to the right.
    pub(crate) fn markdown(&self) -> String {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).max(3)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                let (before, after) = if column == 0 { ("", &pad[..]) } else { (&pad[..], "") };
                // Writing to a `String` cannot fail.
                let _ = write!(text, "| {before}{cell}{after} ");
            }
            text.push_str("|\n");
            if number == 0 {
                for (column, width) in widths.iter().enumerate() {
                    let dashes = "-".repeat(if column == 0 { width + 1 } else { width - 1 });
                    let _ = write!(text, "| {dashes}{}", if column == 0 { "" } else { ": " });
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

/// A report being written: Markdown and its pictures, under one name.
#[derive(Debug)]
pub(crate) struct Report {
    folder: PathBuf,
    stem: String,
    text: String,
}

impl Report {
    /// A report `<name>-<date>` that starts with its title and the machine.
    pub(crate) fn new(folder: &Path, name: &str, title: &str, processors: &Processors) -> Report {
        let stem = format!("{name}-{}", today());
        let text = format!("# {title}\n\n{}\n", machine(processors));
        Report { folder: folder.to_owned(), stem, text }
    }

    /// Adds a paragraph.
    pub(crate) fn say(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push_str("\n\n");
    }

    /// Adds a picture; its file's name is the report's and `part`.
    pub(crate) fn picture(&mut self, part: &str, caption: &str, svg: &str) -> Outcome<()> {
        let name = format!("{}-{part}.svg", self.stem);
        fs::create_dir_all(&self.folder)?;
        fs::write(self.folder.join(&name), svg)?;
        self.text.push_str(&format!("![{caption}]({name})\n\n"));
        Ok(())
    }

    /// Writes the Markdown so far.
    pub(crate) fn save(&self) -> Outcome<()> {
        fs::create_dir_all(&self.folder)?;
        fs::write(self.path(), self.text.trim_end().to_owned() + "\n")?;
        Ok(())
    }

    /// Writes the Markdown, prints it, and says where it is.
    pub(crate) fn finish(self) -> Outcome<()> {
        self.save()?;
        println!("{}\nwritten: {}", self.text, self.path().display());
        Ok(())
    }

    fn path(&self) -> PathBuf {
        self.folder.join(format!("{}.md", self.stem))
    }
}

/// A fault's text as a cell: one line of at most 40 characters.
pub(crate) fn brief(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default().replace('|', "/");
    if line.chars().count() <= 40 {
        return line;
    }
    line.chars().take(39).chain(['…']).collect()
}

fn machine(processors: &Processors) -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |rest| rest.trim_start_matches([' ', '\t', ':']));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{} · {} cores usable · Linux {} · {}\n",
        model,
        processors.count(),
        kernel.trim(),
        today()
    )
}

/// The date in UTC, `2026-11-21`.
fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Year, month and day of a day number since 1970-01-01.
fn civil(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_since_1970_are_converted_to_dates() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(20_454), (2026, 1, 1));
    }

    #[test]
    fn columns_of_tables_are_aligned() {
        let mut table = Table::new(&["a", "bbbb"]);
        table.row(vec!["xx".to_owned()]);
        assert_eq!(table.markdown(), "| a   | bbbb |\n| ----| ---: |\n| xx  |      |\n");
    }
}
