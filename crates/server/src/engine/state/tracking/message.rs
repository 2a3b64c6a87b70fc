//! Encodes invalidations: as pushes in RESP3, and as messages of the channel `__redis__:invalidate`
//! in RESP2.

use super::Touch;
use darter_command::Stream;
use darter_keyspace::Name;
use darter_resp::{Output, Reply};
use std::sync::Arc;

/// An invalidation up to this size is encoded at once. For a longer one, the names are streamed.
const SHORT_BYTES: usize = 16 * 1024;

/// The keys that are not valid any more.
#[derive(Debug)]
pub(crate) enum Invalidation {
    /// The keys in the list are not valid any more.
    Keys(Box<[Touch]>),
    /// All keys.
    All,
}

/// A message to a client: its encoded beginning, and a stream of the rest.
pub(crate) type Push = (Output, Option<Box<dyn Stream>>);

impl Invalidation {
    /// The invalidation of one key that client `author` has touched (0 if the author may be
    /// notified, too).
    pub(crate) fn of(name: Name, author: u64) -> Arc<Self> {
        Arc::new(Self::Keys(Box::new([(Arc::new(name), author)])))
    }

    /// The invalidation without the keys that `client` itself has changed, for NOLOOP. Returns the
    /// same message if the client has changed none of the keys, and `None` if it has changed all of
    /// them.
    pub(crate) fn without(self: &Arc<Self>, client: u64) -> Option<Arc<Self>> {
        let Self::Keys(keys) = &**self else { return Some(Arc::clone(self)) };
        let is_own = |(_, author): &&Touch| *author == client;
        if !keys.iter().any(|touch| is_own(&touch)) {
            return Some(Arc::clone(self));
        }
        let others: Box<[Touch]> = keys.iter().filter(|touch| !is_own(touch)).cloned().collect();
        (!others.is_empty()).then(|| Arc::new(Self::Keys(others)))
    }

    /// Encodes the invalidation.
    pub(crate) fn encode(self: &Arc<Self>, resp3: bool) -> Push {
        let mut out = Output::default();
        let mut reply = Reply::new(&mut out, resp3);
        if resp3 {
            reply.push(2);
            reply.bulk(b"invalidate");
        } else {
            reply.push(3);
            reply.bulk(b"message");
            reply.bulk(b"__redis__:invalidate");
        }
        let Self::Keys(keys) = &**self else {
            reply.null();
            return (out, None);
        };
        reply.array(keys.len());
        if keys.iter().map(|(name, _)| name.len()).sum::<usize>() <= SHORT_BYTES {
            keys.iter().for_each(|(name, _)| reply.bulk(name));
            return (out, None);
        }
        (out, Some(Box::new(Names { message: Arc::clone(self), next: 0, at: 0 })))
    }
}

/// The message to a client that the target of its redirection, the client with the id `redirect`,
/// has gone.
pub(crate) fn broken(redirect: u64) -> Push {
    let mut out = Output::default();
    let mut reply = Reply::new(&mut out, true);
    reply.push(2);
    reply.bulk(b"tracking-redir-broken");
    reply.int(i64::try_from(redirect).unwrap_or(i64::MAX));
    (out, None)
}

/// A stream of the names that were not sent yet.
struct Names {
    message: Arc<Invalidation>,
    next: usize,
    /// The number of bytes of the next name that were sent already.
    at: usize,
}

impl Stream for Names {
    fn pump(&mut self, reply: &mut Reply<'_>) -> bool {
        let Invalidation::Keys(keys) = &*self.message else { return false };
        let (name, _) = &keys[self.next];
        if self.at == 0 {
            reply.bulk_header(name.len());
        }
        let end = name.len().min(self.at + SHORT_BYTES);
        reply.out.copy(&name[self.at..end]);
        self.at = end;
        if end == name.len() {
            reply.crlf();
            (self.next, self.at) = (self.next + 1, 0);
        }
        self.next < keys.len()
    }

    fn held_bytes(&self) -> usize {
        let Invalidation::Keys(keys) = &*self.message else { return 0 };
        keys[self.next..].iter().map(|(name, _)| name.len()).sum::<usize>() - self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(message: &Arc<Invalidation>, resp3: bool) -> Vec<u8> {
        let (mut out, rest) = message.encode(resp3);
        if let Some(mut rest) = rest {
            let held = rest.held_bytes();
            let begun = out.len();
            while rest.pump(&mut Reply::new(&mut out, resp3)) {}
            assert!(out.len() - begun >= held, "{held} were held");
        }
        out.flatten()
    }

    #[test] // The messages invalidate one key, or all keys.
    fn invalidations_are_encoded_in_both_protocols() {
        let key = Invalidation::of(Name::from(&b"k"[..]), 0);
        assert_eq!(text(&key, true), b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n");
        let head = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n";
        assert_eq!(text(&key, false), format!("{head}*1\r\n$1\r\nk\r\n").into_bytes());
        let all = Arc::new(Invalidation::All);
        assert_eq!(text(&all, true), b">2\r\n$10\r\ninvalidate\r\n_\r\n");
        assert_eq!(text(&all, false), format!("{head}$-1\r\n").into_bytes());
        assert_eq!(broken(7).0.flatten(), b">2\r\n$21\r\ntracking-redir-broken\r\n:7\r\n");
    }

    #[test] // No message is sent if only own changes are in it.
    fn noloop_leaves_out_the_clients_own_changes() {
        let touch = |name: &[u8], author| (Arc::new(Name::from(name)), author);
        let both = Arc::new(Invalidation::Keys(Box::new([touch(b"a", 7), touch(b"b", 8)])));
        let Some(Invalidation::Keys(others)) =
            both.without(7).as_deref().map(|message| match message {
                Invalidation::Keys(keys) => Invalidation::Keys(keys.clone()),
                Invalidation::All => Invalidation::All,
            })
        else {
            panic!("one is left")
        };
        assert_eq!((others.len(), &**others[0].0), (1, &b"b"[..]));
        assert!(Arc::ptr_eq(&both, &both.without(9).unwrap()), "it is shared");
        assert!(Invalidation::of(Name::from(&b"a"[..]), 7).without(7).is_none());
    }

    #[test] // A name of a megabyte is not copied in one step.
    fn long_key_names_of_an_invalidation_are_streamed() {
        let name = vec![b'n'; 1 << 20];
        let message = Invalidation::of(Name::from(&name[..]), 0);
        let (out, rest) = message.encode(true);
        assert!(out.len() < 100 && rest.is_some());
        let whole = [b">2\r\n$10\r\ninvalidate\r\n*1\r\n$1048576\r\n", &name[..], b"\r\n"].concat();
        assert!(text(&message, true) == whole);
    }
}
