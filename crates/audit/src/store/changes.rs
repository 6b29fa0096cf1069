//! The changes of a store that both kinds of stores make.

use wardgate_audit_export::CursorClaim;
use wardgate_domain::{Digest, Timestamp};
use wardgate_transparency::{Hash, TreeHead};

/// The growth of the tree from one head to another, with the roots of the tiles that became full.
#[derive(Debug, Clone)]
pub(crate) struct TreeGrowth {
    pub(crate) from: TreeHead,
    pub(crate) to: TreeHead,
    pub(crate) tile_roots: Vec<TileRoot>,
    /// The signed checkpoint of the tree after its growth, or `None` if a further step follows.
    pub(crate) checkpoint: Option<String>,
}

/// The root of a full tile, which is a hash of the tile one level above.
#[derive(Debug, Clone)]
pub(crate) struct TileRoot {
    pub(crate) level: u8,
    pub(crate) position: u64,
    pub(crate) root: Hash,
}

/// A new key of a data subject, encrypted under a master key.
#[derive(Debug, Clone)]
pub(crate) struct NewSubjectKey {
    pub(crate) tag: Digest,
    pub(crate) wrapped: Vec<u8>,
    /// Identifies the master key.
    pub(crate) known_by: Digest,
}

/// A key of a data subject that is encrypted again, under another master key.
#[derive(Debug, Clone)]
pub(crate) struct MovedSubjectKey {
    pub(crate) tag: Digest,
    /// The key as it was encrypted before.
    pub(crate) former: Vec<u8>,
    pub(crate) wrapped: Vec<u8>,
}

/// A legal hold. The records that it covers are not removed, and their details are not erased. A hold without a tenant and a
/// tag covers all records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LegalHold {
    pub(crate) name: String,
    /// The tenant of the callers whose records are covered. Also set if the hold is on a data subject.
    pub(crate) tenant: Option<String>,
    /// The tag of the data subject on which the hold is set.
    pub(crate) tag: Option<Digest>,
    pub(crate) set_by: String,
    /// The tenant of the operator who set the hold, or `None` for an operator without a tenant.
    pub(crate) set_in: Option<String>,
    pub(crate) set_at: Timestamp,
}

/// A change of a store besides records and their tree. Each variant states what the result `false` means.
#[derive(Debug)]
pub(crate) enum StoreUpkeep {
    /// Takes or renews a claim for an export. A new export begins at the given position. `false` if another process holds the
    /// claim.
    ClaimExport(CursorClaim, u64),
    /// Advances an export from one position to another. `false` if the claim is lost.
    AdvanceExport {
        claim: CursorClaim,
        from: u64,
        to: u64,
    },
    /// Releases a claim for an export.
    ReleaseExport(CursorClaim),
    /// Removes the records of a bundle and keeps their leaf hashes. `false` if the bundle is not the next one that can be
    /// removed, or if a hold was set or lifted in the meantime.
    PruneBundle { bundle: u64, hold_generation: u64 },
    /// Sets a legal hold. `false` if a hold with this name exists.
    SetHold(LegalHold),
    /// Lifts the hold of this name. `false` if there is none. With a tenant, only a hold that was set in that tenant is lifted.
    LiftHold { name: String, of: Option<String> },
    /// Destroys the key of a data subject. `false` if there is no key, or if a hold protects it.
    EraseSubject { tenant: String, tag: Digest },
    /// Replaces the check value of the key for the digests of arguments and results. `false` if the stored value is not `from`.
    SetMacCheck { from: Option<Digest>, to: Digest },
    /// Stores which master key encrypts the keys of data subjects, and the encrypted key of the tags. `false` if it is stored
    /// already.
    AdoptMasterKey { known_by: Digest, tag_key: Vec<u8> },
    /// Puts another master key in force, and begins to move the keys of data subjects from the former one. `false` if `from` is
    /// not in force, or if a rotation is in progress already.
    BeginRekey {
        from: Digest,
        to: Digest,
        tag_key: Vec<u8>,
    },
    /// Replaces encrypted keys of data subjects, and stores that those up to the tag `position` are moved. A smaller position than
    /// the stored one has no effect. `false` if the master key `to` is not in force.
    MoveSubjectKeys {
        moved: Vec<MovedSubjectKey>,
        position: Vec<u8>,
        to: Digest,
    },
    /// Ends the rotation to the master key `to`. `false` if no such rotation is in progress.
    EndRekey { to: Digest },
}
