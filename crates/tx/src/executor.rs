//! The tasks of one core: futures that are polled when the event they await has arrived.
//!
//! There are no wakers: the link that delivers an event wakes the task by its number. So polling is
//! deterministic, and the simulator can replay it.

use darter_base::spare;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// A task of this core.
pub type TaskId = u64;

type Body = Pin<Box<dyn Future<Output = ()>>>;

/// The tasks of a core, and the queue of runnable ones.
#[derive(Default)]
pub(crate) struct Tasks {
    bodies: darter_base::hash::IdentityMap<Option<Body>>,
    ready: VecDeque<TaskId>,
    next: TaskId,
}

impl Tasks {
    pub(crate) fn spawn(&mut self, body: Body) -> TaskId {
        let id = self.next;
        self.next += 1;
        let old = self.bodies.insert(id, Some(body));
        assert!(old.is_none(), "task {id} exists");
        self.ready.push_back(id);
        id
    }

    /// The number of the next task to be spawned.
    pub(crate) fn next_id(&self) -> TaskId {
        self.next
    }

    pub(crate) fn wake(&mut self, id: TaskId) {
        self.ready.push_back(id);
    }

    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.bodies.len()
    }

    /// The next task to poll; it is taken out of the table while it runs.
    pub(crate) fn take_ready(&mut self) -> Option<(TaskId, Body)> {
        loop {
            let id = self.ready.pop_front()?;
            spare::release_queue(&mut self.ready);
            if let Some(body) = self.bodies.get_mut(&id).and_then(Option::take) {
                return Some((id, body));
            }
        }
    }

    pub(crate) fn put_back(&mut self, id: TaskId, body: Body) {
        let place = self.bodies.get_mut(&id).expect("a task that runs keeps its place");
        assert!(place.is_none(), "task {id} is there twice");
        *place = Some(body);
    }

    /// Forgets a task that was taken out and has finished.
    pub(crate) fn forget(&mut self, id: TaskId) {
        let place = self.bodies.remove(&id);
        assert!(matches!(place, Some(None)), "task {id} has not run");
    }
}

/// Polls `body` once. Returns true when it has finished.
pub(crate) fn poll(body: &mut Body) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    matches!(body.as_mut().poll(&mut context), Poll::Ready(()))
}
