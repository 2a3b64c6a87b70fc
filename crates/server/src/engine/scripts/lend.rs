//! A machine that is lent to a task. It is returned when the task ends or is dropped.

use super::super::core::Core;
use super::machines::Kind;
use darter_command::Refusal;
use darter_script::{Machine, Stop};
use std::rc::{Rc, Weak};

/// A machine that is lent to a task.
pub(crate) struct Lent {
    core: Weak<Core>,
    kind: Kind,
    machine: Option<Machine>,
}

/// Prepares a machine for its next run: ends an abandoned run, and collects garbage.
async fn tidy(core: Rc<Core>, kind: Kind, mut machine: Machine) {
    while !machine.abandon(core.tx.preempt()) {
        core.tx.yield_now().await;
    }
    let Some(mut machine) = core.machines.put(kind, machine) else { return };
    machine.begin_collection();
    drive(&core, &mut machine).await;
    let Some(mut machine) = core.machines.put(kind, machine) else { return };
    machine.begin_forgetting();
    drive(&core, &mut machine).await;
    core.machines.put(kind, machine); // A machine that is still too large is freed instead.
}

/// Resumes a program that calls no commands, until it ends.
async fn drive(core: &Core, machine: &mut Machine) {
    while machine.resume(core.tx.preempt()) != Stop::Ended {
        core.tx.yield_now().await;
    }
}

impl Lent {
    /// Takes an idle machine, or creates one.
    ///
    /// # Errors
    /// Errors: the system has no memory for another machine.
    pub(crate) fn new(core: &Rc<Core>, kind: Kind) -> Result<Self, Refusal> {
        let machine = core.machines.take(kind).map_err(|error| {
            tracing::warn!("cannot allocate memory for a script: {error}");
            Refusal::line("ERR not enough memory for another script")
        })?;
        Ok(Self { core: Rc::downgrade(core), kind, machine: Some(machine) })
    }

    /// The lent machine.
    pub(crate) fn machine(&mut self) -> &mut Machine {
        self.machine.as_mut().expect("it is there until this is dropped")
    }

    /// Abandons the current run of the machine.
    pub(crate) async fn throw_away(&mut self, core: &Core) {
        while !self.machine().abandon(core.tx.preempt()) {
            core.tx.yield_now().await;
        }
    }

    /// Resumes a program that calls no commands, until it ends.
    pub(crate) async fn finish(&mut self, core: &Core) {
        drive(core, self.machine()).await;
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let (Some(machine), Some(core)) = (self.machine.take(), self.core.upgrade()) else {
            return;
        };
        let kind = self.kind;
        let untidy = match machine.is_idle() {
            true => core.machines.put(kind, machine),
            false => Some(machine),
        };
        if let Some(machine) = untidy {
            core.tx.spawn(tidy(Rc::clone(&core), kind, machine));
        }
    }
}
