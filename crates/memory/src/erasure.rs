//! Erasure, holds and lists for operators, on record: what is erased was recorded as erased before, durably.
//!
//! ```text
//!   held? ─▶ record ─▶ destroy the key ─▶ remove the rows ─▶ overwrite them
//!                        └ failed: a second record says that nobody knows
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::counter;
use tracing::{error, warn};
use wardgate_domain::{AdminChange, Ambient, ConversationKey, Event, HoldTarget, Record};
use wardgate_rpc::client::{AuditClient, Operator};
use wardgate_telemetry::names;

use crate::Error;
use crate::store::{ErasureCandidate, MemoryStore};

/// Rows of a long conversation that whoever erases it does not wait for go with the sweeper.
const BATCHES: usize = 20;

/// The actor who has a conversation erased.
#[derive(Debug, Clone)]
pub(crate) enum ErasureActor {
    Owner(String),
    Operator(String),
    Retention,
}

impl ErasureActor {
    fn actor(&self) -> &str {
        match self {
            Self::Owner(name) | Self::Operator(name) => name,
            Self::Retention => "(retention)",
        }
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Owner(_) => "owner",
            Self::Operator(_) => "operator",
            Self::Retention => "retention",
        }
    }
}

/// Erases conversations and sets holds, each on record first.
pub(crate) struct Erasure {
    store: MemoryStore,
    record: AuditClient,
    ambient: Ambient,
    /// Something was removed and is not known to be overwritten. So it is at the start: the process before may have
    /// ended in between.
    to_scrub: AtomicBool,
}

impl Erasure {
    pub(crate) fn new(store: MemoryStore, record: AuditClient, ambient: Ambient) -> Arc<Self> {
        Arc::new(Self {
            store,
            record,
            ambient,
            to_scrub: AtomicBool::new(true),
        })
    }

    /// Erases a conversation for ever.
    pub(crate) async fn erase(
        self: &Arc<Self>,
        key: ConversationKey,
        by: ErasureActor,
    ) -> Result<(), Error> {
        let erasure = Arc::clone(self);
        // Its own task: whoever hangs up, what was recorded is done or recorded as failed.
        let erasing = tokio::spawn(async move {
            let candidate = erasure.store.find_erasable(key).await?;
            erasure.record_and_erase(candidate, &by).await?;
            erasure.clean_up(BATCHES).await;
            Ok(())
        });
        erasing.await.unwrap_or(Err(Error::Interrupted))
    }

    pub(crate) async fn record_and_erase(
        &self,
        candidate: ErasureCandidate,
        by: &ErasureActor,
    ) -> Result<(), Error> {
        let change = AdminChange {
            detail_digest: Some(candidate.id_digest),
            ..erasure_change(candidate.key, by)
        };
        self.append(&change).await?;
        let erased = self.store.erase(&candidate, self.ambient.now()).await;
        self.settle(change, erased).await?;
        self.to_scrub.store(true, Ordering::Release);
        counter!(names::CONVERSATIONS_ERASED, "by" => by.kind()).increment(1);
        tracing::info!(key = %candidate.key, by = by.kind(), "a conversation was erased");
        Ok(())
    }

    /// The same for an operator, whom the policy has to let.
    pub(crate) async fn erase_for_operator(
        self: &Arc<Self>,
        operator: &Operator,
        key: ConversationKey,
    ) -> Result<(), Error> {
        let by = ErasureActor::Operator(operator.caller.subject().to_owned());
        self.check_permitted(operator, || erasure_change(key, &by))
            .await?;
        self.erase(key, by).await
    }

    /// Puts a hold on something, or lifts it, for an operator, whom the policy has to let.
    pub(crate) async fn set_hold(
        self: &Arc<Self>,
        operator: &Operator,
        target: HoldTarget,
        held: bool,
    ) -> Result<(), Error> {
        let by = operator.caller.subject().to_owned();
        let change = hold_change(&target, held, &by);
        self.check_permitted(operator, || change.clone()).await?;
        let erasure = Arc::clone(self);
        let setting = tokio::spawn(async move {
            erasure.store.can_be_held(&target).await?;
            erasure.append(&change).await?;
            let now = erasure.ambient.now();
            let set = erasure.store.set_hold(&target, held, &by, now).await;
            erasure.settle(change, set).await
        });
        setting.await.unwrap_or(Err(Error::Interrupted))
    }

    /// Puts on record that `operator` reads what `action` names, whom the policy has to let.
    pub(crate) async fn record_reading(
        &self,
        operator: &Operator,
        action: &'static str,
    ) -> Result<(), Error> {
        let reading = AdminChange {
            actor: operator.caller.subject().to_owned(),
            action: action.to_owned(),
            target: "*".to_owned(),
            scope: String::new(),
            detail_digest: None,
            failed: false,
        };
        self.check_permitted(operator, || reading.clone()).await?;
        self.append(&reading).await
    }

    /// Something was cleared: its rows are to go too.
    pub(crate) async fn clean_up_cleared(&self) {
        self.to_scrub.store(true, Ordering::Release);
        self.clean_up(BATCHES).await;
    }

    /// Removes rows that were cleared or erased, at most so many batches, and overwrites them. What fails or is left
    /// waits for the next time.
    pub(crate) async fn clean_up(&self, batches: usize) {
        for _ in 0..batches {
            match self.store.empty().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => return cannot("rows of erased conversations stay for now", &error),
            }
        }
        if self.to_scrub.swap(false, Ordering::AcqRel) {
            match self.store.scrub().await {
                Ok(true) => {}
                Ok(false) => self.to_scrub.store(true, Ordering::Release),
                Err(error) => {
                    self.to_scrub.store(true, Ordering::Release);
                    cannot("what was removed is not overwritten yet", &error);
                }
            }
        }
    }

    /// Fails unless the policy lets `operator` make a change of conversations of all tenants. Who tried is on record, too.
    async fn check_permitted(
        &self,
        operator: &Operator,
        change: impl FnOnce() -> AdminChange,
    ) -> Result<(), Error> {
        let permitted = operator.check_permitted_for_all_tenants();
        if permitted.is_err() {
            let refused = AdminChange {
                failed: true,
                ..change()
            };
            self.append(&refused).await?;
        }
        Ok(permitted?)
    }

    /// What was recorded and then not done is recorded as failed.
    async fn settle(&self, change: AdminChange, done: Result<(), Error>) -> Result<(), Error> {
        let Err(error) = done else { return Ok(()) };
        let failed = AdminChange {
            failed: true,
            ..change
        };
        if let Err(error) = self.append(&failed).await {
            let cause = &error as &dyn std::error::Error;
            error!(
                cause,
                "a change was recorded, not made, and that cannot be recorded"
            );
        }
        Err(error)
    }

    async fn append(&self, change: &AdminChange) -> Result<(), Error> {
        let record = Record {
            time: self.ambient.now(),
            event: Event::AdminChange(change.clone()),
        };
        let mut appended = self.record.append(&record, false).await;
        if appended.is_err() {
            appended = self.record.append(&record, true).await;
        }
        appended.map(drop).map_err(Error::NotRecorded)
    }
}

fn cannot(what: &'static str, error: &Error) {
    counter!(names::MEMORY_STORE_FAILURES).increment(1);
    let cause = error as &dyn std::error::Error;
    warn!(cause, "{what}");
}

fn erasure_change(key: ConversationKey, by: &ErasureActor) -> AdminChange {
    AdminChange {
        actor: by.actor().to_owned(),
        action: "conversation.erase".to_owned(),
        target: key.to_string(),
        scope: String::new(),
        detail_digest: None,
        failed: false,
    }
}

fn hold_change(target: &HoldTarget, held: bool, by: &str) -> AdminChange {
    let (name, scope) = match target {
        HoldTarget::Conversation(key) => (format!("conversation:{key}"), String::new()),
        HoldTarget::Person { tenant, subject } => {
            let scope = (!tenant.is_empty()).then(|| format!("tenant:{tenant}"));
            (format!("person:{subject}"), scope.unwrap_or_default())
        }
        HoldTarget::Tenant(tenant) => (format!("tenant:{tenant}"), String::new()),
    };
    AdminChange {
        actor: by.to_owned(),
        action: if held { "hold.set" } else { "hold.lift" }.to_owned(),
        target: name,
        scope,
        detail_digest: None,
        failed: false,
    }
}
