//! Operators' client of the audit service. It sends the operator's token, which the service verifies, and
//! each request is recorded.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use wardgate_domain::{BearerToken, Digest, InvalidMessage, Timestamp};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_client::AuditServiceClient;
use wardgate_proto::audit::v1::export_records_response::Part;
use wardgate_transparency::{SignedNote, TlogProof};

use super::{AuditFilter, DataSubjectFilter, QueriedRecord, unreadable};
use crate::Link;
use crate::client::{CallError, open_request, request, within};

/// A client that reads and manages the audit log for the operator whose token it has.
#[derive(Debug, Clone)]
pub struct OperatorAuditClient {
    client: AuditServiceClient<Link>,
    token: BearerToken,
}

/// The record that a proof is requested for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofSelector {
    /// The record with this sequence number.
    Sequence(u64),
    /// The last record of a call, or the one with the given leaf hash.
    Call {
        /// The call's id.
        call_id: String,
        /// The leaf hash of the record, or `None` for the last record of the call.
        leaf_hash: Option<Digest>,
    },
}

/// All records that a checkpoint covers.
pub struct ExportedRecords {
    /// The checkpoint, which is not verified.
    pub checkpoint: SignedNote,
    /// The covered records, in order.
    pub parts: BoxStream<'static, Result<ExportedPart, CallError>>,
}

/// A part of an export.
#[derive(Debug, Clone)]
pub enum ExportedPart {
    /// The concatenated leaf hashes of 256 records that retention removed. These parts come before all records.
    PrunedTile(Bytes),
    /// The next record.
    Record(QueriedRecord),
}

/// The state of retention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionStatus {
    /// Number of records, including removed ones.
    pub size: u64,
    /// The sequence number below which records were removed.
    pub minimum_index: u64,
    /// Number of days for which records are kept.
    pub retention_days: u32,
    /// The sequence number below which records can be removed now.
    pub removable_below: u64,
    /// What keeps the first record that is not removable, for example `age` or `hold:NAME`.
    pub kept_by: String,
    /// The legal holds.
    pub holds: Vec<HoldDescription>,
}

/// A legal hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldDescription {
    /// The name of the hold.
    pub name: String,
    /// The tenant whose calls the hold concerns, or `None` if it is not limited to a tenant.
    pub tenant: Option<String>,
    /// The keyed digest of the data subject that the hold concerns, or `None` if it is not limited to a data subject.
    pub data_subject: Option<Digest>,
    /// The operator who set the hold.
    pub set_by: String,
    /// The time when the hold was set.
    pub set_at: Timestamp,
}

/// The scope of a new hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldScope {
    /// The whole audit log.
    Whole,
    /// The calls of a tenant.
    Tenant(String),
    /// The calls that concern a data subject.
    DataSubject(DataSubjectFilter),
}

/// The progress of applying retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionProgress {
    /// The sequence number below which records were removed.
    pub minimum_index: u64,
    /// The sequence number below which records will be removed.
    pub removable_below: u64,
}

impl OperatorAuditClient {
    /// Creates a client over `link` with the operator's token.
    pub fn new(link: Link, token: BearerToken) -> Self {
        Self {
            client: AuditServiceClient::new(link),
            token,
        }
    }

    /// Returns the matching records, in the order of [`AuditClient::query`](super::AuditClient::query).
    pub async fn read_records(
        &self,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<QueriedRecord, CallError>> + use<>, CallError> {
        let message = pb::ReadRecordsRequest {
            caller_token: self.token.expose().to_owned(),
            query: Some(filter.into()),
        };
        let mut client = self.client.clone();
        let records = client.read_records(open_request(message)).await?;
        Ok(records
            .into_inner()
            .map(|answer| parse_record(answer?.record)))
    }

    /// Returns matching records as they are written. If the filter has `since`, the stored records from that
    /// time on come before them.
    pub async fn watch_records(
        &self,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<QueriedRecord, CallError>> + use<>, CallError> {
        let message = pb::WatchRecordsRequest {
            caller_token: self.token.expose().to_owned(),
            query: Some(filter.into()),
        };
        let mut client = self.client.clone();
        let records = client.watch_records(open_request(message)).await?;
        Ok(records
            .into_inner()
            .map(|answer| parse_record(answer?.record)))
    }

    /// Returns the newest signed or cosigned checkpoint, which is not verified. Takes at most `limit`.
    pub async fn checkpoint(
        &self,
        cosigned: bool,
        limit: Duration,
    ) -> Result<SignedNote, CallError> {
        let message = pb::ReadCheckpointRequest {
            caller_token: self.token.expose().to_owned(),
            cosigned,
        };
        let mut client = self.client.clone();
        let message = request(message, limit);
        within(limit, async move {
            let answer = client.read_checkpoint(message).await?.into_inner();
            let note = answer.checkpoint.parse();
            Ok(note.map_err(|error| unreadable("checkpoint", &error))?)
        })
        .await
    }

    /// Returns the proof that a record is in the log, by the newest signed or cosigned checkpoint. The proof is not
    /// verified. Takes at most `limit`.
    pub async fn proof(
        &self,
        selector: ProofSelector,
        cosigned: bool,
        limit: Duration,
    ) -> Result<TlogProof, CallError> {
        let mut message = pb::ReadProofRequest {
            caller_token: self.token.expose().to_owned(),
            cosigned,
            ..pb::ReadProofRequest::default()
        };
        match selector {
            ProofSelector::Sequence(sequence) => message.sequence = sequence,
            ProofSelector::Call { call_id, leaf_hash } => {
                message.call_id = call_id;
                message.leaf_hash = leaf_hash.map(Digest::to_wire).unwrap_or_default();
            }
        }
        let mut client = self.client.clone();
        let message = request(message, limit);
        within(limit, async move {
            let answer = client.read_proof(message).await?.into_inner();
            let proof = answer.proof.parse();
            Ok(proof.map_err(|error| unreadable("proof", &error))?)
        })
        .await
    }

    /// Returns the newest signed or cosigned checkpoint, and all records that it covers.
    pub async fn export(&self, cosigned: bool) -> Result<ExportedRecords, CallError> {
        let message = pb::ExportRecordsRequest {
            caller_token: self.token.expose().to_owned(),
            cosigned,
        };
        let mut client = self.client.clone();
        let parts = client.export_records(open_request(message)).await?;
        let mut parts = parts.into_inner();
        let first = parts.message().await?.and_then(|first| first.part);
        let Some(Part::Checkpoint(checkpoint)) = first else {
            return Err(InvalidMessage::field("checkpoint", "is missing").into());
        };
        let checkpoint = checkpoint.parse();
        let parts = parts.map(|part| match part?.part {
            Some(Part::Record(record)) => parse_record(Some(record)).map(ExportedPart::Record),
            Some(Part::PrunedTile(hashes)) => Ok(ExportedPart::PrunedTile(hashes)),
            Some(Part::Checkpoint(_)) | None => parse_record(None).map(ExportedPart::Record),
        });
        Ok(ExportedRecords {
            checkpoint: checkpoint.map_err(|error| unreadable("checkpoint", &error))?,
            parts: parts.boxed(),
        })
    }

    /// Returns the state of retention. Takes at most `limit`.
    pub async fn retention(&self, limit: Duration) -> Result<RetentionStatus, CallError> {
        let message = pb::ReadRetentionRequest {
            caller_token: self.token.expose().to_owned(),
        };
        let mut client = self.client.clone();
        let message = request(message, limit);
        within(limit, async move {
            let answer = client.read_retention(message).await?.into_inner();
            Ok(RetentionStatus::try_from(answer)?)
        })
        .await
    }

    /// Removes the records that retention does not keep, and reports progress until all are removed.
    pub async fn apply_retention(
        &self,
    ) -> Result<impl Stream<Item = Result<RetentionProgress, CallError>> + use<>, CallError> {
        let message = pb::ApplyRetentionRequest {
            caller_token: self.token.expose().to_owned(),
        };
        let mut client = self.client.clone();
        let progress = client.apply_retention(open_request(message)).await?;
        Ok(progress.into_inner().map(|answer| {
            let answer = answer?;
            Ok(RetentionProgress {
                minimum_index: answer.minimum_index,
                removable_below: answer.removable_below,
            })
        }))
    }

    /// Sets a legal hold. Takes at most `limit`.
    pub async fn set_hold(
        &self,
        name: &str,
        scope: HoldScope,
        limit: Duration,
    ) -> Result<(), CallError> {
        let (tenant, data_subject) = match scope {
            HoldScope::Whole => (None, None),
            HoldScope::Tenant(tenant) => (Some(tenant), None),
            HoldScope::DataSubject(subject) => (None, Some(subject.into())),
        };
        let hold = pb::ChangeLegalHoldRequest {
            name: name.to_owned(),
            tenant,
            data_subject,
            ..pb::ChangeLegalHoldRequest::default()
        };
        self.change_hold(hold, limit).await
    }

    /// Lifts a legal hold. Takes at most `limit`.
    pub async fn lift_hold(&self, name: &str, limit: Duration) -> Result<(), CallError> {
        let hold = pb::ChangeLegalHoldRequest {
            name: name.to_owned(),
            lift: true,
            ..pb::ChangeLegalHoldRequest::default()
        };
        self.change_hold(hold, limit).await
    }

    async fn change_hold(
        &self,
        hold: pb::ChangeLegalHoldRequest,
        limit: Duration,
    ) -> Result<(), CallError> {
        let caller_token = self.token.expose().to_owned();
        let message = pb::ChangeLegalHoldRequest {
            caller_token,
            ..hold
        };
        let mut client = self.client.clone();
        let message = request(message, limit);
        within(limit, async move {
            client.change_legal_hold(message).await?;
            Ok(())
        })
        .await
    }

    /// Destroys the key of a data subject. Returns whether there was one. Takes at most `limit`.
    pub async fn erase(
        &self,
        data_subject: DataSubjectFilter,
        limit: Duration,
    ) -> Result<bool, CallError> {
        let message = pb::EraseDataSubjectRequest {
            caller_token: self.token.expose().to_owned(),
            data_subject: Some(data_subject.into()),
        };
        let mut client = self.client.clone();
        let message = request(message, limit);
        within(limit, async move {
            Ok(client
                .erase_data_subject(message)
                .await?
                .into_inner()
                .erased)
        })
        .await
    }
}

impl TryFrom<pb::ReadRetentionResponse> for RetentionStatus {
    type Error = InvalidMessage;

    fn try_from(answer: pb::ReadRetentionResponse) -> Result<Self, Self::Error> {
        let holds = answer.holds.into_iter().map(HoldDescription::try_from);
        Ok(Self {
            size: answer.size,
            minimum_index: answer.minimum_index,
            retention_days: answer.retention_days,
            removable_below: answer.removable_below,
            kept_by: answer.kept_by,
            holds: holds.collect::<Result<_, _>>()?,
        })
    }
}

impl From<RetentionStatus> for pb::ReadRetentionResponse {
    fn from(status: RetentionStatus) -> Self {
        let holds = status.holds.into_iter().map(|hold| pb::LegalHold {
            name: hold.name,
            tenant: hold.tenant,
            data_subject_hmac: hold.data_subject.map(Digest::to_wire).unwrap_or_default(),
            set_by: hold.set_by,
            set_at: Some(hold.set_at.into()),
        });
        Self {
            size: status.size,
            minimum_index: status.minimum_index,
            retention_days: status.retention_days,
            removable_below: status.removable_below,
            kept_by: status.kept_by,
            holds: holds.collect(),
        }
    }
}

impl TryFrom<pb::ChangeLegalHoldRequest> for HoldScope {
    type Error = InvalidMessage;

    fn try_from(request: pb::ChangeLegalHoldRequest) -> Result<Self, Self::Error> {
        match (request.tenant, request.data_subject) {
            (None, None) => Ok(Self::Whole),
            (Some(tenant), None) => Ok(Self::Tenant(tenant)),
            (None, Some(subject)) => Ok(Self::DataSubject(subject.try_into()?)),
            (Some(_), Some(_)) => Err(InvalidMessage::field(
                "tenant",
                "belongs in `data_subject`, if it is set",
            )),
        }
    }
}

impl TryFrom<pb::LegalHold> for HoldDescription {
    type Error = InvalidMessage;

    fn try_from(hold: pb::LegalHold) -> Result<Self, Self::Error> {
        let digest = &hold.data_subject_hmac;
        let digest = (!digest.is_empty()).then(|| Digest::from_wire(digest, "data_subject_hmac"));
        let set_at = hold.set_at.map(Timestamp::try_from).transpose()?;
        let missing = || InvalidMessage::field("set_at", "is missing");
        Ok(Self {
            name: hold.name,
            tenant: hold.tenant,
            data_subject: digest.transpose()?,
            set_by: hold.set_by,
            set_at: set_at.ok_or_else(missing)?,
        })
    }
}

fn parse_record(record: Option<pb::QueryResponse>) -> Result<QueriedRecord, CallError> {
    let record = record.ok_or_else(|| InvalidMessage::field("record", "is missing"))?;
    Ok(record.try_into()?)
}

impl TryFrom<pb::ReadProofRequest> for ProofSelector {
    type Error = InvalidMessage;

    fn try_from(request: pb::ReadProofRequest) -> Result<Self, Self::Error> {
        let hash = request.leaf_hash;
        let leaf_hash = (!hash.is_empty()).then(|| Digest::from_wire(&hash, "leaf_hash"));
        let leaf_hash = leaf_hash.transpose()?;
        match (request.call_id, leaf_hash) {
            (call_id, None) if call_id.is_empty() => Ok(Self::Sequence(request.sequence)),
            (call_id, Some(_)) if call_id.is_empty() => {
                Err(InvalidMessage::field("leaf_hash", "requires a call id"))
            }
            (call_id, leaf_hash) => Ok(Self::Call { call_id, leaf_hash }),
        }
    }
}
