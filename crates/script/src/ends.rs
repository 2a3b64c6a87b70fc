//! The start and the end of a run of a script or function: its words, and its reply.

use crate::session::Call;
use crate::values::Portion;
use crate::{errors, output};
use darter_lua::{Error, Lua, Outcome, Progress};

/// The number of keys and arguments that have been copied to their tables.
pub(crate) struct Copied(usize);

impl Copied {
    /// Pushes the two tables, keys first, unless they are already there.
    pub(crate) fn begin(cx: Call<'_, '_>, are_copied: bool) -> Result<Self, Error> {
        if !are_copied {
            cx.lua.push_table(0)?;
            cx.lua.push_table(0)?;
        }
        Ok(Self(0))
    }

    /// Copies a portion into the two tables on top; true when all words are copied.
    pub(crate) fn step(&mut self, cx: Call<'_, '_>) -> Result<bool, Error> {
        let mut portion = Portion::new();
        let (keys, arguments) = (&cx.host.keys, &cx.host.arguments);
        while self.0 < keys.len() + arguments.len() {
            let (table, index, word) = match self.0.checked_sub(keys.len()) {
                None => (-3, self.0, &keys[self.0]),
                Some(index) => (-2, index, &arguments[index]),
            };
            cx.lua.push_bytes(word)?;
            cx.lua.set_element(table, index + 1)?;
            self.0 += 1;
            if !portion.spend(20 + word.len() / 16) {
                return Ok(false);
            }
        }
        cx.host.keys.clear();
        cx.host.arguments.clear();
        Ok(true)
    }
}

/// Pushes a table of some words. It is as large as one that has grown with them.
pub(crate) fn push_words<'w>(
    lua: &mut Lua<'_>,
    words: impl ExactSizeIterator<Item = &'w [u8]>,
) -> Result<(), Error> {
    let len = words.len();
    lua.push_table(if len == 0 { 0 } else { len.next_power_of_two() })?;
    for (index, word) in words.enumerate() {
        lua.push_bytes(word)?;
        lua.set_element(-2, index + 1)?;
    }
    Ok(())
}

/// Writes a portion of the reply of the script or function `name`, which has ended.
pub(crate) fn finish_run(cx: Call<'_, '_>, outcome: Outcome, name: &str) -> Progress {
    cx.host.is_running = false;
    cx.host.outcome = Some(outcome);
    let result = if outcome == Outcome::Returned {
        let protocols = output::Protocols { client: cx.host.client, script: cx.host.protocol };
        cx.host.output.write(&mut cx.lua, protocols)
    } else {
        errors::line(cx, outcome, name).and_then(|line| {
            match errors::is_counted(&mut cx.lua)? {
                true => cx.host.output.counted_error(&line),
                false => cx.host.output.error(&line),
            }
            Ok(Progress::Done(0))
        })
    };
    result.unwrap_or_else(|_| {
        cx.host.output.begin(usize::MAX);
        cx.host.output.error(b"ERR not enough memory");
        Progress::Done(0)
    })
}
