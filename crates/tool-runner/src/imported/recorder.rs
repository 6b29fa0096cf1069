//! Records the changes of upstream tools and their approvals in the audit log.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::{error, warn};
use wardgate_domain::{AdminChange, Ambient, Digest, Event, Record};
use wardgate_rpc::client::AuditClient;

/// Actor of a change that no person made.
pub(super) const ITSELF: &str = "tool-runner";

/// Maximum number of changes that may wait to be recorded.
const WAITING: usize = 10_000;

/// Pause before an attempt to record a change is repeated.
const PAUSE: Duration = Duration::from_secs(1);

/// Records changes in order, and retries while the audit log is unavailable. Nothing has to wait for these records: a
/// changed tool is kept out immediately, and the record of every call names the definition that ran.
pub(super) struct Recorder {
    changes: mpsc::Sender<Record>,
    ambient: Ambient,
    _task: AbortOnDropHandle<()>,
}

impl Recorder {
    pub(super) fn new(audit: AuditClient, ambient: Ambient) -> Self {
        let (changes, waiting) = mpsc::channel(WAITING);
        Self {
            changes,
            ambient,
            _task: AbortOnDropHandle::new(tokio::spawn(append_all(audit, waiting))),
        }
    }

    /// Queues a record that `by` did `action` to `target`. `detail` is the digest of the definition or file concerned.
    pub(super) fn record(&self, by: &str, action: &str, target: String, detail: Option<Digest>) {
        let record = Record {
            time: self.ambient.now(),
            event: Event::AdminChange(AdminChange {
                actor: by.to_owned(),
                action: action.to_owned(),
                target,
                detail_digest: detail,
                ..AdminChange::default()
            }),
        };
        if self.changes.try_send(record).is_err() {
            error!(
                action,
                "too many changes of upstream tools wait to be recorded; one is not recorded"
            );
        }
    }
}

async fn append_all(audit: AuditClient, mut waiting: mpsc::Receiver<Record>) {
    while let Some(record) = waiting.recv().await.map(Arc::new) {
        let mut retry = false;
        while let Err(error) = audit.append_shared(&record, retry).await {
            if !retry {
                warn!(%error, "a change of the tools of an upstream server cannot be recorded now; trying again");
            }
            retry = true;
            sleep(PAUSE).await;
        }
    }
}
