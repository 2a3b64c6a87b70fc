//! Parsed replies, and their normal form where the order of elements is unspecified.

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Value {
    /// A status line.
    Simple(String),
    /// An error line.
    Error(String),
    /// An integer.
    Int(i64),
    /// A bulk string.
    Bulk(String),
    /// Null.
    Null,
    /// An array.
    Array(Vec<Value>),
    /// A push.
    Push(Vec<Value>),
}

impl Value {
    /// The array with its elements sorted, for replies without an order.
    pub(crate) fn sorted(self) -> Self {
        match self {
            Self::Array(mut list) => {
                list.sort();
                Self::Array(list)
            }
            other => other,
        }
    }

    /// The array's pairs, sorted, for HGETALL.
    pub(crate) fn sorted_pairs(self) -> Self {
        match self {
            Self::Array(list) if list.len() % 2 == 0 => {
                let mut pairs: Vec<Self> =
                    list.chunks(2).map(|pair| Self::Array(pair.to_vec())).collect();
                pairs.sort();
                Self::Array(pairs)
            }
            other => other,
        }
    }
}

/// Takes the first complete reply off `bytes`; `None` while it is incomplete.
pub(crate) fn take(bytes: &mut Vec<u8>) -> Option<Value> {
    let (value, used) = parse(bytes)?;
    bytes.drain(..used);
    Some(value)
}

fn parse(bytes: &[u8]) -> Option<(Value, usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    let line = String::from_utf8_lossy(&bytes[1..end]).into_owned();
    let (head, number) = (end + 2, line.parse::<i64>().unwrap_or(-1));
    match bytes[0] {
        b'+' => Some((Value::Simple(line), head)),
        b'-' => Some((Value::Error(line), head)),
        b':' => Some((Value::Int(number), head)),
        b'$' | b'*' if number < 0 => Some((Value::Null, head)),
        b'$' => {
            let len = usize::try_from(number).ok()?;
            let body = bytes.get(head..head + len + 2)?;
            let text = String::from_utf8_lossy(&body[..len]).into_owned();
            Some((Value::Bulk(text), head + len + 2))
        }
        b'_' => Some((Value::Null, head)),
        kind @ (b'*' | b'%' | b'>') => {
            let items = if kind == b'%' { 2 * number } else { number };
            let (mut list, mut at) = (Vec::new(), head);
            for _ in 0..items {
                let (value, used) = parse(bytes.get(at..)?)?;
                list.push(value);
                at += used;
            }
            Some((if kind == b'>' { Value::Push(list) } else { Value::Array(list) }, at))
        }
        other => panic!("not a reply: {:?}", char::from(other)),
    }
}
