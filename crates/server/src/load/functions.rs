//! The function libraries in the file. The thread that loads the file runs their texts, to find out
//! which functions they register. The machines of the cores run them again before they first call a
//! function.

use super::Cause;
use crate::libraries::Libraries;
use darter_base::preempt::Preempt;
use darter_script::{Library, Machine, Registry, Source, Stop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The libraries that were loaded so far.
#[derive(Default)]
pub(super) struct Loading {
    machine: Option<Machine>,
    registry: Registry,
}

/// Ends a slice if the server stops.
struct Cancelled<'a>(&'a AtomicBool);

impl Preempt for Cancelled<'_> {
    fn must_yield(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Loading {
    /// Runs the text of a library. As in Redis, there is no time limit, because the library was
    /// loaded before.
    pub(super) fn take_in(
        &mut self,
        text: &[u8],
        offset: u64,
        cancelled: &AtomicBool,
    ) -> Result<(), Cause> {
        let refused = |why: &[u8]| {
            let why = String::from_utf8_lossy(why).into_owned();
            Cause::Library { why, offset }
        };
        let source = Arc::new(Source::read(text.to_vec()).map_err(|why| refused(&why))?);
        if self.registry.library(&source.name).is_some() {
            return Err(refused(format!("Library '{}' already exists", source.name).as_bytes()));
        }
        let mut machine = match self.machine.take() {
            Some(machine) => machine,
            None => Machine::for_functions(Machine::LIMIT_BYTES_MAX)
                .map_err(|error| Cause::Io { offset, error })?,
        };
        machine.begin_load(Arc::clone(&source));
        if machine.resume(&Cancelled(cancelled)) != Stop::Ended {
            return Err(Cause::Stopped);
        }
        let functions = machine.take_loaded().map_err(|why| refused(&why))?;
        for (level, line) in machine.take_log() {
            crate::log::of_script(level, &line);
        }
        self.machine = Some(machine);
        let library = Arc::new(Library { source, functions });
        let mut next = Some(0);
        while let Some(index) = next {
            next = self
                .registry
                .link(&library, index)
                .map_err(|name| refused(format!("Function {name} already exists").as_bytes()))?;
        }
        Ok(())
    }

    /// Publishes the libraries to all cores, after the whole file was found valid.
    pub(super) fn finish(self, libraries: &Libraries) {
        let is_first = libraries.replace(&libraries.current(), Arc::new(self.registry));
        assert!(is_first, "nobody changes libraries while a file is loaded");
    }
}
