//! A table of connections with tokens that are never mistaken for one another.
//!
//! Places are reused, last freed first, so that the table stays dense and in cache; each use has a
//! generation, and a token of an older one finds nothing.
//!
//! A place can stay reserved after its value was taken out, until owners of other data at that
//! place have been notified.

use super::event::Token;

struct Place<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by token.
pub(super) struct Slab<T> {
    places: Vec<Place<T>>,
    free: Vec<u32>,
    /// Places whose value was taken out, but which are not free yet.
    left: usize,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Self { places: Vec::new(), free: Vec::new(), left: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len() - self.left
    }

    pub(super) fn insert(&mut self, value: T) -> Token {
        if let Some(index) = self.free.pop() {
            let place = &mut self.places[index as usize];
            assert!(place.value.is_none(), "index={index} was free"); // The value would be lost.
            place.value = Some(value);
            return Token { index, generation: place.generation };
        }
        let index = u32::try_from(self.places.len()).expect("fewer sockets than 2^32");
        self.places.push(Place { generation: 0, value: Some(value) });
        Token { index, generation: 0 }
    }

    pub(super) fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let place = self.places.get_mut(token.index as usize)?;
        if place.generation == token.generation { place.value.as_mut() } else { None }
    }

    /// Takes a value out, and frees its place.
    pub(super) fn remove(&mut self, token: Token) -> Option<T> {
        let value = self.leave(token)?;
        self.vacate(token);
        Some(value)
    }

    /// Takes a value out. Its token is invalid from now on, but its place is not free until
    /// [`Slab::vacate`].
    pub(super) fn leave(&mut self, token: Token) -> Option<T> {
        let place = self.places.get_mut(token.index as usize)?;
        if place.generation != token.generation {
            return None;
        }
        let value = place.value.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.left += 1;
        Some(value)
    }

    /// Frees the place of a value that was taken out.
    pub(super) fn vacate(&mut self, token: Token) {
        debug_assert!(self.places[token.index as usize].value.is_none(), "{token:?} has not left");
        self.left =
            self.left.checked_sub(1).expect("a place is free once after its value has left");
        self.free.push(token.index);
    }

    /// The current token of place `index`. Panics when nothing is there.
    pub(super) fn tenant(&self, index: u32) -> Token {
        let place = &self.places[index as usize];
        assert!(place.value.is_some(), "place {index} is empty");
        Token { index, generation: place.generation }
    }

    /// All valid tokens.
    pub(super) fn tokens(&self) -> Vec<Token> {
        let living = self.places.iter().enumerate().filter(|(_, place)| place.value.is_some());
        living
            .map(|(index, place)| Token {
                index: u32::try_from(index).expect("insert keeps indices below 2^32"),
                generation: place.generation,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Even after their place is reused.
    fn tokens_of_closed_connections_are_invalid() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second");
        assert_eq!(first.index, second.index);
        assert!(slab.get_mut(first).is_none());
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut "second"));
        assert_eq!((slab.len(), slab.tokens()), (1, vec![second]));
    }

    #[test]
    fn a_place_is_reused_only_after_its_connections_end_is_reported() {
        let mut slab = Slab::new();
        let first = slab.insert("first");
        assert_eq!((slab.leave(first), slab.leave(first)), (Some("first"), None));
        assert_eq!((slab.len(), slab.tokens()), (0, vec![]));
        let second = slab.insert("second");
        assert_ne!(first.index, second.index);
        slab.vacate(first);
        assert_eq!(slab.insert("third").index, first.index);
        assert_eq!(slab.len(), 2);
    }
}
