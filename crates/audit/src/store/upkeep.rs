//! What is written to a store beside records and their tree.

use wardgate_audit_export::CursorClaim;
use wardgate_domain::Digest;

use super::{LegalHold, ReadPool, StoreReader, StoreWriter, postgres, sqlite, unsigned};
use crate::Error;

/// A change of what stands beside the record.
#[derive(Debug)]
pub(crate) enum StoreUpkeep {
    /// Takes or renews the right to export; a new export begins at the position.
    ClaimExport(CursorClaim, u64),
    /// An export goes on from one position to another, where its claim still holds.
    AdvanceExport {
        claim: CursorClaim,
        from: u64,
        to: u64,
    },
    /// Gives the right to export back.
    ReleaseExport(CursorClaim),
    /// Removes the records of a bundle of the log and keeps their leaf hashes; false where it is not the next one that can go,
    /// or where a hold was set or lifted since.
    PruneBundle { bundle: u64, hold_generation: u64 },
    /// Sets a legal hold; false where there is one of that name.
    SetHold(LegalHold),
    /// Lifts the hold of this name; false where there is none. With a tenant, only one that was set in it.
    LiftHold { name: String, of: Option<String> },
    /// Destroys the key of a data subject; false where there is none, or where a hold keeps it.
    EraseSubject { tenant: String, tag: Digest },
    /// Another key makes the digests of arguments and results from now on; false where the check value is not the old one.
    SetMacCheck { from: Option<Digest>, to: Digest },
}

impl StoreWriter {
    /// Does it, durably; false where somebody else was faster, and then nothing is changed.
    pub(crate) async fn keep_up(&mut self, upkeep: &StoreUpkeep) -> Result<bool, sqlx::Error> {
        match self {
            Self::Sqlite(writer) => writer.keep_up(upkeep).await,
            Self::Postgres(writer) => writer.keep_up(upkeep).await,
        }
    }
}

impl StoreReader {
    /// Where an export goes on; none where it never began.
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

    /// What the key of the digests of arguments and results last made; none where no service has said it yet.
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
        let malformed = |_| sqlx::Error::Decode("the check value of the key is no digest".into());
        let bytes = stored.map(|stored| stored.try_into().map_err(malformed));
        Ok(bytes.transpose()?.map(Digest::from_bytes))
    }
}
