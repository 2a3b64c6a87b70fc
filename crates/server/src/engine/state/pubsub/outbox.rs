//! The messages that a running script has published. They are sent when the script has ended,
//! because the writes of a killed script are undone and its messages dropped.
//!
//! In Redis, the messages of a script gather in the output buffers of the receivers, and
//! `client-output-buffer-limit` closes a receiver with too many. Here each message is kept once,
//! before it is sent:
//!
//! ```text
//! channel a:  message  message  excess      (hard limit exceeded: closes the receivers)
//! channel b:  message  message  message
//! channel c:                                (no receivers: its messages are not kept)
//! ```
//! So a channel adds no more to the output of a client than in Redis. Invariant: the account is the
//! sum of the bytes of all kept messages, and at most [`BYTES_MAX`].

use super::SubscriptionKind;
use super::name::{Message, Name};
use darter_base::lazyfree;
use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// The limit of the messages of one script, if no output limit is lower. It equals the limit of a
/// script's memory.
const BYTES_MAX: usize = 1 << 30;
/// Bytes of a kept message without its texts: its entry, and the overhead of two allocations.
const MESSAGE_BYTES: usize = size_of::<Message>() + 64;
/// Bytes of a channel's entry without its name.
const CHANNEL_BYTES: usize = 2 * size_of::<((SubscriptionKind, Name), Option<usize>)>();
/// Messages in one block. A block grows, moves or is freed in one step.
const BLOCK: usize = 256;

/// The error that there is no room for a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// The messages that a script has published so far.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// The messages in the order of publication.
    blocks: VecDeque<Vec<Message>>,
    /// By channel: the bytes that each subscriber would receive; `None` after the message that
    /// replaces the excess.
    channels: Channels,
    kept_bytes: usize,
    /// The sum of the bytes of all outboxes on this core.
    account: Rc<Cell<usize>>,
}

/// The channels, by kind and name.
type Channels = BTreeMap<(SubscriptionKind, Name), Option<usize>>;

impl Outbox {
    /// Creates an empty outbox.
    pub(crate) fn new(account: Rc<Cell<usize>>) -> Self {
        let (blocks, channels) = (VecDeque::new(), Channels::new());
        Self { blocks, channels, kept_bytes: 0, account }
    }

    /// Keeps a message that has receivers. `output_max` is the output limit of the receivers, 0 for
    /// none. Cost: O(log channels).
    ///
    /// # Errors
    /// The error: there is no room for the message.
    pub(crate) fn keep(&mut self, message: Message, output_max: usize) -> Result<(), Full> {
        let is_kept = |bytes: usize| self.kept_bytes + bytes + CHANNEL_BYTES <= BYTES_MAX;
        if !is_kept(held_bytes(&message)) {
            return Err(Full);
        }
        let channels = self.channels.len();
        let owed = self.channels.entry((message.kind, message.channel.clone()));
        let owed = owed.or_insert(Some(0));
        let Some(sum) = owed else { return Ok(()) };
        *sum += message.sent_bytes();
        let is_excess = output_max > 0 && *sum >= output_max;
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

    /// Takes the next block of messages, in order.
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

/// Bytes of memory that a kept message occupies.
fn held_bytes(message: &Message) -> usize {
    MESSAGE_BYTES + message.channel.text().len() + message.payload.len()
}

impl Drop for Outbox {
    #[expect(clippy::mutable_key_type, reason = "a name's bytes stay: it notes where they are")]
    fn drop(&mut self) {
        self.account.set(self.account.get() - self.kept_bytes);
        let blocks = std::mem::take(&mut self.blocks);
        let channels = std::mem::take(&mut self.channels);
        let block_bytes = self.kept_bytes.div_ceil(blocks.len().max(1));
        lazyfree::defer_long(blocks, 1, block_bytes);
        lazyfree::defer_long(channels, BLOCK, 0); // Counted with the blocks.
    }
}

#[cfg(test)]
mod tests {
    use super::super::name::Text;
    use super::*;
    use darter_base::preempt::Never;

    fn message(channel: &str, bytes: usize) -> Message {
        let payload = Text::Short(vec![b'x'; bytes].into());
        Message::new(SubscriptionKind::Channel, Name::from_bytes(channel.as_bytes()), payload)
    }

    fn outbox() -> (Outbox, Rc<Cell<usize>>) {
        let account = Rc::new(Cell::new(5));
        (Outbox::new(Rc::clone(&account)), account)
    }

    #[test] // Messages within the limit keep their order.
    fn messages_beyond_a_channels_limit_are_replaced_by_one() {
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

    #[test] // The messages of a dropped outbox are freed in portions.
    fn an_outbox_without_output_limits_is_still_bounded() {
        const MIB: usize = 1 << 20;
        let (mut outbox, account) = outbox();
        let payload: std::sync::Arc<[u8]> = vec![b'x'; MIB].into();
        let mut kept = 0;
        let next = |at: usize| {
            let channel = Name::from_bytes(&at.to_le_bytes());
            Message::new(
                SubscriptionKind::Shard,
                channel,
                Text::Short(std::sync::Arc::clone(&payload)),
            )
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
