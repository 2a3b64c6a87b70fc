//! Publish and subscribe.
//!
//! Each channel has a *home* core, chosen by the hash of its name. The home counts the channel's
//! subscribers by core, and puts its messages in order. Each core with subscribers delivers the
//! messages to its own clients.
//!
//! ```text
//! PUBLISH -> home counts receivers, replies -> cores with subscribers: deliveries -> connections
//! SUBSCRIBE -> home counts the subscriber -> its core: deliveries add a member -> confirmation
//! ```
//! A home sends its items to a core in order. So a message is delivered exactly to the subscribers
//! that were counted for it, and all subscribers of a channel receive its messages in the same
//! order. Every core counts all patterns, because each is the home of channels that may match.
//!
//! Not here: the state (`state::pubsub`), and the commands (`admin::pubsub`).

mod deliver;
mod events;
mod leave;
mod publish;
mod subscribe;

pub(crate) use publish::Published;
pub(crate) use subscribe::Subscribing;
