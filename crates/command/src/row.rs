//! The row of a command: everything that the engine, the documentation and the tests know of it.

use crate::{Args, Call, Cx, Flow, MultiFuture, Refusal, WaitFn};
use darter_base::number::leading_i32;
use darter_resp as resp;

/// The group of a command, as in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the groups' own")]
pub enum Group {
    /// The commands of a data type, which provides the group's name and ACL category.
    Type {
        name: &'static str,
        category: &'static str,
    },
    Generic,
    Connection,
    Cluster,
    Server,
    Transactions,
    PubSub,
    Scripting,
}

impl Group {
    /// The name as COMMAND DOCS writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Type { name, .. } => name,
            Self::Generic => "generic",
            Self::Connection => "connection",
            Self::Cluster => "cluster",
            Self::Server => "server",
            Self::Transactions => "transactions",
            Self::PubSub => "pubsub",
            Self::Scripting => "scripting",
        }
    }

    /// The ACL category of the group's commands, with its `@`; empty for none.
    #[must_use]
    pub fn category(self) -> &'static str {
        match self {
            Self::Type { category, .. } => category,
            Self::Generic => "@keyspace",
            Self::Connection => "@connection",
            Self::Server | Self::Cluster | Self::PubSub => "",
            Self::Transactions => "@transaction",
            Self::Scripting => "@scripting",
        }
    }
}

/// Properties of a command, as COMMAND INFO names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(u32);

#[rustfmt::skip] // A table.
#[expect(missing_docs, reason = "the names are Redis's own, in capitals")]
impl Flags {
    pub const NONE: Self              = Self(0);
    pub const WRITE: Self             = Self(1);
    pub const READONLY: Self          = Self(1 << 1);
    pub const DENYOOM: Self           = Self(1 << 2);
    pub const ADMIN: Self             = Self(1 << 3);
    pub const PUBSUB: Self            = Self(1 << 4);
    pub const NOSCRIPT: Self          = Self(1 << 5);
    pub const BLOCKING: Self          = Self(1 << 6);
    pub const LOADING: Self           = Self(1 << 7);
    pub const STALE: Self             = Self(1 << 8);
    pub const SKIP_MONITOR: Self      = Self(1 << 9);
    pub const SKIP_SLOWLOG: Self      = Self(1 << 10);
    pub const FAST: Self              = Self(1 << 11);
    pub const NO_AUTH: Self           = Self(1 << 12);
    /// Held by CLIENT PAUSE WRITE, as writes are. Redis has no public name for this flag either.
    pub const MAY_REPLICATE: Self     = Self(1 << 13);
    pub const NO_MULTI: Self          = Self(1 << 14);
    pub const MOVABLEKEYS: Self       = Self(1 << 15);
    pub const ALLOW_BUSY: Self        = Self(1 << 16);
    pub const NO_ASYNC_LOADING: Self  = Self(1 << 17);
    /// Refused while snapshots fail, as writes are. It has no public name.
    pub const TELLS_OF_DISK: Self     = Self(1 << 18);
    /// Runs at once after MULTI, instead of being queued. It has no public name.
    pub const AT_ONCE: Self           = Self(1 << 19);
    /// The argument selects the database of the following commands. It has no public name.
    pub const SELECTS: Self           = Self(1 << 20);
    /// Allowed to subscribed clients in RESP2. It has no public name.
    pub const WHILE_SUBSCRIBED: Self  = Self(1 << 21);
    pub const NO_MANDATORY_KEYS: Self = Self(1 << 22);
    /// Keeps the setting of CLIENT CACHING for the next command. It has no public name.
    pub const KEEPS_CACHING: Self     = Self(1 << 23);
    /// Flags with their names in COMMAND INFO, in the order in which Redis prints them.
    pub const NAMES: &'static [(Self, &'static str)] = &[
        (Self::WRITE, "write"), (Self::READONLY, "readonly"), (Self::DENYOOM, "denyoom"),
        (Self::ADMIN, "admin"), (Self::PUBSUB, "pubsub"), (Self::NOSCRIPT, "noscript"),
        (Self::BLOCKING, "blocking"), (Self::LOADING, "loading"), (Self::STALE, "stale"),
        (Self::SKIP_MONITOR, "skip_monitor"), (Self::SKIP_SLOWLOG, "skip_slowlog"),
        (Self::FAST, "fast"), (Self::NO_AUTH, "no_auth"), (Self::NO_MULTI, "no_multi"),
        (Self::NO_MANDATORY_KEYS, "no_mandatory_keys"), (Self::MOVABLEKEYS, "movablekeys"),
        (Self::ALLOW_BUSY, "allow_busy"), (Self::NO_ASYNC_LOADING, "no_async_loading"),
    ];
}

impl Flags {
    /// The union of both sets of flags.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The flags that are also in `other`.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The flags that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// True when all of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl std::ops::BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.and(other)
    }
}

/// A command's use of a key, as COMMAND GETKEYSANDFLAGS prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFlags(pub &'static [&'static str]);

#[rustfmt::skip] // A table.
#[expect(missing_docs, reason = "the names are the flags' own")]
impl KeyFlags {
    pub const RO: Self        = Self(&["RO"]);
    pub const RO_ACCESS: Self = Self(&["RO", "access"]);
    pub const RW_ACCESS_UPDATE: Self = Self(&["RW", "access", "update"]);
    pub const RW_ACCESS_DELETE: Self = Self(&["RW", "access", "delete"]);
    pub const RW_UPDATE: Self = Self(&["RW", "update"]);
    pub const RW_INSERT: Self = Self(&["RW", "insert"]);
    pub const RW_DELETE: Self = Self(&["RW", "delete"]);
    pub const RW_UPDATE_DELETE: Self = Self(&["RW", "update", "delete"]);
    pub const OW_UPDATE: Self = Self(&["OW", "update"]);
    pub const OW_INSERT: Self = Self(&["OW", "insert"]);
    pub const RM_DELETE: Self = Self(&["RM", "delete"]);
    /// The argument determines a slot, but is not a key.
    pub const NOT_KEY: Self   = Self(&["not_key"]);
}

/// The place of a run of keys among the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named in each variant's line")]
pub enum Place {
    /// From `first` to `last` (negative: from the end), every `step`-th argument.
    Range { first: usize, last: isize, step: usize },
    /// The argument at `count` is the number of keys that follow it.
    Counted { count: usize },
    /// The argument at `count` is the number of pairs of a key and a value that follow it.
    CountedPairs {
        /// Index of the count.
        count: usize,
    },
    /// The keys begin after the last `word`, in any case, searched from the second argument on.
    /// Each word in `skips` is skipped with its arguments.
    After {
        /// The word.
        word: &'static str,
        /// Other words, and the number of arguments after each.
        skips: &'static [(&'static str, usize)],
    },
    /// The keys are not arguments: their names are computed from data.
    Unnamed,
    /// The argument after the first `word`, in any case, searched from index `from` on.
    Keyword {
        /// The word.
        word: &'static str,
        /// The index at which the search starts.
        from: usize,
    },
    /// The first half of the arguments after `word`, searched from index `from` on.
    HalfAfter {
        /// The word, in any case.
        word: &'static str,
        /// The index at which the options start.
        from: usize,
    },
}

/// Most arguments before the word of a [`Place::HalfAfter`].
const OPTIONS_MAX: usize = 64;

/// One run of keys, and their use by the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySpec {
    /// The place of the keys.
    pub place: Place,
    /// The use of the keys.
    pub flags: KeyFlags,
    /// The note that Redis's COMMAND INFO prints, if any.
    pub notes: Option<&'static str>,
}

impl KeySpec {
    /// A run of keys at a place, with their use.
    #[must_use]
    pub const fn new(place: Place, flags: KeyFlags) -> Self {
        Self { place, flags, notes: None }
    }

    /// Adds the note.
    #[must_use]
    pub const fn notes(mut self, notes: &'static str) -> Self {
        self.notes = Some(notes);
        self
    }
}

/// The keys of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys(pub &'static [KeySpec]);

impl Keys {
    /// No keys.
    pub const NONE: Self = Self(&[]);

    /// Indexes of the keys in a request, in order; the command's name has index 0. Missing keys of
    /// a malformed request are left out: the command itself refuses it.
    #[inline]
    pub fn positions<'a>(&'a self, args: resp::Args<'a>) -> impl Iterator<Item = usize> + 'a {
        self.flagged(args).map(|(at, _)| at)
    }

    /// True when the argument at `index` is a key. Cost: O(1) in the number of keys.
    #[must_use]
    pub fn has(&self, args: resp::Args<'_>, index: usize) -> bool {
        self.0.iter().any(|spec| {
            let (first, last, step) = spec.place.bounds(args);
            (first..last).contains(&index) && (index - first).is_multiple_of(step)
        })
    }

    /// [`Keys::positions`], each with the key's use. Runs for every request, hence one plain loop.
    #[inline]
    pub fn flagged<'a>(
        &'a self,
        args: resp::Args<'a>,
    ) -> impl Iterator<Item = (usize, KeyFlags)> + 'a {
        let (mut specs, mut flags) = (self.0.iter(), KeyFlags(&[]));
        let (mut at, mut last, mut step) = (0, 0, 0);
        std::iter::from_fn(move || {
            while at >= last {
                let spec = specs.next()?;
                flags = spec.flags;
                (at, last, step) = spec.place.bounds(args);
            }
            at += step;
            Some((at - step, flags))
        })
    }
}

impl Place {
    /// True unless a count is 0 or exceeds the arguments. The count is parsed as Redis does here,
    /// which differs from the command's own parsing: `1.5` is 1.
    #[must_use]
    pub fn is_whole(self, args: resp::Args<'_>) -> bool {
        let (count, step) = match self {
            Self::Range { .. } | Self::After { .. } | Self::Keyword { .. } | Self::Unnamed => {
                return true;
            }
            Self::Counted { count } => (count, 1),
            Self::CountedPairs { count } => (count, 2),
            Self::HalfAfter { word, from } => {
                let left = args.len() - after_word(args, word, from);
                return left > 0 && left.is_multiple_of(2);
            }
        };
        if count >= args.len() {
            return false;
        }
        let keys = usize::try_from(leading_i32(args.get(count))).unwrap_or(0);
        keys > 0 && keys.saturating_mul(step) < args.len() - count
    }

    /// The first index, the end index, and the step.
    #[inline]
    fn bounds(self, args: resp::Args<'_>) -> (usize, usize, usize) {
        let len = args.len();
        match self {
            Self::Range { first, last, step } => {
                let last = match usize::try_from(last) {
                    Ok(last) => last + 1,
                    Err(_) => (len + 1).saturating_sub(last.unsigned_abs()),
                };
                (first, last.min(len), step)
            }
            Self::Counted { count } => counted(args, count, 1),
            Self::CountedPairs { count } => counted(args, count, 2),
            Self::After { word, skips } => after(args, word, skips),
            Self::Unnamed => (0, 0, 1),
            Self::Keyword { word, from } => {
                let is_word = |at: &usize| args.head(*at).eq_ignore_ascii_case(word.as_bytes());
                let key = (from..len).find(is_word).map_or(len, |at| at + 1);
                (key, (key + 1).min(len), 1)
            }
            Self::HalfAfter { word, from } => {
                let first = after_word(args, word, from);
                (first, first + (len - first) / 2, 1)
            }
        }
    }
}

/// The bounds of the argument after the last `word`, searched as Redis does.
#[cold]
fn after(args: resp::Args<'_>, word: &str, skips: &[(&str, usize)]) -> (usize, usize, usize) {
    let is = |at: usize, word: &str| args.head(at).eq_ignore_ascii_case(word.as_bytes());
    let (mut found, mut at) = (0..0, 2);
    while at < args.len() {
        match skips.iter().find(|(other, _)| is(at, other)) {
            Some((_, count)) => at += count,
            None if is(at, word) && at + 1 < args.len() => found = at + 1..at + 2,
            None => {}
        }
        at += 1;
    }
    (found.start, found.end, 1)
}

/// The index after a word; the number of arguments if the word is missing.
fn after_word(args: resp::Args<'_>, word: &str, from: usize) -> usize {
    let len = args.len();
    let is_word = |at: &usize| args.head(*at).eq_ignore_ascii_case(word.as_bytes());
    (from..len.min(from + OPTIONS_MAX)).find(is_word).map_or(len, |at| at + 1)
}

/// The bounds of the keys counted by the argument at `count`, each followed by `step - 1` other
/// arguments. An invalid count may still name keys; the command then refuses it on the core of one
/// of them.
fn counted(args: resp::Args<'_>, count: usize, step: usize) -> (usize, usize, usize) {
    let len = args.len();
    let keys = if count < len { leading_i32(args.get(count)) } else { 0 };
    let keys = usize::try_from(keys).unwrap_or(0);
    (count + 1, (count + 1).saturating_add(keys.saturating_mul(step)).min(len), step)
}

/// The arguments of a command that are secret: passwords.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Secret {
    /// All arguments.
    All,
    /// The next `count` after each argument that equals `word`, in any case.
    After {
        /// The word.
        word: &'static str,
        /// The number of secret arguments after it.
        count: usize,
    },
}

impl Secret {
    /// True if the argument at index `at` of a request is secret; the command's name has index 0.
    #[must_use]
    pub fn hides(self, args: resp::Args<'_>, at: usize) -> bool {
        match self {
            Self::All => at > 0,
            Self::After { word, count } => (at.saturating_sub(count).max(1)..at)
                .any(|before| args.get(before).eq_ignore_ascii_case(word.as_bytes())),
        }
    }
}

/// Computes the use of a request's keys from its arguments.
pub type FlagsFn = fn(resp::Args<'_>) -> KeyFlags;
/// A command that touches one key, or keys of one shard.
pub type PointFn = fn(&mut Cx<'_>, Args<'_>) -> Result<Flow, Refusal>;
/// A command over several keys.
pub type MultiFn = fn(Call) -> MultiFuture;

/// The shape of a command's execution.
#[derive(Clone, Copy)]
pub enum Run {
    /// Runs on the shard that owns the key.
    Point(PointFn),
    /// Coordinated: the keys may be on several cores. If all keys are on one core, and at most
    /// `ENTRIES_AT_ONCE`, `here` runs there instead, as a point command.
    Multi {
        /// The command for keys of one shard.
        here: Option<PointFn>,
        /// The command for keys on any cores.
        anywhere: MultiFn,
    },
    /// Concerns the connection or the server: the function is in the server's own table.
    Server,
}

/// The shape in which COMMAND DOCS shows [`Run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// [`Run::Point`].
    Point,
    /// [`Run::Multi`].
    Multi,
    /// [`Run::Server`].
    Server,
}

/// The row of one command.
#[derive(Clone, Copy)]
pub struct Command {
    /// Lower case; `parent|sub` for a subcommand.
    pub name: &'static str,
    /// The first version of Redis, or of another server, that had the command.
    pub since: &'static str,
    /// As in Redis: the exact number of arguments, name included; negative: at least this many.
    pub arity: i32,
    /// Properties.
    pub flags: Flags,
    /// Keys.
    pub keys: Keys,
    /// The use of a request's keys, if their specs say `variable_flags`.
    pub key_flags: Option<FlagsFn>,
    /// Group.
    pub group: Group,
    /// One line, for COMMAND DOCS.
    pub summary: &'static str,
    /// Cost, for COMMAND DOCS.
    pub complexity: &'static str,
    /// The arguments, for COMMAND DOCS, in the notation of [`crate::syntax`].
    pub syntax: &'static str,
    /// Versions and their changes, for COMMAND DOCS.
    pub history: &'static [(&'static str, &'static str)],
    /// Tips of COMMAND INFO, such as `nondeterministic_output`.
    pub tips: &'static [&'static str],
    /// ACL categories beyond those implied by flags and group, each with its `@`.
    pub categories: &'static [&'static str],
    /// The flags that COMMAND DOCS prints.
    pub doc_flags: &'static [&'static str],
    /// Index of the first field or member, which is prefetched; or of a pattern, which is gathered
    /// like a long name. The command's name has index 0.
    pub element: Option<usize>,
    /// Arguments that MONITOR and SLOWLOG hide.
    pub secret: Option<Secret>,
    /// The version that deprecated it, and its replacement.
    pub deprecated: Option<(&'static str, &'static str)>,
    /// The command may change keys of another database than the selected one.
    pub leaves_database: bool,
    /// Reads the wait of a request, for a blocking command. The row's function runs it without
    /// blocking.
    pub waits: Option<WaitFn>,
    /// How the command runs.
    pub run: Run,
}

impl Command {
    /// A row of a command that touches keys; the methods below add the rest.
    #[must_use]
    pub const fn new(
        name: &'static str,
        since: &'static str,
        arity: i32,
        flags: Flags,
        keys: Keys,
        group: Group,
        run: Run,
    ) -> Self {
        let (summary, complexity) = ("", "");
        Self {
            name,
            since,
            arity,
            flags,
            keys,
            key_flags: None,
            group,
            summary,
            complexity,
            syntax: "",
            history: &[],
            tips: &[],
            categories: &[],
            doc_flags: &[],
            element: None,
            secret: None,
            deprecated: None,
            leaves_database: false,
            waits: None,
            run,
        }
    }

    /// Adds the texts of COMMAND DOCS.
    #[must_use]
    pub const fn doc(mut self, summary: &'static str, complexity: &'static str) -> Self {
        self.summary = summary;
        self.complexity = complexity;
        self
    }

    /// Adds the arguments, in the notation of [`crate::syntax`].
    #[must_use]
    pub const fn syntax(mut self, syntax: &'static str) -> Self {
        self.syntax = syntax;
        self
    }

    /// Adds the function that computes the key flags of a request.
    #[must_use]
    pub const fn key_flags(mut self, flags: FlagsFn) -> Self {
        self.key_flags = Some(flags);
        self
    }

    /// Adds the function that reads the wait.
    #[must_use]
    pub const fn waits(mut self, waits: WaitFn) -> Self {
        self.waits = Some(waits);
        self
    }

    /// Adds the history: versions and their changes.
    #[must_use]
    pub const fn history(mut self, history: &'static [(&'static str, &'static str)]) -> Self {
        self.history = history;
        self
    }

    /// Adds tips.
    #[must_use]
    pub const fn tips(mut self, tips: &'static [&'static str]) -> Self {
        self.tips = tips;
        self
    }

    /// Marks the command as deprecated since a version, and names its replacement.
    #[must_use]
    pub const fn deprecated(mut self, since: &'static str, instead: &'static str) -> Self {
        self.doc_flags = &["deprecated"];
        self.deprecated = Some((since, instead));
        self
    }

    /// Marks a command that may change keys of another database than the selected one.
    #[must_use]
    pub const fn leaves_database(mut self) -> Self {
        self.leaves_database = true;
        self
    }

    /// True when a request may touch keys that it does not name, or changes data that belongs to no
    /// key.
    #[must_use]
    pub fn locks_all(&self) -> bool {
        let is_unnamed = |spec: &KeySpec| spec.place == Place::Unnamed;
        let is_over_all = self.keys.0.is_empty() || self.keys.0.iter().any(is_unnamed);
        match self.run {
            _ if self.leaves_database => true,
            Run::Multi { .. } => is_over_all,
            Run::Server => self.is_write(),
            Run::Point(_) => false,
        }
    }

    /// Marks the command as internal.
    #[must_use]
    pub const fn system(mut self) -> Self {
        self.doc_flags = &["syscmd"];
        self
    }

    /// Adds ACL categories.
    #[must_use]
    pub const fn categories(mut self, categories: &'static [&'static str]) -> Self {
        self.categories = categories;
        self
    }

    /// Marks the command as naming fields or members, beginning after its key.
    #[must_use]
    pub const fn elements(self) -> Self {
        self.elements_from(2)
    }

    /// Marks the command as naming fields or members, beginning at `index` (the name has index 0).
    #[must_use]
    pub const fn elements_from(mut self, index: usize) -> Self {
        self.element = Some(index);
        self
    }

    /// Returns a test for whether the argument at an index is a name: a key, a field or a member.
    /// Fields begin at the row's element, or, if the syntax has `FIELDS`, after it and the count.
    /// If each name is followed by a value or a message, those are skipped. Any arguments after the
    /// names count as names, too.
    pub fn names<'a>(&'a self, args: resp::Args<'a>) -> impl Fn(usize) -> bool + 'a {
        /// No command has more options before its fields.
        const FIELDS_BEFORE: usize = 8;
        let is_fields = |at: &usize| args.head(*at).eq_ignore_ascii_case(b"FIELDS");
        let fields = || (2..args.len().min(FIELDS_BEFORE)).find(is_fields).map(|at| at + 2);
        let has_fields = self.syntax.contains("FIELDS");
        let first = self.element.or_else(|| has_fields.then(fields).flatten());
        let has_values = self.syntax.contains("value") || self.syntax.contains("message");
        let width = if has_values { 2 } else { 1 };
        move |at| {
            let after = first.and_then(|first| at.checked_sub(first));
            after.is_some_and(|after| after.is_multiple_of(width)) || self.keys.has(args, at)
        }
    }

    /// Marks some arguments as secret.
    #[must_use]
    pub const fn secret(mut self, secret: Secret) -> Self {
        self.secret = Some(secret);
        self
    }

    /// The argument at `at` as it may be shown: secrets are hidden.
    #[must_use]
    pub fn shown<'a>(&self, args: resp::Args<'a>, at: usize) -> resp::Arg<'a> {
        match self.secret {
            Some(secret) if secret.hides(args, at) => resp::Arg::Bytes(b"(redacted)"),
            _ => args.arg(at),
        }
    }

    /// True if a request of `args` arguments (name included) has the right arity.
    #[must_use]
    pub fn accepts(&self, args: usize) -> bool {
        let args = i64::try_from(args).unwrap_or(i64::MAX);
        let arity = i64::from(self.arity);
        if arity >= 0 { args == arity } else { args >= -arity }
    }

    /// True if the command changes data.
    #[must_use]
    pub fn is_write(&self) -> bool {
        self.flags.has(Flags::WRITE)
    }

    /// The shape.
    #[must_use]
    pub fn shape(&self) -> Shape {
        match self.run {
            Run::Point(_) => Shape::Point,
            Run::Multi { .. } => Shape::Multi,
            Run::Server => Shape::Server,
        }
    }
}

/// The key specs that rows share: one run of keys each.
#[rustfmt::skip] // A table.
#[expect(missing_docs, reason = "named by their place and flags")]
pub mod specs {
    use super::{KeyFlags, KeySpec, Keys, Place};

    const fn range(first: usize, last: isize, step: usize, flags: KeyFlags) -> KeySpec {
        KeySpec::new(Place::Range { first, last, step }, flags)
    }
    macro_rules! first { ($($name:ident = $flags:ident;)*) => { $(
        pub const $name: Keys = Keys(&[range(1, 1, 1, KeyFlags::$flags)]);
    )* } }
    macro_rules! all { ($($name:ident = $flags:ident;)*) => { $(
        pub const $name: Keys = Keys(&[range(1, -1, 1, KeyFlags::$flags)]);
    )* } }
    first! {
        ONE_RO = RO; ONE_RO_ACCESS = RO_ACCESS; ONE_RW_ACCESS_UPDATE = RW_ACCESS_UPDATE;
        ONE_RW_ACCESS_DELETE = RW_ACCESS_DELETE; ONE_RW_UPDATE = RW_UPDATE;
        ONE_RW_INSERT = RW_INSERT; ONE_RW_DELETE = RW_DELETE; ONE_OW_UPDATE = OW_UPDATE;
        ONE_OW_INSERT = OW_INSERT; ONE_RM_DELETE = RM_DELETE;
        ONE_RW_UPDATE_DELETE = RW_UPDATE_DELETE;
    }
    all! { ALL_RO = RO; ALL_RO_ACCESS = RO_ACCESS; ALL_RM_DELETE = RM_DELETE; }
}
