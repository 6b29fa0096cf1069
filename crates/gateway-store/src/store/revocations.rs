//! Revocations, which all replicas follow.

use wardgate_domain::{Revocation, RevocationKind, RevocationTarget, Timestamp};
use wardgate_store::Value;

use super::{Store, StoreError, within_limit};
use futures::FutureExt;

/// Maximum number of revocations, so that every replica can hold all of them in memory.
const MAX_REVOCATIONS: i64 = 10_000;

const VERSION: &str = "SELECT version FROM gateway.revocation_version";

const ALL: &str = "
    SELECT kind, name, issuer, tenant, reason, revoked_by, revoked_at
    FROM gateway.revocation ORDER BY revoked_at, kind, name, issuer, tenant";

/// The first statement of each change, so that concurrent changes wait for each other here.
const NEXT_VERSION: &str = "UPDATE gateway.revocation_version SET version = version + 1";

/// Inserts a revocation. One that is in force already stays unchanged.
const ADD: &str = "
    INSERT INTO gateway.revocation (kind, name, issuer, tenant, reason, revoked_by, revoked_at)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (kind, name, issuer, tenant) DO NOTHING";

const COUNT: &str = "SELECT count(*) FROM gateway.revocation";

const REMOVE: &str = "
    DELETE FROM gateway.revocation WHERE kind = $1 AND name = $2 AND issuer = $3 AND tenant = $4";

type RevocationRow = (String, String, String, String, String, String, i64);

impl Store {
    /// Returns a version that changes whenever the revocations change.
    pub async fn revocations_version(&self) -> Result<i64, StoreError> {
        // The version is read several times a second, so the code that follows it logs a failure once.
        let database = self.database().await?;
        let versions: Vec<(i64,)> = within_limit(database.rows(VERSION, []).boxed()).await?;
        Ok(versions.first().map_or(0, |(version,)| *version))
    }

    /// Returns all revocations, the oldest first.
    pub async fn revocations(&self) -> Result<Vec<Revocation>, StoreError> {
        let rows: Vec<RevocationRow> = self.rows(ALL, []).await?;
        Ok(rows.into_iter().filter_map(revocation).collect())
    }

    /// Adds `revocation`, unless it is in force already. Returns `None` if the maximum number of revocations is reached.
    pub async fn add_revocation(&self, revocation: &Revocation) -> Result<Option<()>, StoreError> {
        let database = self.database().await?;
        let added = async {
            let mut transaction = database.begin().await?;
            transaction.execute(NEXT_VERSION, []).await?;
            let [kind, name, issuer, tenant] = key(&revocation.target);
            let row = [
                kind,
                name,
                issuer,
                tenant,
                revocation.reason.as_str().into(),
                revocation.revoked_by.as_str().into(),
                revocation.revoked_at.as_micros().into(),
            ];
            transaction.execute(ADD, row).await?;
            let counts: Vec<(i64,)> = transaction.rows(COUNT, []).await?;
            if counts
                .first()
                .is_some_and(|(count,)| *count > MAX_REVOCATIONS)
            {
                return Ok::<_, StoreError>(None);
            }
            transaction.commit().await?;
            Ok(Some(()))
        };
        self.log_failure_of(within_limit(added.boxed()).await)
    }

    /// Removes the revocation of `target`. Returns `false` if there is none.
    pub async fn remove_revocation(&self, target: &RevocationTarget) -> Result<bool, StoreError> {
        let database = self.database().await?;
        let removed = async {
            let mut transaction = database.begin().await?;
            transaction.execute(NEXT_VERSION, []).await?;
            let removed = transaction.execute(REMOVE, key(target)).await?;
            transaction.commit().await?;
            Ok::<_, StoreError>(removed > 0)
        };
        self.log_failure_of(within_limit(removed.boxed()).await)
    }
}

fn key(target: &RevocationTarget) -> [Value; 4] {
    [
        target.kind.as_str().into(),
        target.name.as_str().into(),
        target.issuer.as_deref().unwrap_or_default().into(),
        target.tenant.as_deref().unwrap_or_default().into(),
    ]
}

/// Parses a row. Returns `None` for a kind that only a newer program writes, which also raises the version of the schema.
fn revocation(
    (kind, name, issuer, tenant, reason, revoked_by, revoked_at): RevocationRow,
) -> Option<Revocation> {
    let given = |text: String| (!text.is_empty()).then_some(text);
    Some(Revocation {
        target: RevocationTarget {
            kind: RevocationKind::from_name(&kind)?,
            name,
            issuer: given(issuer),
            tenant: given(tenant),
        },
        reason,
        revoked_by,
        revoked_at: Timestamp::from_micros(revoked_at),
    })
}
