//! The record, as an operator reads it: with a token, which the service has verified, and on record.

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

/// Reads the record for the operator whose token it has.
#[derive(Debug, Clone)]
pub struct OperatorAuditClient {
    client: AuditServiceClient<Link>,
    token: BearerToken,
}

/// Which record a proof is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProofSelector {
    /// The one at this position.
    Sequence(u64),
    /// The last one of a call; with a leaf hash, the one that has it.
    Call {
        /// The call's id.
        call_id: String,
        /// The hash, where one is known.
        leaf_hash: Option<Digest>,
    },
}

/// All records that a checkpoint covers.
pub struct ExportedRecords {
    /// The checkpoint, not verified.
    pub checkpoint: SignedNote,
    /// What it covers, in order.
    pub parts: BoxStream<'static, Result<ExportedPart, CallError>>,
}

/// A part of an export.
#[derive(Debug, Clone)]
pub enum ExportedPart {
    /// The leaf hashes of 256 records that retention removed, one behind the other; before all records.
    PrunedTile(Bytes),
    /// The next record.
    Record(QueriedRecord),
}

/// What retention keeps of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionStatus {
    /// Number of records, those that were removed included.
    pub size: u64,
    /// Records below were removed.
    pub minimum_index: u64,
    /// How long records are kept, in days.
    pub retention_days: u32,
    /// Records below can be removed now.
    pub removable_below: u64,
    /// What keeps the first record that is not removable.
    pub kept_by: String,
    /// What must not be removed.
    pub holds: Vec<HoldDescription>,
}

/// A legal hold, as operators see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldDescription {
    /// What it is called.
    pub name: String,
    /// It is about what callers of this tenant did.
    pub tenant: Option<String>,
    /// It is about the data subject with this keyed digest.
    pub data_subject: Option<Digest>,
    /// Who set it.
    pub set_by: String,
    /// When.
    pub set_at: Timestamp,
}

/// What a new hold is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldScope {
    /// The whole record.
    Whole,
    /// What callers of a tenant did.
    Tenant(String),
    /// What concerns a data subject.
    DataSubject(DataSubjectFilter),
}

/// How far retention was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionProgress {
    /// Records below were removed.
    pub minimum_index: u64,
    /// Records below are to be removed.
    pub removable_below: u64,
}

impl OperatorAuditClient {
    /// Over `link`, with the operator's token.
    pub fn new(link: Link, token: BearerToken) -> Self {
        Self {
            client: AuditServiceClient::new(link),
            token,
        }
    }

    /// The records that match, in the order of [`AuditClient::query`](super::AuditClient::query).
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
        Ok(records.into_inner().map(|answer| found(answer?.record)))
    }

    /// The records that match and are yet to come; where the filter has `since`, those from then on come first.
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
        Ok(records.into_inner().map(|answer| found(answer?.record)))
    }

    /// The newest signed checkpoint, or the newest cosigned one, not verified. Takes at most `limit`.
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

    /// The proof that a record is in the log, by the newest signed checkpoint or the newest cosigned one, not verified. Takes
    /// at most `limit`.
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

    /// The newest signed checkpoint, or the newest cosigned one, and all records that it covers.
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
            Some(Part::Record(record)) => found(Some(record)).map(ExportedPart::Record),
            Some(Part::PrunedTile(hashes)) => Ok(ExportedPart::PrunedTile(hashes)),
            Some(Part::Checkpoint(_)) | None => found(None).map(ExportedPart::Record),
        });
        Ok(ExportedRecords {
            checkpoint: checkpoint.map_err(|error| unreadable("checkpoint", &error))?,
            parts: parts.boxed(),
        })
    }

    /// What retention keeps, and what it would remove now. Takes at most `limit`.
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

    /// Removes what retention does not keep; says how far that is until it is done.
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

    /// Destroys the key of a data subject; false where there was none. Takes at most `limit`.
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
                "stands in `data_subject`, where there is one",
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

fn found(record: Option<pb::QueryResponse>) -> Result<QueriedRecord, CallError> {
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
                Err(InvalidMessage::field("leaf_hash", "goes with a call's id"))
            }
            (call_id, leaf_hash) => Ok(Self::Call { call_id, leaf_hash }),
        }
    }
}
