//! Records that a client has read the keys of a command, on the cores that own them.

use super::super::core::Core;
use super::super::entry::{Entry, Runner};
use super::super::point::Tracker;
use darter_command::Flags;
use darter_keyspace::Key;
use darter_resp::{Args, Request};
use darter_tx::CoreId;
use std::rc::Rc;
use std::sync::Arc;

/// Keys recorded in one step: about 20 us.
const AT_ONCE: usize = 64;

impl Core {
    /// Records the keys of a command that are on this core. Must be called in the same step as the
    /// read.
    #[cold]
    pub(crate) fn remember(&self, entry: &Entry, args: Args<'_>, tracker: Tracker) {
        let Some(client) = reader(entry, tracker) else { return };
        let all = entry.row.keys.positions(args);
        self.remember_keys(args, all, client);
    }

    fn remember_keys(&self, args: Args<'_>, keys: impl Iterator<Item = usize>, client: u64) {
        let (cores, here, most) = (self.tx.cores(), self.id(), self.tracking.most.get());
        let shard = &mut self.tx.home().shard;
        for at in keys {
            let key = Key::hashed(args.get(at), args.hash(at));
            if cores == 1 || darter_base::slot::owner_of(key.bytes, cores) == here {
                shard.remember(client, &key, most);
                self.is_logged.set(true);
            }
        }
    }

    /// Records all keys of a command, on the cores that own them, before the command sends its
    /// first message there. If a key is touched after that and before the read, the invalidation
    /// still follows the reply, which is what a touch after the read would cause.
    pub(crate) async fn remember_anywhere(
        self: &Rc<Self>,
        entry: &Entry,
        request: &Arc<Request>,
        tracker: Tracker,
    ) {
        let Some(client) = reader(entry, tracker) else { return };
        let args = Args::owned(request);
        let mut cores: Vec<CoreId> = Vec::new();
        for (count, at) in entry.row.keys.positions(args).enumerate() {
            if count == AT_ONCE {
                return self.remember_many(entry.index, request, client).await;
            }
            let core = args.owner(at, self.tx.cores());
            if !cores.contains(&core) {
                cores.push(core);
            }
        }
        for core in cores {
            let (request, index) = (Arc::clone(request), entry.index);
            self.tell(core, move |there| {
                let args = Args::owned(&request);
                let keys = there.table.entries()[index].row.keys.positions(args);
                there.remember_keys(args, keys, client);
            });
        }
    }

    /// Like [`Core::remember_anywhere`], for many keys: each core visits all of them, in portions.
    async fn remember_many(self: &Rc<Self>, index: usize, request: &Arc<Request>, client: u64) {
        let work = || {
            let request = Arc::clone(request);
            move |there: Rc<Self>| async move {
                let args = Args::owned(&request);
                let entry = &there.table.entries()[index];
                let mut keys = entry.row.keys.positions(args).peekable();
                while keys.peek().is_some() {
                    there.remember_keys(args, keys.by_ref().take(AT_ONCE), client);
                    there.tx.pause().await;
                }
            }
        };
        self.run_on_all(work).await;
    }
}

/// The client for which the keys of a command are recorded, if any. The keys of a write are not
/// recorded, even if it replies with the old value. For a script, the keys of its commands are
/// recorded instead.
fn reader(entry: &Entry, tracker: Tracker) -> Option<u64> {
    let reads = entry.row.flags.has(Flags::READONLY) && !matches!(entry.run, Runner::Script(_));
    tracker.reader().filter(|_| reads)
}
