//! A redis-server 7.0.15 of our own, on a unix socket.

use super::encode;
use super::value::bulks;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A keyspace event: database, event, key.
pub(crate) type Published = (usize, String, Vec<u8>);

/// See the module. It ends with this handle.
pub(crate) struct Oracle {
    child: Child,
    folder: PathBuf,
    stream: BufReader<UnixStream>,
    /// Subscribed to all events.
    events: Option<BufReader<UnixStream>>,
}

impl Oracle {
    /// Starts a server; `name` makes its folder unique within the process.
    pub(crate) fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("darter-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let socket = folder.join("redis.sock");
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .arg("--dir")
            .arg(&folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server 7.0 is installed");
        let stream = (0..2_000).find_map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5)); // Until it listens.
            UnixStream::connect(&socket).ok()
        });
        let stream = BufReader::new(stream.expect("redis-server listens within ten seconds"));
        Self { child, folder, stream, events: None }
    }

    /// The bytes of the reply.
    pub(crate) fn run(&mut self, words: &[&[u8]]) -> Vec<u8> {
        self.stream.get_mut().write_all(&encode(words)).unwrap();
        let mut reply = Vec::new();
        read_into(&mut self.stream, &mut reply);
        reply
    }

    /// Listens to keyspace events from now on.
    pub(crate) fn subscribe(&mut self) {
        let mut events =
            BufReader::new(UnixStream::connect(self.folder.join("redis.sock")).unwrap());
        let words: [&[u8]; 3] = [b"PSUBSCRIBE", b"__keyevent@*", b"marker"];
        events.get_mut().write_all(&encode(&words)).unwrap();
        words[1..].iter().for_each(|_| read_into(&mut events, &mut Vec::new()));
        self.events = Some(events);
    }

    /// The events since it was last asked.
    pub(crate) fn published(&mut self) -> Vec<Published> {
        self.run(&[b"PUBLISH", b"marker", b"here"]);
        let events = self.events.as_mut().expect("subscribed");
        let mut published = Vec::new();
        loop {
            let mut bytes = Vec::new();
            read_into(events, &mut bytes);
            let [_, _, channel, key]: [Vec<u8>; 4] =
                bulks(&bytes).try_into().expect("a message of a pattern");
            let channel = String::from_utf8(channel).unwrap();
            let Some(rest) = channel.strip_prefix("__keyevent@") else { return published };
            let (database, event) = rest.split_once("__:").unwrap();
            published.push((database.parse().unwrap(), event.to_owned(), key));
        }
    }
}

fn read_into(stream: &mut BufReader<UnixStream>, reply: &mut Vec<u8>) {
    let from = reply.len();
    stream.read_until(b'\n', reply).unwrap();
    let line = String::from_utf8_lossy(&reply[from..]).trim_end().to_owned();
    let count = || line[1..].parse::<i64>().unwrap();
    match line.as_bytes()[0] {
        b'$' if count() >= 0 => {
            let from = reply.len();
            reply.resize(from + usize::try_from(count()).unwrap() + 2, 0);
            stream.read_exact(&mut reply[from..]).unwrap();
        }
        b'*' | b'~' => (0..count()).for_each(|_| read_into(stream, reply)),
        b'%' => (0..2 * count()).for_each(|_| read_into(stream, reply)),
        _ => {}
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
