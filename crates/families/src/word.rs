//! Words among arguments: the names of options, in any case.

use darter_command::Args;
use darter_resp::Arg;

/// Takes the next argument as an option's word, or as a short value. One that came in chunks is no
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

/// True when `word` is `name`.
pub(crate) fn is(word: &[u8], name: &str) -> bool {
    word.eq_ignore_ascii_case(name.as_bytes())
}

/// The meaning of `word` in a table of names.
pub(crate) fn meaning<T: Copy>(word: &[u8], names: &[(&str, T)]) -> Option<T> {
    names.iter().find(|(name, _)| is(word, name)).map(|(_, meaning)| *meaning)
}
