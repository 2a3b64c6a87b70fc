//! The reply of a command on its way in: bytes, which may come in parts, and tokens.

/// Bytes of a reply that have come and are not read yet, and where the reading is.
#[derive(Default)]
pub(crate) struct Incoming {
    pub(crate) bytes: Vec<u8>,
    read: usize,
    pub(crate) levels: Vec<Level>,
    /// An error as a whole reply is raised.
    pub(crate) raises: bool,
    /// The script has asked for the reply, and waits.
    pub(crate) is_asked: bool,
}

impl Incoming {
    /// Begins a reply.
    pub(crate) fn begin(&mut self, raises: bool) {
        self.bytes.clear();
        self.read = 0;
        self.levels.clear();
        self.raises = raises;
        self.is_asked = false;
    }

    /// Bytes that it keeps for the next reply.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.levels.capacity() * size_of::<Level>()
    }

    /// [`Incoming::feed`] of bytes whose memory it takes, if all before them was read. Returns memory
    /// for the next part.
    pub(crate) fn feed_owned(&mut self, bytes: Vec<u8>) -> Vec<u8> {
        if self.read < self.bytes.len() {
            self.feed(&bytes);
            return bytes;
        }
        self.read = 0;
        std::mem::replace(&mut self.bytes, bytes)
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.read)); // The rest is part of a token.
        self.bytes.extend_from_slice(bytes);
    }

    /// The next token, if all of it is there: its kind, and its line or its bytes.
    pub(crate) fn token(&mut self) -> Option<Token> {
        let rest = &self.bytes[self.read..];
        let line_end = rest.iter().position(|byte| *byte == b'\n')?.checked_sub(1)?; // After CR.
        let kind = rest[0];
        let line = self.read + 1..self.read + line_end;
        let after = self.read + line_end + 2;
        if !matches!(kind, b'$' | b'=') || rest.get(1) == Some(&b'-') {
            self.read = after;
            return Some(Token { kind, text: line });
        }
        let length = count(&self.bytes[line]);
        if self.bytes.len() < after + length + 2 {
            return None;
        }
        self.read = after + length + 2;
        Some(Token { kind, text: after..after + length })
    }
}

/// A token: where its text is among the bytes.
pub(crate) struct Token {
    pub(crate) kind: u8,
    pub(crate) text: std::ops::Range<usize>,
}

/// An aggregate that is being read; `left` values are to come.
pub(crate) enum Level {
    /// The table is on the stack.
    Array {
        next: usize,
        left: usize,
    },
    /// An outer and an inner table are on the stack, then the key, if that has been read.
    Map {
        has_key: bool,
        left: usize,
    },
    Members {
        left: usize,
    },
    /// Attributes, which no command asked for, before the value proper.
    Attribute {
        left: usize,
    },
}

/// The number in a line; the server's own replies have no others.
pub(crate) fn count(line: &[u8]) -> usize {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
