//! A complete type that no crate knows: the toy of docs/adding-a-type.md.
//!
//! A heap of numbers with a sum. Only the whole value has a deadline, and entries are not found by
//! name.
#![allow(dead_code, unreachable_pub, reason = "every crate uses another part")]

use darter_keyspace::{
    Change, Collection, Commands, Db, Event, Key, Kind, NewItem, Object, Recorder, Type, Typed,
    Value, WrongType,
};
use darter_rdb::types::PRIVATE;
use darter_rdb::{Bounds, Encoding, Item, Items, Layout, Origin, Source};

/// How a heap is in a payload.
const NUMBERS: u8 = PRIVATE + 1;

/// The row.
pub static HEAP: Type = Type {
    name: "heap",
    number: 5,
    rdb: &Kind {
        encodings: &[
            Encoding::of(Origin::Darter, NUMBERS, Layout::Singles),
            // Another format, which other servers do not have, for testing the loader.
            Encoding::new(NUMBERS + 1, Layout::Singles),
        ],
        packed: Bounds::DEFAULT,
        plan: |survey| survey.plain(NUMBERS),
    },
    empty: || Object::new(Heap::default()),
    bounds: &[],
    is_ordered: true,
};

/// The value.
#[derive(Clone, Default)]
pub struct Heap(pub Vec<u64>);

impl Value for Heap {
    fn content_bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }

    fn encoding(&self) -> &'static str {
        "vector"
    }

    fn items(&self, _: u64) -> Items {
        Box::new(Numbers { numbers: self.0.clone(), next: 0, text: Vec::new() })
    }

    fn take_in(&mut self, item: NewItem<'_>) -> bool {
        let number: Option<u64> =
            std::str::from_utf8(item.name()).ok().and_then(|text| text.parse().ok());
        number.is_some_and(|number| {
            self.edit_aside(0).push(number);
            true
        })
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The numbers, as texts.
struct Numbers {
    numbers: Vec<u64>,
    next: usize,
    text: Vec<u8>,
}

impl Source for Numbers {
    fn next(&mut self) -> Option<Item<'_>> {
        self.text = self.numbers.get(self.next)?.to_string().into();
        self.next += 1;
        Some(Item::Single { name: &self.text, deadline_ms: None })
    }

    fn rewind(&mut self) {
        self.next = 0;
    }
}

impl Typed for Heap {
    const TYPE: &'static Type = &HEAP;
}

impl Collection for Heap {
    type Edit<'a> = HeapEdit<'a>;

    fn edit<'a>(&'a mut self, _: u64, recorder: Recorder<'a>) -> HeapEdit<'a> {
        HeapEdit { numbers: &mut self.0, recorder }
    }
}

const PUSHED: &Event = &Event::new("pushed", b'd');
const POPPED: &Event = &Event::new("popped", b'd');

/// A recorded change.
#[derive(Debug)]
pub enum HeapChange {
    Push(u64),
    Pop,
}

impl Change for HeapChange {
    const TYPE: &'static Type = &HEAP;

    fn held_bytes(&self) -> usize {
        0
    }

    fn apply(changes: &[Self], db: &mut Db, key: &Key<'_>) -> Result<(), WrongType> {
        db.edit::<Heap, _>(key, true, |edit| {
            for change in changes {
                match change {
                    Self::Push(number) => edit.push(*number),
                    Self::Pop => _ = edit.pop(),
                }
            }
        })?;
        Ok(())
    }

    fn encode(changes: &[Self], key: &[u8], to: &mut Commands) {
        for change in changes {
            match change {
                Self::Push(number) => {
                    to.begin(3);
                    to.word(b"HEAP.PUSH");
                    to.word(key);
                    to.natural(*number);
                }
                Self::Pop => to.command(&[b"HEAP.POP", key]),
            }
        }
    }
}

/// The editor of a heap.
pub struct HeapEdit<'a> {
    numbers: &'a mut Vec<u64>,
    recorder: Recorder<'a>,
}

impl HeapEdit<'_> {
    pub fn push(&mut self, number: u64) {
        self.numbers.push(number);
        self.recorder.record(&[PUSHED], || HeapChange::Push(number));
    }

    pub fn pop(&mut self) -> Option<u64> {
        let number = self.numbers.pop()?;
        self.recorder.record(&[POPPED], || HeapChange::Pop);
        Some(number)
    }
}
