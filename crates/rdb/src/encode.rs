//! Lengths, strings and listpack entries, written as Redis writes them: each with the function that
//! returns its size, because a reply's header needs the sum before the first byte.

use crate::blob::back_length;
use crate::lzf::Packer;
use darter_base::number::parse_i64;

/// The longest text that Redis tries to store as an integer: "-2147483648".
const INTEGER_TEXT_MAX: usize = 11;

/// Bytes of [`length`].
pub(super) fn length_size(len: u64) -> u64 {
    match len {
        0..=0x3f => 1,
        0x40..=0x3fff => 2,
        0x4000..=0xffff_ffff => 5,
        _ => 9,
    }
}

/// Appends a length in its shortest form.
pub(super) fn length(out: &mut Vec<u8>, len: u64) {
    let bytes = len.to_be_bytes();
    match length_size(len) {
        1 => out.push(bytes[7]),
        2 => out.extend_from_slice(&[bytes[6] | 0x40, bytes[7]]),
        5 => length_32(out, len),
        _ => length_64(out, len),
    }
}

/// Appends a length in the form of 5 bytes; `len` must fit 32 bits.
pub(super) fn length_32(out: &mut Vec<u8>, len: u64) {
    debug_assert!(len <= u64::from(u32::MAX), "len={len}");
    out.push(0x80);
    out.extend_from_slice(&len.to_be_bytes()[4..]);
}

/// Appends a length in the form of 9 bytes.
pub(super) fn length_64(out: &mut Vec<u8>, len: u64) {
    out.push(0x81);
    out.extend_from_slice(&len.to_be_bytes());
}

/// The integer that a string is stored as, if it is one.
pub(super) fn short_integer(bytes: &[u8]) -> Option<i32> {
    if bytes.len() > INTEGER_TEXT_MAX {
        return None;
    }
    parse_i64(bytes).and_then(|value| i32::try_from(value).ok())
}

/// Bytes of [`text`].
pub(super) fn text_size(bytes: &[u8]) -> u64 {
    match short_integer(bytes) {
        Some(-128..=127) => 2,
        Some(-32_768..=32_767) => 3,
        Some(_) => 5,
        None => length_size(bytes.len() as u64) + bytes.len() as u64,
    }
}

/// Appends a string: a 32-bit integer as such, all else as bytes.
pub(super) fn text(out: &mut Vec<u8>, bytes: &[u8]) {
    let Some(value) = short_integer(bytes) else {
        length(out, bytes.len() as u64);
        out.extend_from_slice(bytes);
        return;
    };
    let wide = value.to_le_bytes();
    match value {
        -128..=127 => out.extend_from_slice(&[0xc0, wide[0]]),
        -32_768..=32_767 => out.extend_from_slice(&[0xc1, wide[0], wide[1]]),
        _ => {
            out.push(0xc2);
            out.extend_from_slice(&wide);
        }
    }
}

/// Strings up to this length are not packed, as in Redis: it would save nothing.
const PACKED_MIN: usize = 21;
/// Longer texts are not packed, because that would take too long.
pub(super) const PACKED_MAX: usize = 16 * 1024;
/// Packing must save at least this many bytes, as in Redis.
const SAVED_MIN: usize = 4;

/// Appends a string: a 32-bit integer as such, all else as bytes, packed if that makes it shorter.
pub(super) fn packed_text(out: &mut Vec<u8>, bytes: &[u8], packer: &mut Packer) {
    if short_integer(bytes).is_some() {
        return text(out, bytes);
    }
    packed_blob(out, bytes, packer);
}

/// Appends a string that is no integer, packed if that makes it shorter.
pub(super) fn packed_blob(out: &mut Vec<u8>, bytes: &[u8], packer: &mut Packer) {
    let may_pack = (PACKED_MIN..=PACKED_MAX).contains(&bytes.len());
    if may_pack && let Some(packed) = packer.pack(bytes, bytes.len() - SAVED_MIN) {
        out.push(0xc3);
        length(out, packed.len() as u64);
        length(out, bytes.len() as u64);
        out.extend_from_slice(packed);
        return;
    }
    length(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The size of a listpack's header and end mark.
pub(super) const LISTPACK_FRAME_BYTES: u64 = 7;

/// Bytes that [`listpack_text`] appends.
pub(super) fn listpack_text_size(bytes: &[u8]) -> u64 {
    match parse_i64(bytes) {
        Some(value) => listpack_integer_size(value),
        None => listpack_bytes_size(bytes.len()),
    }
}

/// Bytes of a listpack entry that is a string of `len` bytes.
pub(super) fn listpack_bytes_size(len: usize) -> u64 {
    let head = match len {
        0..=63 => 1,
        64..=4095 => 2,
        _ => 5,
    };
    with_back_length(head + len)
}

/// Bytes that [`listpack_integer`] appends.
pub(super) fn listpack_integer_size(value: i64) -> u64 {
    let data = match value {
        0..=127 => 1,
        -4096..=4095 => 2,
        -32_768..=32_767 => 3,
        -8_388_608..=8_388_607 => 4,
        -2_147_483_648..=2_147_483_647 => 5,
        _ => 9,
    };
    with_back_length(data)
}

fn with_back_length(len: usize) -> u64 {
    (len + back_length(&mut [0; 5], len).len()) as u64
}

/// Appends a listpack entry: a 64-bit integer as such, all else as bytes.
pub(super) fn listpack_text(out: &mut Vec<u8>, bytes: &[u8]) {
    if let Some(value) = parse_i64(bytes) {
        return listpack_integer(out, value);
    }
    let start = out.len();
    listpack_head(out, bytes.len());
    out.extend_from_slice(bytes);
    end_entry(out, start);
}

/// Appends the header of a listpack entry that is a string of `len` bytes.
pub(super) fn listpack_head(out: &mut Vec<u8>, len: usize) {
    let wide = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
    match len {
        0..=63 => out.push(0x80 | wide[3]),
        64..=4095 => out.extend_from_slice(&[0xe0 | wide[2], wide[3]]),
        _ => out.extend_from_slice(&[0xf0, wide[3], wide[2], wide[1], wide[0]]),
    }
}

/// Appends the trailing length of an entry of `len` bytes, header included.
pub(super) fn listpack_tail(out: &mut Vec<u8>, len: usize) {
    out.extend_from_slice(back_length(&mut [0; 5], len));
}

/// Appends a listpack entry that is an integer.
pub(super) fn listpack_integer(out: &mut Vec<u8>, value: i64) {
    let start = out.len();
    let wide = value.to_le_bytes();
    let (coding, width) = match value {
        0..=127 => {
            out.push(wide[0]);
            return end_entry(out, start);
        }
        -4096..=4095 => {
            out.extend_from_slice(&[0xc0 | (wide[1] & 0x1f), wide[0]]);
            return end_entry(out, start);
        }
        -32_768..=32_767 => (0xf1, 2),
        -8_388_608..=8_388_607 => (0xf2, 3),
        -2_147_483_648..=2_147_483_647 => (0xf3, 4),
        _ => (0xf4, 8),
    };
    out.push(coding);
    out.extend_from_slice(&wide[..width]);
    end_entry(out, start);
}

fn end_entry(out: &mut Vec<u8>, start: usize) {
    let len = out.len() - start;
    listpack_tail(out, len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::{Entry, Form};
    use crate::wire::{Cursor, Text};
    use darter_base::Prng;

    const EDGES: &[i64] = &[
        0,
        1,
        127,
        128,
        4095,
        4096,
        32_767,
        32_768,
        8_388_607,
        8_388_608,
        2_147_483_647,
        2_147_483_648,
        i64::MAX,
        -1,
        -128,
        -129,
        -4096,
        -4097,
        -32_768,
        -32_769,
        -8_388_608,
        -8_388_609,
        -2_147_483_648,
        -2_147_483_649,
        i64::MIN,
    ];

    #[test]
    fn sizes_are_the_bytes_written_and_lengths_read_back() {
        for len in [0, 63, 64, 0x3fff, 0x4000, 0xffff_ffff, 1 << 32, u64::MAX] {
            let mut out = Vec::new();
            length(&mut out, len);
            assert_eq!(out.len() as u64, length_size(len));
            assert_eq!(Cursor::new(&out, 0).count(), Ok(len));
        }
    }

    #[test]
    fn encoded_strings_are_read_back() {
        let mut texts: Vec<Vec<u8>> = EDGES.iter().map(|v| v.to_string().into_bytes()).collect();
        texts.extend([b"".to_vec(), b"-0".to_vec(), b"007".to_vec(), vec![b'x'; 20_000]]);
        for bytes in texts {
            let mut out = Vec::new();
            text(&mut out, &bytes);
            assert_eq!(out.len() as u64, text_size(&bytes), "{bytes:?}");
            match Cursor::new(&out, 1 << 20).text().unwrap() {
                Text::Int(value) => assert_eq!(value.to_string().as_bytes(), bytes),
                Text::Raw { start, len } => assert_eq!(out[start..start + len], bytes),
                Text::Lzf { .. } => panic!("nothing is packed"),
            }
        }
    }

    #[test]
    fn encoded_listpack_entries_are_read_back() {
        let mut prng = Prng::from_seed(5);
        let mut texts: Vec<Vec<u8>> = EDGES.iter().map(|v| v.to_string().into_bytes()).collect();
        for len in [0, 1, 62, 63, 64, 125, 126, 4095, 4096, 16_380, 16_390, 2_097_200] {
            texts.push(prng.bytes(len..=len));
        }
        for bytes in texts {
            let mut out = vec![0; 6];
            listpack_text(&mut out, &bytes);
            out.push(0xff);
            assert_eq!(out.len() as u64 - 7, listpack_text_size(&bytes), "{}", bytes.len());
            let (entry, next) = Form::Listpack.entry(&out, 6, 0).unwrap().unwrap();
            assert_eq!(next, out.len() - 1);
            match entry {
                Entry::Int(value) => assert_eq!(value.to_string().as_bytes(), bytes),
                Entry::Text { start, len } => assert!(out[start..start + len] == bytes),
            }
        }
    }
}
