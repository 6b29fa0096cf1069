//! The gRPC service: each method converts the request, calls a plain function and converts the result.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt, TryFutureExt, TryStreamExt, stream};
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status, Streaming};
use wardgate_audit_export::ExportLog;
use wardgate_domain::{Ambient, Event, InvalidMessage, Outcome, Receipt, Record};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_server::{AuditService, AuditServiceServer};
use wardgate_proto::audit::v1::export_records_response::Part;
use wardgate_rpc::Service;
use wardgate_rpc::client::{
    AuditFilter, CallCountQuery, CallError, DataSubjectFilter, HoldScope, LocalAudit,
    OperatorRights, PolicyClient, ProofSelector, QueriedRecord, RecordAppender, RecordDetails,
};

use crate::anomaly_monitor::AnomalyMonitor;
use crate::canonical::RecordEntry;
use crate::cosigning::CheckpointSubmitter;
use crate::details::DetailsVault;
use crate::details_key::DetailsKeys;
use crate::export::ExportPart;
use crate::exports::{self, StoreFeed};
use crate::filter::RecordFilter;
use crate::growth::GrowthMonitor;
use crate::intent_closer::IntentCloser;
use crate::mac_check::check_mac_key;
use crate::operator_access::OperatorAccess;
use crate::ownership::{CallingProcesses, StoreLock};
use crate::proof::CheckpointKind;
use crate::publisher::{LogCloser, LogIdentity, LogKey, Publisher, VerifiedLog};
use crate::query::{self, IndexCorruption};
use crate::retention::RetentionPolicy;
use crate::second_copy::SecondCopy;
use crate::store::{self, Address, StoreReader};
use crate::writer::{self, AppendQueue};
use crate::{Config, Error, MacKey};
use crate::{history, proof};

/// The keys of the audit service.
#[derive(Debug)]
pub struct AuditKeys {
    /// The key for the digests of arguments and results.
    pub mac: MacKey,
    /// The key that signs checkpoints.
    pub log: LogKey,
    /// The master key for the details of calls and for data subjects, and former ones during a rotation.
    pub details: DetailsKeys,
}

/// Starts the audit service on the store that `config` names, for calls of `callers`. `policy` decides which operators may
/// access the audit log; without it, none may. Before it returns, the function updates the schema of the store and closes
/// intents that an earlier process left open. The background work ends when the server is dropped or the [`LogCloser`] is
/// closed.
pub async fn service(
    config: Config,
    keys: AuditKeys,
    callers: CallingProcesses,
    policy: Option<PolicyClient>,
    ambient: Ambient,
) -> Result<
    (
        Service<AuditServiceServer<impl AuditService>, LocalAudit>,
        LogCloser,
    ),
    Error,
> {
    config.validate()?;
    let address = Address::new(&config.store, &config.database)?;
    store::prepare(&address, &config.database).await?;
    let (lock, is_alone) = StoreLock::acquire(&address);
    let reader = StoreReader::new(&address, &config.database);
    let copy = second_copy(&config, &reader).await?;
    let appends = writer::start(address.clone(), config.write_limit, copy).await?;
    let readiness = appends.readiness();

    let identity = LogIdentity {
        origin: config.log_origin.as_deref(),
        former_key: config.former_log_key()?,
    };
    let log = VerifiedLog::open(&reader, &keys.log, identity).await?;
    let details = DetailsVault::prepare(keys.details, reader.clone(), &appends, &ambient);
    let details = Arc::new(Box::pin(details).await?);
    // The key for digests is checked last. The first start stores its check value, which must not happen if another key of the
    // same configuration is wrong.
    let former = config.former_mac_key()?;
    check_mac_key(&keys.mac, former, &reader, &appends).await?;

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
    let (log, cosigning) = start_log(&config, log, &reader, &appends, &ambient).await?;
    let growth = GrowthMonitor {
        reader: reader.clone(),
        address,
        room: config.room(),
        ambient: ambient.clone(),
    };
    let stop = CancellationToken::new();
    tokio::spawn(stop.clone().run_until_cancelled_owned(growth.run()));
    tokio::spawn(stop.clone().run_until_cancelled_owned(closing.run()));
    let feed = StoreFeed {
        reader: reader.clone(),
        appends: appends.clone(),
    };
    let export_log = ExportLog {
        origin: log.verifier_key().name().to_owned(),
        is_alone,
    };
    let followers = start_followers(&config, feed, &export_log, &ambient, &stop)?;
    let publishing = tokio::spawn(log.run(stop.clone(), size));
    let closer = LogCloser {
        stop: stop.clone(),
        publishing,
        cosigning,
        followers,
    };

    let operators = OperatorAccess {
        rights: OperatorRights::new(policy, "audit.links.policy"),
        appends: appends.clone(),
        reader: reader.clone(),
        vault: details.clone(),
        mac_key: keys.mac.clone(),
        retention: RetentionPolicy {
            reader: reader.clone(),
            appends: appends.clone(),
            ambient: ambient.clone(),
            days: config.retention_days,
            exports: (config.exports.into_iter())
                .map(|export| (export.name, export.start))
                .collect(),
        },
        ambient: ambient.clone(),
    };
    let records = Arc::new(RecordWriter {
        appends,
        mac_key: keys.mac,
        details,
        ambient,
    });
    let audit = Audit {
        operators,
        records: Arc::clone(&records),
        reader,
        _lock: lock,
        _stop: stop.drop_guard(),
    };
    let service = Service {
        server: AuditServiceServer::new(audit),
        local: records as LocalAudit,
        readiness,
    };
    Ok((service, closer))
}

/// Starts the transparency log, and the cosigning of its checkpoints if witnesses are configured.
async fn start_log(
    config: &Config,
    log: VerifiedLog,
    reader: &StoreReader,
    appends: &AppendQueue,
    ambient: &Ambient,
) -> Result<(Publisher, Option<JoinHandle<()>>), Error> {
    let log = Publisher::start(reader.clone(), appends.clone(), log, ambient.clone());
    let log = log.await?;
    let submitter = config.witnesses.as_ref().map(|settings| {
        CheckpointSubmitter::open(
            settings,
            log.verifier_key(),
            reader.clone(),
            appends.clone(),
            ambient.clone(),
        )
    });
    let cosigning = submitter.transpose()?;
    let cosigning = cosigning.map(|submitter| tokio::spawn(submitter.run(log.subscribe())));
    Ok((log, cosigning))
}

/// Opens the second copy, if one is configured, and brings it up to date with the store.
async fn second_copy(config: &Config, reader: &StoreReader) -> Result<Option<SecondCopy>, Error> {
    let Some(directory) = &config.second_copy_dir else {
        return Ok(None);
    };
    let copy = SecondCopy::open(directory, reader.clone()).await?;
    Ok(Some(copy))
}

/// Starts the tasks that read new records: the exports and anomaly detection.
fn start_followers(
    config: &Config,
    feed: StoreFeed,
    log: &ExportLog,
    ambient: &Ambient,
    stop: &CancellationToken,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let mut followers = exports::start(&config.exports, feed.clone(), log, ambient, stop)?;
    if let Some(settings) = config.anomalies.clone() {
        let size = feed.appends.size();
        let (ambient, stop) = (ambient.clone(), stop.clone());
        let monitor = AnomalyMonitor::new(feed, settings, log.is_alone, ambient, stop);
        followers.push(tokio::spawn(monitor.run(size)));
    }
    Ok(followers)
}

struct Audit {
    operators: OperatorAccess,
    records: Arc<RecordWriter>,
    reader: StoreReader,
    _lock: StoreLock,
    _stop: DropGuard,
}

/// The part of the service that appends records.
struct RecordWriter {
    appends: AppendQueue,
    mac_key: MacKey,
    details: Arc<DetailsVault>,
    ambient: Ambient,
}

impl RecordWriter {
    /// Seals the details of `record`, and stores the record.
    async fn append_record(&self, record: &Record, retry: bool) -> Result<Receipt, Error> {
        let details = match &record.event {
            Event::Outcome(Outcome {
                call,
                details: Some(details),
                ..
            }) => {
                let (tenant, call_id) = (&call.tenant, call.call_id.to_string());
                let sealed =
                    (self.details).seal(tenant, &call_id, details, &self.appends, &self.ambient);
                Some(sealed.await?)
            }
            _ => None,
        };
        let entry = RecordEntry::from_record(record, &self.mac_key, details)?;
        self.appends.append(entry, retry).await
    }
}

impl RecordAppender for RecordWriter {
    fn append(
        self: Arc<Self>,
        record: Arc<Record>,
        retry: bool,
    ) -> BoxFuture<'static, Result<Receipt, CallError>> {
        let appended = async move { self.append_record(&record, retry).await };
        appended.map_err(|error| CallError::from(&error)).boxed()
    }
}

#[tonic::async_trait]
impl AuditService for Audit {
    type AppendStream = MessageStream<pb::AppendResponse>;

    async fn append(
        &self,
        request: Request<Streaming<pb::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let responses = wardgate_rpc::serve_appends(Arc::clone(&self.records), request)?;
        Ok(Response::new(responses))
    }

    type QueryStream = MessageStream<pb::QueryResponse>;

    async fn query(
        &self,
        request: Request<pb::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        let filter = AuditFilter::try_from(request.into_inner()).map_err(Error::from);
        let filter =
            filter.and_then(|filter| RecordFilter::new(filter, Some(self.records.details.tags())));
        let filter = filter.map_err(|error| status(&error))?;
        let records = query::run(
            self.reader.clone(),
            Some(self.records.details.clone()),
            filter,
            IndexCorruption::default(),
        );
        Ok(streaming_response(records, response))
    }

    async fn count_calls(
        &self,
        request: Request<pb::CountCallsRequest>,
    ) -> Result<Response<pb::CountCallsResponse>, Status> {
        let query = CallCountQuery::try_from(request.into_inner());
        let query = query.map_err(|error| wardgate_rpc::invalid(&error))?;
        let counts = history::count_calls(&self.reader, &self.records.mac_key, &query).await;
        let counts = counts.map_err(|error| status(&error))?;
        Ok(Response::new(pb::CountCallsResponse {
            counts,
            counts_by_tag: true,
        }))
    }

    async fn get_checkpoint(
        &self,
        _: Request<pb::GetCheckpointRequest>,
    ) -> Result<Response<pb::GetCheckpointResponse>, Status> {
        let checkpoint = proof::newest_checkpoint(&self.reader, CheckpointKind::Signed).await;
        let checkpoint = checkpoint.map_err(|error| status(&error))?.to_string();
        Ok(Response::new(pb::GetCheckpointResponse { checkpoint }))
    }

    async fn get_proof(
        &self,
        request: Request<pb::GetProofRequest>,
    ) -> Result<Response<pb::GetProofResponse>, Status> {
        let sequence = request.into_inner().sequence;
        let proof = proof::prove(&self.reader, sequence, CheckpointKind::Signed).await;
        let proof = proof.map_err(|error| status(&error))?.to_string();
        Ok(Response::new(pb::GetProofResponse { proof }))
    }

    type ReadRecordsStream = MessageStream<pb::ReadRecordsResponse>;

    async fn read_records(
        &self,
        request: Request<pb::ReadRecordsRequest>,
    ) -> Result<Response<Self::ReadRecordsStream>, Status> {
        let pb::ReadRecordsRequest {
            caller_token,
            query,
        } = request.into_inner();
        let filter = AuditFilter::try_from(query.unwrap_or_default());
        let filter = filter.map_err(|error| wardgate_rpc::invalid(&error))?;
        let records = self.operators.read_records(&caller_token, filter);
        let records = records.await.map_err(|error| status(&error))?;
        Ok(streaming_response(records, |found| {
            pb::ReadRecordsResponse {
                record: Some(response(found)),
            }
        }))
    }

    type WatchRecordsStream = MessageStream<pb::WatchRecordsResponse>;

    async fn watch_records(
        &self,
        request: Request<pb::WatchRecordsRequest>,
    ) -> Result<Response<Self::WatchRecordsStream>, Status> {
        let pb::WatchRecordsRequest {
            caller_token,
            query,
        } = request.into_inner();
        let filter = AuditFilter::try_from(query.unwrap_or_default());
        let filter = filter.map_err(|error| wardgate_rpc::invalid(&error))?;
        let records = self.operators.watch(&caller_token, filter);
        let records = records.await.map_err(|error| status(&error))?;
        Ok(streaming_response(records, |found| {
            pb::WatchRecordsResponse {
                record: Some(response(found)),
            }
        }))
    }

    async fn read_checkpoint(
        &self,
        request: Request<pb::ReadCheckpointRequest>,
    ) -> Result<Response<pb::ReadCheckpointResponse>, Status> {
        let pb::ReadCheckpointRequest {
            caller_token,
            cosigned,
        } = request.into_inner();
        let read = self.operators.checkpoint(&caller_token, kind(cosigned));
        let checkpoint = read.await.map_err(|error| status(&error))?.to_string();
        Ok(Response::new(pb::ReadCheckpointResponse { checkpoint }))
    }

    async fn read_proof(
        &self,
        request: Request<pb::ReadProofRequest>,
    ) -> Result<Response<pb::ReadProofResponse>, Status> {
        let mut request = request.into_inner();
        let caller_token = std::mem::take(&mut request.caller_token);
        let kind = kind(request.cosigned);
        let selector = ProofSelector::try_from(request);
        let selector = selector.map_err(|error| wardgate_rpc::invalid(&error))?;
        let proof = self.operators.prove(&caller_token, &selector, kind);
        let proof = proof.await.map_err(|error| status(&error))?.to_string();
        Ok(Response::new(pb::ReadProofResponse { proof }))
    }

    type ExportRecordsStream = MessageStream<pb::ExportRecordsResponse>;

    async fn export_records(
        &self,
        request: Request<pb::ExportRecordsRequest>,
    ) -> Result<Response<Self::ExportRecordsStream>, Status> {
        let pb::ExportRecordsRequest {
            caller_token,
            cosigned,
        } = request.into_inner();
        let exported = self.operators.export(&caller_token, kind(cosigned));
        let (checkpoint, parts) = exported.await.map_err(|error| status(&error))?;
        let checkpoint = Part::Checkpoint(checkpoint.to_string());
        let parts = parts.map_ok(|part| match part {
            ExportPart::Record(stored) => Part::Record(response(QueriedRecord::Intact(stored))),
            ExportPart::PrunedTile(hashes) => Part::PrunedTile(hashes.into()),
        });
        let parts = stream::iter([Ok(checkpoint)]).chain(parts);
        Ok(streaming_response(parts, |part| {
            pb::ExportRecordsResponse { part: Some(part) }
        }))
    }

    async fn read_retention(
        &self,
        request: Request<pb::ReadRetentionRequest>,
    ) -> Result<Response<pb::ReadRetentionResponse>, Status> {
        let caller_token = request.into_inner().caller_token;
        let found = self.operators.retention(&caller_token).await;
        let found = found.map_err(|error| status(&error))?;
        Ok(Response::new(found.into()))
    }

    type ApplyRetentionStream = MessageStream<pb::ApplyRetentionResponse>;

    async fn apply_retention(
        &self,
        request: Request<pb::ApplyRetentionRequest>,
    ) -> Result<Response<Self::ApplyRetentionStream>, Status> {
        let caller_token = request.into_inner().caller_token;
        let progress = self.operators.apply_retention(&caller_token).await;
        let progress = progress.map_err(|error| status(&error))?;
        Ok(streaming_response(progress, |progress| {
            pb::ApplyRetentionResponse {
                minimum_index: progress.minimum_index,
                removable_below: progress.removable_below,
            }
        }))
    }

    async fn change_legal_hold(
        &self,
        request: Request<pb::ChangeLegalHoldRequest>,
    ) -> Result<Response<pb::ChangeLegalHoldResponse>, Status> {
        let mut request = request.into_inner();
        let caller_token = std::mem::take(&mut request.caller_token);
        let (name, lifts) = (std::mem::take(&mut request.name), request.lift);
        let scope = HoldScope::try_from(request);
        let scope = scope.map_err(|error| wardgate_rpc::invalid(&error))?;
        let changed = if lifts {
            self.operators.lift_hold(&caller_token, &name).await
        } else {
            self.operators.set_hold(&caller_token, &name, scope).await
        };
        changed.map_err(|error| status(&error))?;
        Ok(Response::new(pb::ChangeLegalHoldResponse {}))
    }

    async fn erase_data_subject(
        &self,
        request: Request<pb::EraseDataSubjectRequest>,
    ) -> Result<Response<pb::EraseDataSubjectResponse>, Status> {
        let pb::EraseDataSubjectRequest {
            caller_token,
            data_subject,
        } = request.into_inner();
        let subject = data_subject
            .ok_or_else(|| InvalidMessage::field("data_subject", "is missing"))
            .and_then(DataSubjectFilter::try_from)
            .map_err(|error| wardgate_rpc::invalid(&error))?;
        let erased = self.operators.erase(&caller_token, subject).await;
        let erased = erased.map_err(|error| status(&error))?;
        Ok(Response::new(pb::EraseDataSubjectResponse { erased }))
    }
}

/// The stream of messages of a response.
type MessageStream<M> = Pin<Box<dyn Stream<Item = Result<M, Status>> + Send>>;

/// Creates a response with one message for each of `items`.
fn streaming_response<T: 'static, M: 'static>(
    items: impl Stream<Item = Result<T, Error>> + Send + 'static,
    message: impl Fn(T) -> M + Send + 'static,
) -> Response<MessageStream<M>> {
    let messages = items.map(move |item| item.map(&message).map_err(|error| status(&error)));
    Response::new(Box::pin(messages))
}

fn kind(cosigned: bool) -> CheckpointKind {
    if cosigned {
        CheckpointKind::Cosigned
    } else {
        CheckpointKind::Signed
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
            details_undecryptable: matches!(stored.details, Some(RecordDetails::Undecryptable)),
            damage_unlocated: false,
            damage_is_warning: false,
            details_json: match stored.details {
                Some(RecordDetails::Open(details)) => details,
                Some(RecordDetails::Erased | RecordDetails::Undecryptable) | None => Bytes::new(),
            },
        },
        QueriedRecord::Damaged(damage) => {
            tracing::error!(%damage, "the audit store was modified outside the audit service, or is corrupt");
            pb::QueryResponse {
                sequence: damage.sequence.unwrap_or_default(),
                damage: damage.problem,
                damage_unlocated: damage.sequence.is_none(),
                damage_is_warning: damage.is_warning,
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
