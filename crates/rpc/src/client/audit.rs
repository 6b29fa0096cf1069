//! Client of the audit service.

mod append_call;
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

use self::append_call::RemoteAppender;
use super::{CallError, open_request, request, within};
use crate::local::LocalMethod;
use crate::{LatencyLimit, Link, ServiceLink, deadline};

pub use counts::{CallCountQuery, CallSelection};
pub use operator::{
    ExportedPart, ExportedRecords, HoldDescription, HoldScope, OperatorAuditClient, ProofSelector,
    RetentionProgress, RetentionStatus,
};

/// Maximum time for an append, however slow the store was measured to be. It is longer than the audit
/// service waits for its store.
pub const LONGEST_APPEND: Duration = Duration::from_secs(5);

/// The functions of the audit service for callers in its process.
pub trait RecordAppender: Send + Sync {
    /// See [`AuditClient::append_shared`]. The future does not borrow the record, because an append may continue
    /// after its caller gave up.
    fn append(
        self: Arc<Self>,
        record: Arc<Record>,
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

/// A client of the audit service that appends and reads records.
#[derive(Debug, Clone)]
pub struct AuditClient {
    client: AuditServiceClient<Link>,
    appends: AppendTransport,
    pace: Arc<AppendPace>,
}

/// The way to the audit service for appends.
#[derive(Debug, Clone)]
enum AppendTransport {
    Local(LocalMethod<LocalAudit>),
    Remote(RemoteAppender),
}

/// The time limit of appends, which adapts to the duration of successful appends.
#[derive(Debug)]
struct AppendPace {
    limit: LatencyLimit,
    /// Whether an append is running that may exceed the limit, to measure how slow the store is.
    is_probed: AtomicBool,
}

impl AppendPace {
    /// Returns the right to let one append exceed the limit, or `None` while another append has it.
    fn begin_probe(self: &Arc<Self>) -> Option<PaceProbe> {
        let is_free = !self.is_probed.swap(true, Ordering::AcqRel);
        is_free.then(|| PaceProbe(Arc::clone(self)))
    }
}

/// The right of an append to exceed the limit.
#[derive(Debug)]
struct PaceProbe(Arc<AppendPace>);

impl Drop for PaceProbe {
    fn drop(&mut self) {
        self.0.is_probed.store(false, Ordering::Release);
    }
}

/// The records to read. A record must match all filters that are set.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// The subject of the caller's token.
    pub subject: Option<String>,
    /// The canonical name of a tool.
    pub tool: Option<String>,
    /// The id of a call.
    pub call_id: Option<String>,
    /// The status with which the call ended.
    pub status: Option<Status>,
    /// The earliest time.
    pub since: Option<Timestamp>,
    /// The time before which the record was written.
    pub until: Option<Timestamp>,
    /// The lowest sequence number.
    pub from_sequence: u64,
    /// The sequence number below which the records are.
    pub before_sequence: Option<u64>,
    /// The start of a page of records in descending order of time: before this time, or at this time and below `before_sequence`.
    /// Ignored if the records are in the order of their sequence numbers.
    pub before_time: Option<Timestamp>,
    /// Maximum number of records, or `None` for all.
    pub limit: Option<u64>,
    /// Whether the newest record comes first, instead of the oldest.
    pub newest_first: bool,
    /// The data subject of released rows: only calls that released rows of this data subject match.
    pub data_subject: Option<DataSubjectFilter>,
    /// Whether to include the details of each call.
    pub with_details: bool,
    /// Filters on the content of records.
    pub content: ContentFilter,
}

/// Filters on content of records that is not indexed, so that each record has to be read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentFilter {
    /// The reason why the call was refused or failed. A summary of refusals matches if it contains this reason.
    pub reason: Option<String>,
    /// The kind of record, as it is named in records.
    pub event: Option<String>,
    /// Whether health information must have been released.
    pub phi: bool,
    /// Whether rows or messages must have been withheld.
    pub withheld: bool,
    /// The id of the decision, or of a policy that determined it.
    pub decision: Option<String>,
}

/// A filter for a data subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSubjectFilter {
    /// The tenant of the callers, or empty if the deployment has only one tenant.
    pub tenant: String,
    /// The value of the data subject's key, for example a patient's code.
    pub key: String,
}

/// A record as stored.
#[derive(Debug, Clone)]
pub struct StoredRecord {
    /// The sequence number of the record.
    pub sequence: u64,
    /// The leaf hash according to RFC 6962.
    pub leaf_hash: Digest,
    /// The canonical bytes of the record.
    pub record: Bytes,
    /// The details, or `None` if there are none or they were not requested.
    pub details: Option<RecordDetails>,
}

/// The details of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordDetails {
    /// The details, a JSON object.
    Open(Bytes),
    /// The details are unreadable, because the key of a data subject whom the call concerned was destroyed.
    Erased,
    /// The details are unreadable, because no configured key decrypts the key of a data subject whom the call concerned.
    Undecryptable,
}

impl RecordDetails {
    /// Returns the columns that the call released, each with its tier unless that is `clear`. Returns `None` if
    /// the details are unreadable.
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

/// The content of one position in the audit log.
#[derive(Debug, Clone)]
pub enum QueriedRecord {
    /// A record that is as the service wrote it.
    Intact(StoredRecord),
    /// One or more records that are not as the service wrote them, or a warning about the store.
    Damaged(RecordDamage),
}

/// A record that was changed in the store or removed from it, or that the database cannot read, or several of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordDamage {
    /// The sequence number of the record, or the lowest one of several records. `None` if the reader may not know which records
    /// are affected, or if this is unknown.
    pub sequence: Option<u64>,
    /// A description of the damage.
    pub problem: String,
    /// Whether this is a warning: it does not mean that a record is missing, because records that cannot be read are reported
    /// separately.
    pub is_warning: bool,
}

impl fmt::Display for RecordDamage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(sequence) = self.sequence {
            write!(f, "record {sequence}: ")?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for RecordDamage {}

fn unreadable(field: &'static str, error: &wardgate_transparency::Error) -> InvalidMessage {
    InvalidMessage::field(field, error.to_string())
}

impl AuditClient {
    /// Creates a client over `link`. An append takes at most `limit`. If the store was measured to be slow, an append may take
    /// longer, up to [`LONGEST_APPEND`] or `limit`, whichever is longer.
    pub fn new(link: impl Into<ServiceLink<LocalAudit>>, limit: Duration) -> Self {
        let link = link.into();
        let append = "/wardgate.audit.v1.AuditService/Append";
        let longest = LONGEST_APPEND.max(limit);
        let appends = match link.local {
            Some((local, peer)) => AppendTransport::Local(LocalMethod::new(local, peer, append)),
            None => AppendTransport::Remote(RemoteAppender::new(link.transport.clone(), longest)),
        };
        Self {
            client: AuditServiceClient::new(link.transport),
            appends,
            pace: Arc::new(AppendPace {
                limit: LatencyLimit::new(limit, longest),
                is_probed: AtomicBool::new(false),
            }),
        }
    }

    /// Returns the time limit for the next append.
    pub fn append_limit(&self) -> Duration {
        self.pace.limit.current()
    }

    /// Appends `record` durably. After an error, the record may or may not be stored; appending it again with `retry` makes sure
    /// that it is stored once.
    pub async fn append_shared(
        &self,
        record: &Arc<Record>,
        retry: bool,
    ) -> Result<Receipt, CallError> {
        let limit = self.append_limit();
        let Some(probe) = self.pace.begin_probe() else {
            return self.attempt_append(record, retry, limit).await;
        };
        // If every append ended at the limit, a store that became slower than the limit would never be measured.
        let mut attempt = self.attempt_append(record, retry, self.pace.limit.ceiling());
        if let Ok(appended) = timeout(deadline::time_left(limit), &mut attempt).await {
            return appended;
        }
        let measured = async move {
            let _ = attempt.await;
            drop(probe);
        };
        tokio::spawn(measured.in_current_span());
        Err(CallError::late())
    }

    /// Appends a copy of `record`, as [`AuditClient::append_shared`] does.
    pub async fn append(&self, record: &Record, retry: bool) -> Result<Receipt, CallError> {
        self.append_shared(&Arc::new(record.clone()), retry).await
    }

    /// Returns the future of one attempt. It is boxed to keep the futures of its callers small.
    fn attempt_append(
        &self,
        record: &Arc<Record>,
        retry: bool,
        limit: Duration,
    ) -> BoxFuture<'static, Result<Receipt, CallError>> {
        let attempt = match &self.appends {
            AppendTransport::Local(local) => {
                let append = Arc::clone(&local.service).append(Arc::clone(record), retry);
                local.call(limit, append).left_future()
            }
            AppendTransport::Remote(remote) => {
                let append = remote.append(Arc::clone(record), retry, limit);
                append.right_future()
            }
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

    /// Returns the newest signed checkpoint of the audit log, which is not verified. Takes at most `limit`.
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

    /// Returns the proof that the record at `sequence` is in the log, which is not verified. Takes at most `limit`.
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

    /// Returns the matching records, ordered by time if the filter selects by `since` or `until`, or by `subject`, `tool` or
    /// `status` without `from_sequence`, and has no `call_id`. Otherwise, they are ordered by sequence number.
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
            return Ok(Self::Damaged(RecordDamage {
                sequence: (!found.damage_unlocated).then_some(sequence),
                problem: found.damage,
                is_warning: found.damage_is_warning,
            }));
        }
        Ok(Self::Intact(StoredRecord {
            sequence,
            leaf_hash: Digest::from_wire(&found.leaf_hash, "leaf_hash")?,
            record: found.record,
            details: match found.details_json {
                _ if found.details_erased => Some(RecordDetails::Erased),
                _ if found.details_undecryptable => Some(RecordDetails::Undecryptable),
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
