//! The audit service, as its callers see it.

mod counts;
mod operator;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use serde_json::Value;
use tokio::time::{Instant, timeout};
use tracing::Instrument;
use wardgate_domain::{Digest, InvalidMessage, Receipt, Record, Status, Timestamp};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_client::AuditServiceClient;
use wardgate_transparency::{SignedNote, TlogProof};

use super::{CallError, open_request, request, within};
use crate::local::LocalMethod;
use crate::{LatencyLimit, Link, ServiceLink, deadline};

pub use counts::{CallCountQuery, CallSelection};
pub use operator::{
    ExportedPart, ExportedRecords, HoldDescription, HoldScope, OperatorAuditClient, ProofSelector,
    RetentionProgress, RetentionStatus,
};

/// The longest that an append is waited for, however slow the store was measured. Longer than the service itself waits
/// for its store.
pub const LONGEST_APPEND: Duration = Duration::from_secs(5);

/// What callers in the audit service's own process call as functions.
pub trait RecordAppender: Send + Sync {
    /// See [`AuditClient::append`]. The future does not borrow the record, because an append may go on when nobody waits for it.
    fn append(
        &self,
        record: &Record,
        retry: bool,
    ) -> BoxFuture<'static, Result<Receipt, CallError>>;
}

impl fmt::Debug for dyn RecordAppender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordAppender")
    }
}

/// The audit service in this process.
pub type LocalAudit = Arc<dyn RecordAppender>;

/// Appends to the record and reads it.
#[derive(Debug, Clone)]
pub struct AuditClient {
    client: AuditServiceClient<Link>,
    local: Option<LocalMethod<LocalAudit>>,
    pace: Arc<AppendPace>,
}

/// How long appends may take, as measured on those that succeeded.
#[derive(Debug)]
struct AppendPace {
    limit: LatencyLimit,
    /// Whether an append is under way that goes on beyond the limit, to find out how slow the store is.
    is_probed: AtomicBool,
}

impl AppendPace {
    /// The right to let one append go on beyond the limit; none while another one has it.
    fn begin_probe(self: &Arc<Self>) -> Option<PaceProbe> {
        let is_free = !self.is_probed.swap(true, Ordering::AcqRel);
        is_free.then(|| PaceProbe(Arc::clone(self)))
    }
}

/// Held by the append that may go on beyond the limit.
#[derive(Debug)]
struct PaceProbe(Arc<AppendPace>);

impl Drop for PaceProbe {
    fn drop(&mut self) {
        self.0.is_probed.store(false, Ordering::Release);
    }
}

/// Which records to read; every filter that is set must match.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Token subject.
    pub subject: Option<String>,
    /// Canonical tool name.
    pub tool: Option<String>,
    /// One call.
    pub call_id: Option<String>,
    /// How the call ended.
    pub status: Option<Status>,
    /// Not before.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
    /// At or above this sequence number.
    pub from_sequence: u64,
    /// Below this sequence number.
    pub before_sequence: Option<u64>,
    /// Of records newest first in the order of their time: before this time, or of this time and below `before_sequence`. It
    /// counts for nothing where they come in the order of their sequence numbers.
    pub before_time: Option<Timestamp>,
    /// At most so many; none: all.
    pub limit: Option<u64>,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
    /// Only calls that released rows of this data subject.
    pub data_subject: Option<DataSubjectFilter>,
    /// With the details of each call.
    pub with_details: bool,
    /// What else a record says.
    pub content: ContentFilter,
}

/// What a record says that no index has: each is read for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentFilter {
    /// Why it was refused or failed; of counted refusals one of their reasons.
    pub reason: Option<String>,
    /// The kind of record, as records spell it.
    pub event: Option<String>,
    /// Only where health information was released.
    pub phi: bool,
    /// Only where rows or messages were withheld.
    pub withheld: bool,
    /// Only where this decision, or this policy, decided.
    pub decision: Option<String>,
}

/// A data subject, as a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSubjectFilter {
    /// Tenant of those who called; empty where the deployment has only one.
    pub tenant: String,
    /// The value of the key, for example a patient's code.
    pub key: String,
}

/// One record as stored.
#[derive(Debug, Clone)]
pub struct StoredRecord {
    /// Position in the sequence.
    pub sequence: u64,
    /// RFC 6962 leaf hash.
    pub leaf_hash: Digest,
    /// Canonical bytes.
    pub record: Bytes,
    /// The details; none where there are none, or they were not asked for.
    pub details: Option<RecordDetails>,
}

/// The details of a call, as they can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordDetails {
    /// One JSON object.
    Open(Bytes),
    /// The key of a data subject whom the call concerned was destroyed, and the details with it.
    Erased,
}

impl RecordDetails {
    /// The columns that the call released, each with its tier where that is not `clear`; none where the details were erased.
    pub fn released_columns(&self) -> Option<Vec<String>> {
        let Self::Open(details) = self else {
            return None;
        };
        let details: Value = serde_json::from_slice(details).ok()?;
        let columns = details["columns"].as_array()?.iter();
        let columns = columns.filter_map(|column| {
            let name = column["name"].as_str()?;
            Some(match column["tier"].as_str()? {
                "clear" => name.to_owned(),
                tier => format!("{name} ({tier})"),
            })
        });
        Some(columns.collect())
    }
}

/// What stands at one position of the record.
#[derive(Debug, Clone)]
pub enum QueriedRecord {
    /// A record, as the service wrote it.
    Intact(StoredRecord),
    /// What is no longer as the service wrote it.
    Damaged(RecordDamage),
}

/// A record that was changed in the store, or removed from it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {sequence}: {problem}")]
pub struct RecordDamage {
    /// Position in the sequence; of several records that are missing the lowest.
    pub sequence: u64,
    /// What is wrong with it.
    pub problem: String,
}

fn unreadable(field: &'static str, error: &wardgate_transparency::Error) -> InvalidMessage {
    InvalidMessage::field(field, error.to_string())
}

impl AuditClient {
    /// Over `link`. No append takes longer than `limit` on a store that is as fast as stores usually are; on one that
    /// was measured to be slower it may take longer, and never more than five seconds.
    pub fn new(link: impl Into<ServiceLink<LocalAudit>>, limit: Duration) -> Self {
        let link = link.into();
        let append = "/wardgate.audit.v1.AuditService/Append";
        Self {
            client: AuditServiceClient::new(link.transport),
            local: link.local.map(|it| LocalMethod::new(it, append)),
            pace: Arc::new(AppendPace {
                limit: LatencyLimit::new(limit, LONGEST_APPEND.max(limit)),
                is_probed: AtomicBool::new(false),
            }),
        }
    }

    /// How long the next append may take.
    pub fn append_limit(&self) -> Duration {
        self.pace.limit.current()
    }

    /// Makes `record` durable. After a failure the record may or may not be stored; appending it once
    /// more with `retry` settles it.
    pub async fn append(&self, record: &Record, retry: bool) -> Result<Receipt, CallError> {
        let limit = self.append_limit();
        let Some(probe) = self.pace.begin_probe() else {
            return self.attempt_append(record, retry, limit).await;
        };
        // A store that became slower than the limit would never be measured if every append ended at the limit.
        let mut attempt = self.attempt_append(record, retry, self.pace.limit.ceiling());
        if let Ok(appended) = timeout(deadline::left(limit), &mut attempt).await {
            return appended;
        }
        let measured = async move {
            let _ = attempt.await;
            drop(probe);
        };
        tokio::spawn(measured.in_current_span());
        Err(CallError::late())
    }

    /// One attempt, on the heap: those who append keep its future in theirs.
    fn attempt_append(
        &self,
        record: &Record,
        retry: bool,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Receipt, CallError>> {
        let attempt = match &self.local {
            Some(local) => {
                let append = local.service.append(record, retry);
                local.call(limit, append).left_future()
            }
            None => self.append_remotely(record, retry, limit).right_future(),
        };
        let pace = Arc::clone(&self.pace);
        let attempt = async move {
            let started = Instant::now();
            let receipt = attempt.await?;
            pace.limit.observe(started.elapsed());
            Ok(receipt)
        };
        attempt.boxed()
    }

    fn append_remotely(
        &self,
        record: &Record,
        retry: bool,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Receipt, CallError>> {
        let mut client = self.client.clone();
        let message = pb::AppendRequest {
            record: Some(record.into()),
            retry,
        };
        let message = request(message, limit);
        let append = within(limit, async move {
            let answer = client.append(message).await?.into_inner();
            let receipt = answer
                .receipt
                .ok_or_else(|| InvalidMessage::field("receipt", "is missing"))?;
            Ok(receipt.try_into()?)
        });
        append.boxed()
    }

    /// The newest signed checkpoint of the log over the record, not verified. Takes at most `limit`.
    pub async fn checkpoint(&self, limit: Duration) -> Result<SignedNote, CallError> {
        let mut client = self.client.clone();
        let message = request(pb::GetCheckpointRequest {}, limit);
        within(limit, async move {
            let answer = client.get_checkpoint(message).await?.into_inner();
            let note = answer.checkpoint.parse();
            Ok(note.map_err(|error| unreadable("checkpoint", &error))?)
        })
        .await
    }

    /// The proof that the record at `sequence` is in the log, not verified. Takes at most `limit`.
    pub async fn proof(&self, sequence: u64, limit: Duration) -> Result<TlogProof, CallError> {
        let mut client = self.client.clone();
        let message = request(pb::GetProofRequest { sequence }, limit);
        within(limit, async move {
            let answer = client.get_proof(message).await?.into_inner();
            let proof = answer.proof.parse();
            Ok(proof.map_err(|error| unreadable("proof", &error))?)
        })
        .await
    }

    /// The records that match, one after the other: by their sequence, or by their time where `since` or `until` is set.
    pub async fn query(
        &self,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<QueriedRecord, CallError>> + use<>, CallError> {
        let message = pb::QueryRequest::from(filter);
        let mut client = self.client.clone();
        let records = client.query(open_request(message)).await?;
        Ok(records.into_inner().map(|found| Ok(found?.try_into()?)))
    }
}

impl From<DataSubjectFilter> for pb::DataSubjectFilter {
    fn from(subject: DataSubjectFilter) -> Self {
        Self {
            tenant: subject.tenant,
            key: subject.key,
        }
    }
}

impl From<AuditFilter> for pb::QueryRequest {
    fn from(filter: AuditFilter) -> Self {
        let mut message = Self {
            subject: filter.subject.unwrap_or_default(),
            tool: filter.tool.unwrap_or_default(),
            call_id: filter.call_id.unwrap_or_default(),
            since: filter.since.map(Into::into),
            until: filter.until.map(Into::into),
            from_sequence: filter.from_sequence,
            before_sequence: filter.before_sequence.unwrap_or(0),
            before_time: filter.before_time.map(Into::into),
            limit: filter.limit.unwrap_or(0),
            newest_first: filter.newest_first,
            data_subject: filter.data_subject.map(Into::into),
            with_details: filter.with_details,
            reason: filter.content.reason.unwrap_or_default(),
            event: filter.content.event.unwrap_or_default(),
            phi: filter.content.phi,
            withheld: filter.content.withheld,
            decision: filter.content.decision.unwrap_or_default(),
            ..Self::default()
        };
        if let Some(status) = filter.status {
            message.set_status(status.into());
        }
        message
    }
}

impl TryFrom<pb::QueryResponse> for QueriedRecord {
    type Error = InvalidMessage;

    fn try_from(found: pb::QueryResponse) -> Result<Self, Self::Error> {
        let sequence = found.sequence;
        if !found.damage.is_empty() {
            let problem = found.damage;
            return Ok(Self::Damaged(RecordDamage { sequence, problem }));
        }
        Ok(Self::Intact(StoredRecord {
            sequence,
            leaf_hash: Digest::from_wire(&found.leaf_hash, "leaf_hash")?,
            record: found.record,
            details: match found.details_json {
                _ if found.details_erased => Some(RecordDetails::Erased),
                details if details.is_empty() => None,
                details => Some(RecordDetails::Open(details)),
            },
        }))
    }
}

impl TryFrom<pb::DataSubjectFilter> for DataSubjectFilter {
    type Error = InvalidMessage;

    fn try_from(subject: pb::DataSubjectFilter) -> Result<Self, Self::Error> {
        if subject.key.is_empty() {
            return Err(InvalidMessage::field("data_subject.key", "is missing"));
        }
        Ok(Self {
            tenant: subject.tenant,
            key: subject.key,
        })
    }
}

impl TryFrom<pb::QueryRequest> for AuditFilter {
    type Error = InvalidMessage;

    fn try_from(request: pb::QueryRequest) -> Result<Self, Self::Error> {
        let status = pb::Status::try_from(request.status)
            .map_err(|_| InvalidMessage::field("status", "is unknown"))?;
        let data_subject = request.data_subject.map(DataSubjectFilter::try_from);
        Ok(Self {
            subject: non_empty(request.subject),
            tool: non_empty(request.tool),
            call_id: non_empty(request.call_id),
            status: match status {
                pb::Status::Unspecified => None,
                status => Some(status.try_into()?),
            },
            since: request.since.map(TryInto::try_into).transpose()?,
            until: request.until.map(TryInto::try_into).transpose()?,
            from_sequence: request.from_sequence,
            before_sequence: (request.before_sequence > 0).then_some(request.before_sequence),
            before_time: request.before_time.map(TryInto::try_into).transpose()?,
            limit: (request.limit > 0).then_some(request.limit),
            newest_first: request.newest_first,
            data_subject: data_subject.transpose()?,
            with_details: request.with_details,
            content: ContentFilter {
                reason: non_empty(request.reason),
                event: non_empty(request.event),
                phi: request.phi,
                withheld: request.withheld,
                decision: non_empty(request.decision),
            },
        })
    }
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}
