//! The owners of the buckets of shared rates.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use wardgate_domain::Digest;
use wardgate_resilience::{BucketOwner, BucketUse, LeaseStoreUnavailable, OwnerStore};
use wardgate_store::{Address, Value};

use super::{Store, StoreError};

const NOTE: &str = "
    INSERT INTO gateway.rate_owner (bucket, tenant, owner, seen_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (bucket) DO UPDATE SET seen_at = excluded.seen_at";

/// Selects by the clock of the database, as the buckets do.
const USES: &str = "
    SELECT owned.owner, bucket.full_at - now.micros
    FROM (SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint AS micros) AS now,
         gateway.rate_owner AS owned JOIN gateway.rate AS bucket ON bucket.bucket = owned.bucket
    WHERE bucket.full_at > now.micros AND ($1::text IS NULL OR owned.tenant = $1)
    ORDER BY bucket.full_at DESC LIMIT $2";

/// Replicas note an owner again within ten minutes. The owner of a bucket that is full and was removed is not needed.
pub(crate) const SWEEP: &str = "
    DELETE FROM gateway.rate_owner WHERE bucket IN
        (SELECT bucket FROM gateway.rate_owner
         WHERE seen_at + 1200000000 <= $1 AND bucket NOT IN (SELECT bucket FROM gateway.rate)
         ORDER BY seen_at LIMIT $2)";

impl Store {
    /// Returns the store of the owners of shared buckets, or `None` if the store is a file, which belongs to one gateway.
    pub fn shared_owners(self: &Arc<Self>) -> Option<Arc<dyn OwnerStore>> {
        match self.address {
            Address::Postgres(_) => Some(Arc::clone(self) as Arc<dyn OwnerStore>),
            Address::Sqlite(_) => None,
        }
    }

    async fn note_owner(&self, bucket: Digest, owner: &BucketOwner) -> Result<(), StoreError> {
        // An owner consists of strings and maps of strings, so its serialization cannot fail.
        let text = serde_json::to_string(owner).unwrap_or_default();
        let row = [
            bucket.as_bytes()[..].into(),
            owner.tenant.as_deref().into(),
            text.into(),
            self.now().as_micros().into(),
        ];
        self.execute(NOTE, row).await.map(drop)
    }

    async fn bucket_uses(
        &self,
        tenant: Option<String>,
        most: u32,
    ) -> Result<Vec<BucketUse>, StoreError> {
        let bounds = [Value::Text(tenant), i64::from(most).into()];
        let rows: Vec<(String, i64)> = self.rows(USES, bounds).await?;
        let uses = rows.into_iter().filter_map(|(owner, micros)| {
            Some(BucketUse {
                owner: serde_json::from_str(&owner).ok()?,
                full_in: Duration::from_micros(u64::try_from(micros).ok()?),
            })
        });
        Ok(uses.collect())
    }
}

impl OwnerStore for Store {
    fn note(
        &self,
        bucket: Digest,
        owner: Arc<BucketOwner>,
    ) -> BoxFuture<'_, Result<(), LeaseStoreUnavailable>> {
        async move { self.note_owner(bucket, &owner).await }
            .map(|noted| noted.map_err(|_| LeaseStoreUnavailable))
            .boxed()
    }

    fn uses(
        &self,
        tenant: Option<&str>,
        most: u32,
    ) -> BoxFuture<'_, Result<Vec<BucketUse>, LeaseStoreUnavailable>> {
        let uses = self.bucket_uses(tenant.map(str::to_owned), most);
        uses.map(|uses| uses.map_err(|_| LeaseStoreUnavailable))
            .boxed()
    }
}
