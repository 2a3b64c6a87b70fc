//! The settings file, as CONFIG REWRITE changes it. Comments and the order of lines are kept. Lines
//! whose value has changed are updated, and new values that differ from the default are appended.
//!
//! Not here: reading a file. See `read`.

use super::read::directive;
use super::{ROWS, Setting, Settings, When};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The reason why a rewrite failed.
#[derive(Debug)]
pub enum Refused {
    /// The file cannot be read or written.
    Io(PathBuf, io::Error),
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

/// Writes the newest settings back to the file from which they came, in portions. `latest` returns
/// the newest settings. `mark` distinguishes concurrent rewrites in one process.
///
/// The new file replaces the old one only if no setting has changed since. Otherwise the rewrite
/// starts again, because the older of two concurrent rewrites must not win. So the rewrite ends
/// when no setting changes during one pass.
pub async fn rewrite(
    latest: impl Fn() -> Arc<Settings>,
    mark: u64,
    mut pause: impl AsyncFnMut(),
) -> Result<(), Refused> {
    loop {
        let settings = latest();
        let Some(path) = &settings.file else { return Ok(()) };
        let io = |error| Refused::Io(path.clone(), error);
        let written = write_beside(path, &settings, mark, &mut pause).await.map_err(io)?;
        if Arc::ptr_eq(&settings, &latest()) {
            return written.take_the_place_of(path).map_err(io);
        }
    }
}

/// Writes the new file into the folder of `path`.
async fn write_beside(
    path: &Path,
    settings: &Settings,
    mark: u64,
    pause: &mut impl AsyncFnMut(),
) -> io::Result<Temporary> {
    let old = File::open(path)?;
    let (temporary, new) = Temporary::create(path, mark)?;
    // The file may contain a password, so it gets the permissions of the old file.
    new.set_permissions(old.metadata()?.permissions())?;
    let (old, new) = (BufReader::new(old), BufWriter::new(new));
    let mut rewriting = Rewriting { settings, old, new, written: HashSet::new() };
    while rewriting.lines()? {
        pause().await;
    }
    rewriting.end()?.flush()?;
    Ok(temporary)
}

/// A temporary file, which is removed when this value is dropped, after an error or with its task.
struct Temporary(PathBuf);

impl Temporary {
    /// Creates a temporary file in the folder of `path`, with that file's name as a prefix. The
    /// name is unique among servers and tasks.
    fn create(path: &Path, mark: u64) -> io::Result<(Self, File)> {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".rewrite-tmp-{}-{mark}", std::process::id()));
        let file = File::create(&name)?;
        Ok((Self(name.into()), file))
    }

    fn take_the_place_of(self, path: &Path) -> io::Result<()> {
        std::fs::rename(&self.0, path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // After the rename, there is no file to remove.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A file that is being rewritten.
struct Rewriting<'a, R, W> {
    settings: &'a Settings,
    old: R,
    new: W,
    /// The settings that the new file has already.
    written: HashSet<&'static str>,
}

impl<R: BufRead, W: Write> Rewriting<'_, R, W> {
    /// Rewrites a portion of the lines; a line is never split. Returns false after the last line.
    fn lines(&mut self) -> io::Result<bool> {
        /// About 20 us, in addition to the system calls.
        const BYTES: usize = 16 * 1024;
        let (mut bytes, mut line) = (0, String::new());
        while bytes < BYTES {
            line.clear();
            if self.old.read_line(&mut line)? == 0 {
                return Ok(false);
            }
            bytes += line.len();
            self.line(line.trim_end_matches(['\r', '\n']))?;
        }
        Ok(true)
    }

    fn line(&mut self, line: &str) -> io::Result<()> {
        let name = directive(line).ok().flatten().map(|(name, _)| name);
        let place = name.and_then(|name| super::place(&name));
        match place.map(|(at, _)| &ROWS[at]) {
            // As in Redis, the value of the last line of a setting counts. It is written at the
            // first such line.
            Some(row) if self.written.contains(row.name) => Ok(()),
            Some(row) => {
                let line = line_of(row, self.settings.text(row.name));
                self.written.insert(row.name);
                writeln!(self.new, "{line}")
            }
            None => writeln!(self.new, "{line}"),
        }
    }

    /// Appends the values that are not in the file yet and differ from the default.
    fn end(mut self) -> io::Result<W> {
        for (row, value) in self.settings.iter() {
            let is_new = value != row.default && !self.written.contains(row.name);
            if is_new && !matches!(row.when, When::Accepted | When::Inert) {
                writeln!(self.new, "{}", line_of(row, value))?;
            }
        }
        debug_assert!(self.written.len() <= ROWS.len());
        Ok(self.new)
    }
}

/// The line that [`directive`] reads as this value. Words are written without quotes only if the
/// row takes several words.
fn line_of(row: &Setting, value: &str) -> String {
    let plain = |letter: char| letter.is_ascii_graphic() && !matches!(letter, '"' | '\'' | '\\');
    let is_plain = |word: &str| !word.is_empty() && word.chars().all(plain);
    let fits = row.kind.takes_words() || !value.contains(' ');
    if fits && value.split(' ').all(is_plain) {
        return format!("{} {value}", row.name);
    }
    format!("{} {}", row.name, quoted(value))
}

/// A word in double quotes, in the form that [`directive`] reads.
pub(super) fn quoted(word: &str) -> String {
    let word = word.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", word.replace('\n', "\\n").replace('\r', "\\r"))
}

#[cfg(test)]
mod tests {
    use super::super::read::Reading;
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::future::poll_fn;
    use std::os::unix::fs::PermissionsExt;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    /// A settings file in a folder of its own, which is removed when this value is dropped.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str, text: &[u8]) -> Self {
            let folder = format!("darter-settings-{}-{name}", std::process::id());
            let place = Self(std::env::temp_dir().join(folder));
            std::fs::create_dir(&place.0).unwrap();
            std::fs::write(place.file(), text).unwrap();
            place
        }

        fn file(&self) -> PathBuf {
            self.0.join("darter.conf")
        }

        fn text(&self) -> String {
            std::fs::read_to_string(self.file()).unwrap()
        }

        fn names(&self) -> Vec<String> {
            let name = |entry: io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
            let entries = std::fs::read_dir(&self.0).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| name(entry).into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn settings(&self, timeout: &str) -> Arc<Settings> {
            let mut settings = Settings::default();
            settings.set("timeout", timeout).unwrap();
            settings.file = Some(self.file());
            Arc::new(settings)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Runs a task to its next pause, or to its end.
    fn poll<F: Future>(task: Pin<&mut F>) -> Poll<F::Output> {
        task.poll(&mut Context::from_waker(Waker::noop()))
    }

    /// A pause, at which a slice may end.
    async fn pause() {
        let mut was_here = Cell::new(false);
        poll_fn(|_| if was_here.replace(true) { Poll::Ready(()) } else { Poll::Pending }).await;
        assert!(*was_here.get_mut());
    }

    #[test] // The rewrite succeeds, fails, or is dropped.
    fn a_rewrite_leaves_no_temporary_file() {
        let lines = "# long\n".repeat(10_000);
        let place = Place::new("leaves", lines.as_bytes());
        let settings = place.settings("44");
        let start = || rewrite(|| Arc::clone(&settings), 7, pause);
        {
            let mut task = pin!(start());
            assert!(poll(task.as_mut()).is_pending());
            let beside = format!("darter.conf.rewrite-tmp-{}-7", std::process::id());
            assert_eq!(place.names(), ["darter.conf", &beside]);
        }
        assert_eq!((place.names(), place.text()), (vec!["darter.conf".to_owned()], lines.clone()));
        std::fs::write(place.file(), [lines.as_bytes(), b"\xff\xff\n"].concat()).unwrap();
        let mut task = pin!(start());
        let error = loop {
            match poll(task.as_mut()) {
                Poll::Ready(result) => break result.unwrap_err().to_string(),
                Poll::Pending => assert_eq!(place.names().len(), 2),
            }
        };
        assert!(error.contains("UTF-8"), "{error}");
        assert_eq!(place.names(), ["darter.conf"]);
        std::fs::write(place.file(), &lines).unwrap();
        std::fs::set_permissions(place.file(), PermissionsExt::from_mode(0o600)).unwrap();
        let mut task = pin!(start());
        while poll(task.as_mut()).map(Result::unwrap).is_pending() {}
        assert_eq!(
            (place.names(), place.text()),
            (vec!["darter.conf".to_owned()], lines + "timeout 44\n")
        );
        let mode = place.file().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "what only its owner may read stays so");
    }

    #[test] // The rewrite with the newer settings may end first.
    fn the_newest_of_concurrent_rewrites_wins() {
        let place = Place::new("latest", "# long\n".repeat(10_000).as_bytes());
        let now = RefCell::new(place.settings("1"));
        let start = |mark| rewrite(|| Arc::clone(&now.borrow()), mark, pause);
        let mut older = pin!(start(1));
        assert!(poll(older.as_mut()).is_pending());
        now.replace(place.settings("2"));
        let mut newer = pin!(start(2));
        while poll(newer.as_mut()).map(Result::unwrap).is_pending() {}
        assert!(place.text().ends_with("timeout 2\n"));
        while poll(older.as_mut()).map(Result::unwrap).is_pending() {}
        assert!(place.text().ends_with("timeout 2\n"));
        assert_eq!(place.names(), ["darter.conf"]);
    }

    #[test]
    fn a_rewrite_keeps_comments_and_the_order_of_lines() {
        let mut settings = Settings::default();
        settings.set("port", "7001").unwrap();
        settings.set("requirepass", "two words").unwrap();
        let comments = "# long\n".repeat(10_000);
        let old = format!("# mine\nport 7000\n\nport 7000\n{comments}");
        let (settings, old) = (&settings, old.as_bytes());
        let mut rewriting = Rewriting { settings, old, new: Vec::new(), written: HashSet::new() };
        let mut portions = 0;
        while rewriting.lines().unwrap() {
            portions += 1;
        }
        assert!(portions > 2, "{portions}");
        let text = String::from_utf8(rewriting.end().unwrap()).unwrap();
        let text = text.replace("# long\n", "");
        assert_eq!(text, "# mine\nport 7001\n\nrequirepass \"two words\"\n");
    }

    #[test] // A server must be able to start with the file that it has written.
    fn a_rewritten_file_is_read_as_the_same_values() {
        const OTHERS: &[(&str, &str)] = &[
            ("client-output-buffer-limit", "normal 1mb 2mb 3 pubsub 0 0 0"),
            ("requirepass", "two  words of a \"\\user\\\"\n\r"),
            ("save", "60 1 300 2"),
            ("bind", "127.0.0.1 -::1"),
        ];
        let defaults = ROWS.iter().map(|row| (row.name, row.default));
        for (name, value) in defaults.chain(OTHERS.iter().copied()) {
            let mut settings = Settings::default();
            settings.set(name, value).unwrap();
            let row = ROWS.iter().find(|row| row.name == name).unwrap();
            let line = line_of(row, settings.text(name));
            let mut reading = Reading::default();
            reading.input(line.as_bytes());
            let again = reading.end().unwrap_or_else(|faults| panic!("{line}: {faults}"));
            assert_eq!(again.text(name), settings.text(name), "{line}");
        }
    }
}
