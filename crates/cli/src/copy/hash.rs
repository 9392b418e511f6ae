//! BLAKE3 of a file from its pieces, which several threads read in any order.
//!
//! Problem: several threads move a file piece by piece. Its checksum must not need a second pass in order. Idea: BLAKE3
//! is a tree over chunks of 1024 B. A piece of 2^k chunks is a whole subtree, so each piece has its own chaining value.
//! The root is merged from these. The result is what `b3sum` prints. Always used. Source: the BLAKE3 paper, section 2.1
//! (tree structure).
use blake3::hazmat::{
    ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root,
};

/// Bytes that a thread moves and hashes at a time: 2^12 chunks.
pub const PIECE: u64 = 4 << 20;

/// The hash of one piece.
pub type Value = ChainingValue;

/// The value of the piece at `offset`, a multiple of [`PIECE`], of a file of `len` bytes. A file of one piece is the
/// root of its own tree.
pub fn piece(len: u64, offset: u64, bytes: &[u8]) -> Value {
    if len <= PIECE {
        return *blake3::hash(bytes).as_bytes();
    }
    let mut hasher = blake3::Hasher::new();
    hasher.set_input_offset(offset);
    hasher.update(bytes);
    hasher.finalize_non_root()
}

/// The digest of a file from the values of all its pieces.
pub fn root(values: &[Value]) -> blake3::Hash {
    match values {
        [] => blake3::hash(b""),
        [one] => blake3::Hash::from_bytes(*one),
        _ => {
            let (left, right) = split(values);
            merge_subtrees_root(&merged(left), &merged(right), Mode::Hash)
        }
    }
}

fn merged(values: &[Value]) -> Value {
    match values {
        [one] => *one,
        _ => {
            let (left, right) = split(values);
            merge_subtrees_non_root(&merged(left), &merged(right), Mode::Hash)
        }
    }
}

/// The left subtree has the largest power of two of pieces that leaves one for the right.
fn split(values: &[Value]) -> (&[Value], &[Value]) {
    let left = values.len().next_power_of_two() / 2;
    values.split_at(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_digest_of_the_whole() {
        let whole: Vec<u8> = (0..11 * PIECE + 4321)
            .map(|i| ((i * i) >> 7) as u8)
            .collect();
        for len in [
            0,
            1,
            PIECE,
            PIECE + 1,
            2 * PIECE,
            5 * PIECE - 1,
            8 * PIECE,
            11 * PIECE + 4321,
        ] {
            let part = &whole[..len as usize];
            let values: Vec<Value> = part
                .chunks(PIECE as usize)
                .enumerate()
                .map(|(i, bytes)| piece(len, i as u64 * PIECE, bytes))
                .collect();
            assert_eq!(root(&values), blake3::hash(part), "{len}");
        }
    }
}
