//! Elements between values: the header, opcodes, module data, keys with the headers of their
//! values, and the trailer.

use super::*;

impl Reader {
    pub(super) fn header(&mut self) -> Attempt {
        let mut cursor = self.cursor();
        let head: &[u8] = cursor.take(9)?;
        let (product, digits) = match head {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => (Product::Redis, digits),
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => (Product::Valkey, digits),
            _ => return Err(Stop::Bad(0, Reason::Magic)),
        };
        let Some(version) = decimal(digits) else { return Err(Stop::Bad(0, Reason::Magic)) };
        let read = match product {
            Product::Redis => types::VERSION_MIN..=types::VERSION_MAX,
            Product::Valkey => types::VALKEY_VERSION_MIN..=types::VALKEY_VERSION_MAX,
        };
        if !read.contains(&version) {
            return Err(Stop::Bad(9 - digits.len(), Reason::Version(version)));
        }
        self.at += 9;
        (self.product, self.version, self.state) = (product, version, State::Top);
        Ok(Some(Step::Start))
    }

    pub(super) fn top(&mut self) -> Attempt {
        let mut cursor = self.cursor();
        let opcode = cursor.byte()?;
        match opcode {
            types::OP_EXPIRE_MS => {
                let deadline = cursor.i64_le()?;
                let used = cursor.at;
                self.pending.expiry_ms = deadline_of(deadline);
                self.consume(used);
                Ok(None)
            }
            types::OP_EXPIRE_S => {
                let deadline = i64::from(cursor.i32_le()?);
                let used = cursor.at;
                self.pending.expiry_ms = deadline_of(deadline).map(|seconds| seconds * 1000);
                self.consume(used);
                Ok(None)
            }
            types::OP_IDLE => {
                let (idle, used) = (cursor.count()?, cursor.at);
                self.pending.idle_s = Some(idle);
                self.consume(used);
                Ok(None)
            }
            types::OP_FREQ => {
                let (frequency, used) = (cursor.byte()?, cursor.at);
                self.pending.frequency = Some(frequency);
                self.consume(used);
                Ok(None)
            }
            types::OP_EOF => {
                self.at += 1;
                self.state = State::Trailer;
                Ok(None)
            }
            types::OP_SLOT_INFO.. => self.remark(opcode),
            _ => self.key(opcode),
        }
    }

    /// Reads an opcode that is an event of its own.
    fn remark(&mut self, opcode: u8) -> Attempt {
        let mut cursor = self.cursor();
        cursor.byte()?;
        match opcode {
            types::OP_AUX => {
                let (key, value, used) = (cursor.text()?, cursor.text()?, cursor.at);
                let (key, value) = (self.place(key, FIRST)?, self.place(value, SECOND)?);
                self.consume(used);
                Ok(Some(Step::Aux(key, value)))
            }
            types::OP_SELECT_DB => {
                let (number, used) = (cursor.count()?, cursor.at);
                let Ok(database) = u32::try_from(number) else {
                    return Err(Stop::Bad(1, Reason::Database(number)));
                };
                self.consume(used);
                Ok(Some(Step::SelectDb(database)))
            }
            types::OP_RESIZE_DB => {
                let (keys, expires, used) = (cursor.count()?, cursor.count()?, cursor.at);
                self.consume(used);
                Ok(Some(Step::ResizeDb(keys, expires)))
            }
            types::OP_SLOT_INFO => {
                let (slot, keys, expires) = (cursor.count()?, cursor.count()?, cursor.count()?);
                let used = cursor.at;
                self.consume(used);
                Ok(Some(Step::SlotInfo(slot, keys, expires)))
            }
            types::OP_FUNCTION2 => {
                let (code, used) = (cursor.text()?, cursor.at);
                let code = self.place(code, FIRST)?;
                self.consume(used);
                Ok(Some(Step::Function(code)))
            }
            types::OP_MODULE_AUX => {
                // The module, then the number 2 and the time of loading.
                let (id, _, _) = (cursor.count()?, cursor.count()?, cursor.count()?);
                let used = cursor.at;
                self.consume(used);
                self.state = State::Module { module: module_name(id), skip: 0 };
                Ok(None)
            }
            types::OP_FUNCTION_PRE_GA => Err(Stop::Bad(0, Reason::FunctionPreGa)),
            _ => Err(Stop::Bad(0, Reason::Opcode(opcode))),
        }
    }

    /// Skips one item of module data.
    pub(super) fn module(&mut self, module: [u8; 9], skip: u64) -> Attempt {
        if skip > 0 {
            let step = size(skip).min(self.end - self.at);
            if step == 0 {
                return Err(Stop::Short(1));
            }
            self.consume(step);
            self.state = State::Module { module, skip: skip - step as u64 };
            return Ok(None);
        }
        let mut cursor = self.cursor();
        let mut skip = 0;
        let code = cursor.count()?;
        match code {
            0 => {}
            1 | 2 => drop(cursor.count()?),
            3 => drop(cursor.take(4)?),
            4 => drop(cursor.take(8)?),
            5 => match cursor.head()? {
                Head::Raw(len) | Head::Lzf { packed: len, .. } => skip = len,
                Head::Int(_) => {}
            },
            _ => return Err(Stop::Bad(0, Reason::ModuleOpcode(code))),
        }
        let used = cursor.at;
        self.consume(used);
        if code == 0 {
            self.state = State::Top;
            return Ok(Some(Step::ModuleSkipped(module)));
        }
        self.state = State::Module { module, skip };
        Ok(None)
    }

    /// Reads the checksum, preceded by the version in a payload.
    pub(super) fn trailer(&mut self) -> Attempt {
        if self.payload.is_none() && self.version < types::VERSION_CHECKSUM {
            return Ok(Some(self.end(0, Crc::Off)));
        }
        let mut cursor = self.cursor();
        if let Some(len) = self.payload {
            if self.offset() + PAYLOAD_TRAILER_BYTES != len {
                return Err(Stop::Bad(0, Reason::Trailing));
            }
            cursor.u16_le()?;
        }
        let (covered, stored) = (cursor.at, cursor.u64_le()?);
        let used = cursor.at;
        if self.trusts {
            return Ok(Some(self.end(used, Crc::Off)));
        }
        self.hash_consumed();
        let mut crc = self.crc.clone();
        crc.update(&self.buffer[self.at..self.at + covered]);
        let computed = crc.value();
        if stored != computed && (self.payload.is_some() || stored != 0) {
            return Err(Stop::Bad(covered, Reason::Checksum { computed, stored }));
        }
        let is_off = stored == 0 && computed != 0;
        Ok(Some(self.end(used, if is_off { Crc::Off } else { Crc::Verified })))
    }

    fn end(&mut self, used: usize, crc: Crc) -> Step {
        self.consume(used);
        self.state = State::Done;
        self.need = usize::MAX;
        Step::Eof(crc)
    }

    // Reads a key and the header of its value.

    fn key(&mut self, encoding: u8) -> Attempt {
        let mut cursor = self.cursor();
        cursor.byte()?;
        let (kind, layout) = self.encoding(encoding)?;
        let (key, used) = (cursor.text()?, cursor.at);
        let Opened { len_hint, body, used } = self.open(layout, used)?;
        let key = self.place(key, FIRST)?;
        self.consume(used);
        self.state = State::Body(body);
        let pending = std::mem::take(&mut self.pending);
        Ok(Some(Step::Key { key, kind, encoding, pending, len_hint }))
    }

    pub(super) fn value(&mut self) -> Attempt {
        let encoding = self.cursor().byte()?;
        let (kind, layout) = self.encoding(encoding)?;
        let Opened { len_hint, body, used } = self.open(layout, 1)?;
        self.consume(used);
        self.state = State::Body(body);
        let (key, pending) = (Span::Text(FIRST, 0..0), Pending::default());
        Ok(Some(Step::Key { key, kind, encoding, pending, len_hint }))
    }

    /// The type and layout of a value with this number.
    fn encoding(&self, number: u8) -> Result<(&'static Kind, Layout), Stop> {
        for kind in self.kinds {
            let mut encodings = kind.encodings.iter();
            let known = encodings.find(|known| known.number == number && self.is_of(known.origin));
            if let Some(known) = known {
                return Ok((kind, known.layout));
            }
        }
        Err(Stop::Bad(
            0,
            match types::refused(number) {
                Some((name, encoding)) if self.product == Product::Redis || number < 22 => {
                    Reason::UnsupportedType { name, encoding, number }
                }
                _ => Reason::Opcode(number),
            },
        ))
    }

    /// True if the file has this `origin`.
    fn is_of(&self, origin: Origin) -> bool {
        match origin {
            Origin::Any => true,
            Origin::Redis => self.product == Product::Redis,
            Origin::Valkey => self.product == Product::Valkey,
            Origin::Darter => self.product == Product::Redis || self.payload.is_some(),
        }
    }

    /// Reads the header of a value that begins `skip` bytes after `at`.
    fn open(&mut self, layout: Layout, skip: usize) -> Result<Opened, Stop> {
        let mut cursor = self.cursor();
        cursor.take(skip)?;
        let shape = match layout {
            Layout::Text => return self.open_string(skip),
            Layout::Block(form, arity) => return self.open_block(form, arity, skip),
            Layout::BlockFromEarliest(form, arity) => {
                cursor.u64_le()?; // Each item also has its own deadline.
                let skip = cursor.at;
                return self.open_block(form, arity, skip);
            }
            Layout::Blocks(form) => return self.open_nodes(form, false, skip),
            Layout::Nodes(form) => return self.open_nodes(form, true, skip),
            Layout::Entries(generation) => {
                let (nodes, used) = (cursor.count()?, cursor.at);
                self.log = Some(Box::new(Log::new(generation, false, nodes)));
                let body = Body::Entries(EntriesStage::Nodes);
                return Ok(Opened { len_hint: None, body, used });
            }
            Layout::Singles => Shape::Singles,
            Layout::Pairs => Shape::Pairs,
            Layout::Scores => Shape::Scores,
            Layout::ScoreTexts => Shape::ScoreTexts,
            Layout::PairsDeadlineFirst => Shape::DeadlineFirst { origin: None },
            Layout::PairsFromEarliest => Shape::DeadlineFirst { origin: Some(cursor.u64_le()?) },
            Layout::PairsDeadlineLast => Shape::DeadlineLast,
        };
        let left = cursor.count()?;
        let (used, body) = (cursor.at, Body::Items { shape, left });
        let len_hint = Some(left.min(self.size.saturating_sub(self.offset())));
        Ok(Opened { len_hint, body, used })
    }

    fn open_string(&mut self, skip: usize) -> Result<Opened, Stop> {
        let mut cursor = self.cursor();
        cursor.take(skip)?;
        let (head, used) = (cursor.head()?, cursor.at);
        let (len, body) = match head {
            Head::Raw(left) => (left, Body::Raw { left }),
            Head::Int(value) => {
                write_int(&mut self.texts[WHOLE], value);
                (self.texts[WHOLE].len() as u64, Body::Int)
            }
            Head::Lzf { packed, len } => {
                self.texts[WHOLE].clear();
                (len, Body::Packed { packed, left: len, sent: 0 })
            }
        };
        Ok(Opened { len_hint: Some(len), body, used })
    }

    /// Reads the number of packed collections of a value.
    fn open_nodes(&mut self, form: Form, numbered: bool, skip: usize) -> Result<Opened, Stop> {
        let mut cursor = self.cursor();
        cursor.take(skip)?;
        let left = cursor.count()?;
        let body = Body::Nodes(Nodes { form, numbered, left });
        Ok(Opened { len_hint: None, body, used: cursor.at })
    }

    /// Opens a packed collection, once all of it has arrived.
    pub(super) fn open_block(
        &mut self,
        form: Form,
        arity: u8,
        skip: usize,
    ) -> Result<Opened, Stop> {
        let mut cursor = self.cursor();
        cursor.take(skip)?;
        let head_at = cursor.at;
        let (text, end) = (cursor.text()?, cursor.at);
        let (packed, start) = match text {
            Text::Raw { start, .. } => (false, start),
            _ => {
                self.place(text, WHOLE)?;
                (true, head_at)
            }
        };
        let bytes = if packed {
            &self.texts[WHOLE][..]
        } else {
            &self.buffer[self.at + start..self.at + end]
        };
        let (at, announced) = form
            .open(bytes)
            .map_err(|fault| Stop::Bad(start, Reason::Blob { form: form.name(), fault }))?;
        let (len, rest) = (bytes.len(), None);
        let block = Block { form, arity, packed, len, at, taken: 0, announced, rest };
        // A block in the buffer is not consumed until its last entry has been reported.
        let used = if packed { end } else { start };
        let len_hint = announced.map(|entries| entries / u64::from(arity));
        Ok(Opened { len_hint, body: Body::Block(block), used })
    }
}

/// The number in a version's digits.
fn decimal(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0_u16, |sum, digit| {
        digit.is_ascii_digit().then(|| sum * 10 + u16::from(digit - b'0'))
    })
}

/// A module's type name: nine characters of 6 bits each, above 10 bits of version.
fn module_name(id: u64) -> [u8; 9] {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    std::array::from_fn(|index| ALPHABET[(id >> (58 - 6 * index) & 63) as usize])
}
