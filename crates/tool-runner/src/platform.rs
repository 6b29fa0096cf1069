//! Information about this process that is kept across catalogues.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use wardgate_domain::ToolFacts;

use wardgate_catalogue::Toolset;

/// Counters of calls, and an overview of the catalogue in force.
pub(crate) struct Platform {
    started: Instant,
    overview: ArcSwap<Overview>,
    in_flight: AtomicU64,
    counts: Mutex<BTreeMap<String, Counts>>,
}

/// An overview of the catalogue in force.
#[derive(Default)]
pub(crate) struct Overview {
    pub(crate) tools: Vec<KnownTool>,
    pub(crate) toolsets: Vec<Toolset>,
}

/// A tool of the catalogue in force.
pub(crate) struct KnownTool {
    pub(crate) facts: ToolFacts,
    pub(crate) source: Option<String>,
}

/// Counters of the calls of one tool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    pub(crate) failed: u64,
    pub(crate) busy: Duration,
}

/// Counters of all calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) in_flight: u64,
    pub(crate) total: u64,
    pub(crate) failed: u64,
}

impl Platform {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            overview: ArcSwap::default(),
            in_flight: AtomicU64::new(0),
            counts: Mutex::default(),
        }
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn overview(&self) -> Arc<Overview> {
        self.overview.load_full()
    }

    pub(crate) fn now_in_force(&self, overview: Overview) {
        self.overview.store(Arc::new(overview));
    }

    /// Counts one call of `tool`, which runs until the returned value is dropped.
    pub(crate) fn begin(self: &Arc<Self>, tool: &str) -> CountedCall {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        CountedCall {
            platform: Arc::clone(self),
            tool: tool.to_owned(),
            began: Instant::now(),
            failed: true,
        }
    }

    pub(crate) fn counts(&self) -> BTreeMap<String, Counts> {
        self.lock().clone()
    }

    pub(crate) fn load(&self) -> Load {
        let counts = self.lock();
        Load {
            in_flight: self.in_flight.load(Ordering::Relaxed),
            total: counts.values().map(|counts| counts.calls).sum(),
            failed: counts.values().map(|counts| counts.failed).sum(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Counts>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running call. A call that is dropped before [`CountedCall::record_end`] counts as failed.
pub(crate) struct CountedCall {
    platform: Arc<Platform>,
    tool: String,
    began: Instant,
    failed: bool,
}

impl CountedCall {
    pub(crate) fn record_end(mut self, failed: bool) {
        self.failed = failed;
    }
}

impl Drop for CountedCall {
    fn drop(&mut self) {
        self.platform.in_flight.fetch_sub(1, Ordering::Relaxed);
        let mut counts = self.platform.lock();
        let counts = counts.entry(std::mem::take(&mut self.tool)).or_default();
        counts.calls += 1;
        counts.failed += u64::from(self.failed);
        counts.busy += self.began.elapsed();
    }
}
