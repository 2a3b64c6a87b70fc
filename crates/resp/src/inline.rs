//! Inline commands: a line of words, with quotes, for people at a telnet prompt. Lines of an AOF's
//! manifest have the same words.

/// Splits `line`, which has no NUL, into words: blanks separate; `"..."` knows
/// `\n \r \t \b \a \xHH` and `\` before any other byte; `'...'` knows `\'` only; a closing quote
/// must be followed by a blank or the end.
///
/// Errors: `None` when quotes are unbalanced. Source: Redis's inline protocol.
pub fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut words = Vec::new();
    let mut rest = line;
    loop {
        while let [first, after @ ..] = rest
            && is_blank(*first)
        {
            rest = after;
        }
        if rest.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        rest = read_word(rest, &mut word)?;
        words.push(word);
    }
}

/// C's `isspace`: such bytes may precede a word, and follow a closing quote.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// A byte that ends an unquoted word: not every blank, as in Redis.
fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Reads one word into `word`. Returns the rest.
fn read_word<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        match rest {
            [] => return Some(rest),
            [byte, after @ ..] if ends_word(*byte) => return Some(after),
            [b'"', after @ ..] => return double_quoted(after, word),
            [b'\'', after @ ..] => return single_quoted(after, word),
            [byte, after @ ..] => {
                word.push(*byte);
                rest = after;
            }
        }
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\\', b'x', high, low, after @ ..]
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                word.push(hex(*high) * 16 + hex(*low));
                after
            }
            [b'\\', escaped, after @ ..] => {
                word.push(unescape(*escaped));
                after
            }
            [b'"', after @ ..] => return closed(after),
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return None,
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    loop {
        rest = match rest {
            [b'\\', b'\'', after @ ..] => {
                word.push(b'\'');
                after
            }
            [b'\'', after @ ..] => return closed(after),
            [byte, after @ ..] => {
                word.push(*byte);
                after
            }
            [] => return None,
        }
    }
}

/// The text after a closing quote, which is empty or begins with a blank.
fn closed(after: &[u8]) -> Option<&[u8]> {
    after.first().is_none_or(|&byte| is_blank(byte)).then_some(after)
}

fn unescape(byte: u8) -> u8 {
    match byte {
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 0x08,
        b'a' => 0x07,
        other => other,
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => digit.to_ascii_lowercase() - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use super::split_words;

    #[test]
    fn inline_requests_are_split_into_words_and_quoted_texts() {
        let words = |line: &str| split_words(line.as_bytes());
        let expect = |texts: &[&[u8]]| Some(texts.iter().map(|text| text.to_vec()).collect());
        assert_eq!(words("  set  a   b "), expect(&[b"set", b"a", b"b"]));
        assert_eq!(words(r#"set "a b" 'c\'d'"#), expect(&[b"set", b"a b", b"c'd"]));
        assert_eq!(words(r#"x "\x41\n\q""#), expect(&[b"x", b"A\nq"]));
        assert_eq!(words(r#""\x4a\xFf\x09\xa0""#), expect(&[b"J\xff\x09\xa0"]));
        assert_eq!(words(r#""\r\t\b\a\"\\" \n"#), expect(&[b"\r\t\x08\x07\"\\", b"\\n"]));
        assert_eq!(words(r#""\xg1\x1" '\x41'"#), expect(&[b"xg1x1", b"\\x41"]));
        assert_eq!(words("a\tb\x0bc\rd \x0c\x0be\n"), expect(&[b"a", b"b\x0bc", b"d", b"e"]));
        assert_eq!(words("'' \"\" 'x'\t"), expect(&[b"", b"", b"x"]));
        assert_eq!(words("'a'b"), None);
        assert_eq!(words(r#"a"b c""#), expect(&[b"ab c"]));
        assert_eq!(words(r#""a"b"#), None);
        assert_eq!(words(r#""open"#), None);
        assert_eq!(words("'open"), None);
        assert_eq!(words(""), expect(&[]));
        assert_eq!(words("\x0b\x0ca\x0bb\x0c c\td"), expect(&[b"a\x0bb\x0c", b"c", b"d"]));
        assert_eq!(words("\"a\"\x0b"), expect(&[b"a"]));
    }
}
