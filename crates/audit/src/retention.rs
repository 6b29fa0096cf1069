//! Retention: removal of records that are older than the configured age, in whole bundles of the log.
//!
//! ```text
//!   0 ──── removed: leaf hashes alone ────┬──── kept, and provable ────────────────▶ size
//!                                   minimum index    │ the first of: age, a legal hold, an export that lags,
//!                                                    │ an intent without outcome, the newest checkpoint
//!                                             removable below
//! ```
//!
//! The tree keeps the leaf hashes of removed records (32 bytes per record). Checkpoints, inclusion proofs of kept records, and
//! consistency proofs from any earlier checkpoint therefore remain possible (<https://c2sp.org/tlog-tiles#pruning>).

use std::time::Duration;

use futures::{Stream, stream};
use wardgate_audit_export::StartPosition;
use wardgate_domain::Ambient;
use wardgate_rpc::client::{HoldDescription, RetentionProgress, RetentionStatus};
use wardgate_transparency::{CompactTree, TILE_WIDTH};

use crate::Error;
use crate::record_content::RecordContent;
use crate::store::{LegalHold, StoreReader, StoreUpkeep};
use crate::stored_row::StoredRow;
use crate::writer::AppendQueue;

/// Number of bundles that are removed before progress is reported and the plan is made again.
const STEP: u64 = 16;

const DAY: Duration = Duration::from_secs(86_400);

/// The retention policy: which records are kept, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct RetentionPolicy {
    pub(crate) reader: StoreReader,
    pub(crate) appends: AppendQueue,
    pub(crate) ambient: Ambient,
    pub(crate) days: u32,
    /// The exports, and where each of them begins if it has no cursor yet.
    pub(crate) exports: Vec<(String, StartPosition)>,
}

/// The records that can be removed now.
#[derive(Debug)]
struct RetentionPlan {
    size: u64,
    minimum_index: u64,
    removable_below: u64,
    /// The reason why the next bundle is kept, or empty if the next bundle was not considered.
    kept_by: String,
    holds: Vec<LegalHold>,
    /// The generation of the legal holds, which changes when a hold is set or lifted.
    hold_generation: u64,
}

impl RetentionPolicy {
    pub(crate) async fn status(&self) -> Result<RetentionStatus, Error> {
        let plan = self.plan(u64::MAX, u64::MAX).await?;
        let holds = plan.holds.into_iter().map(|hold| HoldDescription {
            name: hold.name,
            tenant: hold.tenant,
            data_subject: hold.tag,
            set_by: hold.set_by,
            set_at: hold.set_at,
        });
        Ok(RetentionStatus {
            size: plan.size,
            minimum_index: plan.minimum_index,
            retention_days: self.days,
            removable_below: plan.removable_below,
            kept_by: plan.kept_by,
            holds: holds.collect(),
        })
    }

    /// Removes the records below `on_record` that can be removed, until the stream is dropped.
    pub(crate) fn apply(
        &self,
        on_record: u64,
    ) -> impl Stream<Item = Result<RetentionProgress, Error>> + Send + use<> {
        let retention = self.clone();
        stream::try_unfold(true, move |goes_on| {
            let retention = retention.clone();
            async move {
                if !goes_on {
                    return Ok::<_, Error>(None);
                }
                let plan = retention.plan(STEP, on_record).await?;
                let goes_on = retention.prune(&plan).await?;
                let minimum_index = retention.reader.head().await?.minimum_index;
                let progress = RetentionProgress {
                    minimum_index,
                    removable_below: on_record.max(minimum_index),
                };
                Ok(Some((progress, goes_on)))
            }
        })
    }

    /// Removes the records that `plan` allows. Returns whether there may be more.
    async fn prune(&self, plan: &RetentionPlan) -> Result<bool, Error> {
        let bundles = plan.minimum_index / TILE_WIDTH..plan.removable_below / TILE_WIDTH;
        let is_empty = bundles.is_empty();
        for bundle in bundles {
            let upkeep = StoreUpkeep::PruneBundle {
                bundle,
                hold_generation: plan.hold_generation,
            };
            if !self.appends.keep_up(upkeep).await? {
                // Another replica removed the bundle, or a hold was set or lifted in the meantime.
                return Ok(true);
            }
        }
        Ok(!is_empty)
    }

    /// Considers at most the next `most` bundles, and none beyond `on_record`, the end of the records whose removal is
    /// recorded.
    async fn plan(&self, most: u64, on_record: u64) -> Result<RetentionPlan, Error> {
        // The head is read before the holds, so that a hold that is set in between outdates the generation in the plan.
        let head = self.reader.head().await?;
        let covered = self.reader.tree().await?.head.size;
        let holds = self.reader.legal_holds().await?;
        // The last record is kept, because a SQLite store derives the next sequence number from it.
        let newest = covered.min(head.size.saturating_sub(1));
        let mut bounds = vec![
            (newest, "newest".to_owned()),
            (head.closed_below, "open_intent".to_owned()),
            (on_record, "on_record".to_owned()),
        ];
        for (export, start) in &self.exports {
            let position = match (self.reader.export_position(export).await?, start) {
                (Some(position), _) => position,
                (None, StartPosition::First) => head.minimum_index,
                (None, StartPosition::Now) => continue,
            };
            bounds.push((position, format!("export:{export}")));
        }
        // A clock that is far ahead would make recent records appear old.
        let clocks = self.reader.clocks().await?;
        let now = self.ambient.now();
        let now = clocks.server.map_or(now, |server| server.min(now));
        if clocks.newest.is_none_or(|newest| newest < now.minus(DAY)) {
            bounds.push((head.minimum_index, "clock".to_owned()));
        }
        let mut tenants = Vec::new();
        for hold in &holds {
            let by = format!("hold:{}", hold.name);
            match (hold.tag, &hold.tenant) {
                (Some(tag), _) => {
                    let first = self.reader.first_of_subject(tag).await?;
                    bounds.extend(first.map(|first| (first, by)));
                }
                (None, Some(tenant)) => tenants.push((tenant.as_str(), by)),
                (None, None) => bounds.push((head.minimum_index, by)),
            }
        }
        let bound = bounds.into_iter().min_by_key(|(position, _)| *position);
        let (bound, bound_by) = bound.unwrap_or_default();
        let oldest_kept = now.minus(DAY * self.days);
        let mut below = head.minimum_index;
        let mut kept_by = String::new();
        for looked_at in 0..most {
            let bundle = below..below + TILE_WIDTH;
            if bundle.end > bound {
                kept_by = bound_by;
                break;
            }
            let times = self.reader.bundle_times(bundle.clone()).await?;
            if times.records != TILE_WIDTH {
                "missing_records".clone_into(&mut kept_by);
                break;
            }
            if times.newest >= oldest_kept {
                "age".clone_into(&mut kept_by);
                break;
            }
            // Only bundles of the next step are checked, so that a status request does not read all records that could be
            // removed.
            let is_checked = looked_at < STEP;
            if is_checked || !tenants.is_empty() {
                let records = match self.reader.records(bundle.clone()).await {
                    Err(Error::Damaged(damage)) if is_checked => {
                        tracing::error!(%damage, "retention does not remove records that were modified");
                        "damaged_records".clone_into(&mut kept_by);
                        break;
                    }
                    records => records?,
                };
                if is_checked && !self.are_in_tree(&records, below / TILE_WIDTH).await? {
                    "damaged_records".clone_into(&mut kept_by);
                    break;
                }
                if let Some(by) = find_tenant(&records, &tenants) {
                    kept_by = by;
                    break;
                }
            }
            below = bundle.end;
        }
        Ok(RetentionPlan {
            size: head.size,
            minimum_index: head.minimum_index,
            removable_below: below,
            kept_by,
            holds,
            hold_generation: head.hold_generation,
        })
    }

    /// Returns whether `records`, the bundle at `position`, are those of the tree. Records that were changed are kept as
    /// evidence.
    async fn are_in_tree(&self, records: &[StoredRow], position: u64) -> Result<bool, Error> {
        let mut tile = CompactTree::default();
        for record in records {
            tile.append(*record.leaf_hash.as_bytes(), |_, _| ());
        }
        let root = self.reader.leaf_tile_root(position).await?;
        let are_in_tree = root == tile.head().root;
        if !are_in_tree {
            tracing::error!(
                position,
                "retention does not remove a bundle that the tree does not contain"
            );
        }
        Ok(are_in_tree)
    }
}

/// Returns the hold of the first of `tenants` that has a caller in `records`.
fn find_tenant(records: &[StoredRow], tenants: &[(&str, String)]) -> Option<String> {
    if tenants.is_empty() {
        return None;
    }
    let contents = records
        .iter()
        .map(|record| RecordContent::parse(&record.canonical));
    let contents: Vec<_> = contents.flatten().collect();
    let is_held = |tenant: &str| contents.iter().any(|content| content.is_of_tenant(tenant));
    let held = tenants.iter().find(|(tenant, _)| is_held(tenant));
    held.map(|(_, by)| by.clone())
}

#[cfg(test)]
mod tests {
    use futures::TryStreamExt;
    use wardgate_domain::{Event, Record, Refusals, Timestamp};
    use wardgate_store::{Address, DatabaseSettings};
    use wardgate_testkit::TestDatabase;

    use super::*;
    use crate::canonical::RecordEntry;
    use crate::publisher::{LogIdentity, LogKey, Publisher, VerifiedLog};
    use crate::store::{self, WRITE_LIMIT};
    use crate::{MacKey, writer};

    /// Creates a key from a private key in PKCS#8 DER: version, algorithm and seed (RFC 8410).
    fn log_key() -> LogKey {
        let before = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
        LogKey::from_pkcs8(&[before.as_slice(), &[1; 32]].concat()).unwrap()
    }

    fn refusals_entry(time: Timestamp) -> RecordEntry {
        let refusals = Refusals {
            window_start: time,
            counts: Vec::new(),
        };
        let event = Event::Refusals(refusals);
        let record = Record { time, event };
        RecordEntry::from_record(&record, &MacKey::from_bytes(&[7; 32]), None).unwrap()
    }

    /// Creates a store with 600 old records and a recent one, all covered by a checkpoint, and returns its retention policy.
    async fn retention(database: &TestDatabase) -> RetentionPolicy {
        let settings = DatabaseSettings::default();
        let address = Address::new(&database.url(), &settings).unwrap();
        store::prepare(&address, &settings).await.unwrap();
        let reader = StoreReader::new(&address, &settings);
        let appends = writer::start(address, WRITE_LIMIT, None).await.unwrap();
        let ambient = Ambient::system();
        let now = ambient.now();
        let old = (0..600).map(|_| refusals_entry(now.minus(DAY * 100)));
        for entry in old.chain([refusals_entry(now)]) {
            appends.append(entry, false).await.unwrap();
        }
        appends.closed_below(601).await;
        let key = log_key();
        let identity = LogIdentity {
            origin: Some("example.com/audit"),
            former_key: None,
        };
        let log = VerifiedLog::open(&reader, &key, identity).await.unwrap();
        let publisher = Publisher::start(reader.clone(), appends.clone(), log, ambient.clone());
        publisher.await.unwrap();
        RetentionPolicy {
            reader,
            appends,
            ambient,
            days: 30,
            exports: Vec::new(),
        }
    }

    fn set_hold(name: &str, set_at: i64) -> StoreUpkeep {
        StoreUpkeep::SetHold(LegalHold {
            name: name.to_owned(),
            tenant: None,
            tag: None,
            set_by: "ada".to_owned(),
            set_in: None,
            set_at: Timestamp::from_micros(set_at),
        })
    }

    #[tokio::test]
    async fn no_more_is_removed_than_was_put_on_record() {
        for database in TestDatabase::each_store("audit").await {
            let retention = retention(&database).await;
            let status = retention.status().await.unwrap();
            assert_eq!(status.removable_below, 512, "{}", status.kept_by);
            let steps: Vec<_> = retention.apply(256).try_collect().await.unwrap();
            assert_eq!(steps.last().unwrap().minimum_index, 256);
            let steps: Vec<_> = retention.apply(512).try_collect().await.unwrap();
            assert_eq!(steps.last().unwrap().minimum_index, 512);
        }
    }

    #[tokio::test]
    async fn a_hold_that_was_set_by_a_slow_clock_or_lifted_since_stops_a_removal() {
        for database in TestDatabase::each_store("audit").await {
            let retention = retention(&database).await;
            let keep_up = async |upkeep| retention.appends.keep_up(upkeep).await.unwrap();
            let prune = |plan: &RetentionPlan| StoreUpkeep::PruneBundle {
                bundle: 0,
                hold_generation: plan.hold_generation,
            };
            keep_up(set_hold("first", 2_000)).await;
            let plan = retention.plan(STEP, u64::MAX).await.unwrap();
            keep_up(set_hold("second", 1_000)).await;
            assert!(!keep_up(prune(&plan)).await);
            let plan = retention.plan(STEP, u64::MAX).await.unwrap();
            let name = "second".to_owned();
            assert!(keep_up(StoreUpkeep::LiftHold { name, of: None }).await);
            assert!(!keep_up(prune(&plan)).await);
            // No hold has changed since, so the bundle can be pruned, although the plan does not allow it.
            let plan = retention.plan(STEP, u64::MAX).await.unwrap();
            assert_eq!(plan.removable_below, 0);
            assert!(keep_up(prune(&plan)).await);
        }
    }
}
