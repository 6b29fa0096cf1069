//! The switches in force on this replica, which follow those in the store.
//!
//! ```text
//!   set:     record ─▶ store ─▶ refresh      not recorded: not made
//!   follow:  every 250 ms: version changed? ─▶ read all ─▶ publish
//! ```
//!
//! While the store is unavailable, the last known switches stay in force. Until they have been read once, it is not
//! known which tools are off, and no tool may run.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use metrics::counter;
use tokio::sync::{Mutex, watch};
use tracing::{info, warn};
use wardgate_domain::{
    AdminChange, Ambient, Switch, SwitchChange, SwitchKind, SwitchTarget, ToolSwitches,
};
use wardgate_rpc::client::{AuditClient, IdentifiedOperator, OperatorLog};
use wardgate_store::is_busy;
use wardgate_telemetry::names;

use crate::Error;
use crate::store::{StoreError, ToolRunnerStore};

/// Interval between two checks of the store. It is short, so that a change made on another replica takes effect here
/// well within a second.
const POLL: Duration = Duration::from_millis(250);

/// Interval between two removals of expired entries from the store.
const SWEEP: Duration = Duration::from_mins(1);

/// All switches, as read at one moment.
#[derive(Debug, Default)]
pub(crate) struct Switches {
    version: i64,
    by_target: HashMap<SwitchTarget, Vec<Switch>>,
}

impl Switches {
    fn new(version: i64, switches: Vec<Switch>) -> Self {
        let mut by_target = HashMap::<_, Vec<_>>::new();
        for switch in switches {
            by_target
                .entry(switch.target.clone())
                .or_default()
                .push(switch);
        }
        Self { version, by_target }
    }

    /// Returns the version, which changes whenever a switch changes.
    pub(crate) fn version(&self) -> i64 {
        self.version
    }

    /// Returns the switches that apply to one tool.
    pub(crate) fn of_tool<'a>(
        &self,
        tool: &str,
        toolsets: impl IntoIterator<Item = &'a str>,
        upstream: Option<&str>,
    ) -> ToolSwitches {
        // The common case is that there are no switches.
        if self.by_target.is_empty() {
            return ToolSwitches::default();
        }
        let target = |kind, name: &str| SwitchTarget {
            kind,
            name: name.to_owned(),
        };
        let toolsets = toolsets
            .into_iter()
            .map(|name| target(SwitchKind::Toolset, name));
        let upstream = upstream.map(|name| target(SwitchKind::Upstream, name));
        let targets = [target(SwitchKind::Tool, tool)]
            .into_iter()
            .chain(toolsets)
            .chain(upstream);
        let switches: Vec<_> = targets
            .filter_map(|target| self.by_target.get(&target))
            .collect();
        ToolSwitches::from_switches(switches.into_iter().flatten())
    }

    /// Returns the switches that apply to a source as a whole.
    pub(crate) fn of_source(&self, name: &str) -> ToolSwitches {
        let target = SwitchTarget {
            kind: SwitchKind::Upstream,
            name: name.to_owned(),
        };
        ToolSwitches::from_switches(self.by_target.get(&target).into_iter().flatten())
    }
}

/// Follows the switches in the store and changes them.
pub(crate) struct Switchboard {
    store: ToolRunnerStore,
    log: OperatorLog,
    ambient: Ambient,
    /// The switches in force, or `None` until they have been read once.
    current: watch::Sender<Option<Arc<Switches>>>,
    refreshing: Mutex<RefreshState>,
}

/// The state that one refresh passes on to the next.
#[derive(Default)]
struct RefreshState {
    prepared: bool,
    failed: bool,
}

impl Switchboard {
    /// Reads the switches and follows them until the switchboard is dropped. A database server that is unavailable is
    /// retried; a file that cannot be used, or a store with the schema of a newer program, is an error here.
    pub(crate) async fn open(
        store: ToolRunnerStore,
        audit: AuditClient,
        ambient: Ambient,
    ) -> Result<Arc<Self>, StoreError> {
        let board = Arc::new(Self {
            current: watch::Sender::new(None),
            refreshing: Mutex::default(),
            store,
            log: OperatorLog::new(audit, ambient.clone()),
            ambient,
        });
        match board.refresh().await {
            Err(error @ StoreError::Schema(_)) => return Err(error),
            Err(StoreError::Database(source)) if board.store.is_a_file() && !is_busy(&source) => {
                let store = board.store.to_string();
                return Err(StoreError::Open { store, source });
            }
            Ok(()) | Err(_) => {}
        }
        tokio::spawn(follow(Arc::downgrade(&board)));
        Ok(board)
    }

    /// Returns the store.
    pub(crate) fn store(&self) -> &ToolRunnerStore {
        &self.store
    }

    /// Returns the switches in force, or `None` until they have been read once.
    pub(crate) fn current(&self) -> Option<Arc<Switches>> {
        self.current.borrow().clone()
    }

    /// Returns a channel with the switches in force, which receives every change.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<Switches>>> {
        self.current.subscribe()
    }

    /// Returns every switch in the store.
    pub(crate) async fn list(&self) -> Result<Vec<Switch>, Error> {
        Ok(self.store.switches().await?)
    }

    /// Changes a switch: the change is recorded as `record`, stored, and then put in force here. A change that cannot
    /// be recorded is not made.
    pub(crate) async fn set(
        self: &Arc<Self>,
        change: SwitchChange,
        record: AdminChange,
    ) -> Result<(), Error> {
        let board = Arc::clone(self);
        // A separate task, so that a recorded change is either made or recorded as failed even if the caller
        // disconnects.
        let setting = tokio::spawn(async move { board.record_and_set(&change, record).await });
        setting.await.unwrap_or(Err(Error::Interrupted))
    }

    async fn record_and_set(
        &self,
        change: &SwitchChange,
        record: AdminChange,
    ) -> Result<(), Error> {
        self.record_change(record.clone()).await?;
        let now = self.ambient.now();
        let set = self.store.set_switch(change, &record.actor, now).await;
        self.log.settle(record, set).await?;
        let (kind, name) = (change.target.kind.as_str(), change.target.name.as_str());
        info!(kind, name, scope = %change.scope, action = change.action.as_str(), "a switch was set");
        // The change has been made. If it cannot be read back now, the next refresh will read it.
        let _ = self.refresh().await;
        Ok(())
    }

    /// Returns the log of what operators do.
    pub(crate) fn log(&self) -> &OperatorLog {
        &self.log
    }

    /// Records a change.
    pub(crate) async fn record_change(&self, change: AdminChange) -> Result<(), Error> {
        self.log.append(change).await.map_err(Error::NotRecorded)
    }

    /// Checks whether the switches have changed, and publishes them if they have.
    async fn refresh(&self) -> Result<(), StoreError> {
        let mut refreshing = self.refreshing.lock().await;
        let refreshed = self.load_switches(&mut refreshing).await;
        if let Err(error) = &refreshed {
            counter!(names::STORE_FAILURES).increment(1);
            if !refreshing.failed {
                let cause = error as &dyn std::error::Error;
                warn!(store = %self.store, cause, "the switches cannot be read; the last known ones stay in force");
            }
        } else if refreshing.failed {
            info!(store = %self.store, "the switches are readable again");
        }
        refreshing.failed = refreshed.is_err();
        refreshed
    }

    async fn load_switches(&self, refreshing: &mut RefreshState) -> Result<(), StoreError> {
        if !refreshing.prepared {
            self.store.prepare().await?;
            refreshing.prepared = true;
        }
        // The version is read first, so that a change made in between is read now and again at the next refresh.
        let version = self.store.switches_version().await?;
        if self.current().is_some_and(|held| held.version == version) {
            return Ok(());
        }
        let switches = Switches::new(version, self.store.switches().await?);
        self.current.send_replace(Some(Arc::new(switches)));
        Ok(())
    }

    async fn sweep(&self) {
        // The number of rounds is limited. Remaining entries are removed the next time.
        for _ in 0..50 {
            match self.store.sweep(self.ambient.now()).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let cause = &error as &dyn std::error::Error;
                    warn!(cause, "expired entries of the store cannot be removed now");
                    return;
                }
            }
        }
    }
}

/// Returns the audit record of a switch change that `operator` requests.
pub(crate) fn switch_record(change: &SwitchChange, operator: &IdentifiedOperator) -> AdminChange {
    let SwitchTarget { kind, name } = &change.target;
    let action = format!("{}.{}", kind.as_str(), change.action.as_str());
    AdminChange {
        scope: change.scope.to_string(),
        ..operator.change(action, name)
    }
}

/// Refreshes the switches at every interval until the switchboard is dropped.
async fn follow(board: Weak<Switchboard>) {
    let mut swept = Instant::now();
    loop {
        tokio::time::sleep(POLL).await;
        let Some(board) = board.upgrade() else {
            return;
        };
        // `refresh` logs and counts a failure itself.
        let refreshed = board.refresh().await;
        if refreshed.is_ok() && swept.elapsed() >= SWEEP {
            board.sweep().await;
            swept = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests;
