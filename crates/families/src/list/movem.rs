//! LMOVEM: several elements from one list to another, perhaps on another core.
//!
//! The elements are split off as one list and joined to the other list, in O(log n) whatever their
//! number. Only if their order is to be reversed are they copied one by one, in portions, while
//! both keys are locked.

use super::read::Ranging;
use super::transfer::Ends;
use super::value::List;
use crate::pending_values::flow;
use darter_command::{Answer, Args, Call, Flow, Refusal};
use darter_keyspace::{Db, Key, WrongType};
use darter_resp::{Output, Reply};
use darter_structs::list::{self, End, ListReader, NewElement};
use darter_tx::Access;
use std::ops::Range;

/// Elements that are copied between two pauses.
const REVERSED_AT_ONCE: usize = 32;

/// The move that a request asks for.
#[derive(Clone, Copy)]
pub(super) struct MoveRequest {
    ends: Ends,
    count: usize,
    /// Moves exactly this many elements or none.
    is_exact: bool,
    /// Moves elements one by one: so between equal ends their order is reversed.
    is_one_by_one: bool,
}

impl MoveRequest {
    /// Parses the arguments after the two keys.
    fn parse(mut args: Args<'_>) -> Result<Self, Refusal> {
        let ends = Ends::read(&mut args)?;
        Self::parse_number(ends, args)
    }

    /// Parses the arguments of the blocking form, with a timeout between the ends and the count.
    /// Returns the timeout, too.
    pub(super) fn parse_waiting(mut args: Args<'_>) -> Result<(Self, &[u8]), Refusal> {
        let ends = Ends::read(&mut args)?;
        let timeout = args.word()?;
        Ok((Self::parse_number(ends, args)?, timeout))
    }

    fn parse_number(ends: Ends, mut args: Args<'_>) -> Result<Self, Refusal> {
        let mut asked = Self { ends, count: 1, is_exact: false, is_one_by_one: false };
        if args.left() > 0 {
            asked.is_exact = args.option("EXACTLY");
            if !asked.is_exact && !args.option("COUNT") || args.left() != 2 {
                return Err(Refusal::Syntax);
            }
            asked.count = super::mpop::positive(&mut args, "ERR count should be greater than 0")?;
            asked.is_one_by_one = args.option("OBO");
            if !asked.is_one_by_one && !args.option("BULK") {
                return Err(Refusal::Syntax);
            }
        }
        Ok(asked)
    }

    /// The fewest elements that are moved; with fewer in the list, none is.
    pub(super) fn least(&self) -> usize {
        if self.is_exact { self.count } else { 1 }
    }

    /// The number of elements moved from a list of `len`.
    fn count_of(&self, len: usize) -> usize {
        if self.is_exact && len < self.count { 0 } else { len.min(self.count) }
    }

    fn is_reversed(&self) -> bool {
        self.is_one_by_one && self.ends.from == self.ends.to
    }

    /// The indexes of the moved elements in a list of `len`.
    fn indexes(&self, len: usize) -> Range<usize> {
        let count = self.count_of(len);
        if self.ends.from == End::Front { 0..count } else { len - count..len }
    }
}

/// `LMOVEM source destination LEFT|RIGHT LEFT|RIGHT [COUNT count|EXACTLY count OBO|BULK]`: moves
/// elements from an end of one list to an end of another.
///
/// Reply: array of the moved elements, in the order of the destination; streamed when long. Null if
/// there are fewer elements than EXACTLY requires. Refusals: an unknown word, a count that is not
/// positive, `WrongType` of the source, or of the destination if any element is to be moved. Cost:
/// O(log n), plus three messages between cores if the keys are on different cores; O(elements) in
/// slices, if they are reversed. Source: <https://redis.io/commands/lmovem> (8.10.0).
pub(super) async fn lmovem(call: Call) -> Result<Answer, Refusal> {
    let asked = MoveRequest::parse(call.args())?;
    run(call, asked).await
}

/// `BLMOVEM` where blocking is not allowed.
pub(super) async fn blmovem(call: Call) -> Result<Answer, Refusal> {
    let (asked, timeout) = MoveRequest::parse_waiting(call.args())?;
    crate::waiting::seconds(timeout)?;
    run(call, asked).await
}

async fn run(call: Call, asked: MoveRequest) -> Result<Answer, Refusal> {
    let (from, to) = (call.first, call.first + 1);
    let _locked = call.lock_keys([from, to].map(|at| (at, Access::Exclusive))).await;
    let Some(found) = Move { call: &call, asked, from, to }.run().await? else {
        return Ok(
            call.answer(|reply| if asked.is_exact { reply.null_array() } else { reply.array(0) })
        );
    };
    let mut out = Output::default();
    let reply = &mut Reply::new(&mut out, call.resp3);
    reply.array(found.left());
    match flow(reply, Ranging::new(found)) {
        Flow::Stream(rest) => Ok(Answer::Stream(out, rest)),
        _ => Ok(Answer::Done(out)),
    }
}

/// An LMOVEM whose keys are locked. The elements found cannot change before they are moved, but the
/// key may expire.
struct Move<'c> {
    call: &'c Call,
    asked: MoveRequest,
    /// The index of the source key.
    from: usize,
    to: usize,
}

impl Move<'_> {
    /// Moves the elements. Returns a cut of them, unless there are none.
    async fn run(&self) -> Result<Option<ListReader>, Refusal> {
        let Some(reader) = self.find().await? else { return Ok(None) };
        let is_one_key = self.call.arg(self.from) == self.call.arg(self.to);
        if !is_one_key {
            self.check_target().await?;
        }
        let mut reversed = None;
        if self.asked.is_reversed() {
            reversed = Some(self.reverse(reader).await);
        }
        Ok(if is_one_key { self.turn(reversed).await } else { self.carry(reversed).await })
    }

    /// Runs a closure on the list at one of the keys. `None` if there is no list, and none is
    /// created.
    async fn edit<R: Send + 'static>(
        &self,
        at: usize,
        create: bool,
        act: impl FnOnce(&mut super::ListEdit<'_>) -> R + Send + 'static,
    ) -> Option<R> {
        let change = move |db: &mut Db, key: &Key<'_>| db.edit::<List, _>(key, create, act);
        let changed = self.call.on_key(at, change).await;
        changed.expect("its type has been checked, and it is locked")
    }

    /// A cut of the elements that will be moved.
    async fn find(&self) -> Result<Option<ListReader>, WrongType> {
        let asked = self.asked;
        let look = move |db: &mut Db, key: &Key<'_>| {
            let found = db.read_value::<List>(key)?;
            let found = found.filter(|list| asked.count_of(list.elements().len()) > 0);
            Ok(found.map(|list| list.reader(asked.indexes(list.elements().len()))))
        };
        self.call.on_key(self.from, look).await
    }

    async fn check_target(&self) -> Result<(), WrongType> {
        self.call.on_key(self.to, |db, key| db.read_value::<List>(key).map(|_| ())).await
    }

    /// Copies the elements in reverse order.
    async fn reverse(&self, mut reader: ListReader) -> list::List {
        let mut reversed = list::List::new();
        while reader.next_slice(REVERSED_AT_ONCE, &mut |element| match element {
            list::Element::Text(text) => reversed.push(End::Front, &*text.to_vec()),
            list::Element::Blob(blob) => reversed.push(End::Front, NewElement::Blob(blob.clone())),
        }) {
            self.call.tx.pause().await;
        }
        reversed
    }

    /// Moves elements within one list, which is never empty in between.
    async fn turn(&self, reversed: Option<list::List>) -> Option<ListReader> {
        let asked = self.asked;
        let turn = self.edit(self.from, false, move |edit| {
            let block = edit.detach(asked.ends.from, asked.count);
            let block = reversed.unwrap_or(block);
            let moved = read(&block);
            edit.attach(asked.ends.to, block);
            moved
        });
        turn.await
    }

    /// Moves elements from one list to another.
    async fn carry(&self, reversed: Option<list::List>) -> Option<ListReader> {
        let Ends { from, to } = self.asked.ends;
        let count = self.asked.count;
        let block = self.edit(self.from, false, move |edit| edit.detach(from, count)).await?;
        let block = reversed.unwrap_or(block);
        let attach = self.edit(self.to, true, move |edit| {
            let moved = read(&block);
            edit.attach(to, block);
            moved
        });
        attach.await
    }
}

/// A cut of all elements of a list.
fn read(list: &list::List) -> ListReader {
    ListReader::new(list.reader(), 0..list.len())
}
