//! Publish and subscribe.
//!
//! Each channel has a home core, by the hash of its name. The home counts the channel's subscribers
//! by core, and orders its messages. Each core with subscribers delivers them to its clients.
//!
//! ```text
//! PUBLISH -> home: count, reply -> cores with subscribers: deliveries -> connections
//! SUBSCRIBE -> home: counted from here on -> deliveries: a member from here on -> confirmation
//! ```
//! The items from a home to a core are ordered. So a message is delivered exactly to the
//! subscribers counted for it, and all subscribers of a channel see its messages in one order. All
//! cores count patterns, because each is home to channels that match.
//!
//! Not here: the state (`state::pubsub`), and the commands (`admin::pubsub`).

mod deliver;
mod events;
mod leave;
mod publish;
mod subscribe;

pub(crate) use publish::Published;
pub(crate) use subscribe::Subscribing;
