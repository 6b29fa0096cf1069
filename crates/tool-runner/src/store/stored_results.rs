//! Large results, stored for a limited time for the caller who received them and no other caller.

use wardgate_domain::{About, Caller, Digest, Timestamp};

use super::{StoreError, ToolRunnerStore, person, within};
use wardgate_store::Value;

const KEEP: &str = "
    INSERT INTO tool_runner.kept_result
        (handle, caller, tool, definition, policy_hash, terms, chunks, bytes, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";

const KEEP_CHUNK: &str =
    "INSERT INTO tool_runner.kept_chunk (handle, position, sealed) VALUES ($1, $2, $3)";

/// The sum starts with the newest result, so the oldest results are deleted when the limit is exceeded.
const TRIM_CALLER: &str = "
    DELETE FROM tool_runner.kept_result WHERE number IN (
        SELECT number FROM (
            SELECT number, sum(bytes) OVER (ORDER BY number DESC) AS together
            FROM tool_runner.kept_result WHERE caller = $1
        ) AS newest_first WHERE together > $2)";

const TRIM_ALL: &str = "
    DELETE FROM tool_runner.kept_result WHERE number IN (
        SELECT number FROM (
            SELECT number, sum(bytes) OVER (ORDER BY number DESC) AS together
            FROM tool_runner.kept_result
        ) AS newest_first WHERE together > $1)";

/// A handle that has expired or belongs to another caller is treated like an unknown handle.
const LOOK: &str = "
    SELECT tool, definition, policy_hash, terms, chunks, expires_at FROM tool_runner.kept_result
    WHERE handle = $1 AND caller = $2 AND expires_at > $3";

const LOOK_CHUNK: &str =
    "SELECT sealed FROM tool_runner.kept_chunk WHERE handle = $1 AND position = $2";

pub(super) const SWEEP: &str = "
    DELETE FROM tool_runner.kept_result WHERE number IN
        (SELECT number FROM tool_runner.kept_result WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";

/// A row of [`LOOK`].
type StoredPage = (String, Vec<u8>, Vec<u8>, Vec<u8>, i64, i64);

/// The maximum size of stored results, in bytes. The oldest results are deleted first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredResultLimits {
    pub(crate) per_caller: i64,
    pub(crate) overall: i64,
}

impl Default for StoredResultLimits {
    fn default() -> Self {
        Self {
            per_caller: 64 << 20,
            overall: 1 << 30,
        }
    }
}

/// A result to be stored.
pub(crate) struct NewStoredResult<'a> {
    pub(crate) caller: &'a Caller,
    /// The canonical name of the tool.
    pub(crate) tool: &'a str,
    /// The digest of the definition that the tool ran under.
    pub(crate) definition: Digest,
    /// The digest of the policies that the result was released under.
    pub(crate) policy_hash: Digest,
    /// The row rule and column tiers that the result was released under, in an encoding that the caller chooses.
    pub(crate) terms: &'a [u8],
    /// The result, in parts that are read one at a time.
    pub(crate) chunks: &'a [Vec<u8>],
    pub(crate) expires_at: Timestamp,
}

/// A stored result.
pub(crate) struct StoredResult {
    handle: String,
    /// The digest of the columns that are part of the sealed data's context.
    row: Digest,
    pub(crate) tool: String,
    pub(crate) definition: Digest,
    pub(crate) policy_hash: Digest,
    pub(crate) terms: Vec<u8>,
    /// The number of parts.
    pub(crate) chunks: i64,
}

impl ToolRunnerStore {
    /// Stores a result and returns its handle. The oldest results are deleted if there is not enough room.
    pub(crate) async fn store_result(
        &self,
        result: &NewStoredResult<'_>,
    ) -> Result<String, StoreError> {
        let handle = format!("{:032x}", u128::from_be_bytes(self.ambient.random()));
        let count = i64::try_from(result.chunks.len()).unwrap_or(i64::MAX);
        let row = StoredResultRow {
            handle: &handle,
            caller: person(result.caller),
            tool: result.tool,
            definition: result.definition,
            policy_hash: result.policy_hash,
            chunks: count,
            expires_at: result.expires_at.as_micros(),
        };
        let digest = row.digest();
        let seal = |about: &About, plain: &[u8]| self.key.seal(about, plain, &self.ambient);
        let terms = seal(&about_terms(digest), result.terms)?;
        let mut chunks = Vec::with_capacity(result.chunks.len());
        for (position, chunk) in (0..).zip(result.chunks) {
            chunks.push(seal(&about_chunk(digest, position), chunk)?);
        }
        let bytes: usize = chunks.iter().map(Vec::len).sum();
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if bytes > self.limits.per_caller.min(self.limits.overall) {
            return Err(StoreError::TooLarge);
        }
        within(self.write(&row, terms, chunks, bytes)).await?;
        Ok(handle)
    }

    async fn write(
        &self,
        row: &StoredResultRow<'_>,
        terms: Vec<u8>,
        chunks: Vec<Vec<u8>>,
        bytes: i64,
    ) -> Result<(), StoreError> {
        let caller = || Value::from(&row.caller.as_bytes()[..]);
        let mut transaction = self.database.begin().await?;
        let values = [
            row.handle.into(),
            caller(),
            row.tool.into(),
            row.definition.as_bytes()[..].into(),
            row.policy_hash.as_bytes()[..].into(),
            terms.into(),
            row.chunks.into(),
            bytes.into(),
            row.expires_at.into(),
        ];
        transaction.execute(KEEP, values).await?;
        for (position, chunk) in (0..).zip(chunks) {
            let values = [row.handle.into(), Value::Integer(position), chunk.into()];
            transaction.execute(KEEP_CHUNK, values).await?;
        }
        let of_caller = [caller(), self.limits.per_caller.into()];
        transaction.execute(TRIM_CALLER, of_caller).await?;
        let of_all = [self.limits.overall.into()];
        transaction.execute(TRIM_ALL, of_all).await?;
        Ok(transaction.commit().await?)
    }

    /// Returns the result under `handle` for `caller`. Returns `None` if the handle is unknown, has expired, or belongs
    /// to another caller; the cases cannot be distinguished.
    pub(crate) async fn stored_result(
        &self,
        handle: &str,
        caller: &Caller,
        now: Timestamp,
    ) -> Result<Option<StoredResult>, StoreError> {
        // PostgreSQL does not accept NUL characters in text.
        if handle.contains('\0') {
            return Ok(None);
        }
        let caller = person(caller);
        let key = [
            handle.into(),
            caller.as_bytes()[..].into(),
            now.as_micros().into(),
        ];
        let rows: Vec<StoredPage> = within(self.database.rows(LOOK, key)).await?;
        let Some((tool, definition, policy_hash, terms, chunks, expires_at)) =
            rows.into_iter().next()
        else {
            return Ok(None);
        };
        let row = StoredResultRow {
            handle,
            caller,
            tool: &tool,
            definition: digest(definition)?,
            policy_hash: digest(policy_hash)?,
            chunks,
            expires_at,
        };
        Ok(Some(StoredResult {
            row: row.digest(),
            handle: handle.to_owned(),
            definition: row.definition,
            policy_hash: row.policy_hash,
            terms: self.key.open(&about_terms(row.digest()), terms)?,
            chunks,
            tool,
        }))
    }

    /// Returns one part of a stored result, counted from 0, or `None` if the part does not exist or was deleted.
    pub(crate) async fn stored_chunk(
        &self,
        stored: &StoredResult,
        position: i64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let key = [stored.handle.as_str().into(), position.into()];
        let rows: Vec<(Vec<u8>,)> = within(self.database.rows(LOOK_CHUNK, key)).await?;
        rows.into_iter()
            .next()
            .map(|(sealed,)| self.key.open(&about_chunk(stored.row, position), sealed))
            .transpose()
    }
}

/// The columns of a row that are not encrypted. The sealed parts are bound to all of them, so none of them can be
/// changed.
struct StoredResultRow<'a> {
    handle: &'a str,
    caller: Digest,
    tool: &'a str,
    definition: Digest,
    policy_hash: Digest,
    chunks: i64,
    expires_at: i64,
}

impl StoredResultRow<'_> {
    fn digest(&self) -> Digest {
        let whole = About::new("kept result")
            .and(self.handle.as_bytes())
            .and(self.caller.as_bytes())
            .and(self.tool.as_bytes())
            .and(self.definition.as_bytes())
            .and(self.policy_hash.as_bytes())
            .and(&self.chunks.to_be_bytes())
            .and(&self.expires_at.to_be_bytes());
        Digest::compute(whole.as_bytes())
    }
}

fn about_terms(row: Digest) -> About {
    About::new("kept terms").and(row.as_bytes())
}

fn about_chunk(row: Digest, position: i64) -> About {
    About::new("kept chunk")
        .and(row.as_bytes())
        .and(&position.to_be_bytes())
}

fn digest(bytes: Vec<u8>) -> Result<Digest, StoreError> {
    let bytes = bytes.try_into().map_err(|_| StoreError::Sealed)?;
    Ok(Digest::from_bytes(bytes))
}
