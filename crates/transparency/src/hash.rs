//! The hash functions of RFC 6962, section 2.1. Leaves and nodes never have the same input.

use aws_lc_rs::digest::{self, SHA256};

/// A SHA-256 hash of an entry or of a subtree.
pub type Hash = [u8; 32];

/// The root of the tree without entries, which is the hash of the empty string.
pub const EMPTY_ROOT: Hash = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// Returns the hash of an entry: SHA-256 over 0x00 and the bytes of the entry.
pub fn leaf_hash(entry: &[u8]) -> Hash {
    let mut context = digest::Context::new(&SHA256);
    context.update(&[0]);
    context.update(entry);
    bytes(&context.finish())
}

/// Returns the hash of two adjacent subtrees: SHA-256 over 0x01 and their hashes.
pub(crate) fn node_hash(left: &Hash, right: &Hash) -> Hash {
    let mut input = [1; 65];
    input[1..33].copy_from_slice(left);
    input[33..].copy_from_slice(right);
    sha256(&input)
}

/// Returns the SHA-256 hash of `input`.
pub(crate) fn sha256(input: &[u8]) -> Hash {
    bytes(&digest::digest(&SHA256, input))
}

fn bytes(digest: &digest::Digest) -> Hash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest.as_ref());
    hash
}
