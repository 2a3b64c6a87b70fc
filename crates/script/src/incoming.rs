//! The reply of a command on its way in: bytes, which may come in parts, and tokens.

/// The received bytes of a reply, and how far they have been read.
#[derive(Default)]
pub(crate) struct Incoming {
    pub(crate) bytes: Vec<u8>,
    read: usize,
    pub(crate) levels: Vec<Level>,
    /// Whether a reply that is an error is raised.
    pub(crate) raises: bool,
    /// Whether the embedder has been asked for the reply.
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

    /// The memory kept for the next reply, in bytes.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes.capacity() + self.levels.capacity() * size_of::<Level>()
    }

    /// As [`Incoming::feed`], but takes over the memory of `bytes` if all earlier bytes have been
    /// read. Returns memory for the next part.
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

    /// The next token, once it is complete: its kind, and its line or its bytes.
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
    /// Attributes before a value: they are dropped.
    Attribute {
        left: usize,
    },
}

/// The count in a line. The server's own replies have no invalid ones.
pub(crate) fn count(line: &[u8]) -> usize {
    std::str::from_utf8(line).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
