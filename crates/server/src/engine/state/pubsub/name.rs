//! The names of channels and patterns, and the texts of messages.
//!
//! All holders share one copy. A long text stays in the blocks of its request: it is not copied, it
//! is not freed in one step, and it is sent without a copy.

use super::SubscriptionKind;
use crate::listeners::PREFIXES;
use darter_keyspace::ServerAct;
use darter_resp::{Arg, Args, Output, Request};
use darter_tx::CoreId;
use std::cmp::Ordering;
use std::sync::Arc;

/// The shared bytes of a name or a message.
#[derive(Clone, Debug)]
pub(crate) enum Text {
    /// A short text, at most one block long.
    Short(Arc<[u8]>),
    /// A long text: the argument of a request, by index.
    Long(Arc<Request>, usize),
}

impl Text {
    /// The argument at index `at`. Cost: O(1), or a copy of a short argument.
    pub(crate) fn of(args: Args<'_>, at: usize) -> Self {
        match args.arg(at) {
            Arg::Bytes(bytes) => Self::Short(bytes.into()),
            Arg::Chunks { .. } => Self::Long(args.to_request(), at),
        }
    }

    /// The bytes in one piece. Cost: O(1) for names, because a long name is copied into one piece
    /// before its command runs.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(bytes) => bytes,
            Self::Long(request, at) => Args::owned(request).get(*at),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Short(bytes) => bytes.len(),
            Self::Long(request, at) => Args::owned(request).arg(*at).len(),
        }
    }

    /// Appends the text to the output. A long text is not copied.
    pub(crate) fn write(&self, out: &mut Output) {
        match self {
            Self::Short(bytes) => out.share(bytes, 0..bytes.len()),
            Self::Long(request, at) => match Args::owned(request).arg(*at) {
                Arg::Bytes(bytes) => out.copy(bytes),
                Arg::Chunks { chunks, .. } => {
                    chunks.iter().for_each(|chunk| out.share(chunk, 0..chunk.len()));
                }
            },
        }
    }
}

/// The name of a channel or a pattern. Names are ordered by hash; only names with equal hashes are
/// compared byte by byte.
#[derive(Clone, Debug)]
pub(crate) struct Name {
    hash: u64,
    text: Text,
}

impl Name {
    /// The argument at index `at` as a name.
    pub(crate) fn of(args: Args<'_>, at: usize) -> Self {
        Self { hash: args.hash(at), text: Text::of(args, at) }
    }

    /// A name that the server itself makes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self { hash: darter_base::hash::of(bytes), text: Text::Short(bytes.into()) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.text.bytes()
    }

    pub(crate) fn text(&self) -> &Text {
        &self.text
    }

    /// The home of this channel among `cores` cores.
    pub(crate) fn home(&self, cores: usize) -> CoreId {
        home(self.bytes(), self.hash, cores)
    }

    /// Bytes of memory that one subscription to this name takes, on the subscriber's core and on
    /// the home: the text, and entries in trees whose nodes are two thirds full.
    pub(crate) fn held_bytes(&self) -> usize {
        const ENTRIES: usize = 3 * (size_of::<Name>() + size_of::<u64>()) * 3 / 2;
        const ALLOCATED: usize = 4 * size_of::<usize>();
        ENTRIES + ALLOCATED + self.text.len()
    }
}

/// The home of all channels of keyspace events.
pub(crate) const EVENTS_HOME: CoreId = 0;

/// The home of the channel with this name and hash. All event channels have the same home, so that
/// the events of a key keep their order.
pub(crate) fn home(name: &[u8], hash: u64, cores: usize) -> CoreId {
    let is_of_events = PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    if is_of_events { EVENTS_HOME } else { (hash % cores as u64) as CoreId }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.hash.cmp(&other.hash).then_with(|| {
            let (one, other) = (self.bytes(), other.bytes());
            one.cmp(other)
        })
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Name {}

/// A published message.
#[derive(Debug)]
pub(crate) struct Message {
    /// [`SubscriptionKind::Channel`] or [`SubscriptionKind::Shard`].
    pub(crate) kind: SubscriptionKind,
    pub(crate) channel: Name,
    pub(crate) payload: Text,
    /// True if this message replaces messages that exceed the output limit of the receivers.
    /// Delivering it closes the receivers.
    pub(crate) is_excess: bool,
}

impl Message {
    /// A message with these bytes.
    pub(crate) fn new(kind: SubscriptionKind, channel: Name, payload: Text) -> Self {
        Self { kind, channel, payload, is_excess: false }
    }

    /// The message that replaces this one and all later ones of its channel, because they exceed
    /// the output limit.
    pub(crate) fn into_excess(self) -> Self {
        Self { payload: Text::Short([].into()), is_excess: true, ..self }
    }

    /// The approximate number of bytes that a subscriber of the channel receives.
    pub(crate) fn sent_bytes(&self) -> usize {
        const FRAME: usize = 32; // Three lengths and the word `message`.
        FRAME + self.channel.text().len() + self.payload.len()
    }
}

impl ServerAct for Message {
    fn held_bytes(&self) -> usize {
        self.channel.text().len() + self.payload.len()
    }

    fn is_of_all(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that has the same hash as all other names made here.
    fn colliding(bytes: &[u8]) -> Name {
        Name { hash: 7, text: Text::Short(bytes.into()) }
    }

    #[test]
    fn names_with_equal_hashes_are_compared_by_their_bytes() {
        assert!(colliding(b"a") < colliding(b"b"));
        assert_eq!(colliding(b"a"), colliding(b"a"));
        assert_ne!(Name::from_bytes(b"a"), Name::from_bytes(b"b"));
    }

    #[test] // A short text is copied.
    fn a_long_text_is_shared_with_its_request() {
        let request = Arc::new(Request::from_args([&b"PUBLISH"[..], b"c", &[b'x'; 100_000]]));
        let args = Args::owned(&request);
        let (name, text) = (Name::of(args, 1), Text::of(args, 2));
        assert_eq!((name.bytes(), text.len()), (&b"c"[..], 100_000));
        let mut out = Output::default();
        text.write(&mut out);
        assert_eq!(out.flatten(), vec![b'x'; 100_000]);
        assert!(name.held_bytes() > 100);
        assert_eq!((name.home(1), Name::from_bytes(b"c").home(3)), (0, home(b"c", name.hash, 3)));
        let events = [&b"__keyspace@0__:k"[..], b"__keyevent@3__:set"];
        assert_eq!(events.map(|name| Name::from_bytes(name).home(8)), [0, 0]);
    }
}
