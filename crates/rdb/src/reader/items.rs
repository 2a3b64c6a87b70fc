//! Items: chunks of strings, singles and pairs, as strings or from packed collections.

use super::*;
use crate::blob::Entry;
use crate::wire::Cursor;
use darter_base::score;

impl Reader {
    #[inline]
    pub(super) fn items(&mut self, shape: Shape, left: u64) -> Attempt {
        if left == 0 {
            return self.end_of_key();
        }
        if matches!(shape, Shape::Scores | Shape::ScoreTexts) {
            return self.scored(shape, left);
        }
        let mut cursor = self.cursor();
        let (mut deadline_ms, mut first) = (None, None);
        if let Shape::DeadlineFirst { origin } = shape {
            deadline_ms = deadline_first(cursor.count()?, origin)?;
        }
        if !matches!(shape, Shape::Singles) {
            first = Some(cursor.text()?);
        }
        if let Some(name) = first
            && !matches!(shape, Shape::DeadlineLast)
            && let Some((len, body)) = self.long_text(&mut cursor)?
        {
            let (used, name) = (cursor.at, self.place(name, FIRST)?);
            self.begin_long(used, body, Body::Items { shape, left: left - 1 });
            return Ok(Some(Step::LongValued(name, len, deadline_ms)));
        }
        let last = cursor.text()?;
        if matches!(shape, Shape::DeadlineLast) {
            deadline_ms = deadline_of(cursor.i64_le()?);
        }
        let used = cursor.at;
        let step = match first {
            None => Step::Single(self.place(last, FIRST)?),
            Some(name) => {
                let (name, value) = (self.place(name, FIRST)?, self.place(last, SECOND)?);
                Step::Pair(name, value, deadline_ms)
            }
        };
        self.consume(used);
        self.state = State::Body(Body::Items { shape, left: left - 1 });
        Ok(Some(step))
    }

    /// The length of a text that will be reported in parts, and its bytes. `None`, without reading,
    /// for other texts.
    fn long_text(&self, cursor: &mut Cursor<'_>) -> Result<Option<(u64, Body)>, Stop> {
        let mut ahead = *cursor;
        if !self.gives_parts {
            return Ok(None);
        }
        let (len, body) = match ahead.head()? {
            Head::Raw(left) => (left, Body::Raw { left }),
            Head::Lzf { packed, len } => (len, Body::Packed { packed, left: len, sent: 0 }),
            Head::Int(_) => return Ok(None),
        };
        if len <= CHUNK_BYTES as u64 {
            return Ok(None);
        }
        *cursor = ahead;
        Ok(Some((len, body)))
    }

    /// Starts a long text; after it, reading continues with `rest`.
    fn begin_long(&mut self, used: usize, body: Body, rest: Body) {
        if let Body::Packed { .. } = body {
            self.texts[WHOLE].clear();
        }
        self.consume(used);
        (self.state, self.rest) = (State::Body(body), Some(rest));
    }

    /// Continues after a string.
    fn end_of_text(&mut self) -> Attempt {
        match self.rest.take() {
            None => self.end_of_key(),
            Some(rest) => {
                self.state = State::Body(rest);
                Ok(None)
            }
        }
    }

    /// Reports a chunk of a string, or a part of a long value.
    fn chunk(&self, span: Span) -> Attempt {
        Ok(Some(if self.rest.is_some() { Step::ValuePart(span) } else { Step::Chunk(span) }))
    }

    /// A name and its score.
    fn scored(&mut self, shape: Shape, left: u64) -> Attempt {
        let mut cursor = self.cursor();
        let (name, at) = (cursor.text()?, cursor.at);
        let score = match shape {
            Shape::Scores => f64::from_bits(cursor.u64_le()?),
            _ => score_text(&mut cursor)?,
        };
        if score.is_nan() {
            return Err(Stop::Bad(at, Reason::Score));
        }
        let used = cursor.at;
        let name = self.place(name, FIRST)?;
        self.consume(used);
        self.state = State::Body(Body::Items { shape, left: left - 1 });
        Ok(Some(Step::Scored(name, score)))
    }

    pub(super) fn body(&mut self, body: Body) -> Attempt {
        match body {
            Body::Raw { left: 0 } => self.end_of_text(),
            Body::End => self.end_of_key(),
            Body::Raw { left } => {
                let len = size(left).min(CHUNK_BYTES);
                self.cursor().take(len)?;
                let span = Span::Buffer(self.at..self.at + len);
                self.consume(len);
                self.state = State::Body(Body::Raw { left: left - len as u64 });
                self.chunk(span)
            }
            Body::Int => {
                self.state = State::Body(Body::End);
                Ok(Some(Step::Chunk(Span::Text(WHOLE, 0..self.texts[WHOLE].len()))))
            }
            Body::Packed { packed, left, sent } => self.unpack(packed, left, sent),
            Body::Block(block) => match self.whole(&block) {
                Some(head) => self.whole_block(head, block),
                None => self.block_item(block),
            },
            Body::Element { block, start, end } => self.element_part(block, start, end),
            Body::Nodes(nodes) => self.node(nodes),
            Body::Items { shape, left } => self.items(shape, left),
            Body::Entries(stage) => self.entries(stage),
        }
    }

    pub(super) fn end_of_key(&mut self) -> Attempt {
        self.state = if self.payload.is_some() { State::Trailer } else { State::Top };
        Ok(Some(Step::EndOfKey))
    }

    /// Unpacks the next chunk of a packed string.
    fn unpack(&mut self, packed: u64, left: u64, mut sent: usize) -> Attempt {
        let bad = |corrupt| Stop::Bad(0, Reason::Lzf(corrupt));
        if left == 0 {
            return if packed == 0 { self.end_of_text() } else { Err(bad(lzf::Corrupt::Length)) };
        }
        let text = &mut self.texts[WHOLE];
        if sent > lzf::WINDOW_BYTES {
            text.drain(..sent - lzf::WINDOW_BYTES);
            sent = lzf::WINDOW_BYTES;
        }
        let chunk = size(left).min(CHUNK_BYTES);
        let input = size(packed).min(self.end - self.at);
        let arrived = &self.buffer[self.at..self.at + input];
        let used = lzf::unpack(arrived, text, sent + chunk)
            .map_err(|(behind, fault)| Stop::Bad(behind, Reason::Lzf(fault)))?;
        let fresh = text.len() - sent;
        let packed = packed - used as u64;
        self.consume(used);
        if fresh < chunk {
            self.state = State::Body(Body::Packed { packed, left, sent });
            if input as u64 == packed + used as u64 {
                // The whole string has arrived, but is too short.
                let fault = if packed == 0 { lzf::Corrupt::Length } else { lzf::Corrupt::Cut };
                return Err(bad(fault));
            }
            return Err(Stop::Short(input - used + 1));
        }
        if fresh as u64 > left {
            return Err(bad(lzf::Corrupt::Length));
        }
        let span = Span::Text(WHOLE, sent..sent + chunk);
        let (left, sent) = (left - chunk as u64, sent + chunk);
        self.state = State::Body(Body::Packed { packed, left, sent });
        self.chunk(span)
    }

    /// The header of a block that is reported as a whole.
    fn whole(&self, block: &Block) -> Option<BlockHead> {
        let &Block { form, arity, packed, len, taken, announced, .. } = block;
        let is_whole = self.gives_blocks && taken == 0 && arity < 3 && len <= BLOCK_BYTES_MAX;
        let announced = announced.filter(|_| is_whole)?;
        Some(BlockHead { form, arity, was_packed: packed, offset: self.offset(), announced })
    }

    fn whole_block(&mut self, head: BlockHead, block: Block) -> Attempt {
        let span = match block.packed {
            true => Span::Text(WHOLE, 0..block.len),
            false => Span::Buffer(self.at..self.at + block.len),
        };
        if !block.packed {
            self.consume(block.len);
        }
        self.state = State::Body(block.rest.map_or(Body::End, Body::Nodes));
        Ok(Some(Step::Block(head, span)))
    }

    /// Reads the next item of a packed collection.
    fn block_item(&mut self, mut block: Block) -> Attempt {
        let Some(first) = self.block_entry(&mut block)? else {
            return self.end_of_block(block);
        };
        if let Entry::Text { start, len } = first
            && self.gives_parts
            && block.rest.is_some()
            && len > CHUNK_BYTES
        {
            self.state = State::Body(Body::Element { block, start, end: start + len });
            return Ok(Some(Step::LongSingle(len as u64)));
        }
        if block.arity == 1 {
            let name = self.place_entry(first, &block, FIRST);
            self.state = State::Body(Body::Block(block));
            return Ok(Some(Step::Single(name)));
        }
        let Some(second) = self.block_entry(&mut block)? else {
            return Err(block_fault(&block, "a field without a value"));
        };
        let mut deadline_ms = None;
        if block.arity == 3 {
            let bytes = self.block_bytes(&block);
            let Some(third) = self.block_entry(&mut block)? else {
                return Err(block_fault(&block, "a field without a deadline"));
            };
            let deadline = third.integer(&self.block_source(&block)[bytes]);
            deadline_ms = match deadline.and_then(|value| u64::try_from(value).ok()) {
                Some(0) => None,
                Some(value @ ..=types::DEADLINE_MAX_MS) => Some(value),
                _ => return Err(block_fault(&block, "a deadline out of range")),
            };
        }
        let name = self.place_entry(first, &block, FIRST);
        let value = self.place_entry(second, &block, SECOND);
        self.state = State::Body(Body::Block(block));
        Ok(Some(Step::Pair(name, value, deadline_ms)))
    }

    /// Reads the next part of a long element in a list's block.
    fn element_part(&mut self, block: Block, start: usize, end: usize) -> Attempt {
        let len = CHUNK_BYTES.min(end - start);
        let part = self.place_entry(Entry::Text { start, len }, &block, FIRST);
        let start = start + len;
        self.state = State::Body(match start < end {
            true => Body::Element { block, start, end },
            false => Body::Block(block),
        });
        Ok(Some(Step::ValuePart(part)))
    }

    pub(super) fn block_entry(&self, block: &mut Block) -> Result<Option<Entry>, Stop> {
        let bytes = &self.block_source(block)[self.block_bytes(block)];
        match block.form.entry(bytes, block.at, block.taken) {
            Ok(None) => Ok(None),
            Ok(Some((entry, next))) => {
                (block.at, block.taken) = (next, block.taken + 1);
                Ok(Some(entry))
            }
            Err(fault) => Err(block_fault(block, fault)),
        }
    }

    fn block_source(&self, block: &Block) -> &[u8] {
        if block.packed { &self.texts[WHOLE] } else { &self.buffer }
    }

    fn block_bytes(&self, block: &Block) -> Range<usize> {
        if block.packed { 0..block.len } else { self.at..self.at + block.len }
    }

    pub(super) fn place_entry(&mut self, entry: Entry, block: &Block, slot: usize) -> Span {
        match entry {
            Entry::Text { start, len } if block.packed => Span::Text(WHOLE, start..start + len),
            Entry::Text { start, len } => Span::Buffer(self.at + start..self.at + start + len),
            Entry::Int(value) => {
                write_int(&mut self.texts[slot], value);
                Span::Text(slot, 0..self.texts[slot].len())
            }
        }
    }

    fn end_of_block(&mut self, block: Block) -> Attempt {
        if block.announced.is_some_and(|announced| announced != block.taken) {
            return Err(block_fault(&block, "its count differs from its entries"));
        }
        if !block.packed {
            self.consume(block.len);
        }
        match block.rest {
            Some(nodes) => {
                self.state = State::Body(Body::Nodes(nodes));
                Ok(None)
            }
            None => self.end_of_key(),
        }
    }

    /// Starts the next of several packed collections, or reads an item stored singly among them.
    fn node(&mut self, nodes: Nodes) -> Attempt {
        if nodes.left == 0 {
            return self.end_of_key();
        }
        let rest = Nodes { left: nodes.left - 1, ..nodes };
        let mut cursor = self.cursor();
        let number = if nodes.numbered { cursor.count()? } else { types::NODE_PACKED };
        match number {
            types::NODE_PACKED => {
                let skip = cursor.at;
                let Opened { body, used, .. } = self.open_block(nodes.form, 1, skip)?;
                self.consume(used);
                let Body::Block(block) = body else { unreachable!("a block was opened") };
                self.state = State::Body(Body::Block(Block { rest: Some(rest), ..block }));
                Ok(None)
            }
            types::NODE_PLAIN => {
                if let Some((len, body)) = self.long_text(&mut cursor)? {
                    self.begin_long(cursor.at, body, Body::Nodes(rest));
                    return Ok(Some(Step::LongSingle(len)));
                }
                let (text, used) = (cursor.text()?, cursor.at);
                if matches!(text, Text::Raw { len: 0, .. }) {
                    return Err(node_fault("an element without bytes in a node of its own"));
                }
                let name = self.place(text, FIRST)?;
                self.consume(used);
                self.state = State::Body(Body::Nodes(rest));
                Ok(Some(Step::Single(name)))
            }
            _ => Err(node_fault("neither one element nor a block of them")),
        }
    }
}

fn node_fault(fault: &'static str) -> Stop {
    Stop::Bad(0, Reason::Blob { form: "node of a list", fault })
}

pub(super) fn block_fault(block: &Block, fault: &'static str) -> Stop {
    let behind = if block.packed { 0 } else { block.at };
    Stop::Bad(behind, Reason::Blob { form: block.form.name(), fault })
}

/// Reads a score as written before version 8: a length and digits, or a length that stands for a
/// number without digits.
fn score_text(cursor: &mut Cursor<'_>) -> Result<f64, Stop> {
    const NAN: u8 = 253;
    const INFINITE: u8 = 254;
    const NEGATIVE_INFINITE: u8 = 255;
    let at = cursor.at;
    match cursor.byte()? {
        NAN => Ok(f64::NAN),
        INFINITE => Ok(f64::INFINITY),
        NEGATIVE_INFINITE => Ok(f64::NEG_INFINITY),
        len => {
            let digits = cursor.take(usize::from(len))?;
            score::parse(digits).ok_or(Stop::Bad(at, Reason::Score))
        }
    }
}

fn deadline_first(number: u64, origin: Option<u64>) -> Result<Option<UnixMillis>, Stop> {
    let deadline = match (number, origin) {
        (0, _) => return Ok(None),
        (number, None) => Some(number),
        (number, Some(origin)) => origin.checked_add(number - 1),
    };
    match deadline {
        Some(deadline @ ..=types::DEADLINE_MAX_MS) => Ok(Some(deadline)),
        _ => Err(Stop::Bad(0, Reason::Deadline)),
    }
}
