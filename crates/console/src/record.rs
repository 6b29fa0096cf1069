//! Access to the audit record for people whom the policy lets read it. Every access is recorded too.
//!
//! ```text
//!  read ─▶ policy: read_record? ── no ──▶ read_own_record? ── no ──▶ refused, not recorded
//!              │ yes                          │ yes
//!              ▼                              ▼
//!          audit: their tenant's records │ their own records ──────▶ recorded: number of rows ─▶ shown
//! ```

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt, pin_mut};
use serde::Deserialize;
use wardgate_domain::{
    Ambient, CallFacts, CallId, Caller, Event, OperatorAction, Outcome, ReadDecision,
    Record as Entry, Status, Timestamp,
};
use wardgate_rpc::client::{
    AuditClient, AuditFilter, DataSubjectFilter, PolicyClient, QueriedRecord, RecordDamage,
    StoredRecord,
};

use crate::problem::Problem;
use crate::record_access::RecordAccess;

/// The method under which an access is recorded.
const METHOD: &str = "record/read";

/// The protocol under which an access is recorded.
const PROTOCOL: &str = "console";

/// Maximum time to read one page of the record.
const LIMIT: Duration = Duration::from_secs(20);

/// Maximum number of records that are examined for one page. Some of them may belong to other tenants.
const MAX_LOOKED_AT: u64 = 20_000;

/// The clients that the record needs.
#[derive(Debug, Clone)]
pub struct RecordLinks {
    /// The client of the policy service.
    pub policy: PolicyClient,
    /// The client of the audit service.
    pub audit: AuditClient,
}

/// Access to the audit record.
pub(crate) struct Record {
    links: RecordLinks,
    ambient: Ambient,
}

/// The limits of one read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadLimits {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// The records of one read.
#[derive(Debug, Default)]
pub(crate) struct RecordRows {
    pub(crate) records: Vec<StoredRecord>,
    /// The records that were changed or removed in the store, or that cannot be read, if this person may read everything.
    pub(crate) damaged: Vec<RecordDamage>,
    /// Whether records of the read were changed, removed, or cannot be read, and it is unknown whether this person may read them.
    pub(crate) may_be_incomplete: bool,
    /// If set, there may be more records below this sequence number.
    pub(crate) more_before: Option<u64>,
    /// The time that belongs to `more_before`, used by stores that order records by time.
    pub(crate) more_before_time: Option<Timestamp>,
}

/// The fields of a record that identify its owner.
#[derive(Deserialize)]
struct RecordOwner<'a> {
    #[serde(borrow, default)]
    caller: Option<RecordedCaller<'a>>,
    #[serde(borrow, default)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    time: Cow<'a, str>,
}

#[derive(Deserialize)]
struct RecordedCaller<'a> {
    #[serde(borrow, default)]
    issuer: Cow<'a, str>,
    #[serde(borrow, default)]
    subject: Cow<'a, str>,
    #[serde(borrow, default)]
    tenant: Cow<'a, str>,
}

/// Selects the records that may be shown.
enum RecordFilter<'a> {
    /// All records, for a caller without a tenant, who operates the whole deployment.
    All,
    /// The records of one tenant.
    Tenant(&'a str),
    /// The records of one caller.
    Caller(&'a Caller),
}

impl RecordFilter<'_> {
    /// Returns the tenant whose records are shown, or an empty string for all records.
    fn tenant(&self) -> &str {
        match self {
            Self::All => "",
            Self::Tenant(tenant) => tenant,
            Self::Caller(caller) => caller.tenant(),
        }
    }

    /// Returns whether this record may be shown. A caller who sees only their own records does not see their accesses
    /// to the record.
    fn includes(&self, owner: &RecordOwner<'_>) -> bool {
        let recorded = owner.caller.as_ref();
        match self {
            Self::All => true,
            Self::Tenant(tenant) => recorded.is_some_and(|recorded| recorded.tenant == *tenant),
            Self::Caller(caller) => recorded.is_some_and(|recorded| {
                recorded.subject == caller.subject()
                    && recorded.issuer == caller.issuer()
                    && recorded.tenant == caller.tenant()
                    && owner.method != METHOD
            }),
        }
    }
}

impl Record {
    pub(crate) fn new(links: RecordLinks, ambient: Ambient) -> Self {
        Self { links, ambient }
    }

    /// Returns which part of the record this person may read. This is not recorded, because nothing is read.
    pub(crate) async fn access(&self, caller: &Caller) -> Result<RecordAccess, Problem> {
        let (access, _) = self.authorize(caller).await?;
        Ok(access)
    }

    /// Returns the newest matching records that this person may read, and records the access. `question` describes the
    /// access; the record contains its digest.
    pub(crate) async fn read_records(
        &self,
        caller: &Caller,
        peer: Option<SocketAddr>,
        question: &str,
        filter: AuditFilter,
        most: ReadLimits,
    ) -> Result<RecordRows, Problem> {
        let started = Instant::now();
        let (access, decision) = self.authorize(caller).await?;
        let permitted = match access {
            // Nothing is read, so nothing is recorded.
            RecordAccess::None => return Err(Problem::NotForYou),
            RecordAccess::Own => RecordFilter::Caller(caller),
            RecordAccess::All if caller.tenant().is_empty() => RecordFilter::All,
            RecordAccess::All => RecordFilter::Tenant(caller.tenant()),
        };
        let pending_read = PendingRead {
            caller,
            peer,
            question,
            decision: &decision,
            started,
        };
        let reading = self.read_matching(&permitted, filter, most);
        let read = tokio::time::timeout(LIMIT, reading).await;
        let read = read.unwrap_or(Err(Problem::RecordAway))?;
        let rows = read.records.len() as u64;
        self.put_on_record(pending_read.outcome(rows, &self.ambient))
            .await?;
        Ok(read)
    }

    /// Returns the widest access that the policy allows, and the decision about it.
    async fn authorize(&self, caller: &Caller) -> Result<(RecordAccess, ReadDecision), Problem> {
        let all = self.decide(caller, OperatorAction::ReadRecord).await?;
        if all.allowed {
            return Ok((RecordAccess::All, all));
        }
        let own = self.decide(caller, OperatorAction::ReadOwnRecord).await?;
        let access = if own.allowed {
            RecordAccess::Own
        } else {
            RecordAccess::None
        };
        Ok((access, own))
    }

    async fn decide(
        &self,
        caller: &Caller,
        action: OperatorAction,
    ) -> Result<ReadDecision, Problem> {
        let decided = self.links.policy.authorize_operator(caller, action).await;
        decided.map_err(|error| {
            tracing::warn!(%error, "the policy service did not return who may read the record");
            Problem::RecordAway
        })
    }

    async fn read_matching(
        &self,
        permitted: &RecordFilter<'_>,
        filter: AuditFilter,
        most: ReadLimits,
    ) -> Result<RecordRows, Problem> {
        let away = |error| {
            tracing::warn!(%error, "the record cannot be read");
            Problem::RecordAway
        };
        let is_all = matches!(permitted, RecordFilter::All);
        let is_own = matches!(permitted, RecordFilter::Caller(_));
        let filter = AuditFilter {
            limit: Some(if is_all {
                most.records as u64 + 1
            } else {
                MAX_LOOKED_AT
            }),
            newest_first: true,
            // Only people who may read everybody's calls can filter by data subject, and within their own tenant if
            // they have one.
            data_subject: filter.data_subject.filter(|_| !is_own).map(|subject| {
                let tenant = if is_all {
                    subject.tenant
                } else {
                    permitted.tenant().to_owned()
                };
                DataSubjectFilter { tenant, ..subject }
            }),
            with_details: filter.with_details && !is_own,
            subject: match permitted {
                RecordFilter::Caller(caller) => Some(caller.subject().to_owned()),
                RecordFilter::All | RecordFilter::Tenant(_) => filter.subject,
            },
            ..filter
        };
        let stream = self.links.audit.query(filter).await.map_err(away)?;
        pin_mut!(stream);
        let mut read = RecordRows::default();
        let (mut looked_at, mut bytes) = (0, 0);
        while let Some(stored) = stream.next().await {
            let stored = match stored.map_err(away)? {
                QueriedRecord::Intact(stored) => stored,
                QueriedRecord::Damaged(damage) => {
                    // The owner of a damaged record is unknown, so only those who may read everything see which record it is.
                    if is_all {
                        read.damaged.push(damage);
                    } else {
                        read.may_be_incomplete |= !damage.is_warning;
                    }
                    continue;
                }
            };
            let sequence = stored.sequence;
            looked_at += 1;
            let owner = owner_of(&stored)?;
            let time = owner.time.parse().ok();
            if read.more_before.is_none() && permitted.includes(&owner) {
                bytes += stored.record.len();
                let full = read.records.len() == most.records;
                if full || (bytes > most.bytes && !read.records.is_empty()) {
                    read.more_before = Some(sequence + 1);
                    read.more_before_time = time;
                } else {
                    read.records.push(stored);
                }
            }
            // If all records are permitted, the stream is about to end and is read to its end, because HTTP/2 servers
            // penalize clients that reset streams.
            if read.more_before.is_some() && !is_all {
                break;
            }
            if looked_at == MAX_LOOKED_AT && read.more_before.is_none() {
                read.more_before = Some(sequence);
                read.more_before_time = time;
            }
        }
        Ok(read)
    }

    /// Records the access. Nothing is shown that is not recorded.
    async fn put_on_record(&self, outcome: Outcome) -> Result<(), Problem> {
        let entry = Arc::new(Entry {
            time: self.ambient.now(),
            event: Event::Outcome(outcome),
        });
        let audit = &self.links.audit;
        let appended = match audit.append_shared(&entry, false).await {
            Ok(receipt) => Ok(receipt),
            // The second append resolves whether the first one succeeded.
            Err(_) => audit.append_shared(&entry, true).await,
        };
        appended.map(drop).map_err(|error| {
            tracing::warn!(%error, "reading the record cannot be recorded");
            Problem::RecordAway
        })
    }
}

fn owner_of(stored: &StoredRecord) -> Result<RecordOwner<'_>, Problem> {
    serde_json::from_slice(&stored.record).map_err(|_| Problem::RecordAway)
}

/// A read in progress.
struct PendingRead<'a> {
    caller: &'a Caller,
    peer: Option<SocketAddr>,
    question: &'a str,
    decision: &'a ReadDecision,
    started: Instant,
}

impl PendingRead<'_> {
    fn outcome(&self, rows: u64, ambient: &Ambient) -> Outcome {
        let address = self.peer.map(|peer| peer.ip().to_canonical().to_string());
        let call = CallFacts::without_tool(
            CallId::new(ambient),
            self.caller,
            address.unwrap_or_default(),
            PROTOCOL,
            self.question.as_bytes(),
        );
        Outcome {
            call: CallFacts {
                decision_id: Some(self.decision.id),
                policy_hash: Some(self.decision.policy_hash),
                bundle: self.decision.bundle,
                ..call.by_method(METHOD)
            },
            status: Status::Ok,
            reason: String::new(),
            rows,
            rows_withheld: 0,
            fields_redacted: 0,
            phi: false,
            result_digest: None,
            duration: self.started.elapsed(),
            details: None,
        }
    }
}
