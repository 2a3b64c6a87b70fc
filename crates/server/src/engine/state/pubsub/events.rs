//! The classes of keyspace events that are published, as set by `notify-keyspace-events`.

/// All letters of the setting: the classes of events, and the two kinds of channels.
const LETTERS: &[u8] = b"g$lshzxetdnmKE";
/// The letters for which `A` stands.
const ALL: &[u8] = b"g$lshzxetd";

/// A set of classes and kinds of channels: one bit for each letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventClasses(u16);

impl EventClasses {
    /// Parses the letters of the setting.
    pub(crate) fn parse(text: &str) -> Self {
        let bits = text.bytes().map(|letter| match letter {
            b'A' => ALL.iter().map(|letter| bit(*letter)).sum(),
            letter => bit(letter),
        });
        Self(bits.fold(0, |all, bits: u16| all | bits))
    }

    /// True if events of this class are published.
    pub(crate) fn has(self, class: u8) -> bool {
        self.0 & bit(class) != 0
    }

    /// Whether events are published to each kind of channel: `__keyspace@0__:key` and
    /// `__keyevent@0__:event`.
    pub(crate) fn channels(self) -> [bool; 2] {
        [self.has(b'K'), self.has(b'E')]
    }

    /// True if any event is published.
    pub(crate) fn is_on(self) -> bool {
        self.channels() != [false; 2]
    }
}

/// The bit of a letter. The value of the setting was checked before, so every letter has a bit.
fn bit(letter: u8) -> u16 {
    LETTERS.iter().position(|other| *other == letter).map_or(0, |at| 1 << at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test] // If no kind of channel is selected, no event is published.
    fn letters_of_notify_keyspace_events_select_event_classes() {
        let classes = EventClasses::parse("AK");
        assert!(ALL.iter().all(|letter| classes.has(*letter)));
        assert_eq!([b'm', b'n', b'E'].map(|letter| classes.has(letter)), [false; 3]);
        assert_eq!((classes.channels(), classes.is_on()), ([true, false], true));
        assert!(!EventClasses::parse("Am").is_on() && !EventClasses::parse("").is_on());
        assert!(EventClasses::parse("Ex").has(b'x') && EventClasses::parse("nE").has(b'n'));
    }
}
