//! Retention: records that are older than an operator keeps them are removed, in whole bundles of the log.
//!
//! ```text
//!   0 ──── removed: leaf hashes alone ────┬──── kept, and provable ────────────────▶ size
//!                                   minimum index    │ the first of: age, a legal hold, an export that lags,
//!                                                    │ an intent without outcome, the newest checkpoint
//!                                             removable below
//! ```
//!
//! The tree keeps the leaf hashes of what is removed (32 bytes of a record), so checkpoints, inclusion proofs of what is kept and
//! consistency proofs from any earlier checkpoint go on (<https://c2sp.org/tlog-tiles#pruning>).

use std::time::Duration;

use futures::{Stream, stream};
use wardgate_audit_export::StartPosition;
use wardgate_domain::{Ambient, Digest, Timestamp};
use wardgate_rpc::client::{HoldDescription, RetentionProgress, RetentionStatus};
use wardgate_transparency::TILE_WIDTH;

use crate::Error;
use crate::canonical::RecordContent;
use crate::proof;
use crate::store::{LegalHold, StoreReader, StoreUpkeep};
use crate::writer::AppendQueue;

/// Bundles that are removed before an operator hears of it, and before it is looked anew what must stay.
const STEP: u64 = 16;

const DAY: Duration = Duration::from_secs(86_400);

/// What is kept, and for how long.
#[derive(Debug, Clone)]
pub(crate) struct Retention {
    pub(crate) reader: StoreReader,
    pub(crate) appends: AppendQueue,
    pub(crate) ambient: Ambient,
    pub(crate) days: u32,
    /// The exports, and where each begins that never began.
    pub(crate) exports: Vec<(String, StartPosition)>,
}

/// What can be removed now.
#[derive(Debug)]
struct RetentionPlan {
    size: u64,
    minimum_index: u64,
    removable_below: u64,
    /// What keeps the next bundle; empty where it was not looked at.
    kept_by: String,
    holds: Vec<LegalHold>,
}

impl RetentionPlan {
    /// Tells whether holds were set since; zero where there are none.
    fn newest_hold(&self) -> Timestamp {
        let times = self.holds.iter().map(|hold| hold.set_at);
        times.max().unwrap_or(Timestamp::from_micros(0))
    }
}

impl Retention {
    pub(crate) async fn status(&self) -> Result<RetentionStatus, Error> {
        let plan = self.plan(u64::MAX).await?;
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

    /// Removes what can be removed, as long as somebody listens.
    pub(crate) async fn apply(
        &self,
    ) -> Result<impl Stream<Item = Result<RetentionProgress, Error>> + Send + use<>, Error> {
        let removable_below = self.plan(u64::MAX).await?.removable_below;
        let retention = self.clone();
        Ok(stream::try_unfold(true, move |goes_on| {
            let retention = retention.clone();
            async move {
                if !goes_on {
                    return Ok::<_, Error>(None);
                }
                let plan = retention.plan(STEP).await?;
                let goes_on = retention.prune(&plan).await?;
                let minimum_index = retention.reader.head().await?.minimum_index;
                let progress = RetentionProgress {
                    minimum_index,
                    removable_below: removable_below.max(minimum_index),
                };
                Ok(Some((progress, goes_on)))
            }
        }))
    }

    /// Removes what `plan` says; whether there may be more.
    async fn prune(&self, plan: &RetentionPlan) -> Result<bool, Error> {
        let newest_hold = plan.newest_hold();
        let bundles = plan.minimum_index / TILE_WIDTH..plan.removable_below / TILE_WIDTH;
        let is_empty = bundles.is_empty();
        for bundle in bundles {
            let upkeep = StoreUpkeep::PruneBundle {
                bundle,
                newest_hold,
            };
            if !self.appends.keep_up(upkeep).await? {
                // Another replica removed it, or a hold was set in between.
                return Ok(true);
            }
        }
        Ok(!is_empty)
    }

    /// Looks at most `most` bundles ahead.
    async fn plan(&self, most: u64) -> Result<RetentionPlan, Error> {
        let head = self.reader.head().await?;
        let covered = self.reader.tree().await?.head.size;
        let holds = self.reader.legal_holds().await?;
        // The last record stays: a SQLite store counts on from it.
        let newest = covered.min(head.size.saturating_sub(1));
        let mut bounds = vec![
            (newest, "newest".to_owned()),
            (head.closed_below, "open_intent".to_owned()),
        ];
        for (export, start) in &self.exports {
            let position = match (self.reader.export_position(export).await?, start) {
                (Some(position), _) => position,
                (None, StartPosition::First) => head.minimum_index,
                (None, StartPosition::Now) => continue,
            };
            bounds.push((position, format!("export:{export}")));
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
        let oldest_kept = self.ambient.now().minus(DAY * self.days);
        let mut below = head.minimum_index;
        let mut kept_by = String::new();
        for _ in 0..most {
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
            if !tenants.is_empty()
                && let Some(by) = self.find_tenant(bundle.clone(), &tenants).await?
            {
                kept_by = by;
                break;
            }
            below = bundle.end;
        }
        Ok(RetentionPlan {
            size: head.size,
            minimum_index: head.minimum_index,
            removable_below: below,
            kept_by,
            holds,
        })
    }

    /// The hold of the first of `tenants` whose callers did something in `bundle`.
    async fn find_tenant(
        &self,
        bundle: std::ops::Range<u64>,
        tenants: &[(&str, String)],
    ) -> Result<Option<String>, Error> {
        let records = proof::records(&self.reader, bundle).await?;
        let contents = records
            .iter()
            .map(|record| RecordContent::of(&record.canonical));
        let contents: Vec<_> = contents.flatten().collect();
        let is_held = |tenant: &str| contents.iter().any(|content| content.is_of_tenant(tenant));
        let held = tenants.iter().find(|(tenant, _)| is_held(tenant));
        Ok(held.map(|(_, by)| by.clone()))
    }
}

/// The hold that keeps the details of calls about a data subject, where there is one.
pub(crate) fn find_hold<'a>(
    holds: &'a [LegalHold],
    tenant: &str,
    tag: Digest,
) -> Option<&'a LegalHold> {
    holds.iter().find(|hold| match (hold.tag, &hold.tenant) {
        (Some(held), _) => held == tag,
        (None, Some(held)) => held == tenant,
        (None, None) => true,
    })
}
