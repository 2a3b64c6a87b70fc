//! The script cache: the scripts of EVAL and SCRIPT LOAD, by name.
//!
//! All cores share it, so that every core knows a script when its client has received the reply to
//! SCRIPT LOAD. The scripts are divided among many maps by their names. So no map becomes so large
//! that growing it takes long, even if clients generate scripts, and cores rarely wait for the lock
//! of a map.

use darter_base::lazyfree::{self, Dismantle};
use darter_script::Script;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of hexadecimal digits of a name.
pub(crate) const NAME_LEN: usize = 40;

/// The number of maps. With a million scripts, each map has 4 000.
const MAPS: usize = 256;

/// Bytes of memory of a script without its text.
const SCRIPT_BYTES: usize = 160;

type Map = HashMap<Arc<str>, Script>;

/// The cached scripts.
pub(crate) struct Registry {
    maps: Box<[Mutex<Map>]>,
    len: AtomicUsize,
    bytes: AtomicUsize,
    /// The number of SCRIPT FLUSH commands so far.
    flushes: AtomicU64,
}

impl Default for Registry {
    fn default() -> Self {
        let maps = (0..MAPS).map(|_| Mutex::default()).collect();
        let (len, bytes, flushes) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicU64::new(0));
        Self { maps, len, bytes, flushes }
    }
}

impl Registry {
    /// The script with this name, in any letter case.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Script> {
        if name.len() != NAME_LEN {
            return None;
        }
        let mut lower = [0; NAME_LEN];
        for (to, from) in lower.iter_mut().zip(name) {
            *to = from.to_ascii_lowercase();
        }
        let name = std::str::from_utf8(&lower).ok()?;
        self.map_of(name).get(name).cloned()
    }

    /// Caches a script that was compiled without errors.
    pub(crate) fn add(&self, script: &Script) {
        let old = self.map_of(&script.name).insert(Arc::clone(&script.name), script.clone());
        if old.is_none() {
            self.len.fetch_add(1, Ordering::Relaxed);
            self.bytes.fetch_add(script.text.len() + SCRIPT_BYTES, Ordering::Relaxed);
        }
    }

    /// Removes all scripts. Their memory is freed in portions.
    pub(crate) fn clear(&self) {
        let mut old = Vec::new();
        for map in &self.maps {
            let map = std::mem::take(&mut *lock(map));
            let bytes: usize = map.values().map(|one| one.text.len() + SCRIPT_BYTES).sum();
            self.len.fetch_sub(map.len(), Ordering::Relaxed);
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            old.extend((!map.is_empty()).then_some((map, bytes)));
        }
        self.flushes.fetch_add(1, Ordering::Release);
        if !old.is_empty() {
            lazyfree::defer(Box::new(Remains(old)));
        }
    }

    /// The number of flushes so far. A script that was found before the last flush may have been
    /// removed.
    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Acquire)
    }

    /// The number of scripts, and the bytes of memory that they occupy.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.len.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn map_of(&self, name: &str) -> MutexGuard<'_, Map> {
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap_or(0) as usize;
        let digits = name.as_bytes();
        lock(&self.maps[digit(digits[0]) * 16 + digit(digits[1])])
    }
}

/// Locks a map. It cannot be poisoned, because a panic ends the process.
fn lock(map: &Mutex<Map>) -> MutexGuard<'_, Map> {
    map.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removed scripts, which are freed in portions: the maps, with the bytes of each.
struct Remains(Vec<(Map, usize)>);

impl Dismantle for Remains {
    fn dismantle(&mut self) -> bool {
        /// The number of scripts freed in a portion.
        const AT_ONCE: usize = 64;
        let Some((map, _)) = self.0.last_mut() else { return false };
        let some: Vec<Arc<str>> = map.keys().take(AT_ONCE).cloned().collect();
        some.iter().for_each(|name| drop(map.remove(name)));
        if map.is_empty() {
            self.0.pop();
        }
        !self.0.is_empty()
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(_, bytes)| bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // The script is counted once, and freed in portions.
    fn a_cached_script_is_found_by_name_until_script_flush() {
        let registry = Registry::default();
        let scripts: Vec<Script> = (0..10_000)
            .map(|number| {
                Script::new(format!("return {number}").as_bytes()).expect("no first line")
            })
            .collect();
        scripts.iter().chain(&scripts).for_each(|script| registry.add(script));
        for script in &scripts {
            let upper = script.name.to_ascii_uppercase();
            assert_eq!(registry.find(upper.as_bytes()).as_ref(), Some(script));
        }
        assert!(registry.find(&[b'0'; 41]).is_none() && registry.find(&[0xff; 40]).is_none());
        let (len, bytes) = registry.size();
        assert!(len == 10_000 && bytes > 10_000 * SCRIPT_BYTES, "{len} {bytes}");
        registry.clear();
        assert_eq!((registry.size(), registry.find(scripts[0].name.as_bytes())), ((0, 0), None));
        let mut portions = 0;
        while lazyfree::run(&darter_base::preempt::Countdown::new(0)) {
            portions += 1;
        }
        assert!(portions > 100, "{portions}");
    }
}
