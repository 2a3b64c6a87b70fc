//! A few shared things in a vector; very many in a counted tree.
//!
//! Most streams have a handful of groups, and a group a handful of consumers: those a cut may count
//! one by one. But there are groups with a hundred thousand consumers that are never removed.

use crate::chunk::{Chunk, Coding, Encoded, Held, own};
use crate::owner::Owner;
use crate::tree::{self, Subtree, defer};
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The most in a vector.
const FEW_MAX: usize = 16;

/// A value on a shelf. Cloning it is a cut.
pub(super) trait Shelved: Clone + fmt::Debug + Send + Sync + 'static {
    /// Bytes of memory that it owns, itself not included.
    fn content_bytes(&self) -> usize;
}

/// Something on a shelf, shared with cuts.
#[derive(Debug)]
pub(super) struct Holder<T>(Arc<T>);

impl<T> Clone for Holder<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Bytes of a holder's target, its counts included, without its property: that may change while it
/// is on the shelf, and is in [`Shelf::content`].
const fn holder_bytes<T>() -> usize {
    2 * size_of::<usize>() + size_of::<T>()
}

impl<T: Shelved> Held for Holder<T> {
    fn memory_bytes(&self) -> usize {
        holder_bytes::<T>()
    }
}

/// Bytes of an item in a chunk: the number of its holder.
const ITEM: usize = size_of::<u16>();

/// The items of a tree's chunks: numbers of holders.
struct Slots<T>(std::marker::PhantomData<fn() -> T>);

impl<T> Clone for Slots<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slots<T> {}

/// A holder to be added.
struct New<T>(Holder<T>);

impl<T> Encoded<Holder<T>> for New<T> {
    fn len(&self) -> usize {
        ITEM
    }

    fn long(&self) -> Option<&Holder<T>> {
        Some(&self.0)
    }

    fn write_to(&self, _: &mut [u8]) {}
}

impl<T: Shelved> Coding for Slots<T> {
    const GROUP: usize = usize::MAX;
    type Long = Holder<T>;
    type Code<'a> = New<T>;
    type First = ();

    fn len(_: &[u8]) -> usize {
        ITEM
    }

    fn skip(_: &[u8], at: usize, count: usize) -> usize {
        at + count * ITEM
    }

    fn first(_: &[u8]) {}

    fn outside(bytes: &[u8]) -> Option<u16> {
        Some(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn write_outside(bytes: &mut [u8], number: u16) {
        bytes[..ITEM].copy_from_slice(&number.to_le_bytes());
    }
}

/// See the module. The order is the caller's.
#[derive(Clone)]
pub(super) struct Shelf<T: Shelved> {
    root: Root<T>,
    /// Bytes owned by the values on it.
    content: usize,
}

#[derive(Clone)]
enum Root<T: Shelved> {
    Few(Vec<Holder<T>>),
    Many(Many<T>),
}

/// A tree, freed in portions.
#[derive(Clone)]
struct Many<T: Shelved> {
    tree: Option<Subtree<Slots<T>>>,
    owner: Owner,
}

impl<T: Shelved> Drop for Many<T> {
    fn drop(&mut self) {
        defer(self.tree.take(), self.owner.retire());
    }
}

impl<T: Shelved> Default for Shelf<T> {
    fn default() -> Self {
        Self { root: Root::Few(Vec::new()), content: 0 }
    }
}

impl<T: Shelved> Shelf<T> {
    pub(super) fn len(&self) -> usize {
        match &self.root {
            Root::Few(few) => few.len(),
            Root::Many(many) => many.tree.as_ref().map_or(0, |tree| tree.len),
        }
    }

    /// Bytes of memory, with memory shared by cuts. Cost: O(1).
    pub(super) fn memory_bytes(&self) -> usize {
        let each = holder_bytes::<T>() + size_of::<Holder<T>>();
        self.content
            + match &self.root {
                Root::Few(few) => few.len() * each,
                Root::Many(many) => many.tree.as_ref().map_or(0, |tree| tree.bytes),
            }
    }

    /// The value with this index. Panics if there is none.
    pub(super) fn get(&self, index: usize) -> &T {
        match &self.root {
            Root::Few(few) => &few[index].0,
            Root::Many(many) => {
                let (chunk, first) = many.tree.as_ref().expect("it has items").find(index);
                held(chunk, index - first)
            }
        }
    }

    /// The index of what `order` finds equal, or the index that it would have. `order` must be in line
    /// with the order of the shelf.
    pub(super) fn find(&self, order: impl Fn(&T) -> Ordering) -> Result<usize, usize> {
        match &self.root {
            Root::Few(few) => few.binary_search_by(|holder| order(&holder.0)),
            Root::Many(many) => {
                let Some(tree) = &many.tree else { return Err(0) };
                let (chunk, first) = tree
                    .seek(|(), child| order(held(child.peek(crate::chunk::End::Front), 0)).is_le());
                let (mut low, mut high) = (0, chunk.len());
                while low < high {
                    let middle = usize::midpoint(low, high);
                    match order(held(chunk, middle)) {
                        Ordering::Equal => return Ok(first + middle),
                        Ordering::Less => low = middle + 1,
                        Ordering::Greater => high = middle,
                    }
                }
                Err(first + low)
            }
        }
    }

    /// Puts a value before the one with this index, or at the end.
    pub(super) fn insert(&mut self, index: usize, new: T) {
        assert!(index <= self.len(), "index={index} len={}", self.len());
        self.content += new.content_bytes();
        let holder = Holder(Arc::new(new));
        match &mut self.root {
            Root::Few(few) if few.len() < FEW_MAX => few.insert(index, holder),
            Root::Few(_) => self.spread().insert(index, holder),
            Root::Many(many) => many.insert(index, holder),
        }
    }

    /// Turns a vector into a tree.
    #[cold]
    fn spread(&mut self) -> &mut Many<T> {
        if let Root::Few(few) = &mut self.root {
            let few = std::mem::take(few);
            let mut many = Many { tree: None, owner: Owner::new() };
            few.into_iter().enumerate().for_each(|(index, holder)| many.insert(index, holder));
            self.root = Root::Many(many);
        }
        let Root::Many(many) = &mut self.root else { unreachable!("just made") };
        many
    }

    /// Calls `f` with the value with this index, for changing; copied first if a cut shares it.
    pub(super) fn edit<R>(&mut self, index: usize, f: impl FnOnce(&mut T) -> R) -> R {
        assert!(index < self.len(), "index={index} len={}", self.len());
        let (mut f, mut result) = (Some(f), None);
        let mut change = |holder: &mut Holder<T>| {
            let thing = Arc::make_mut(&mut holder.0);
            let before = thing.content_bytes();
            result = f.take().map(|f| f(thing));
            (before, thing.content_bytes())
        };
        let (before, after) = match &mut self.root {
            Root::Few(few) => change(&mut few[index]),
            Root::Many(many) => {
                let tree = many.tree.as_mut().expect("it has items");
                tree.edit(index, &mut |chunk, at| {
                    let number = number(chunk, at);
                    change(own(chunk).long_mut(number))
                })
            }
        };
        assert!(before <= self.content, "{before} of {}", self.content);
        self.content = self.content - before + after;
        result.expect("called once")
    }

    /// Removes the value with this index.
    pub(super) fn remove(&mut self, index: usize) {
        let content = self.get(index).content_bytes();
        assert!(content <= self.content, "{content} of {}", self.content);
        self.content -= content;
        match &mut self.root {
            Root::Few(few) => drop(few.remove(index)),
            Root::Many(many) => {
                tree::remove(&mut many.tree, index);
                if many.tree.is_none() {
                    *self = Self::default();
                }
            }
        }
    }

    /// Panics when an invariant does not hold.
    pub(super) fn check(&self) {
        if let Root::Many(many) = &self.root {
            many.tree.as_ref().expect("nothing is no tree").check(true);
        }
        let content: usize = (0..self.len()).map(|index| self.get(index).content_bytes()).sum();
        assert_eq!(self.content, content, "the bytes of what is on the shelf");
    }
}

impl<T: Shelved> Many<T> {
    fn insert(&mut self, index: usize, holder: Holder<T>) {
        tree::insert(&mut self.tree, index, &New(holder));
    }
}

/// The number of the value with this index in a chunk.
fn number<T: Shelved>(chunk: &Chunk<Slots<T>>, index: usize) -> u16 {
    let at = index * ITEM;
    u16::from_le_bytes([chunk.items()[at], chunk.items()[at + 1]])
}

/// The value with this index in a chunk.
fn held<T: Shelved>(chunk: &Chunk<Slots<T>>, index: usize) -> &T {
    &chunk.long(number(chunk, index)).0
}
