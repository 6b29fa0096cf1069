//! The formats and algorithms of a transparency log, without storage: hashes, signatures, proofs and their verification.
//!
//! ```text
//!   entries ──leaf hash──▶ CompactTree ──▶ TreeHead ──▶ Checkpoint ──Signer──▶ SignedNote ◀──Cosigner
//!                              │                                                  │
//!                              └──▶ tiles ──▶ inclusion and consistency paths ──▶ TlogProof ──▶ verified offline
//! ```
//!
//! The crate implements RFC 6962 and the C2SP formats without input or output. Data from outside is checked when it is parsed,
//! and no input leads to a panic.
//!
//! | module | specification |
//! |---|---|
//! | `hash`, `tree`, `path` | [RFC 6962](https://www.rfc-editor.org/rfc/rfc6962#section-2.1), verification as in [RFC 9162] |
//! | `tile` | [tlog-tiles](https://c2sp.org/tlog-tiles) |
//! | `note` | [signed-note](https://c2sp.org/signed-note), Ed25519 |
//! | `checkpoint` | [tlog-checkpoint](https://c2sp.org/tlog-checkpoint) |
//! | `key` | [verifier keys](https://c2sp.org/signed-note#verifier-keys), [tlog-cosignature] version 1 |
//! | `proof` | [tlog-proof](https://c2sp.org/tlog-proof) |
//! | `policy` | [tlog-policy](https://c2sp.org/tlog-policy) |
//! | `submission` | [tlog-witness](https://c2sp.org/tlog-witness) |
//!
//! [RFC 9162]: https://www.rfc-editor.org/rfc/rfc9162#section-2.1
//! [tlog-cosignature]: https://c2sp.org/tlog-cosignature

mod checkpoint;
mod error;
mod hash;
mod key;
mod note;
mod path;
mod policy;
mod proof;
mod submission;
mod tile;
mod tree;

pub use checkpoint::Checkpoint;
pub use error::Error;
pub use hash::{EMPTY_ROOT, Hash, leaf_hash};
pub use key::{Cosigner, Signer, VerifierKey};
pub use note::{NoteSignature, SignedNote};
pub use path::{
    consistency_path, consistency_ranges, inclusion_path, inclusion_ranges, verify_consistency,
    verify_inclusion,
};
pub use policy::{TrustPolicy, TrustedWitness};
pub use proof::TlogProof;
pub use submission::CheckpointSubmission;
pub use tile::{
    TILE_WIDTH, TileId, TileSet, decode_bundle, encode_entry, tiles_of_ranges, tiles_of_size,
};
pub use tree::{CompactTree, Node, TreeHead};
