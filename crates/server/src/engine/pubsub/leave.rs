//! Ends all subscriptions of a client that closes or resets: the client receives nothing from then
//! on, and its subscriptions are removed in portions.

use super::super::core::Core;
use super::super::state::pubsub::SubscriptionKind;
use super::super::state::pubsub::memberships::Subscriber;
use super::super::state::pubsub::name::Name;
use darter_tx::CoreId;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Subscriptions removed in one step: about 10 us.
const AT_ONCE: usize = 32;

/// For each home and each kind of subscription: the names that the subscriber has left.
type Homes = BTreeMap<(CoreId, usize), Vec<Name>>;

impl Core {
    /// Removes a subscriber at once. Its subscriptions are removed in portions: the first ones now,
    /// the rest in the background.
    pub(crate) fn subscriber_left(self: &Rc<Self>, id: u64) {
        let gone = self.pubsub.memberships.borrow_mut().leave(id);
        let Some(mut gone) = gone else { return };
        if self.give_up_some(id, &mut gone) {
            self.spawn_on_self(|core| async move {
                while core.give_up_some(id, &mut gone) {
                    core.tx.pause().await;
                }
            });
        }
    }

    /// Removes a portion of the subscriptions. Returns true if some may be left.
    fn give_up_some(self: &Rc<Self>, id: u64, gone: &mut Subscriber) -> bool {
        let mut homes = Homes::new();
        let mut left = AT_ONCE;
        while left > 0
            && let Some((kind, name, is_leaving)) = gone.take_one()
        {
            left -= 1;
            if !is_leaving {
                // Otherwise its homes have been notified already.
                self.give_up(id, kind, &name, &mut homes);
            }
        }
        for ((home, kind), names) in homes {
            self.take_back(home, SubscriptionKind::ALL[kind], names);
        }
        left == 0
    }

    /// Adds a name to the reports for the homes that count it.
    fn give_up(&self, id: u64, kind: SubscriptionKind, name: &Name, homes: &mut Homes) {
        let cores = self.tx.cores();
        let mut memberships = self.pubsub.memberships.borrow_mut();
        memberships.remove(kind, name, id);
        let mut tell = |home| homes.entry((home, kind as usize)).or_default().push(name.clone());
        if kind != SubscriptionKind::Pattern {
            return tell(name.home(cores));
        }
        let counted = memberships.take_partial(name, id);
        let counts = |home: &CoreId| counted.as_ref().is_none_or(|counted| counted[*home]);
        (0..cores).filter(counts).for_each(tell);
    }
}
