//! Dense registers: 6 bits each, the first in the lowest bits.

use super::format::{DENSE_BYTES, REGISTERS};

/// Registers in a group; a group fills whole bytes.
const GROUP: usize = 8;
const GROUP_BYTES: usize = GROUP * 6 / 8;
const RANK: u16 = 0x3f;

/// The place of a register: its first byte, and its lowest bit in the 16 bits from there.
fn place(register: usize) -> (usize, u32) {
    let bit = register * 6;
    (bit / 8, u32::try_from(bit % 8).unwrap_or(0))
}

/// The value of a register.
pub(super) fn get(registers: &[u8], register: usize) -> u8 {
    let (at, shift) = place(register);
    let next = registers.get(at + 1).copied().unwrap_or(0);
    let both = u16::from_le_bytes([registers[at], next]);
    (both >> shift & RANK).to_le_bytes()[0]
}

/// The bytes that set a register to `rank`, and the index of the first byte to write.
pub(super) fn with(registers: &[u8], register: usize, rank: u8) -> (usize, [u8; 2]) {
    let (at, shift) = place(register);
    let next = registers.get(at + 1).copied().unwrap_or(0);
    let both = u16::from_le_bytes([registers[at], next]);
    (at, (both & !(RANK << shift) | u16::from(rank) << shift).to_le_bytes())
}

/// Raises a register to `rank`. Returns false if it was at least as high.
pub(super) fn raise(registers: &mut [u8], register: usize, rank: u8) -> bool {
    if get(registers, register) >= rank {
        return false;
    }
    let (at, bytes) = with(registers, register, rank);
    registers.iter_mut().skip(at).zip(bytes).for_each(|(to, byte)| *to = byte);
    true
}

/// Raises each of `all` to the value in `registers`. Cost: O(registers).
///
/// Eight registers at a time are spread from six bytes to eight bytes: by halves, quarters, then
/// eighths.
pub(super) fn raise_all(all: &mut [u8; REGISTERS], registers: &[u8; DENSE_BYTES]) {
    let (groups, _) = registers.as_chunks::<GROUP_BYTES>();
    for (to, group) in all.as_chunks_mut::<GROUP>().0.iter_mut().zip(groups) {
        let mut word = [0; GROUP];
        word[..GROUP_BYTES].copy_from_slice(group);
        let bits = u64::from_le_bytes(word);
        let bits = bits & 0x00ff_ffff | (bits & 0xffff_ff00_0000) << 8;
        let bits = bits & 0x0000_0fff_0000_0fff | (bits & 0x00ff_f000_00ff_f000) << 4;
        let bits = bits & 0x003f_003f_003f_003f | (bits & 0x0fc0_0fc0_0fc0_0fc0) << 2;
        let ranks = bits.to_le_bytes();
        to.iter_mut().zip(ranks).for_each(|(to, rank)| *to = (*to).max(rank));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use darter_base::Prng;

    #[test]
    fn random_changes_of_dense_registers_agree_with_an_array() {
        let mut prng = Prng::from_seed(2);
        let (mut registers, mut model) = ([0; DENSE_BYTES], [0_u8; REGISTERS]);
        for step in 0..100_000 {
            let register = usize::try_from(prng.below(REGISTERS as u64)).unwrap();
            let rank = u8::try_from(prng.below(64)).unwrap();
            let raised = raise(&mut registers, register, rank);
            assert_eq!(raised, rank > model[register], "{step}");
            model[register] = model[register].max(rank);
        }
        assert!((0..REGISTERS).all(|at| get(&registers, at) == model[at]));
        let mut all = [0; REGISTERS];
        raise_all(&mut all, &registers);
        assert!(all == model);
    }
}
