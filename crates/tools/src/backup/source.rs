//! The files of a server: found by its folder, by its settings file, or by asking it.

use clap::{Arg, ArgMatches, Command, value_parser};
use darter_server::settings::cli::{self, CliRequest};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

/// The time that a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest reply that is read.
const REPLY_MAX_BYTES: usize = 1 << 20;
/// The environment variable with the password, which redis-cli reads, too.
const PASSWORD: &str = "REDISCLI_AUTH";

/// The names of a server's files.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// `dir`.
    pub(super) dir: PathBuf,
    /// `appendonly`. `None` if it is not known.
    pub(super) has_journal: Option<bool>,
    /// `appenddirname`.
    pub(super) journal_folder: String,
    /// `appendfilename`.
    pub(super) journal_name: String,
    /// `dbfilename`.
    pub(super) snapshot: String,
}

pub(super) fn arguments(command: Command) -> Command {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help)
    };
    command
        .arg(
            Arg::new("folder")
                .value_name("FOLDER")
                .help("The new folder for the backup. It must not exist")
                .value_parser(value_parser!(PathBuf))
                .required(true),
        )
        .arg(
            option("dir", "FOLDER", "The server's folder; its files have their default names")
                .value_parser(value_parser!(PathBuf)),
        )
        .arg(option("config", "FILE", "The server's settings file").conflicts_with("dir"))
        .arg(option("host", "HOST", "The server to ask for its folder").default_value("127.0.0.1"))
        .arg(
            option("port", "PORT", "Its port")
                .value_parser(value_parser!(u16))
                .default_value("6379"),
        )
        .arg(option("user", "NAME", "The user, if the server wants a password"))
        .after_help(
            "The server runs on this machine and goes on running. Its password is read from the \
             environment variable REDISCLI_AUTH.",
        )
}

impl Source {
    /// The files of the server that the command line names.
    ///
    /// Errors: a sentence.
    pub(super) fn find(matches: &ArgMatches) -> Result<Self, String> {
        if let Some(dir) = matches.get_one::<PathBuf>("dir") {
            return Ok(Self {
                dir: dir.clone(),
                has_journal: None,
                journal_folder: "appendonlydir".into(),
                journal_name: "appendonly.aof".into(),
                snapshot: "dump.rdb".into(),
            });
        }
        if let Some(file) = matches.get_one::<String>("config") {
            return Self::of_file(file);
        }
        let host = matches.get_one::<String>("host").map_or("127.0.0.1", String::as_str);
        let port = matches.get_one::<u16>("port").copied().unwrap_or(6379);
        let user = matches.get_one::<String>("user").map(String::as_str);
        let asked = Self::ask(host, port, user);
        asked.map_err(|error| format!("{host}:{port}: {error}"))
    }

    fn of_file(file: &str) -> Result<Self, String> {
        match cli::parse(&[file.to_owned()], "")? {
            CliRequest::Run(settings) => Ok(Self {
                dir: settings.text("dir").into(),
                has_journal: Some(settings.flag("appendonly")),
                journal_folder: settings.text("appenddirname").into(),
                journal_name: settings.text("appendfilename").into(),
                snapshot: settings.text("dbfilename").into(),
            }),
            CliRequest::Print(text) => Err(text),
        }
    }

    fn ask(host: &str, port: u16, user: Option<&str>) -> io::Result<Self> {
        let mut connection = Connection::open(host, port)?;
        if let Ok(password) = std::env::var(PASSWORD) {
            let words: Vec<&str> = ["AUTH"].into_iter().chain(user).chain([&*password]).collect();
            connection.ask(&words)?;
        }
        let mut get = |name: &str| -> io::Result<String> {
            let reply = connection.ask(&["CONFIG", "GET", name])?;
            let value = reply.into_iter().nth(1);
            value.ok_or_else(|| io::Error::other(format!("the server has no setting {name}")))
        };
        Ok(Self {
            dir: get("dir")?.into(),
            has_journal: Some(get("appendonly")? == "yes"),
            journal_folder: get("appenddirname")?,
            journal_name: get("appendfilename")?,
            snapshot: get("dbfilename")?,
        })
    }

    /// The path of the manifest, if the server writes append-only files.
    pub(super) fn journal(&self) -> Option<PathBuf> {
        let name = format!("{}.manifest", self.journal_name);
        let manifest = self.dir.join(&self.journal_folder).join(name);
        self.has_journal.unwrap_or_else(|| manifest.exists()).then_some(manifest)
    }
}

/// A connection to a server.
struct Connection {
    input: BufReader<TcpStream>,
}

impl Connection {
    fn open(host: &str, port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect((host, port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { input: BufReader::new(stream) })
    }

    /// Sends a command. Returns the texts in the reply.
    fn ask(&mut self, words: &[&str]) -> io::Result<Vec<String>> {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.input.get_mut().write_all(request.as_bytes())?;
        let mut texts = Vec::new();
        let mut missing = 1_usize;
        while missing > 0 {
            missing -= 1;
            let line = self.line()?;
            let (sign, rest) = line.split_at_checked(1).unwrap_or_default();
            let number = rest.parse::<usize>().ok().filter(|number| *number <= REPLY_MAX_BYTES);
            match (sign, number) {
                ("+" | ":", _) => texts.push(rest.to_owned()),
                ("-", _) => return Err(io::Error::other(rest.to_owned())),
                ("$", Some(bytes)) => {
                    let mut text = vec![0; bytes + 2];
                    self.input.read_exact(&mut text)?;
                    text.truncate(bytes);
                    texts.push(String::from_utf8_lossy(&text).into_owned());
                }
                ("*", Some(count)) => missing += count,
                _ => return Err(io::Error::other(format!("unexpected reply: {line}"))),
            }
        }
        Ok(texts)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.input).take(REPLY_MAX_BYTES as u64).read_line(&mut line)?;
        if !line.ends_with('\n') {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(line.trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Sample;
    use std::net::TcpListener;

    #[test]
    fn the_names_are_those_of_the_settings_file() {
        let sample = Sample::new("source");
        let file = sample.path.join("darter.conf");
        let dir = format!("dir {}\n", sample.path.display());
        std::fs::write(&file, format!("{dir}appendonly yes\nappendfilename a.aof\n")).unwrap();
        let source = Source::of_file(&file.to_string_lossy()).unwrap();
        assert_eq!(source.journal(), Some(sample.path.join("appendonlydir/a.aof.manifest")));
        std::fs::write(&file, dir).unwrap();
        assert_eq!(Source::of_file(&file.to_string_lossy()).unwrap().journal(), None);
        std::fs::write(&file, "port x\n").unwrap();
        assert!(Source::of_file(&file.to_string_lossy()).is_err());
    }

    #[test]
    fn replies_are_read_and_errors_are_returned() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let replies = "*2\r\n$3\r\ndir\r\n$5\r\n/data\r\n-NOAUTH no\r\n$-5\r\n";
            stream.write_all(replies.as_bytes()).unwrap();
            io::copy(&mut stream, &mut io::sink()).unwrap();
        });
        let mut connection = Connection::open("127.0.0.1", port).unwrap();
        assert_eq!(connection.ask(&["CONFIG", "GET", "dir"]).unwrap(), ["dir", "/data"]);
        assert_eq!(connection.ask(&["PING"]).unwrap_err().to_string(), "NOAUTH no");
        assert!(connection.ask(&["PING"]).unwrap_err().to_string().contains("unexpected"));
        drop(connection);
        server.join().unwrap();
    }
}
