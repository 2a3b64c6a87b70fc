//! The limits that determine the names of OBJECT ENCODING for collections: settings, equal on all
//! cores. Each type's row lists its own.
//!
//! The names say nothing about Darter's representation of a value; clients read them to see what
//! Redis would do. As in Redis, a value that has exceeded a limit keeps the larger name.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A limit, given by the setting with this name.
#[derive(Debug)]
pub struct Bound {
    /// Redis's name of the setting.
    pub name: &'static str,
    /// Redis's name in older versions, if different.
    pub older_name: Option<&'static str>,
    /// The default.
    pub default: &'static str,
    /// True if it limits bytes, false if it limits entries.
    pub is_bytes: bool,
    /// The effect of the setting, if its name does not tell it.
    pub help: Option<&'static str>,
    value: AtomicUsize,
}

impl Bound {
    /// A limit of entries.
    #[must_use]
    pub const fn new(name: &'static str, default: &'static str) -> Self {
        let value = AtomicUsize::new(number(default));
        Self { name, older_name: None, default, is_bytes: false, help: None, value }
    }

    /// A limit of bytes.
    #[must_use]
    pub const fn of_bytes(self) -> Self {
        Self { is_bytes: true, ..self }
    }

    /// Adds a help text about the effect, if the name does not tell it.
    #[must_use]
    pub const fn deciding(self, help: &'static str) -> Self {
        Self { help: Some(help), ..self }
    }

    /// Adds a name of older versions.
    #[must_use]
    pub const fn formerly(self, name: &'static str) -> Self {
        Self { older_name: Some(name), ..self }
    }

    /// Sets the current value.
    pub fn set(&self, value: usize) {
        self.value.store(value, Ordering::Relaxed);
    }

    /// The current value.
    #[inline]
    #[must_use]
    pub fn get(&self) -> usize {
        self.value.load(Ordering::Relaxed)
    }
}

/// Parses the number of a default.
const fn number(digits: &str) -> usize {
    let (digits, mut number, mut at) = (digits.as_bytes(), 0, 0);
    while at < digits.len() {
        assert!(digits[at].is_ascii_digit(), "a default is a number");
        number = number * 10 + (digits[at] - b'0') as usize;
        at += 1;
    }
    number
}
