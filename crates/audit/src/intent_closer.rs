//! Closes abandoned intents by recording the outcome `unknown` for them.
//!
//! An intent remains without an outcome if the process that made the call ends before the call does. Only intents of a certain
//! age are closed, because another replica, or a gateway that outlived this service, may still be working on a younger one. If
//! every gateway that used the store has ended, all intents are closed before the service is ready. The store contains the
//! sequence number below which all intents are closed, so each sweep reads only the intents from there on.

use std::time::Duration;

use futures::{StreamExt, TryStreamExt, stream};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use wardgate_domain::{Ambient, Timestamp};
use wardgate_store::StartWait;

use crate::Error;
use crate::canonical::OpenIntent;
use crate::store::{Address, PageBounds, StoreReader};
use crate::writer::AppendQueue;

/// Number of intents that are read at once.
const PAGE: u64 = 256;

/// Maximum number of outcomes that wait for the writer at once. They fit into one batch, and leave room in the queue for other
/// appends.
const SIDE_BY_SIDE: usize = 64;

/// Minimum and maximum interval between two sweeps.
const INTERVAL: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Closes intents that no process will finish.
pub(crate) struct IntentCloser {
    pub(crate) reader: StoreReader,
    pub(crate) appends: AppendQueue,
    pub(crate) ambient: Ambient,
    /// Age from which an intent counts as abandoned.
    pub(crate) after: Duration,
}

impl IntentCloser {
    /// Sweeps until the future is dropped.
    pub(crate) async fn run(self) {
        let every = self.after.clamp(INTERVAL[0], INTERVAL[1]);
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if !self.appends.readiness().borrow().is_ready() {
                continue;
            }
            if let Err(error) = self.close_abandoned().await {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "intents without an outcome remain open until the next run"
                );
            }
        }
    }

    /// Closes the intents that an earlier process left open, before the service is ready: every intent if `is_sole_owner`,
    /// because no process is left that could finish one, and otherwise those that are old enough. Retries while the store is
    /// busy.
    pub(crate) async fn close_left_open(
        &self,
        address: &Address,
        is_sole_owner: bool,
    ) -> Result<(), Error> {
        let mut wait = StartWait::for_store(address);
        loop {
            let closed = if is_sole_owner {
                self.sweep(Timestamp::from_micros(i64::MAX)).await
            } else {
                self.close_abandoned().await
            };
            match closed {
                Err(error @ (Error::NotDurable | Error::Unreadable(_)))
                    if wait.pause(&error).await => {}
                closed => return closed,
            }
        }
    }

    /// Closes every intent that is old enough.
    async fn close_abandoned(&self) -> Result<(), Error> {
        self.sweep(self.ambient.now().minus(self.after)).await
    }

    /// Closes every intent that is older than `abandoned_before`.
    async fn sweep(&self, abandoned_before: Timestamp) -> Result<(), Error> {
        let head = self.reader.head().await?;
        let mut rest = head.closed_below..head.size;
        let mut closed_below = head.size;
        while !rest.is_empty() {
            let page = PageBounds {
                range: rest.clone(),
                after: None,
                limit: PAGE,
                newest_first: false,
            };
            let intents = self.reader.open_intents(&page).await?;
            rest.start = intents.last.map_or(rest.end, |last| last.sequence + 1);
            let mut abandoned = Vec::new();
            for intent in intents.records {
                let intent = intent.map_err(Error::Damaged).and_then(|stored| {
                    let sequence = stored.sequence;
                    OpenIntent::from_stored_row(&stored).map(|intent| (sequence, intent))
                });
                match intent {
                    Ok((_, intent)) if intent.time < abandoned_before => abandoned.push(intent),
                    Ok((sequence, _)) => closed_below = closed_below.min(sequence),
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(error, "an intent without an outcome cannot be closed");
                    }
                }
            }
            self.close(abandoned).await?;
        }
        if closed_below > head.closed_below {
            self.appends.closed_below(closed_below).await;
        }
        Ok(())
    }

    async fn close(&self, abandoned: Vec<OpenIntent>) -> Result<(), Error> {
        let now = self.ambient.now();
        let outcomes = abandoned.into_iter().map(|intent| async move {
            match self
                .appends
                .append(intent.unknown_outcome(now)?, false)
                .await
            {
                Ok(_) => Ok(1),
                // The call's own outcome, or one of another replica, was stored in the meantime.
                Err(Error::AlreadyRecorded { .. }) => Ok(0),
                Err(error) => Err(error),
            }
        });
        let closed: u64 = stream::iter(outcomes)
            .buffer_unordered(SIDE_BY_SIDE)
            .try_fold(0, |sum, one| async move { Ok(sum + one) })
            .await?;
        if closed > 0 {
            tracing::warn!(closed, "calls without an outcome were recorded as unknown");
        }
        Ok(())
    }
}
