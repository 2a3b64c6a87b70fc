//! The bounds by which OBJECT ENCODING names collections: settings, the same on all cores. A type's
//! row lists its own.
//!
//! The names say nothing about how Darter keeps a value; clients read them to see what Redis would
//! do. A value that has passed a bound keeps the larger name, as in Redis.

use std::sync::atomic::{AtomicUsize, Ordering};

/// A bound, which is the setting of this name.
#[derive(Debug)]
pub struct Bound {
    /// Redis's name of the setting.
    pub name: &'static str,
    /// Its name in older versions, where it had another one.
    pub older_name: Option<&'static str>,
    /// Its value at first.
    pub default: &'static str,
    /// Whether it counts bytes, not entries.
    pub is_bytes: bool,
    value: AtomicUsize,
}

impl Bound {
    /// A bound of entries.
    #[must_use]
    pub const fn new(name: &'static str, default: &'static str) -> Self {
        let value = AtomicUsize::new(number(default));
        Self { name, older_name: None, default, is_bytes: false, value }
    }

    /// The same of bytes.
    #[must_use]
    pub const fn of_bytes(self) -> Self {
        Self { is_bytes: true, ..self }
    }

    /// The same with a name in older versions.
    #[must_use]
    pub const fn formerly(self, name: &'static str) -> Self {
        Self { older_name: Some(name), ..self }
    }

    /// Follows the setting.
    pub fn set(&self, value: usize) {
        self.value.store(value, Ordering::Relaxed);
    }

    /// The setting as it is now.
    #[inline]
    #[must_use]
    pub fn get(&self) -> usize {
        self.value.load(Ordering::Relaxed)
    }
}

/// The number that a default says.
const fn number(digits: &str) -> usize {
    let (digits, mut number, mut at) = (digits.as_bytes(), 0, 0);
    while at < digits.len() {
        number = number * 10 + (digits[at] - b'0') as usize;
        at += 1;
    }
    number
}
