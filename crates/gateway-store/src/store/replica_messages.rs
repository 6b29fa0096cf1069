//! Messages from one replica to another: the response of a client to a request for input, or a cancellation.
//!
//! A message can be fetched by its id only. The ids are random or keyed, and the content is sealed.

use std::sync::LazyLock;
use std::time::Duration;

use super::{Store, StoreError};
use wardgate_domain::Digest;
use wardgate_store::Value;

/// Time for which a message is stored.
const KEPT: Duration = Duration::from_hours(1);

/// Maximum number of ids in one query.
const AT_ONCE: usize = 64;

const POST: &str = "
    INSERT INTO gateway.letter (id, sealed, posted_at, expires_at) VALUES ($1, $2, $3, $4)
    ON CONFLICT (id) DO NOTHING";

const FETCH: &str = "SELECT sealed FROM gateway.letter WHERE id = $1";

static AMONG: LazyLock<String> = LazyLock::new(|| {
    let ids: Vec<_> = (2..AT_ONCE + 2).map(|n| format!("${n}")).collect();
    let ids = ids.join(", ");
    format!("SELECT id FROM gateway.letter WHERE posted_at >= $1 AND id IN ({ids})")
});

pub(crate) const SWEEP: &str = "
    DELETE FROM gateway.letter WHERE id IN
        (SELECT id FROM gateway.letter WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";

/// The id of a message, which its sender and its receiver know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplicaMessageId(pub Digest);

impl Store {
    /// Stores a message. Returns `false` if there is a message with this id already, which stays unchanged.
    pub async fn post_replica_message(
        &self,
        id: ReplicaMessageId,
        sealed: Vec<u8>,
    ) -> Result<bool, StoreError> {
        let now = self.now();
        let values = [
            id.0.as_bytes()[..].into(),
            sealed.as_slice().into(),
            now.as_micros().into(),
            now.plus(KEPT).as_micros().into(),
        ];
        Ok(self.execute(POST, values).await? == 1)
    }

    /// Returns the message `id`, or `None` if there is none.
    pub async fn fetch_replica_message(
        &self,
        id: ReplicaMessageId,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let found = self.rows(FETCH, [id.0.as_bytes()[..].into()]).await?;
        Ok(found.into_iter().next().map(|(sealed,)| sealed))
    }

    /// Returns those of `waited` that were stored in the last `age`.
    pub async fn replica_messages_among(
        &self,
        waited: &[ReplicaMessageId],
        age: Duration,
    ) -> Result<Vec<ReplicaMessageId>, StoreError> {
        let since = self.now().minus(age).as_micros();
        let mut there = Vec::new();
        for some in waited.chunks(AT_ONCE) {
            let mut ids = some.iter();
            let values: [Value; AT_ONCE + 1] = std::array::from_fn(|place| match place {
                0 => since.into(),
                _ => ids.next().map(|id| &id.0.as_bytes()[..]).into(),
            });
            let found: Vec<(Vec<u8>,)> = self.rows(&AMONG, values).await?;
            there.extend(found.into_iter().filter_map(|(id,)| {
                let bytes: [u8; 32] = id.try_into().ok()?;
                Some(ReplicaMessageId(Digest::from_bytes(bytes)))
            }));
        }
        Ok(there)
    }
}
