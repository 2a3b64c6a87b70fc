//! JSON documents: a small one is one run of bytes, in a large one every large array and object is
//! a counted tree of packed chunks.
//!
//! A tree of boxed values, as most libraries have it, takes 16 to 60 bytes a number, is copied and
//! freed value by value, and its arrays move when something is inserted. Here a number takes the
//! bytes it needs, an object of some fields is bytes within the array that holds it, a clone is a
//! cut, and a change at a path copies a chunk a level. Numbers and what we rejected:
//! docs/design/0020-json.md.
//!
//! ```text
//! value --+-- scalar     null, numbers, texts up to 480 bytes: in place
//!         +-- pack       an array or object of up to 480 bytes: in place, what it holds as well
//!         +-- outside    a longer text: a blob; a larger array, object: a tree of chunks, shared
//!
//! array:  nodes -> chunk: value, value, ..        object: nodes -> chunk: name, value, name, ..
//!                                                         index:  hash of the name -> place
//! ```
//! | file    | holds                                                         |
//! |---------|---------------------------------------------------------------|
//! | `item`  | the bytes of a value                                          |
//! | `value` | reading and changing a value in its stored form               |
//! | `big`   | large arrays and objects                                      |
//! | `build` | tokens to a document                                          |
//! | `parse` | text to a document, in pieces                                 |
//! | `walk`  | a document to tokens, in slices                               |
//! | `print` | tokens to text                                                |
//!
//! A path is a list of places: an index in an array, the place of a member in an object. The members
//! of an object are in the order in which they were added, but the last takes the place of one that
//! is removed: RedisJSON's order.
//!
//! Invariants (`check_invariants`; those of chunks and nodes are in their files):
//! - J1: a value that fits into its place is stored there.
//! - J2: an empty array or object is a pack.
//! - J3: an object of more than 64 members has an index of all.
//!
//! Not here: the language of paths, and the commands. See `families`.

mod big;
mod build;
mod item;
mod parse;
mod print;
#[cfg(test)]
mod tests;
mod value;
mod walk;

pub use build::{JsonBuilder, Token};
pub use item::TEXT_MAX;
pub use parse::{DEPTH_MAX, Fault, NAME_BYTES_MAX, Parser, parse};
pub use print::{Format, Printer, escape, float, quoted, scalar};
pub use value::{Child, Iter, JsonText, Node, Value, View};
pub use walk::Walk;

/// Levels of a document, at most, whatever its changes add up to.
pub const LEVELS_MAX: usize = 512;

/// The text of a value. Cost: O(bytes): for small ones.
#[must_use]
pub fn to_text(value: &Value, path: &[usize], format: &Format) -> Vec<u8> {
    let (mut out, mut printer) = (Vec::new(), Printer::new(format.clone()));
    let mut walk = Walk::of(path);
    while walk.run(value, usize::MAX, &mut |token| printer.print(token, &mut out)) {}
    out
}
