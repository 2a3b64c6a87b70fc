//! Option names among the arguments, in any case.

use darter_command::{Args, Refusal};
use darter_resp::Arg;

/// The most options of a command. Without this limit, a million repeated options would take a
/// slice.
const OPTIONS_MAX: usize = 64;

/// Counts the options of a command.
#[derive(Default)]
pub(crate) struct Count(usize);

impl Count {
    /// Counts one more option. Refusals: `Syntax` if there are too many.
    pub(crate) fn add(&mut self) -> Result<(), Refusal> {
        self.0 += 1;
        if self.0 <= OPTIONS_MAX { Ok(()) } else { Err(Refusal::Syntax) }
    }
}

/// Takes the next argument as an option's name or a short value. An argument in chunks is no
/// option: it reads as empty, and is never gathered into one piece.
pub(crate) fn take<'a>(args: &mut Args<'a>) -> Option<&'a [u8]> {
    let at = args.position();
    if args.left() == 0 {
        return None;
    }
    args.seek(at + 1);
    match args.all().arg(at) {
        Arg::Bytes(bytes) => Some(bytes),
        Arg::Chunks { .. } => Some(b""),
    }
}

/// True if `word` equals `name` in any case.
pub(crate) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// Looks up `word` in a table of names.
pub(crate) fn meaning<T: Copy>(word: &[u8], names: &[(&str, T)]) -> Option<T> {
    names.iter().find(|(name, _)| is(word, name)).map(|(_, meaning)| *meaning)
}
