//! The fuzz target of HyperLogLogs: any string is either refused, or its registers match a naive
//! reading in each encoding, also after additions.

use super::format::{Encoding, HEADER_BYTES, REGISTERS, read};
use super::hash::Place;
use super::sketch::Sketch;
use darter_keyspace::Str;
use darter_structs::table::{Scratch, Text};

/// Elements that are added: pairs of bytes from the end of the input.
const ADDED: usize = 64;

/// The registers of runs, read one by one; `None` if their number is wrong.
fn naive(mut runs: &[u8]) -> Option<Vec<u8>> {
    let mut registers = Vec::new();
    while let [first, rest @ ..] = runs {
        let (rank, len) = match first >> 6 {
            0 => (0, usize::from(*first) + 1),
            1 => {
                (0, usize::from(first & 0x3f) * 256 + usize::from(*rest.first().unwrap_or(&0)) + 1)
            }
            _ => ((first >> 2 & 0x1f) + 1, usize::from(first & 3) + 1),
        };
        registers.resize(registers.len() + len, rank);
        let bytes = if first >> 6 == 1 { 2 } else { 1 };
        runs = runs.get(bytes..).unwrap_or_default();
        if registers.len() > REGISTERS {
            return None;
        }
    }
    (registers.len() == REGISTERS).then_some(registers)
}

/// The registers of a dense HyperLogLog, read bit by bit.
fn bits(bytes: &[u8]) -> Vec<u8> {
    let bit = |at: usize| bytes[at / 8] >> (at % 8) & 1;
    let rank = |register: usize| (0..6).map(|low| bit(register * 6 + low) << low).sum();
    (0..REGISTERS).map(rank).collect()
}

fn registers(sketch: &Sketch) -> Option<Vec<u8>> {
    let bytes = &sketch.bytes()[HEADER_BYTES..];
    match sketch.encoding() {
        Encoding::Sparse => naive(bytes),
        Encoding::Dense => Some(bits(bytes)),
    }
}

/// See the module's documentation.
///
/// # Panics
/// When the registers are others.
pub fn fuzz_hyperloglog(data: &[u8]) {
    let (text, mut scratch) = (Text::raw(data), Scratch::new());
    let text = Str::Inline(text);
    let Ok((bytes, encoding)) = read(&text, &mut scratch) else { return };
    let sketch = Sketch::new(bytes, encoding);
    let mut model = registers(&sketch);
    let mut dense = sketch.clone();
    assert_eq!(dense.make_dense().is_ok(), model.is_some(), "corrupt, or not");
    if let Some(model) = &model {
        assert!(registers(&dense).as_ref() == Some(model), "dense registers");
    }
    let mut changed = sketch;
    for pair in data.rchunks_exact(2).take(ADDED) {
        let register = usize::from(u16::from_le_bytes([pair[0], pair[1]])) % REGISTERS;
        let rank = 1 + pair[0] % 51;
        let (was_dense, added) = (changed.encoding(), changed.add(Place { register, rank }));
        let Some(model) = &mut model else { continue }; // Without a model any reply is correct.
        assert_eq!(added.ok(), Some(model[register] < rank), "{register} {rank} {was_dense:?}");
        model[register] = model[register].max(rank);
    }
    if model.is_some() {
        assert!(registers(&changed) == model, "registers that were raised");
    }
}
