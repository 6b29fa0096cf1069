//! The gRPC methods: each method converts, calls, converts.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt, TryFutureExt};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};
use wardgate_domain::{Ambient, InvalidMessage, Receipt, Record};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_server::{AuditService, AuditServiceServer};
use wardgate_rpc::Service;
use wardgate_rpc::client::{CallError, LocalAudit, QueriedRecord, RecordAppender};

use crate::canonical::RecordEntry;
use crate::filter::{RecordFilter, parse_call_id};
use crate::growth::GrowthMonitor;
use crate::intent_closer::IntentCloser;
use crate::ownership::{CallingProcesses, StoreLock};
use crate::publisher::{LogCloser, LogKey, Publisher};
use crate::store::{self, Address, StoreReader};
use crate::writer::{self, AppendQueue};
use crate::{Config, Error, MacKey};
use crate::{proof, query};

/// The keys of the audit service.
#[derive(Debug)]
pub struct AuditKeys {
    /// Of the digests of arguments and results.
    pub mac: MacKey,
    /// Of the checkpoints.
    pub log: LogKey,
}

/// The audit service over the store that `config` names, for calls of `callers`. Brings the store up to date and closes
/// what an earlier process left open before it returns; ends its background work when the server is dropped, or is told to
/// end it.
pub async fn service(
    config: Config,
    keys: AuditKeys,
    callers: CallingProcesses,
    ambient: Ambient,
) -> Result<
    (
        Service<AuditServiceServer<impl AuditService>, LocalAudit>,
        LogCloser,
    ),
    Error,
> {
    config.validate()?;
    let address: Address = config.store.parse()?;
    store::prepare(&address, &config.database).await?;
    let (lock, is_alone) = StoreLock::take(&address);
    let reader = StoreReader::new(&address, &config.database);
    let appends = writer::start(address.clone(), config.write_limit).await?;
    let readiness = appends.readiness();

    let closing = IntentCloser {
        reader: reader.clone(),
        appends: appends.clone(),
        ambient,
        after: Duration::from_secs(config.unknown_after_seconds),
    };
    let is_sole_owner = is_alone && callers == CallingProcesses::ThisProcess;
    closing.close_left_open(&address, is_sole_owner).await?;
    lock.share();
    let size = appends.size();
    let log = Publisher::start(
        reader.clone(),
        appends.clone(),
        &keys.log,
        config.log_origin.as_deref(),
    );
    let log = log.await?;
    let growth = GrowthMonitor {
        reader: reader.clone(),
        address,
        capacity: config.capacity_bytes,
    };
    let stop = CancellationToken::new();
    tokio::spawn(stop.clone().run_until_cancelled_owned(growth.run()));
    tokio::spawn(stop.clone().run_until_cancelled_owned(closing.run()));
    let publishing = tokio::spawn(log.run(stop.clone(), size));
    let closer = LogCloser {
        stop: stop.clone(),
        publishing,
    };

    let audit = Audit {
        appends,
        reader,
        mac_key: keys.mac,
        _lock: lock,
        _stop: stop.drop_guard(),
    };
    let audit = Arc::new(audit);
    let service = Service {
        server: AuditServiceServer::from_arc(Arc::clone(&audit)),
        local: audit as LocalAudit,
        readiness,
    };
    Ok((service, closer))
}

struct Audit {
    appends: AppendQueue,
    reader: StoreReader,
    mac_key: MacKey,
    _lock: StoreLock,
    _stop: DropGuard,
}

impl RecordAppender for Audit {
    fn append(
        &self,
        record: &Record,
        retry: bool,
    ) -> BoxFuture<'static, Result<Receipt, CallError>> {
        let entry = RecordEntry::of(record, &self.mac_key);
        let appends = self.appends.clone();
        let appended = async move { appends.append(entry?, retry).await };
        appended.map_err(|error| CallError::from(&error)).boxed()
    }
}

#[tonic::async_trait]
impl AuditService for Audit {
    async fn append(
        &self,
        request: Request<pb::AppendRequest>,
    ) -> Result<Response<pb::AppendResponse>, Status> {
        let pb::AppendRequest { record, retry } = request.into_inner();
        let record = record
            .ok_or_else(|| InvalidMessage::field("record", "is missing"))
            .and_then(Record::try_from)
            .map_err(|error| wardgate_rpc::invalid(&error))?;
        let receipt = RecordAppender::append(self, &record, retry).await?;
        Ok(Response::new(pb::AppendResponse {
            receipt: Some(receipt.into()),
        }))
    }

    type QueryStream = Pin<Box<dyn Stream<Item = Result<pb::QueryResponse, Status>> + Send>>;

    async fn query(
        &self,
        request: Request<pb::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        let filter =
            RecordFilter::try_from(request.into_inner()).map_err(|error| status(&error.into()))?;
        let records = query::run(self.reader.clone(), filter)
            .map(|record| record.map(response).map_err(|error| status(&error)));
        Ok(Response::new(Box::pin(records)))
    }

    async fn get_checkpoint(
        &self,
        _: Request<pb::GetCheckpointRequest>,
    ) -> Result<Response<pb::GetCheckpointResponse>, Status> {
        let checkpoint = proof::newest_checkpoint(&self.reader).await;
        let checkpoint = checkpoint.map_err(|error| status(&error))?.to_string();
        Ok(Response::new(pb::GetCheckpointResponse { checkpoint }))
    }

    async fn get_proof(
        &self,
        request: Request<pb::GetProofRequest>,
    ) -> Result<Response<pb::GetProofResponse>, Status> {
        let proof = proof::prove(&self.reader, request.into_inner().sequence).await;
        let proof = proof.map_err(|error| status(&error))?.to_string();
        Ok(Response::new(pb::GetProofResponse { proof }))
    }
}

impl TryFrom<pb::QueryRequest> for RecordFilter {
    type Error = InvalidMessage;

    fn try_from(request: pb::QueryRequest) -> Result<Self, Self::Error> {
        let status = pb::Status::try_from(request.status)
            .map_err(|_| InvalidMessage::field("status", "is unknown"))?;
        let filter = Self {
            subject: non_empty(request.subject),
            tool: non_empty(request.tool),
            call_id: non_empty(request.call_id)
                .as_deref()
                .map(parse_call_id)
                .transpose()?,
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
        };
        filter.validate()
    }
}

fn non_empty(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

fn response(found: QueriedRecord) -> pb::QueryResponse {
    match found {
        QueriedRecord::Intact(stored) => pb::QueryResponse {
            sequence: stored.sequence,
            leaf_hash: stored.leaf_hash.to_wire(),
            record: stored.record,
            damage: String::new(),
        },
        QueriedRecord::Damaged(damage) => {
            tracing::error!(%damage, "the store of the record was changed from outside");
            pb::QueryResponse {
                sequence: damage.sequence,
                damage: damage.problem,
                ..pb::QueryResponse::default()
            }
        }
    }
}

fn status(error: &Error) -> Status {
    match error {
        Error::Invalid(message) => wardgate_rpc::invalid(message),
        Error::Unreadable(cause) => {
            let cause = cause as &dyn std::error::Error;
            tracing::warn!(cause, "the audit store cannot be read");
            wardgate_rpc::status(error)
        }
        other => wardgate_rpc::status(other),
    }
}
