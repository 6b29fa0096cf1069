//! Legal holds.

use wardgate_domain::{Hold, HoldTarget, Timestamp};

use super::{MemoryStore, within};
use crate::Error;
use wardgate_store::Value;

/// Maximum number of holds, so that all of them can be listed at once.
const MAX_HOLDS: i64 = 10_000;

const SET: &str = "
    INSERT INTO memory.hold (kind, tenant, name, set_by, set_at) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (kind, tenant, name) DO UPDATE SET set_by = excluded.set_by, set_at = excluded.set_at";

const LIFT: &str = "DELETE FROM memory.hold WHERE kind = $1 AND tenant = $2 AND name = $3";

const COUNT: &str = "SELECT count(*) FROM memory.hold";

const ALL: &str =
    "SELECT kind, tenant, name, set_by, set_at FROM memory.hold ORDER BY kind, tenant, name";

const EXISTS: &str = "SELECT number FROM memory.conversation WHERE key = $1";

impl MemoryStore {
    /// Checks that a hold can be set on the target: a conversation must exist.
    pub(crate) async fn can_be_held(&self, target: &HoldTarget) -> Result<(), Error> {
        let HoldTarget::Conversation(key) = target else {
            return Ok(());
        };
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let found: Option<(i64,)> = transaction.row(EXISTS, [key.to_string().into()]).await?;
            transaction.commit().await?;
            found.map(drop).ok_or(Error::UnknownConversation)
        })
        .await
    }

    /// Sets or lifts a hold.
    pub(crate) async fn set_hold(
        &self,
        target: &HoldTarget,
        held: bool,
        by: &str,
        now: Timestamp,
    ) -> Result<(), Error> {
        within(async {
            let mut transaction = self.database.write().await?;
            let [kind, tenant, name] = key(target);
            if held {
                let row = [kind, tenant, name, by.into(), now.as_micros().into()];
                transaction.execute(SET, row).await?;
                let count: Option<(i64,)> = transaction.row(COUNT, []).await?;
                if count.is_some_and(|(count,)| count > MAX_HOLDS) {
                    return Err(Error::TooManyHolds(MAX_HOLDS));
                }
            } else {
                transaction.execute(LIFT, [kind, tenant, name]).await?;
            }
            Ok(transaction.commit().await?)
        })
        .await
    }

    /// Returns all holds in a fixed order.
    pub(crate) async fn holds(&self) -> Result<Vec<Hold>, Error> {
        type HoldRow = (String, String, String, String, i64);
        within(async {
            let mut transaction = self.database.begin_read().await?;
            let rows: Vec<HoldRow> = transaction.rows(ALL, []).await?;
            transaction.commit().await?;
            let hold = |(kind, tenant, name, set_by, set_at): HoldRow| {
                let target = match kind.as_str() {
                    "conversation" => name.parse().ok().map(HoldTarget::Conversation),
                    "person" => Some(HoldTarget::Person {
                        tenant,
                        subject: name,
                    }),
                    "tenant" => Some(HoldTarget::Tenant(tenant)),
                    _ => None,
                };
                Ok(Hold {
                    target: target.ok_or(Error::Damaged("hold"))?,
                    set_by,
                    set_at: Timestamp::from_micros(set_at),
                })
            };
            rows.into_iter().map(hold).collect()
        })
        .await
    }
}

fn key(target: &HoldTarget) -> [Value; 3] {
    match target {
        HoldTarget::Conversation(key) => ["conversation".into(), "".into(), key.to_string().into()],
        HoldTarget::Person { tenant, subject } => [
            "person".into(),
            tenant.as_str().into(),
            subject.as_str().into(),
        ],
        HoldTarget::Tenant(tenant) => ["tenant".into(), tenant.as_str().into(), "".into()],
    }
}
