//! The outputs of a turn: actions on sockets, and messages to other cores.

use crate::settings::Settings;
use darter_base::limits::SPARE_BYTES;
use darter_base::spare;
use darter_resp::Part;
use darter_runtime::net::Token;
use darter_tx::{CoreId, Message, Tx};
use std::cell::RefCell;
use std::sync::Arc;

/// An action that the thread performs on a socket, or on the listeners.
#[derive(Debug)]
pub enum Action {
    /// Send these bytes. `Core::sent` returns the buffer afterwards.
    SendFlat(Token, Vec<u8>),
    /// Send these parts, in order.
    Send(Token, Vec<Part>),
    /// Stop receiving.
    Pause(Token),
    /// Resume receiving.
    Resume(Token),
    /// Close the connection.
    Close(Token),
    /// Detach the connection's socket from this thread. `Core::released` is called afterwards.
    Release(Token),
    /// Apply these settings to the listeners. Then complete the ticket with a `bool` that says
    /// whether it succeeded. Core 0 only.
    Listen(Arc<Settings>, u64),
}

impl Action {
    /// The connection that the action concerns; `None` for an action on the listeners.
    pub(crate) fn token(&self) -> Option<Token> {
        match self {
            Self::SendFlat(token, _) | Self::Send(token, _) => Some(*token),
            Self::Pause(token) | Self::Resume(token) => Some(*token),
            Self::Close(token) | Self::Release(token) => Some(*token),
            Self::Listen(..) => None,
        }
    }
}

/// The outputs of the current turn. `M` is the type of messages between cores.
pub(crate) struct Outgoing<M> {
    actions: RefCell<Vec<Action>>,
    /// Messages to other cores, in the order in which they were posted.
    mail: RefCell<Vec<(CoreId, M)>>,
    /// Memory that is reused while messages of tasks are moved into `mail`.
    scratch: RefCell<Vec<(CoreId, Message)>>,
    /// Buffers of earlier sends, for reuse.
    spares: RefCell<Vec<Vec<u8>>>,
}

impl<M> Default for Outgoing<M> {
    fn default() -> Self {
        Self {
            actions: RefCell::default(),
            mail: RefCell::default(),
            scratch: RefCell::default(),
            spares: RefCell::default(),
        }
    }
}

impl<M: From<Message>> Outgoing<M> {
    pub(crate) fn act(&self, action: Action) {
        self.actions.borrow_mut().push(action);
    }

    /// True if there are actions.
    pub(crate) fn has_actions(&self) -> bool {
        !self.actions.borrow().is_empty()
    }

    /// Moves the actions into `into`.
    pub(crate) fn drain_actions(&self, into: &mut Vec<Action>) {
        let mut actions = self.actions.borrow_mut();
        into.append(&mut actions);
        spare::release(&mut actions);
    }

    /// Adds a message after all earlier ones, including those that tasks have posted.
    pub(crate) fn post(&self, tx: &Tx, core: CoreId, mail: M) {
        let mut all = self.mail.borrow_mut();
        if tx.has_mail() {
            self.drain_tasks(tx, &mut all);
        }
        all.push((core, mail));
    }

    /// True if there are messages, apart from those that tasks have posted.
    pub(crate) fn has_mail(&self) -> bool {
        !self.mail.borrow().is_empty()
    }

    /// Moves the messages into `into`, in the order in which they were posted.
    pub(crate) fn drain_mail(&self, tx: &Tx, into: &mut Vec<(CoreId, M)>) {
        let mut mail = self.mail.borrow_mut();
        into.append(&mut mail);
        spare::release(&mut mail);
        self.drain_tasks(tx, into);
    }

    fn drain_tasks(&self, tx: &Tx, into: &mut Vec<(CoreId, M)>) {
        let mut scratch = self.scratch.borrow_mut();
        tx.drain_outbox(&mut scratch);
        into.extend(scratch.drain(..).map(|(core, message)| (core, M::from(message))));
        spare::release(&mut scratch);
    }

    /// Returns a buffer for a send, reused if possible.
    pub(crate) fn spare(&self) -> Vec<u8> {
        self.spares.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps the buffer of a send for reuse, unless it is large or enough are kept.
    pub(crate) fn keep_spare(&self, buffer: Vec<u8>) {
        /// The number of buffers that are kept.
        const SPARES: usize = 64;
        if buffer.capacity() <= SPARE_BYTES {
            let mut spares = self.spares.borrow_mut();
            if spares.len() < SPARES {
                spares.push(buffer);
            }
        }
    }
}
