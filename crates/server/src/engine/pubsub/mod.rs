//! Publish and subscribe.
//!
//! Each channel has a home core, by the hash of its name. It counts the channel's subscribers by
//! core, and puts its messages in order; each core with subscribers delivers them to its clients.
//!
//! ```text
//! PUBLISH -> home: count, reply -> cores with subscribers: deliveries -> connections
//! SUBSCRIBE -> home: counted from here on -> deliveries: a member from here on -> confirmation
//! ```
//! What a home sends to a core is in one order. So a message is delivered exactly to those who were
//! counted for it, and all subscribers of a channel see its messages in one order. Patterns are
//! counted by all cores, as each of them is home to channels that match.
//!
//! Not here: the state (`state::pubsub`), and the commands (`admin::pubsub`).

mod deliver;
mod events;
mod leave;
mod publish;
mod subscribe;

pub(crate) use publish::Published;
pub(crate) use subscribe::Subscribing;
