//! Why bytes are not an RDB file, and where.

use crate::lzf::Corrupt;
use crate::types::{VERSION_MAX, VERSION_MIN};
use std::fmt;

/// A refusal: the offset in the file or payload, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Bytes before the place that is wrong. For a truncated file: its length. Inside a packed
    /// blob that was compressed: where the blob begins.
    pub offset: u64,
    /// What is wrong there.
    pub reason: Reason,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The bytes end before the end mark; at least so many are missing.
    Truncated {
        /// Bytes that the element begun last still needs.
        missing: u64,
    },
    /// The first bytes are neither Redis's nor Valkey's.
    Magic,
    /// A version outside of what is read.
    Version(u16),
    /// A byte that is neither a value type nor an opcode known here.
    Opcode(u8),
    /// A value type that Darter does not hold yet.
    UnsupportedType {
        /// Redis's name of the type.
        name: &'static str,
        /// Its encoding in the file.
        encoding: &'static str,
        /// Its number.
        number: u8,
    },
    /// A first byte of a length that means nothing.
    Length(u8),
    /// A string encoding that means nothing, or an encoding where a plain length must stand.
    StringEncoding(u8),
    /// A string longer than the limit.
    TooLong {
        /// What the file announces.
        bytes: u64,
        /// What is admitted.
        limit: u64,
    },
    /// An LZF string that announces more than its packed bytes could ever become.
    LzfAbsurd {
        /// Packed bytes.
        packed: u64,
        /// Announced bytes.
        bytes: u64,
    },
    /// An LZF string that does not unpack.
    Lzf(Corrupt),
    /// A packed collection whose bytes contradict themselves.
    Blob {
        /// Which packed form.
        form: &'static str,
        /// The contradiction.
        fault: &'static str,
    },
    /// A field deadline out of range.
    Deadline,
    /// A database number above 2^32.
    Database(u64),
    /// An opcode inside of module data that means nothing.
    ModuleOpcode(u64),
    /// Functions as written by release candidates of Redis 7.0.
    FunctionPreGa,
    /// The checksum does not fit the bytes.
    Checksum {
        /// What the bytes sum up to.
        computed: u64,
        /// What the file says.
        stored: u64,
    },
    /// A payload with more bytes than its value.
    Trailing,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.reason, self.offset)
    }
}

impl std::error::Error for Error {}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { missing } => {
                write!(f, "unexpected end of data ({missing} more bytes needed)")
            }
            Self::Magic => write!(f, "neither REDIS nor VALKEY: not an RDB file"),
            Self::Version(version) => write!(
                f,
                "RDB version {version} is not read (Redis's {VERSION_MIN} to {VERSION_MAX} and \
                 Valkey's 80 and 81 are)"
            ),
            Self::Opcode(byte) => write!(f, "unknown opcode or value type {byte}"),
            Self::UnsupportedType { name, encoding, number } => {
                write!(f, "unsupported value type '{name}' ({encoding}, {number})")
            }
            Self::Length(byte) => write!(f, "invalid length encoding 0x{byte:02x}"),
            Self::StringEncoding(code) => write!(f, "invalid string encoding {code}"),
            Self::TooLong { bytes, limit } => {
                write!(f, "string of {bytes} bytes exceeds the limit of {limit}")
            }
            Self::LzfAbsurd { packed, bytes } => {
                write!(f, "LZF string: {packed} bytes cannot become {bytes}")
            }
            Self::Lzf(corrupt) => write!(f, "LZF string: {}", corrupt.text()),
            Self::Blob { form, fault } => write!(f, "{form}: {fault}"),
            Self::Deadline => write!(f, "field deadline out of range"),
            Self::Database(number) => write!(f, "database number {number} out of range"),
            Self::ModuleOpcode(code) => write!(f, "unknown opcode {code} in module data"),
            Self::FunctionPreGa => {
                write!(f, "functions of a Redis 7.0 release candidate are not read")
            }
            Self::Checksum { computed, stored } => write!(
                f,
                "wrong checksum: the bytes give {computed:016x}, the file says {stored:016x}"
            ),
            Self::Trailing => write!(f, "bytes behind the end of the value"),
        }
    }
}
