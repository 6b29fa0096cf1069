//! Changes of a store besides records and their tree: exports, legal holds, retention and keys.

use wardgate_audit_export::CursorClaim;
use wardgate_domain::Digest;

use super::{
    LegalHold, MovedSubjectKey, ReadPool, StoreReader, StoreWriter, postgres, sqlite, unsigned,
};
use crate::Error;

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

impl StoreWriter {
    /// Makes the change durably. Returns `false`, and changes nothing, if its precondition does not hold.
    pub(crate) async fn keep_up(&mut self, upkeep: &StoreUpkeep) -> Result<bool, sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.keep_up(upkeep).await,
            Self::Postgres(writer) => writer.keep_up(upkeep).await,
        }
    }

    /// Removes replaced keys from the files of the store where the store does this. SQLite empties its write-ahead log, and
    /// waits only briefly for readers.
    pub(crate) async fn scrub(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.empty_log().await,
            Self::Postgres(_) => Ok(()),
        }
    }
}

impl StoreReader {
    /// Returns the position at which an export continues, or `None` if the export never started.
    pub(crate) async fn export_position(&self, export: &str) -> Result<Option<u64>, Error> {
        let position: Option<i64> = match &self.pool {
            ReadPool::Sqlite(pool) => {
                let position = sqlx::query_scalar(sqlite::EXPORT_POSITION).bind(export);
                position.fetch_optional(pool).await?
            }
            ReadPool::Postgres(pool) => {
                let position = sqlx::query_scalar(postgres::EXPORT_POSITION).bind(export);
                position.fetch_optional(&mut *pool.acquire().await?).await?
            }
        };
        Ok(position.map(unsigned))
    }

    /// Returns the check value of the key for the digests of arguments and results, or `None` if none is stored yet.
    pub(crate) async fn mac_check(&self) -> Result<Option<Digest>, Error> {
        let stored: Option<Vec<u8>> = match &self.pool {
            ReadPool::Sqlite(pool) => {
                sqlx::query_scalar(sqlite::MAC_CHECK)
                    .fetch_one(pool)
                    .await?
            }
            ReadPool::Postgres(pool) => {
                let stored = sqlx::query_scalar(postgres::MAC_CHECK);
                stored.fetch_one(&mut *pool.acquire().await?).await?
            }
        };
        let malformed =
            |_| sqlx::Error::Decode("the check value of the key is not a digest".into());
        let bytes = stored.map(|stored| stored.try_into().map_err(malformed));
        Ok(bytes.transpose()?.map(Digest::from_bytes))
    }
}
