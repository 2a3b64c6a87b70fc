//! The reply of a command on its way to the script that has called it, part by part.

use darter_command::Stream;
use darter_resp::{Output, Part, Reply};
use darter_script::{Machine, Protocol};
use std::collections::VecDeque;

/// What is left to feed of a reply: what is encoded, and the rest.
#[derive(Default)]
pub(super) struct Feed {
    parts: VecDeque<Part>,
    stream: Option<Box<dyn Stream>>,
    /// Memory of the last part, for the next one.
    spare: Vec<u8>,
}

impl Feed {
    /// Begins to feed a reply. Returns the memory of an earlier one.
    pub(super) fn begin(
        &mut self,
        mut out: Output,
        stream: Option<Box<dyn Stream>>,
        machine: &mut Machine,
    ) -> Vec<u8> {
        self.stream = stream;
        match out.take_flat(Vec::new()) {
            Some(flat) if !flat.is_empty() => machine.feed_owned(flat),
            _ => {
                self.parts = out.take().into();
                self.next(machine);
                Vec::new()
            }
        }
    }

    /// Feeds the next part.
    pub(super) fn next(&mut self, machine: &mut Machine) {
        loop {
            match self.parts.pop_front() {
                Some(Part::Bytes(bytes)) => {
                    self.spare = machine.feed_owned(bytes);
                    return;
                }
                Some(Part::Shared(bytes, range)) => return machine.feed(&bytes[range]),
                None => {}
            }
            let stream = self.stream.as_mut().expect("a reply is whole");
            let mut out = Output::with_buffer(std::mem::take(&mut self.spare));
            let resp3 = machine.protocol() == Protocol::Three;
            if !stream.pump(&mut Reply::new(&mut out, resp3)) {
                self.stream = None;
            }
            self.parts = out.take().into();
        }
    }
}
