//! Passes the reply of a command to the script that called it, in portions.

use darter_command::Stream;
use darter_resp::{Output, Part, Reply};
use darter_script::{Machine, Protocol};
use std::collections::VecDeque;

/// The rest of a reply that is being passed to a script: encoded parts, and a stream.
#[derive(Default)]
pub(super) struct Feed {
    parts: VecDeque<Part>,
    stream: Option<Box<dyn Stream>>,
    /// The buffer of the last part, to be reused.
    spare: Vec<u8>,
}

impl Feed {
    /// Begins to pass a reply to the script. Returns a buffer that can be reused.
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

    /// Passes the next part of the reply to the script.
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
