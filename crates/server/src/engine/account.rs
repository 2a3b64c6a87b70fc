//! What is recorded of calls: the slow ones.

use super::conn::Session;
use super::core::Core;
use super::entry::Entry;
use super::state::slowlog::SlowCall;
use darter_resp::Args;
use darter_tx::CoreId;
use std::rc::Rc;

/// Whose command it was.
#[derive(Clone, Copy)]
pub(super) enum Caller<'a> {
    /// A connection of this core, being served.
    Served(&'a Session),
    /// A connection by its core and id: that of a task, or of a batch from another core.
    Client(CoreId, u64),
}

impl Core {
    /// A command took longer than `slowlog-log-slower-than`. Kept on the core of its connection, where
    /// its address and its name are known.
    #[cold]
    pub(super) fn slow_command(
        self: &Rc<Self>,
        ns: u64,
        entry: &Entry,
        args: Args<'_>,
        caller: Caller<'_>,
    ) {
        let call = SlowCall::new(self.clock.unix_us(), ns, &entry.row, args);
        match caller {
            Caller::Served(session) => self.keep_slow(call, Some(session)),
            Caller::Client(home, client) => self.tell(home, move |there| {
                let session = there.with_client(client, |conn| conn.lane.session.clone());
                there.keep_slow(call, session.as_ref());
            }),
        }
    }

    /// Records a slow call, without address and name when its connection has gone.
    fn keep_slow(&self, call: SlowCall, session: Option<&Session>) {
        let most = self.admin.settings().size("slowlog-max-len");
        let mut log = self.admin.slowlog.borrow_mut();
        log.keep(call, session, most, |number| self.unique(number));
    }
}
