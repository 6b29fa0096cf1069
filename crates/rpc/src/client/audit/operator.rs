//! The record, as an operator reads it: with a token, which the service has verified, and on record.

use std::time::Duration;

use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use wardgate_domain::{BearerToken, Digest, InvalidMessage};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_client::AuditServiceClient;
use wardgate_proto::audit::v1::export_records_response::Part;
use wardgate_transparency::{SignedNote, TlogProof};

use super::{AuditFilter, QueriedRecord, unreadable};
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
    /// The records, in order.
    pub records: BoxStream<'static, Result<QueriedRecord, CallError>>,
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
        let records = parts.map(|part| match part?.part {
            Some(Part::Record(record)) => found(Some(record)),
            Some(Part::Checkpoint(_)) | None => found(None),
        });
        Ok(ExportedRecords {
            checkpoint: checkpoint.map_err(|error| unreadable("checkpoint", &error))?,
            records: records.boxed(),
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
