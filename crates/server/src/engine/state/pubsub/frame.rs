//! Encodes messages and confirmations: as arrays in RESP2, and as pushes in RESP3.

use super::SubscriptionKind;
use super::name::{Message, Name, Text};
use darter_resp::{Output, Reply};

/// A message up to this size is encoded once and copied for each subscriber. Subscribers share the
/// bytes of a longer message.
const SHORT_BYTES: usize = 16 * 1024;

/// A message, prepared to be sent to many clients of one protocol.
#[derive(Clone, Debug)]
pub(crate) enum Frame {
    /// The encoded message, to be copied for each client.
    Short(Vec<u8>),
    /// A long message, which is encoded for each client. It has this number of shared parts.
    Long(usize),
}

impl Frame {
    pub(crate) fn new(message: &Message, pattern: Option<&Name>, resp3: bool) -> Self {
        let names = message.channel.text().len() + pattern.map_or(0, |name| name.text().len());
        let bytes = names + message.payload.len();
        if bytes > SHORT_BYTES {
            return Self::Long(1 + bytes / SHORT_BYTES);
        }
        let mut out = Output::default();
        write(&mut out, message, pattern, resp3);
        Self::Short(out.flatten())
    }

    /// The cost of sending the message to one client; a short message costs 1.
    pub(crate) fn cost(&self) -> usize {
        match self {
            Self::Short(bytes) => 1 + bytes.len() / 2_048,
            Self::Long(parts) => 2 + parts / 4,
        }
    }
}

/// Appends a message: in the form for subscribers of `pattern`, or in that for subscribers of the
/// channel.
pub(crate) fn write(out: &mut Output, message: &Message, pattern: Option<&Name>, resp3: bool) {
    let word: &[u8] = match (pattern, message.kind) {
        (Some(_), _) => b"pmessage",
        (None, SubscriptionKind::Shard) => b"smessage",
        (None, _) => b"message",
    };
    let mut reply = Reply::new(out, resp3);
    reply.push(3 + usize::from(pattern.is_some()));
    reply.bulk(word);
    if let Some(pattern) = pattern {
        bulk(&mut reply, pattern.text());
    }
    bulk(&mut reply, message.channel.text());
    bulk(&mut reply, &message.payload);
}

/// Appends the confirmation of a change. `name` is `None` if the client had no subscription to
/// leave.
pub(crate) fn confirm(
    out: &mut Output,
    kind: SubscriptionKind,
    joins: bool,
    name: Option<&Name>,
    count: usize,
    resp3: bool,
) {
    let word: &[u8] = match (kind, joins) {
        (SubscriptionKind::Channel, true) => b"subscribe",
        (SubscriptionKind::Channel, false) => b"unsubscribe",
        (SubscriptionKind::Pattern, true) => b"psubscribe",
        (SubscriptionKind::Pattern, false) => b"punsubscribe",
        (SubscriptionKind::Shard, true) => b"ssubscribe",
        (SubscriptionKind::Shard, false) => b"sunsubscribe",
    };
    let mut reply = Reply::new(out, resp3);
    reply.push(3);
    reply.bulk(word);
    match name {
        Some(name) => bulk(&mut reply, name.text()),
        None => reply.null(),
    }
    reply.count(count);
}

fn bulk(reply: &mut Reply<'_>, text: &Text) {
    reply.bulk_header(text.len());
    text.write(reply.out);
    reply.crlf();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: SubscriptionKind, payload: &[u8]) -> Message {
        let payload = Text::Short(payload.into());
        Message::new(kind, Name::from_bytes(b"news"), payload)
    }

    fn short(frame: &Frame) -> &str {
        let Frame::Short(bytes) = frame else { panic!("a short one") };
        std::str::from_utf8(bytes).unwrap()
    }

    #[test] // Subscribers of a channel, a pattern and a shard channel get different forms.
    fn messages_are_encoded_in_both_protocols() {
        let plain = message(SubscriptionKind::Channel, b"hi");
        let text = "$7\r\nmessage\r\n$4\r\nnews\r\n$2\r\nhi\r\n";
        assert_eq!(short(&Frame::new(&plain, None, false)), format!("*3\r\n{text}"));
        assert_eq!(short(&Frame::new(&plain, None, true)), format!(">3\r\n{text}"));
        let text = "$8\r\npmessage\r\n$2\r\nn*\r\n$4\r\nnews\r\n$2\r\nhi\r\n";
        let pattern = Name::from_bytes(b"n*");
        assert_eq!(short(&Frame::new(&plain, Some(&pattern), true)), format!(">4\r\n{text}"));
        let sharded = Frame::new(&message(SubscriptionKind::Shard, b"hi"), None, false);
        assert!(short(&sharded).contains("$8\r\nsmessage\r\n"));
    }

    #[test] // The cost of sending a message grows with the number of its parts.
    fn subscribers_share_the_bytes_of_a_long_message() {
        let long = message(SubscriptionKind::Channel, &[b'x'; 1 << 20]);
        let frame = Frame::new(&long, None, false);
        assert!(matches!(frame, Frame::Long(65)), "{frame:?}");
        assert!(
            frame.cost()
                > Frame::new(&message(SubscriptionKind::Channel, b"x"), None, false).cost()
        );
    }

    #[test] // The confirmed name is null if there was no subscription.
    fn subscription_changes_are_confirmed_in_the_words_of_redis() {
        let mut out = Output::default();
        let name = Name::from_bytes(b"a");
        confirm(&mut out, SubscriptionKind::Pattern, true, Some(&name), 3, false);
        confirm(&mut out, SubscriptionKind::Shard, false, None, 0, true);
        let expected =
            "*3\r\n$10\r\npsubscribe\r\n$1\r\na\r\n:3\r\n>3\r\n$12\r\nsunsubscribe\r\n_\r\n:0\r\n";
        assert_eq!(out.flatten(), expected.as_bytes());
    }
}
