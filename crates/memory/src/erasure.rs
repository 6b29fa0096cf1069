//! Erasure, holds and lists for operators. Every operation is recorded durably before it takes place.
//!
//! ```text
//!   held? ─▶ record ─▶ destroy the key ─▶ remove the rows ─▶ overwrite them
//!                        └ failed: a second record says that the outcome is unknown
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::counter;
use tracing::warn;
use wardgate_domain::{AdminChange, Ambient, ConversationKey, HoldTarget};
use wardgate_rpc::client::{AuditClient, IdentifiedOperator, OperatorLog};
use wardgate_telemetry::names;

use crate::Error;
use crate::store::{ErasureCandidate, MemoryStore};

/// Maximum number of batches of rows that are removed within an erasure. The sweeper removes the rest of a long
/// conversation.
const BATCHES: usize = 20;

/// The action of an erasure in records.
const ERASE: &str = "conversation.erase";

/// The actor that requests the erasure of a conversation.
#[derive(Debug, Clone)]
pub(crate) enum ErasureActor {
    Owner(String),
    Operator(Box<IdentifiedOperator>),
    Retention,
}

impl ErasureActor {
    /// Returns the record of an erasure by this actor.
    fn change(&self, key: ConversationKey) -> AdminChange {
        let actor = match self {
            Self::Owner(name) => name,
            Self::Operator(operator) => return operator.change(ERASE, key.to_string()),
            Self::Retention => "(retention)",
        };
        AdminChange {
            actor: actor.to_owned(),
            action: ERASE.to_owned(),
            target: key.to_string(),
            ..AdminChange::default()
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

/// Erases conversations and sets holds, and records both beforehand.
pub(crate) struct Erasure {
    store: MemoryStore,
    log: OperatorLog,
    ambient: Ambient,
    /// Whether rows may have been removed but not overwritten. Initially `true`, because the previous process may have
    /// ended between the two steps.
    to_scrub: AtomicBool,
}

impl Erasure {
    pub(crate) fn new(store: MemoryStore, record: AuditClient, ambient: Ambient) -> Arc<Self> {
        Arc::new(Self {
            store,
            log: OperatorLog::new(record, ambient.clone()),
            ambient,
            to_scrub: AtomicBool::new(true),
        })
    }

    /// Erases a conversation permanently.
    pub(crate) async fn erase(
        self: &Arc<Self>,
        key: ConversationKey,
        by: ErasureActor,
    ) -> Result<(), Error> {
        let erasure = Arc::clone(self);
        // A separate task, so that a recorded erasure is completed or recorded as failed even if the caller
        // disconnects.
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
            ..by.change(candidate.key)
        };
        self.append(change.clone()).await?;
        let erased = self.store.erase(&candidate, self.ambient.now()).await;
        self.log.settle(change, erased).await?;
        self.to_scrub.store(true, Ordering::Release);
        counter!(names::CONVERSATIONS_ERASED, "by" => by.kind()).increment(1);
        tracing::info!(key = %candidate.key, by = by.kind(), "a conversation was erased");
        Ok(())
    }

    /// Erases a conversation for an operator, if the policy permits it.
    pub(crate) async fn erase_for_operator(
        self: &Arc<Self>,
        operator: IdentifiedOperator,
        key: ConversationKey,
    ) -> Result<(), Error> {
        let change = operator.change(ERASE, key.to_string());
        self.log.check_permitted(&operator, &change).await?;
        self.erase(key, ErasureActor::Operator(Box::new(operator)))
            .await
    }

    /// Sets or lifts a hold for an operator, if the policy permits it.
    pub(crate) async fn set_hold(
        self: &Arc<Self>,
        operator: &IdentifiedOperator,
        target: HoldTarget,
        held: bool,
    ) -> Result<(), Error> {
        let change = hold_change(&target, held, operator);
        self.log.check_permitted(operator, &change).await?;
        let erasure = Arc::clone(self);
        let setting = tokio::spawn(async move {
            erasure.store.can_be_held(&target).await?;
            erasure.append(change.clone()).await?;
            let now = erasure.ambient.now();
            let by = &change.actor;
            let set = erasure.store.set_hold(&target, held, by, now).await;
            erasure.log.settle(change, set).await
        });
        setting.await.unwrap_or(Err(Error::Interrupted))
    }

    /// Returns the log of what operators do.
    pub(crate) fn log(&self) -> &OperatorLog {
        &self.log
    }

    /// Removes the rows of a conversation that was cleared.
    pub(crate) async fn clean_up_cleared(&self) {
        self.to_scrub.store(true, Ordering::Release);
        self.clean_up(BATCHES).await;
    }

    /// Removes rows that were cleared or erased, at most `batches` batches, and overwrites them. Rows that fail or are
    /// left over are removed the next time.
    pub(crate) async fn clean_up(&self, batches: usize) {
        for _ in 0..batches {
            match self.store.empty().await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    cannot("rows of erased conversations cannot be removed now", &error);
                    break;
                }
            }
        }
        if self.to_scrub.swap(false, Ordering::AcqRel) {
            match self.store.scrub().await {
                Ok(true) => {}
                Ok(false) => self.to_scrub.store(true, Ordering::Release),
                Err(error) => {
                    self.to_scrub.store(true, Ordering::Release);
                    cannot("removed rows cannot be overwritten now", &error);
                }
            }
        }
    }

    async fn append(&self, change: AdminChange) -> Result<(), Error> {
        self.log.append(change).await.map_err(Error::NotRecorded)
    }
}

fn cannot(what: &'static str, error: &Error) {
    counter!(names::MEMORY_STORE_FAILURES).increment(1);
    let cause = error as &dyn std::error::Error;
    warn!(cause, "{what}");
}

fn hold_change(target: &HoldTarget, held: bool, operator: &IdentifiedOperator) -> AdminChange {
    let (name, scope) = match target {
        HoldTarget::Conversation(key) => (format!("conversation:{key}"), String::new()),
        HoldTarget::Person { tenant, subject } => {
            let scope = (!tenant.is_empty()).then(|| format!("tenant:{tenant}"));
            (format!("person:{subject}"), scope.unwrap_or_default())
        }
        HoldTarget::Tenant(tenant) => (format!("tenant:{tenant}"), String::new()),
    };
    AdminChange {
        scope,
        ..operator.change(if held { "hold.set" } else { "hold.lift" }, name)
    }
}
