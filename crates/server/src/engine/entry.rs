//! The table of all commands, by name: for each the row and the function.

use super::conn::Session;
use super::core::Core;
use super::presence::Presence;
use super::scripts::evaluation::Evaluation;
use super::slices::Cause;
use super::state::pubsub::SubscriptionKind;
use super::transaction::queued::Verb;
use darter_base::hash::IdentityMap;
use darter_base::limits::ENTRIES_AT_ONCE;
use darter_command::syntax::{self, Argument};
use darter_command::{
    Answer, Args, Command, Flags, KeySpec, MultiFn, Place, PointFn, Refusal, Run, until_nul,
};
use darter_resp::{Reply, Request};
use darter_tx::Tx;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

/// A running task of a server command.
pub type ServerFuture = Pin<Box<dyn Future<Output = Result<Answer, Refusal>>>>;

/// The function of a command that runs at once, on the core of the connection.
pub(super) type SessionFn = fn(&mut SessionCx<'_>, Args<'_>) -> Result<(), Refusal>;

/// The arguments and results of a command that runs at once.
pub struct SessionCx<'a> {
    /// The core of the connection.
    pub core: &'a Rc<Core>,
    /// The session of the connection.
    pub session: &'a mut Session,
    /// The encoder of the reply.
    pub reply: Reply<'a>,
}

/// The context of a server command that runs as a task.
pub struct ServerCall {
    /// The core of the connection.
    pub core: Rc<Core>,
    /// A copy of the session, made when the command began.
    pub session: Session,
    /// The request, including the command's name.
    pub request: Arc<Request>,
    /// The index of the first argument after the command's name, or after the subcommand's name.
    pub first: usize,
    /// The transaction that contains the command, if any. It holds locks, so the command must not
    /// wait for locks.
    pub within: Option<Tx>,
    /// Whether the client is still connected; long reads check it.
    pub(crate) presence: Rc<Presence>,
}

impl ServerCall {
    /// True if the command runs inside EXEC.
    #[must_use]
    pub fn is_inside(&self) -> bool {
        self.within.is_some()
    }

    /// The arguments that follow the name.
    #[must_use]
    pub fn args(&self) -> Args<'_> {
        Args::new(darter_resp::Args::owned(&self.request), self.first)
    }

    /// The words that follow the name.
    pub fn request_words(&self) -> impl Iterator<Item = &[u8]> {
        darter_resp::Args::owned(&self.request).iter().skip(self.first)
    }

    /// Encodes a complete reply in the protocol of this client.
    #[must_use]
    pub fn answer(&self, write: impl FnOnce(&mut Reply<'_>)) -> Answer {
        Answer::encode(self.session.resp3, write)
    }
}

/// The functions of a command that runs a script.
#[derive(Clone, Copy)]
pub struct Scripted {
    /// Runs the script.
    pub run: fn(ServerCall) -> ServerFuture,
    /// The flags that the script declares, if any.
    pub declared: fn(&Core, darter_resp::Args<'_>) -> Option<darter_script::Flags>,
    /// Finds the script if it is cached and the search is short.
    pub(crate) find: fn(&Core, darter_resp::Args<'_>) -> Option<Evaluation>,
}

impl Scripted {
    /// Finds the script, if it is cached and the request is short.
    pub(crate) fn find_short(self, core: &Core, args: darter_resp::Args<'_>) -> Option<Evaluation> {
        let is_short = args.len() <= ENTRIES_AT_ONCE && !args.is_owned();
        if is_short { (self.find)(core, args) } else { None }
    }
}

/// The way in which a command runs.
#[derive(Clone, Copy)]
pub enum Runner {
    /// Runs as a function on the shard that owns the key.
    Point(PointFn),
    /// Runs as a task over several keys, or as a point function if one shard owns all of them.
    Multi(Option<PointFn>, MultiFn),
    /// Runs at once, on the core of the connection.
    Session(SessionFn),
    /// Runs as a task on the core of the connection.
    Task(fn(ServerCall) -> ServerFuture),
    /// Runs a script, as a task that stops when its client has gone.
    Script(Scripted),
    /// A transaction command: MULTI, EXEC, DISCARD, WATCH or UNWATCH.
    Transaction(Verb),
    /// PUBLISH or SPUBLISH, which runs on the home of the channel.
    Publish(SubscriptionKind),
    /// Does not run: the command only contains subcommands.
    Container,
}

/// One command of the table.
pub struct Entry {
    /// The command's row.
    pub row: Command,
    /// The command's function.
    pub run: Runner,
    /// The command's index in the table.
    pub index: usize,
    /// The index of the first argument that follows the command's name.
    pub first: usize,
    /// True if the command has subcommands.
    pub parent: bool,
    /// True if the command's only key is its first argument, as with most commands.
    pub(super) one_key: bool,
    /// True if the command takes at most two microseconds with few arguments, judged by its flags
    /// or its cost.
    pub quick: bool,
    /// True if the command may have the option `BLOCK`.
    pub(super) may_block: bool,
    /// The command's arguments, for COMMAND DOCS.
    pub arguments: Vec<Argument>,
    /// The result of [`letters`] for the command's name; `None` if another name has the same.
    letters: Option<u64>,
}

impl Entry {
    /// The command's function for keys that one shard owns, if any.
    pub(super) fn point(&self) -> Option<PointFn> {
        match self.run {
            Runner::Point(run) | Runner::Multi(Some(run), _) => Some(run),
            _ => None,
        }
    }

    /// True if the command touches only the keys that its row can find in the arguments.
    pub(super) fn names_its_keys(&self) -> bool {
        let is_simple = self.point().is_some() || matches!(self.run, Runner::Session(_));
        is_simple && !self.row.locks_all()
    }
}

/// All commands.
pub struct Table {
    entries: Vec<Entry>,
    by_name: IdentityMap<usize>,
}

/// The maximal length of a name in the form `parent|sub`.
const NAME_MAX: usize = 40;

impl Table {
    /// Joins the families' rows with the server's own rows.
    ///
    /// Panics if two rows have the same name: the table is fixed at build time, and a test builds
    /// it.
    #[must_use]
    pub fn new(families: &[&[Command]], own: &[&[(Command, Runner)]]) -> Self {
        let of_row = |row: &Command| match row.run {
            Run::Point(run) => Runner::Point(run),
            Run::Multi { here, anywhere } => Runner::Multi(here, anywhere),
            Run::Server => Runner::Container,
        };
        let data = families.iter().copied().flatten().map(|row| (*row, of_row(row)));
        let mut table = Self { entries: Vec::new(), by_name: IdentityMap::default() };
        for (row, run) in data.chain(own.iter().copied().flatten().copied()) {
            let index = table.entries.len();
            let first = 1 + usize::from(row.name.contains('|'));
            let old = table.by_name.insert(name_hash(row.name.as_bytes()), index);
            assert!(old.is_none(), "two commands {}", row.name);
            let quick = row.flags.has(Flags::FAST) || row.complexity == "O(1)";
            let only_letters = row.name.bytes().all(|byte| byte.is_ascii_lowercase());
            let letters = letters(row.name.as_bytes()).filter(|_| only_letters);
            let arguments = syntax::parse(row.syntax, row.keys.0.len());
            let one_key = matches!(
                row.keys.0,
                [KeySpec { place: Place::Range { first: 1, last: 1, .. }, .. }]
            );
            table.entries.push(Entry {
                row,
                run,
                index,
                first,
                parent: false,
                one_key,
                quick,
                may_block: row.syntax.contains("[BLOCK "),
                arguments,
                letters,
            });
        }
        for at in 0..table.entries.len() {
            if let Some((parent, _)) = table.entries[at].row.name.split_once('|') {
                let parent = table.by_name[&name_hash(parent.as_bytes())];
                table.entries[parent].parent = true;
                table.entries[parent].letters = None;
            }
        }
        table
    }

    /// The name of the command to which a slice is attributed, if any.
    pub(crate) fn command_of(&self, cause: Cause) -> Option<&'static str> {
        cause.row().map(|row| self.entries[row].row.name)
    }

    /// All entries, subcommands included.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Finds the entry with this name in any letter case: `get`, `config|get`.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Entry> {
        if name.len() > NAME_MAX {
            return None;
        }
        let mut lower = [0; NAME_MAX];
        let lower = &mut lower[..name.len()];
        for (to, from) in lower.iter_mut().zip(name) {
            *to = from.to_ascii_lowercase();
        }
        let entry = &self.entries[*self.by_name.get(&name_hash(lower))?];
        (entry.row.name.as_bytes() == lower).then_some(entry)
    }

    /// Like [`Table::resolve`], but first tries the entry that the prefetch has found, then the
    /// entry `likely`.
    #[inline(always)]
    pub(super) fn resolve_likely(
        &self,
        args: darter_resp::Args<'_>,
        likely: usize,
    ) -> Result<&Entry, Refusal> {
        let entry = match args.noted() {
            Some(note) => return Ok(&self.entries[note.command]),
            None => &self.entries[likely],
        };
        if entry.letters.is_some() && entry.letters == letters(args.head(0)) {
            return Ok(entry);
        }
        self.resolve(args)
    }

    /// Finds the entry of a request: that of the subcommand, if the command has any.
    pub fn resolve(&self, args: darter_resp::Args<'_>) -> Result<&Entry, Refusal> {
        let name = args.head(0);
        let parent = self.find(name).filter(|entry| !entry.row.name.contains('|'));
        let parent = parent.ok_or_else(|| unknown(args))?;
        if !parent.parent || args.len() < 2 {
            return Ok(parent);
        }
        let word = args.head(1);
        let mut full = parent.row.name.as_bytes().to_vec();
        full.push(b'|');
        // The cut name is still too long to match a row.
        full.extend_from_slice(&word[..word.len().min(NAME_MAX)]);
        self.find(&full).ok_or_else(|| unknown_subcommand(parent.row.name, word))
    }
}

/// Converts a name of at most eight bytes into a number that does not depend on letter case. Two
/// names of letters have the same number only if they are the same name. Comparing numbers is
/// cheap, and names are compared twice per request.
#[inline]
fn letters(name: &[u8]) -> Option<u64> {
    const SMALL: u64 = 0x2020_2020_2020_2020;
    let word = match name.len() {
        1..=3 => name.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        len @ 4..=8 => {
            // The first and the last bytes of the name. They overlap in a short name.
            let (first, last) = (name.first_chunk()?, name.last_chunk()?);
            let shift = 8 * (len - size_of::<u32>());
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << shift
        }
        _ => return None,
    };
    Some(word | SMALL >> (u64::BITS as usize - 8 * name.len()))
}

/// FNV-1a hash: fast for short names. Every request computes it.
fn name_hash(name: &[u8]) -> u64 {
    name.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The error for an unknown command. It shows at most 128 bytes of the name and of the arguments.
fn unknown(args: darter_resp::Args<'_>) -> Refusal {
    const SHOWN: usize = 128;
    fn shown(word: &[u8], most: usize) -> &[u8] {
        until_nul(&word[..word.len().min(most)])
    }
    let name = shown(args.head(0), SHOWN);
    let mut line = [b"ERR unknown command '", name, b"', with args beginning with: "].concat();
    let begin = line.len();
    for arg in (1..args.len()).map(|index| args.head(index)) {
        let length = line.len() - begin;
        if length >= SHOWN {
            break;
        }
        line.extend([b"'", shown(arg, SHOWN - length), b"' "].concat());
    }
    Refusal::Line(line.into())
}

/// The error for a word that is not a subcommand.
pub(crate) fn unknown_subcommand(parent: &str, name: &[u8]) -> Refusal {
    /// The number of bytes of the word that the error shows, as in Redis.
    const SHOWN: usize = 128;
    let name = &name[..name.len().min(SHOWN)];
    let behind = format!("'. Try {} HELP.", parent.to_ascii_uppercase());
    Refusal::quoting("ERR unknown subcommand '", name, &behind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_resp::Request;

    /// The index of the row found for `name`; asserts that it is the same for each guess of the
    /// likely row.
    fn resolved(table: &Table, name: &[u8]) -> Option<usize> {
        let request = Arc::new(Request::from_args([name]));
        let args = darter_resp::Args::owned(&request);
        let index = table.resolve(args).ok().map(|entry| entry.index);
        for likely in 0..table.entries().len() {
            let found = table.resolve_likely(args, likely).ok().map(|entry| entry.index);
            assert_eq!(found, index, "{name:?}, likely {likely}");
        }
        index
    }

    #[test] // The table has commands of every kind of row.
    fn keys_fields_and_members_count_as_names_but_values_do_not() {
        #[rustfmt::skip] // A table.
        let cases: &[(&str, &[usize])] = &[
            ("SET k v EX 5",                    &[1]),
            ("MSET k v l w",                    &[1, 3]),
            ("MSETEX 2 k v l w EX 5",           &[2, 4]),
            ("DEL k l m",                       &[1, 2, 3]),
            ("RENAME k l",                      &[1, 2]),
            ("EXPIRE k 5 NX",                   &[1]),
            ("HSET k f v g w",                  &[1, 2, 4]),
            ("HDEL k f g",                      &[1, 2, 3]),
            ("HSETEX k FNX EX 5 FIELDS 2 f v g w", &[1, 7, 9]),
            ("HGETDEL k fields 2 f g",          &[1, 4, 5]),
            ("HPEXPIRE k 5 NX FIELDS 1 f",      &[1, 6]),
            ("SADD s m n",                      &[1, 2, 3]),
            ("SADDEX s 5 m n",                  &[1, 3, 4]),
            ("SMOVE s t m",                     &[1, 2, 3]),
            ("ZADD z 1 m",                      &[1, 3]),
            ("GEOADD g 1 2 m",                  &[1, 4]),
            ("SINTERCARD 2 s t LIMIT 5",        &[2, 3]),
            ("RESTORE k 0 v REPLACE",           &[1]),
            ("PING m",                          &[]),
            ("MSET a FIELDS b v",               &[1, 3]),
        ];
        let table = crate::boot::table();
        for (line, expected) in cases {
            let request = Arc::new(Request::from_args(line.split(' ').map(str::as_bytes)));
            let args = darter_resp::Args::owned(&request);
            let Ok(entry) = table.resolve(args) else { panic!("{line}") };
            let is_name = entry.row.names(args);
            let names: Vec<usize> = (0..args.len()).filter(|at| is_name(*at)).collect();
            assert_eq!(names, *expected, "{line}");
        }
    }

    #[test] // A name that differs in one byte is not found.
    fn a_wrong_guess_does_not_change_the_row_found_for_a_name() {
        let table = crate::boot::table();
        for entry in table.entries().iter().filter(|entry| entry.first == 1) {
            let name = entry.row.name.as_bytes();
            assert_eq!(resolved(&table, name), Some(entry.index));
            assert_eq!(resolved(&table, &name.to_ascii_uppercase()), Some(entry.index));
            for at in 0..name.len() {
                let mut near = name.to_vec();
                near[at] ^= 0x80;
                assert_eq!(resolved(&table, &near), None, "{near:?}");
            }
            resolved(&table, &[name, b" "].concat());
            resolved(&table, &name[1..]);
        }
    }
}
