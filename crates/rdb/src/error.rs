//! The errors of the reader: the reason why bytes are refused, and the place.

use crate::lzf::Corrupt;
use crate::types::{VERSION_MAX, VERSION_MIN};
use std::fmt;

/// A refusal: the offset in the file or payload, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The place of the fault, in bytes. For a truncated file, its length. Inside a compressed
    /// packed blob, the start of the blob.
    pub offset: u64,
    /// The fault.
    pub reason: Reason,
}

/// A fault of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The bytes end before the end mark.
    Truncated {
        /// Bytes that the current element still needs, at least.
        missing: u64,
    },
    /// The magic is neither Redis's nor Valkey's.
    Magic,
    /// An unsupported version.
    Version(u16),
    /// A byte that is neither a known value type nor a known opcode.
    Opcode(u8),
    /// A value type that Darter does not support yet.
    UnsupportedType {
        /// Redis's name of the type.
        name: &'static str,
        /// The encoding in the file.
        encoding: &'static str,
        /// The number.
        number: u8,
    },
    /// An invalid first byte of a length.
    Length(u8),
    /// An invalid string encoding, or an encoding where a plain length is required.
    StringEncoding(u8),
    /// A string longer than the limit.
    TooLong {
        /// The announced number.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// An LZF string that announces more bytes than its packed bytes can produce.
    LzfAbsurd {
        /// Packed bytes.
        packed: u64,
        /// Announced bytes.
        bytes: u64,
    },
    /// An LZF string that does not unpack.
    Lzf(Corrupt),
    /// An invalid packed collection.
    Blob {
        /// The name of the packed form.
        form: &'static str,
        /// The fault in it.
        fault: &'static str,
    },
    /// A score that is no number.
    Score,
    /// A field deadline out of range.
    Deadline,
    /// A database number above 2^32.
    Database(u64),
    /// An invalid opcode inside module data.
    ModuleOpcode(u64),
    /// Functions as written by release candidates of Redis 7.0.
    FunctionPreGa,
    /// The checksum does not match the bytes.
    Checksum {
        /// The checksum of the bytes.
        computed: u64,
        /// The checksum in the file.
        stored: u64,
    },
    /// A payload with bytes after its value.
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
            Self::Score => write!(f, "score is not a number"),
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
