//! SHA-256 of many messages, sixteen at a time.
//!
//! On a processor without SHA-256 instructions, the same step of sixteen messages is a loop that the
//! compiler turns into vector instructions, so a block takes less than half the time. The crate
//! `sha2` is the oracle.

#![expect(
    clippy::indexing_slicing,
    clippy::many_single_char_names,
    reason = "every index is below the fixed length of its array, and the formulas of FIPS 180-4 \
              can be read as they are there"
)]

use super::{HASH_BYTES, Hash};

/// Messages that are hashed in parallel: fewer leave vector registers empty, more do not fit.
const LANES: usize = 16;

/// Bytes of one block (FIPS 180-4, section 5.2.1).
const BLOCK_BYTES: usize = 64;

type Words = [u32; LANES];

/// First words of the fractional parts of the square roots of the first 8 primes (section 5.3.3).
const START: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// First words of the fractional parts of the cube roots of the first 64 primes (section 4.2.2).
#[rustfmt::skip]
const ROUNDS: [u32; 64] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// A message in a lane: a first byte, the bytes that follow it, the padding.
#[derive(Clone, Copy)]
struct Message<'a> {
    /// Its index in the result.
    place: usize,
    first: u8,
    bytes: &'a [u8],
    /// Blocks that are hashed already.
    done: usize,
}

/// Whether lanes are faster than one by one.
pub(super) fn pay(count: usize) -> bool {
    LANES / 2 <= count && !has_sha_instructions()
}

/// SHA-256 of `first` and the bytes of each message.
pub(super) fn sha256_each(first: u8, messages: &[&[u8]]) -> Vec<Hash> {
    let mut hashes = vec![Hash([0; HASH_BYTES]); messages.len()];
    let mut waiting = messages.iter().enumerate();
    let mut lanes: [Option<Message<'_>>; LANES] = [None; LANES];
    let mut state = [[0; LANES]; 8];
    loop {
        for (lane, message) in lanes.iter_mut().enumerate() {
            if message.is_none()
                && let Some((place, bytes)) = waiting.next()
            {
                *message = Some(Message {
                    place,
                    first,
                    bytes,
                    done: 0,
                });
                for (words, start) in state.iter_mut().zip(START) {
                    words[lane] = start;
                }
            }
        }
        if lanes.iter().all(Option::is_none) {
            return hashes;
        }
        let mut words = [[0; LANES]; 16];
        for (lane, message) in lanes.iter().enumerate() {
            let block = message.map_or([0; BLOCK_BYTES], |message| message.block());
            for (words, bytes) in words.iter_mut().zip(block.as_chunks().0) {
                words[lane] = u32::from_be_bytes(*bytes);
            }
        }
        compress(&mut state, words);
        for (lane, slot) in lanes.iter_mut().enumerate() {
            let Some(message) = slot else { continue };
            message.done += 1;
            if message.done == message.blocks() {
                let hash = &mut hashes[message.place].0;
                for (bytes, words) in hash.as_chunks_mut().0.iter_mut().zip(&state) {
                    *bytes = words[lane].to_be_bytes();
                }
                *slot = None;
            }
        }
    }
}

impl Message<'_> {
    fn length(&self) -> usize {
        1 + self.bytes.len()
    }

    /// Number of blocks with the padding: 0x80, zeros, and the length in eight bytes (section 5.1.1).
    fn blocks(&self) -> usize {
        (self.length() + 8) / BLOCK_BYTES + 1
    }

    fn block(&self) -> [u8; BLOCK_BYTES] {
        let mut block = [0; BLOCK_BYTES];
        let start = self.done * BLOCK_BYTES;
        // The first byte shifts all others by one.
        let (room, left) = if start == 0 {
            block[0] = self.first;
            (&mut block[1..], self.bytes)
        } else {
            let left = self.bytes.get(start - 1..).unwrap_or_default();
            (block.as_mut_slice(), left)
        };
        let count = room.len().min(left.len());
        room[..count].copy_from_slice(&left[..count]);
        if let Some(end) = self.length().checked_sub(start)
            && end < BLOCK_BYTES
        {
            block[end] = 0x80;
        }
        if self.done + 1 == self.blocks() {
            let bits = u64::try_from(self.length()).unwrap_or(u64::MAX) * 8;
            block[BLOCK_BYTES - 8..].copy_from_slice(&bits.to_be_bytes());
        }
        block
    }
}

/// Compresses one block of each message into its state (section 6.2.2). `words` holds the last 16
/// words of the message schedule.
fn compress(state: &mut [Words; 8], mut words: [Words; 16]) {
    let mut next = *state;
    for (round, constant) in ROUNDS.into_iter().enumerate() {
        if 16 <= round {
            let (w15, w7) = (words[(round + 1) % 16], words[(round + 9) % 16]);
            let w2 = words[(round + 14) % 16];
            let word = &mut words[round % 16];
            for lane in 0..LANES {
                let (x, y) = (w15[lane], w2[lane]);
                let s0 = x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3);
                let s1 = y.rotate_right(17) ^ y.rotate_right(19) ^ (y >> 10);
                let sum = word[lane].wrapping_add(s0).wrapping_add(w7[lane]);
                word[lane] = sum.wrapping_add(s1);
            }
        }
        let [a, b, c, d, e, f, g, h] = next;
        let word = words[round % 16];
        let (mut first, mut fifth) = ([0; LANES], [0; LANES]);
        for lane in 0..LANES {
            let (x, y) = (a[lane], e[lane]);
            let s1 = y.rotate_right(6) ^ y.rotate_right(11) ^ y.rotate_right(25);
            let choice = g[lane] ^ (y & (f[lane] ^ g[lane]));
            let sum = h[lane].wrapping_add(s1).wrapping_add(choice);
            let sum = sum.wrapping_add(constant).wrapping_add(word[lane]);
            let s0 = x.rotate_right(2) ^ x.rotate_right(13) ^ x.rotate_right(22);
            let majority = ((x ^ b[lane]) & c[lane]) ^ (x & b[lane]);
            fifth[lane] = d[lane].wrapping_add(sum);
            first[lane] = sum.wrapping_add(s0).wrapping_add(majority);
        }
        next = [first, a, b, c, fifth, e, f, g];
    }
    for (words, added) in state.iter_mut().zip(next) {
        for (word, added) in words.iter_mut().zip(added) {
            *word = word.wrapping_add(added);
        }
    }
}

/// Whether the processor has SHA-256 instructions. `sha2` uses them, and is then faster than lanes.
fn has_sha_instructions() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("sha");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

#[cfg(test)]
mod tests {
    use sha2::{Digest as _, Sha256};

    use super::sha256_each;
    use crate::hash::Hash;

    /// Method: all lengths up to several blocks, in an order in which lanes end at different times,
    /// against the crate `sha2`.
    #[test]
    fn lanes_give_the_same_hashes_as_one_message_at_a_time() {
        let lengths = (0..300).map(|number| number * 37 % 300);
        let messages: Vec<Vec<u8>> = lengths
            .map(|length| (0..=255).cycle().take(length).collect())
            .collect();
        let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
        for count in [0, 1, 15, 16, 17, 300] {
            let (messages, _) = messages.split_at(count);
            // A leaf and a node of the tree have different first bytes.
            for first in [0, 1] {
                let alone = |bytes: &&[u8]| {
                    let digest = Sha256::new().chain_update([first]).chain_update(bytes);
                    Hash(digest.finalize().into())
                };
                let alone: Vec<Hash> = messages.iter().map(alone).collect();
                assert_eq!(sha256_each(first, messages), alone);
            }
        }
    }
}
