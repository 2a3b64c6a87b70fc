//! Commands as bytes: written for an append-only file, and split into words.

use darter_base::number::{parse_u64, write_i64};

/// Appends the header of a command with `count` words.
pub(crate) fn begin(out: &mut Vec<u8>, count: usize) {
    out.push(b'*');
    write_i64(out, count as i64);
    out.extend_from_slice(b"\r\n");
}

/// Appends the header of a word of `len` bytes; [`end_word`] follows its bytes.
pub(crate) fn begin_word(out: &mut Vec<u8>, len: u64) {
    out.push(b'$');
    write_i64(out, len as i64);
    out.extend_from_slice(b"\r\n");
}

/// Ends a word.
pub(crate) fn end_word(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// Appends a word.
pub(crate) fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    begin_word(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
    end_word(out);
}

/// Appends a command.
pub(crate) fn command(out: &mut Vec<u8>, words: &[&[u8]]) {
    begin(out, words.len());
    words.iter().for_each(|bytes| word(out, bytes));
}

/// The words of a command that the reader of append-only files has found.
pub(crate) fn words(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = line(bytes).1;
    std::iter::from_fn(move || {
        let (head, after) = line(rest);
        let len = usize::try_from(parse_u64(head.strip_prefix(b"$")?)?).ok()?;
        let found = after.get(..len)?;
        rest = after.get(len + 2..)?;
        Some(found)
    })
}

/// The first line, and the bytes after it.
fn line(bytes: &[u8]) -> (&[u8], &[u8]) {
    let end = bytes.windows(2).position(|pair| pair == b"\r\n").unwrap_or(bytes.len());
    (&bytes[..end], bytes.get(end + 2..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_words_are_read_back() {
        let given: [&[u8]; 4] = [b"SET", b"", b"a\r\nb", b"\xff"];
        let mut out = Vec::new();
        command(&mut out, &given);
        assert!(out.starts_with(b"*4\r\n$3\r\nSET\r\n$0\r\n\r\n"));
        assert_eq!(words(&out).collect::<Vec<_>>(), given);
    }
}
