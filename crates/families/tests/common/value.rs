//! Replies, read as values.

use super::Bytes;

/// A reply, read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Int(i64),
    Bulk(Bytes),
    Simple(String),
    Null,
    Error(String),
    Array(Vec<Value>),
    Map(Vec<Value>),
    Set(Vec<Value>),
}

impl Value {
    pub(crate) fn read(all: &[u8]) -> Self {
        let (value, rest) = Self::next(all);
        assert!(rest.is_empty(), "left over: {:?}", String::from_utf8_lossy(rest));
        value
    }

    fn next(bytes: &[u8]) -> (Self, &[u8]) {
        let end = bytes.windows(2).position(|two| two == b"\r\n").expect("a line");
        let (line, rest) = (std::str::from_utf8(&bytes[1..end]).unwrap(), &bytes[end + 2..]);
        match bytes[0] {
            b':' => (Self::Int(line.parse().unwrap()), rest),
            b'-' => (Self::Error(line.to_owned()), rest),
            b'+' => (Self::Simple(line.to_owned()), rest),
            b'_' => (Self::Null, rest),
            b'$' | b'*' if line == "-1" => (Self::Null, rest),
            b'$' => {
                let len: usize = line.parse().unwrap();
                assert_eq!(&rest[len..len + 2], b"\r\n");
                (Self::Bulk(rest[..len].to_vec()), &rest[len + 2..])
            }
            kind @ (b'*' | b'%' | b'~') => {
                let (mut list, mut rest) = (Vec::new(), rest);
                let len: usize = line.parse().unwrap();
                for _ in 0..if kind == b'%' { 2 * len } else { len } {
                    let (value, after) = Self::next(rest);
                    list.push(value);
                    rest = after;
                }
                let value = match kind {
                    b'*' => Self::Array(list),
                    b'%' => Self::Map(list),
                    _ => Self::Set(list),
                };
                (value, rest)
            }
            other => panic!("{other}"),
        }
    }

    /// The elements of an array, a map or a set.
    pub(crate) fn list(self) -> Vec<Self> {
        match self {
            Self::Array(list) | Self::Map(list) | Self::Set(list) => list,
            other => panic!("{other:?}"),
        }
    }

    /// The elements of an array or a set of bulk strings.
    pub(crate) fn bulks(self) -> Vec<Bytes> {
        self.list().into_iter().map(Self::bulk).collect()
    }

    pub(crate) fn bulk(self) -> Bytes {
        match self {
            Self::Bulk(bytes) => bytes,
            other => panic!("{other:?}"),
        }
    }

    /// Sorted, by pairs or one by one, where the order has no meaning.
    pub(crate) fn sorted(self, pairs: bool) -> Self {
        match self {
            Self::Map(list) => Self::Map(sort(list, 2)),
            Self::Set(list) => Self::Set(sort(list, 1)),
            Self::Array(list) => {
                let width = if pairs && list.len() % 2 == 0 { 2 } else { 1 };
                Self::Array(sort(list, width))
            }
            other => other,
        }
    }
}

fn sort(list: Vec<Value>, width: usize) -> Vec<Value> {
    let mut groups: Vec<Vec<Value>> = list.chunks(width).map(<[Value]>::to_vec).collect();
    groups.sort();
    groups.concat()
}

/// The bulk strings of a flat array.
pub(crate) fn bulks(reply: &[u8]) -> Vec<Bytes> {
    Value::read(reply).bulks()
}
