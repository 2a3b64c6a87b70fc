//! The scripts that a core has used recently, by name. They are found without the locks of the
//! registry, and without hashing the name, because a name is a hash already.
//!
//! SCRIPT FLUSH must empty this cache on all cores. So the registry counts flushes, and a script
//! that was found before the last flush is ignored.

use super::registry::{NAME_LEN, Registry};
use darter_script::Script;

/// The number of places. A script's name determines its place.
const PLACES: usize = 64;
/// The maximal length of a text that is kept. After a flush, a kept text occupies memory until
/// another script takes its place.
const TEXT_MAX: usize = 64 << 10;

/// The scripts that this core has used recently.
#[derive(Default)]
pub(crate) struct Recent {
    scripts: Vec<Option<Script>>,
    flushes: u64,
}

impl Recent {
    /// The cached script with this name, in any letter case.
    pub(crate) fn find(&mut self, name: &[u8], registry: &Registry) -> Option<Script> {
        if name.len() != NAME_LEN {
            return None;
        }
        let flushes = registry.flushes();
        if self.flushes != flushes || self.scripts.is_empty() {
            self.scripts.clear();
            self.scripts.resize(PLACES, None);
            self.flushes = flushes;
        }
        let digits = u16::from_le_bytes([name[0], name[1]]) & 0x0f0f;
        let slot = &mut self.scripts[usize::from(digits | digits >> 4) % PLACES];
        if let Some(script) = slot
            && script.name.as_bytes() == name
        {
            return Some(script.clone());
        }
        let script = registry.find(name)?;
        if script.text.len() <= TEXT_MAX {
            *slot = Some(script.clone());
        }
        Some(script)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // Names are found in any letter case. Two scripts share a place.
    fn a_recent_script_is_found_until_the_next_script_flush() {
        let (registry, mut recent) = (Registry::default(), Recent::default());
        let script = |at: usize| Script::new(format!("return {at}").as_bytes()).expect("a text");
        let mut find = |name: &str, registry: &Registry| {
            recent.find(name.as_bytes(), registry).map(|script| script.name.to_string())
        };
        for round in 0..2 {
            let all: Vec<Script> = (0..200).map(script).collect();
            for one in &all {
                assert_eq!(find(&one.name, &registry), None, "round {round}");
            }
            all.iter().for_each(|one| registry.add(one));
            for one in all.iter().chain(&all) {
                let upper = one.name.to_ascii_uppercase();
                assert_eq!(find(&one.name, &registry).as_deref(), Some(&*one.name));
                assert_eq!(find(&upper, &registry).as_deref(), Some(&*one.name));
            }
            assert_eq!(find(&all[0].name[1..], &registry), None);
            registry.clear();
        }
    }

    #[test]
    fn a_script_with_a_long_text_is_not_kept_among_the_recent_ones() {
        let (registry, mut recent) = (Registry::default(), Recent::default());
        let long = Script::new(&vec![b' '; TEXT_MAX + 1]).expect("a text");
        registry.add(&long);
        assert_eq!(recent.find(long.name.as_bytes(), &registry), Some(long));
        assert!(recent.scripts.iter().all(Option::is_none));
    }
}
