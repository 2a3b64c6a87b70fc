//! What a script has published: it leaves when the script has ended, as nobody may hear of what could
//! be undone.
//!
//! In Redis all that one script publishes gathers in the buffers of its receivers, as nothing is sent
//! meanwhile, and `client-output-buffer-limit` closes those who are owed too much. Here it gathers once:
//!
//! ```text
//! channel a:  message  message  excess      (beyond the hard limit: its receivers are closed)
//! channel b:  message  message  message
//! channel c:                                (nobody receives it: nothing is kept)
//! ```
//! So nobody is owed more by a channel than there. Invariants: the account is the sum of what is kept,
//! and at most [`BYTES_MAX`].

use super::Kind;
use super::name::{Message, Name};
use darter_base::lazyfree::{self, Dismantle};
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// What the messages of one script may take, where no limit of clients is below: what a script itself
/// may use.
const BYTES_MAX: usize = 1 << 30;
/// What a message takes beside its texts: its entry, and what their allocations cost.
const MESSAGE_BYTES: usize = size_of::<Message>() + 64;
/// What a channel takes beside its name.
const CHANNEL_BYTES: usize = 2 * size_of::<((Kind, Name), Option<usize>)>();
/// Messages of a block: what grows, moves or is freed in one step.
const BLOCK: usize = 256;

/// There is no room for a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// See the module.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// In the order in which they were published.
    blocks: VecDeque<Vec<Message>>,
    /// What the subscribers of each channel are owed; none after its excess.
    channels: Channels,
    kept_bytes: usize,
    /// What all outboxes of this core and kind keep.
    account: Rc<Cell<usize>>,
}

/// By their kinds and their names.
type Channels = BTreeMap<(Kind, Name), Option<usize>>;

impl Outbox {
    /// An empty one.
    pub(crate) fn new(account: Rc<Cell<usize>>) -> Self {
        let (blocks, channels) = (VecDeque::new(), Channels::new());
        Self { blocks, channels, kept_bytes: 0, account }
    }

    /// Keeps a message which somebody receives; a subscriber may be owed less than `owed_max`, or
    /// anything if that is 0. Cost: O(log channels).
    ///
    /// # Errors
    /// There is no room.
    pub(crate) fn keep(&mut self, message: Message, owed_max: usize) -> Result<(), Full> {
        let is_kept = |bytes: usize| self.kept_bytes + bytes + CHANNEL_BYTES <= BYTES_MAX;
        if !is_kept(held_bytes(&message)) {
            return Err(Full);
        }
        let channels = self.channels.len();
        let owed = self.channels.entry((message.kind, message.channel.clone()));
        let owed = owed.or_insert(Some(0));
        let Some(sum) = owed else { return Ok(()) };
        *sum += message.sent_bytes();
        let is_excess = owed_max > 0 && *sum >= owed_max;
        if is_excess {
            *owed = None;
        }
        let message = if is_excess { message.into_excess() } else { message };
        let of_channel = (self.channels.len() - channels) * CHANNEL_BYTES;
        self.count(held_bytes(&message) + of_channel);
        if self.blocks.back().is_none_or(|block| block.len() == BLOCK) {
            self.blocks.push_back(Vec::new());
        }
        self.blocks.back_mut().expect("there is one").push(message);
        Ok(())
    }

    /// The next messages, in the order in which they were published.
    pub(crate) fn take(&mut self) -> Option<Vec<Message>> {
        let block = self.blocks.pop_front()?;
        let bytes: usize = block.iter().map(held_bytes).sum();
        self.kept_bytes -= bytes;
        self.account.set(self.account.get() - bytes);
        Some(block)
    }

    fn count(&mut self, bytes: usize) {
        self.kept_bytes += bytes;
        self.account.set(self.account.get() + bytes);
    }
}

/// What a message takes that is kept.
fn held_bytes(message: &Message) -> usize {
    MESSAGE_BYTES + message.channel.text().len() + message.payload.len()
}

impl Drop for Outbox {
    #[expect(clippy::mutable_key_type, reason = "a name's bytes stay: it notes where they are")]
    fn drop(&mut self) {
        self.account.set(self.account.get() - self.kept_bytes);
        let blocks = std::mem::take(&mut self.blocks);
        let channels = std::mem::take(&mut self.channels);
        if blocks.len() > 1 || channels.len() > BLOCK {
            lazyfree::defer(Box::new(Unsent { blocks, channels, bytes: self.kept_bytes }));
        }
    }
}

/// What was in an outbox, while it is freed.
struct Unsent {
    blocks: VecDeque<Vec<Message>>,
    channels: Channels,
    bytes: usize,
}

impl Dismantle for Unsent {
    fn dismantle(&mut self) -> bool {
        if let Some(block) = self.blocks.pop_front() {
            self.bytes -= block.iter().map(held_bytes).sum::<usize>();
            return true;
        }
        (0..BLOCK).all(|_| self.channels.pop_first().is_some())
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::name::Text;
    use super::*;
    use darter_base::preempt::Never;

    fn message(channel: &str, bytes: usize) -> Message {
        let payload = Text::Short(vec![b'x'; bytes].into());
        Message::new(Kind::Channel, Name::from_bytes(channel.as_bytes()), payload)
    }

    fn outbox() -> (Outbox, Rc<Cell<usize>>) {
        let account = Rc::new(Cell::new(5));
        (Outbox::new(Rc::clone(&account)), account)
    }

    #[test] // In its order, and each channel up to the limit: what follows is one excess.
    fn a_channel_is_owed_so_much() {
        let (mut outbox, account) = outbox();
        for (channel, bytes) in [("a", 400), ("b", 1), ("a", 500), ("a", 100), ("a", 1), ("b", 2)] {
            assert_eq!(outbox.keep(message(channel, bytes), 1_000), Ok(()));
        }
        let blocks: Vec<Message> = std::iter::from_fn(|| outbox.take()).flatten().collect();
        let is_of = |message: &Message| {
            let channel = String::from_utf8_lossy(message.channel.bytes()).into_owned();
            (channel, message.payload.len(), message.is_excess)
        };
        let expected = [("a", 400, false), ("b", 1, false), ("a", 500, false), ("a", 0, true)];
        let expected = expected.into_iter().chain([("b", 2, false)]);
        let got = blocks.iter().map(is_of);
        assert!(got.eq(expected.map(|(name, bytes, is)| (name.to_owned(), bytes, is))));
        assert_eq!(account.get(), 5 + 2 * CHANNEL_BYTES, "of the channels");
        drop(outbox);
        assert_eq!(account.get(), 5);
    }

    #[test] // Without a limit of clients there is still one; what is kept is freed in portions.
    fn all_together_have_a_limit() {
        const MIB: usize = 1 << 20;
        let (mut outbox, account) = outbox();
        let payload: std::sync::Arc<[u8]> = vec![b'x'; MIB].into();
        let mut kept = 0;
        let next = |at: usize| {
            let channel = Name::from_bytes(&at.to_le_bytes());
            Message::new(Kind::Shard, channel, Text::Short(std::sync::Arc::clone(&payload)))
        };
        while outbox.keep(next(kept), 0).is_ok() {
            kept += 1;
        }
        assert_eq!((kept, outbox.blocks.len()), (1_023, 4));
        assert!((1_023 * MIB..BYTES_MAX).contains(&account.get()), "{}", account.get());
        drop(outbox);
        assert_eq!(account.get(), 5);
        assert!(lazyfree::waiting().1 >= 1_023 * MIB);
        assert!(!lazyfree::run(&Never) && lazyfree::is_empty());
        assert_eq!(std::sync::Arc::strong_count(&payload), 1);
    }
}
