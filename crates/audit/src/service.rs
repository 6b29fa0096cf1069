//! The gRPC methods: each method converts, calls, converts.

use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};
use wardgate_domain::{Ambient, Event, InvalidMessage, Outcome, Receipt, Record};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_server::{AuditService, AuditServiceServer};
use wardgate_rpc::Service;
use wardgate_rpc::client::{AuditFilter, QueriedRecord, RecordDetails};

use crate::canonical::RecordEntry;
use crate::details::DetailsVault;
use crate::details_key::DetailsKey;
use crate::filter::RecordFilter;
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
    /// Of the details of calls, and of data subjects.
    pub details: DetailsKey,
}

/// The audit service over the store that `config` names, for calls of `callers`. Brings the store up to date and closes
/// what an earlier process left open before it returns; ends its background work when the server is dropped, or is told to
/// end it.
pub async fn service(
    config: Config,
    keys: AuditKeys,
    callers: CallingProcesses,
    ambient: Ambient,
) -> Result<(Service<AuditServiceServer<impl AuditService>>, LogCloser), Error> {
    config.validate()?;
    let address: Address = config.store.parse()?;
    store::prepare(&address, &config.database).await?;
    let (lock, is_alone) = StoreLock::take(&address);
    let reader = StoreReader::new(&address, &config.database);
    let appends = writer::start(address.clone(), config.write_limit).await?;
    let readiness = appends.readiness();

    let details = DetailsVault::new(keys.details, reader.clone());
    details.prepare(&appends, &ambient).await?;

    let closing = IntentCloser {
        reader: reader.clone(),
        appends: appends.clone(),
        ambient: ambient.clone(),
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
        details,
        ambient,
        _lock: lock,
        _stop: stop.drop_guard(),
    };
    let service = Service {
        server: AuditServiceServer::new(audit),
        readiness,
    };
    Ok((service, closer))
}

struct Audit {
    appends: AppendQueue,
    reader: StoreReader,
    mac_key: MacKey,
    details: DetailsVault,
    ambient: Ambient,
    _lock: StoreLock,
    _stop: DropGuard,
}

impl Audit {
    async fn append(&self, request: pb::AppendRequest) -> Result<Receipt, Error> {
        let missing = || InvalidMessage::field("record", "is missing");
        let record = Record::try_from(request.record.ok_or_else(missing)?)?;
        let details = match &record.event {
            Event::Outcome(Outcome {
                call,
                details: Some(details),
                ..
            }) => {
                let (tenant, call_id) = (&call.tenant, call.call_id.to_string());
                let sealed =
                    self.details
                        .seal(tenant, &call_id, details, &self.appends, &self.ambient);
                Some(sealed.await?)
            }
            _ => None,
        };
        let entry = RecordEntry::of(&record, &self.mac_key, details)?;
        self.appends.append(entry, request.retry).await
    }
}

#[tonic::async_trait]
impl AuditService for Audit {
    async fn append(
        &self,
        request: Request<pb::AppendRequest>,
    ) -> Result<Response<pb::AppendResponse>, Status> {
        let receipt = self
            .append(request.into_inner())
            .await
            .map_err(|error| status(&error))?;
        Ok(Response::new(pb::AppendResponse {
            receipt: Some(receipt.into()),
        }))
    }

    type QueryStream = Pin<Box<dyn Stream<Item = Result<pb::QueryResponse, Status>> + Send>>;

    async fn query(
        &self,
        request: Request<pb::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        let filter = AuditFilter::try_from(request.into_inner()).map_err(Error::from);
        let filter = filter.and_then(|filter| RecordFilter::of(filter, Some(self.details.key())));
        let filter = filter.map_err(|error| status(&error))?;
        let records = query::run(self.reader.clone(), Some(self.details.clone()), filter)
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

fn response(found: QueriedRecord) -> pb::QueryResponse {
    match found {
        QueriedRecord::Intact(stored) => pb::QueryResponse {
            sequence: stored.sequence,
            leaf_hash: stored.leaf_hash.to_wire(),
            record: stored.record,
            damage: String::new(),
            details_erased: matches!(stored.details, Some(RecordDetails::Erased)),
            details_json: match stored.details {
                Some(RecordDetails::Open(details)) => details,
                Some(RecordDetails::Erased) | None => Bytes::new(),
            },
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
