//! Replicas for tests: real servers on loopback, each with its own runtime, so that a killed replica
//! behaves like a killed process.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use http::{Request, Response};
use tokio::runtime::Runtime;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle;
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service as TowerService;
use wardgate_domain::{Digest, Receipt, Record};
use wardgate_proto::audit::v1 as audit;
use wardgate_proto::audit::v1::audit_service_server::{AuditService, AuditServiceServer};
use wardgate_proto::policy::v1 as pb;
use wardgate_proto::policy::v1::policy_service_server::{PolicyService, PolicyServiceServer};

use super::super::{LinkedService, ReplicaConnector, create_link, resolve};
use crate::aging::ConnectionAge;
use crate::client::{CallError, RecordAppender};
use crate::link::TlsFiles;
use crate::peer::Peer;
use crate::readiness::{Readiness, Service};
use crate::serve_appends;
use crate::server::{BoundServer, ListenConfig};
use crate::shutdown::Shutdown;

/// Any free port on loopback.
const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

fn plain(listen: SocketAddr) -> ListenConfig {
    ListenConfig {
        listen,
        tls: None,
        plaintext: true,
    }
}

/// The behaviour of a replica, which tests can change, and the number of its calls.
#[derive(Default)]
pub(super) struct Behaviour {
    calls: AtomicU64,
    /// The error that every call gets, or `None` for a success.
    pub(super) refusal: Mutex<Option<Status>>,
    /// The delay of each response.
    pub(super) pause: Mutex<Duration>,
    /// Makes the watch send a message.
    pub(super) tell: Notify,
    /// `grpc-timeout` of the last call.
    pub(super) timeout: Mutex<Option<String>>,
    /// The number of calls of `Append`.
    pub(super) appends: AtomicU64,
    /// The records that were appended, each with `retry`.
    pub(super) appended: Mutex<Vec<(Arc<Record>, bool)>>,
}

struct ReplyingService(Arc<Behaviour>);

impl Behaviour {
    async fn reply(&self, metadata: &tonic::metadata::MetadataMap) -> Result<(), Status> {
        let timeout = metadata.get("grpc-timeout");
        *self.timeout.lock().unwrap() = timeout.map(|text| text.to_str().unwrap().to_owned());
        self.answer().await
    }

    async fn answer(&self) -> Result<(), Status> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let pause = *self.pause.lock().unwrap();
        tokio::time::sleep(pause).await;
        match self.refusal.lock().unwrap().clone() {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }
}

impl RecordAppender for Behaviour {
    fn append(
        self: Arc<Self>,
        record: Arc<Record>,
        retry: bool,
    ) -> BoxFuture<'static, Result<Receipt, CallError>> {
        async move {
            self.answer().await?;
            let sequence = self.appended.lock().unwrap().len() as u64;
            self.appended.lock().unwrap().push((record, retry));
            Ok(Receipt::for_durable(sequence, Digest::compute(b"record")))
        }
        .boxed()
    }
}

#[tonic::async_trait]
impl PolicyService for ReplyingService {
    async fn authorize(
        &self,
        request: tonic::Request<pb::AuthorizeRequest>,
    ) -> Result<tonic::Response<pb::AuthorizeResponse>, Status> {
        self.0.reply(request.metadata()).await?;
        Ok(tonic::Response::new(pb::AuthorizeResponse::default()))
    }

    async fn identify(
        &self,
        _: tonic::Request<pb::IdentifyRequest>,
    ) -> Result<tonic::Response<pb::IdentifyResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn approve(
        &self,
        _: tonic::Request<pb::ApproveRequest>,
    ) -> Result<tonic::Response<pb::ApproveResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn list_visible(
        &self,
        _: tonic::Request<pb::ListVisibleRequest>,
    ) -> Result<tonic::Response<pb::ListVisibleResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn authorize_recall(
        &self,
        _: tonic::Request<pb::AuthorizeRecallRequest>,
    ) -> Result<tonic::Response<pb::AuthorizeRecallResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn authorize_operator(
        &self,
        _: tonic::Request<pb::AuthorizeOperatorRequest>,
    ) -> Result<tonic::Response<pb::AuthorizeOperatorResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn list_shadow_flips(
        &self,
        _: tonic::Request<pb::ListShadowFlipsRequest>,
    ) -> Result<tonic::Response<pb::ListShadowFlipsResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    type WatchVersionStream = BoxStream<'static, Result<pb::WatchVersionResponse, Status>>;

    async fn watch_version(
        &self,
        _: tonic::Request<pb::WatchVersionRequest>,
    ) -> Result<tonic::Response<Self::WatchVersionStream>, Status> {
        let behaviour = Arc::clone(&self.0);
        let told = futures::stream::unfold(behaviour, |behaviour| async {
            behaviour.tell.notified().await;
            Some((Ok(pb::WatchVersionResponse::default()), behaviour))
        });
        Ok(tonic::Response::new(Box::pin(told)))
    }
}

#[tonic::async_trait]
impl AuditService for ReplyingService {
    type AppendStream = BoxStream<'static, Result<audit::AppendResponse, Status>>;

    async fn append(
        &self,
        request: tonic::Request<tonic::Streaming<audit::AppendRequest>>,
    ) -> Result<tonic::Response<Self::AppendStream>, Status> {
        self.0.appends.fetch_add(1, Ordering::Relaxed);
        let responses = serve_appends(Arc::clone(&self.0), request)?;
        Ok(tonic::Response::new(responses))
    }

    async fn count_calls(
        &self,
        request: tonic::Request<audit::CountCallsRequest>,
    ) -> Result<tonic::Response<audit::CountCallsResponse>, Status> {
        self.0.reply(request.metadata()).await?;
        Ok(tonic::Response::new(audit::CountCallsResponse::default()))
    }

    async fn get_checkpoint(
        &self,
        request: tonic::Request<audit::GetCheckpointRequest>,
    ) -> Result<tonic::Response<audit::GetCheckpointResponse>, Status> {
        self.0.reply(request.metadata()).await?;
        Ok(tonic::Response::new(audit::GetCheckpointResponse::default()))
    }

    async fn get_proof(
        &self,
        request: tonic::Request<audit::GetProofRequest>,
    ) -> Result<tonic::Response<audit::GetProofResponse>, Status> {
        self.0.reply(request.metadata()).await?;
        Ok(tonic::Response::new(audit::GetProofResponse::default()))
    }

    type QueryStream = BoxStream<'static, Result<audit::QueryResponse, Status>>;

    async fn query(
        &self,
        _: tonic::Request<audit::QueryRequest>,
    ) -> Result<tonic::Response<Self::QueryStream>, Status> {
        Ok(tonic::Response::new(Box::pin(futures::stream::pending())))
    }

    type ReadRecordsStream = BoxStream<'static, Result<audit::ReadRecordsResponse, Status>>;

    async fn read_records(
        &self,
        _: tonic::Request<audit::ReadRecordsRequest>,
    ) -> Result<tonic::Response<Self::ReadRecordsStream>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    type WatchRecordsStream = BoxStream<'static, Result<audit::WatchRecordsResponse, Status>>;

    async fn watch_records(
        &self,
        _: tonic::Request<audit::WatchRecordsRequest>,
    ) -> Result<tonic::Response<Self::WatchRecordsStream>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn read_checkpoint(
        &self,
        _: tonic::Request<audit::ReadCheckpointRequest>,
    ) -> Result<tonic::Response<audit::ReadCheckpointResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn read_proof(
        &self,
        _: tonic::Request<audit::ReadProofRequest>,
    ) -> Result<tonic::Response<audit::ReadProofResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    type ExportRecordsStream = BoxStream<'static, Result<audit::ExportRecordsResponse, Status>>;

    async fn export_records(
        &self,
        _: tonic::Request<audit::ExportRecordsRequest>,
    ) -> Result<tonic::Response<Self::ExportRecordsStream>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn read_retention(
        &self,
        _: tonic::Request<audit::ReadRetentionRequest>,
    ) -> Result<tonic::Response<audit::ReadRetentionResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    type ApplyRetentionStream = BoxStream<'static, Result<audit::ApplyRetentionResponse, Status>>;

    async fn apply_retention(
        &self,
        _: tonic::Request<audit::ApplyRetentionRequest>,
    ) -> Result<tonic::Response<Self::ApplyRetentionStream>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn change_legal_hold(
        &self,
        request: tonic::Request<audit::ChangeLegalHoldRequest>,
    ) -> Result<tonic::Response<audit::ChangeLegalHoldResponse>, Status> {
        self.0.reply(request.metadata()).await?;
        Ok(tonic::Response::new(
            audit::ChangeLegalHoldResponse::default(),
        ))
    }

    async fn erase_data_subject(
        &self,
        _: tonic::Request<audit::EraseDataSubjectRequest>,
    ) -> Result<tonic::Response<audit::EraseDataSubjectResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }
}

/// A running replica, until it is killed or dropped.
pub(super) struct RunningReplica {
    pub(super) address: SocketAddr,
    pub(super) behaviour: Arc<Behaviour>,
    pub(super) readiness: watch::Sender<Readiness>,
    pub(super) name: &'static str,
    end: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
    runtime: Option<Runtime>,
}

impl RunningReplica {
    /// Starts a policy service.
    pub(super) fn start() -> Self {
        Self::start_at(ANY)
    }

    pub(super) fn start_at(listen: SocketAddr) -> Self {
        Self::serve(plain(listen), None, PolicyServiceServer::new)
    }

    /// Starts an audit service.
    pub(super) fn audit() -> Self {
        Self::audit_at(ANY)
    }

    pub(super) fn audit_at(listen: SocketAddr) -> Self {
        Self::serve(plain(listen), None, AuditServiceServer::new)
    }

    /// Starts an audit service whose connections reach their maximum age soon.
    pub(super) fn with_connection_age(age: Duration, grace: Duration) -> Self {
        Self::serve(
            plain(ANY),
            Some(ConnectionAge { age, grace }),
            AuditServiceServer::new,
        )
    }

    /// Starts an audit service like [`Self::with_connection_age`], behind TLS with the certificates in these files.
    pub(super) fn aging_with_certificates(tls: TlsFiles, age: Duration, grace: Duration) -> Self {
        let config = ListenConfig {
            listen: ANY,
            tls: Some(tls),
            plaintext: false,
        };
        let aging = Some(ConnectionAge { age, grace });
        Self::serve(config, aging, AuditServiceServer::new)
    }

    fn serve<S>(
        config: ListenConfig,
        aging: Option<ConnectionAge>,
        server: impl FnOnce(ReplyingService) -> S,
    ) -> Self
    where
        S: TowerService<Request<Body>, Response = Response<Body>, Error = Infallible>
            + NamedService
            + Clone
            + Send
            + Sync
            + 'static,
        S::Future: Send + 'static,
    {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (readiness, told) = watch::channel(Readiness::Ready);
        let behaviour = Arc::new(Behaviour::default());
        let service = Service {
            server: server(ReplyingService(Arc::clone(&behaviour))),
            local: (),
            readiness: told,
        };
        let (bound, ready) = std::sync::mpsc::channel();
        let (end, ending) = oneshot::channel::<()>();
        let serving = runtime.spawn(async move {
            let mut server = BoundServer::bind(&config).await.unwrap();
            server.aging = aging.unwrap_or(server.aging);
            bound.send(server.address().unwrap()).unwrap();
            let end = Shutdown::when(async { drop(ending.await) });
            server.serve(service, end).await.unwrap();
        });
        Self {
            address: ready.recv().unwrap(),
            behaviour,
            readiness,
            name: S::NAME,
            end: Some(end),
            serving,
            runtime: Some(runtime),
        }
    }

    pub(super) fn calls(&self) -> u64 {
        self.behaviour.calls.load(Ordering::Relaxed)
    }

    pub(super) fn refuse(&self, refusal: Option<Status>) {
        *self.behaviour.refusal.lock().unwrap() = refusal;
    }

    /// Makes the replica hang with open sockets, until the returned sender is dropped.
    pub(super) fn hang(&self) -> std::sync::mpsc::Sender<()> {
        let (hanging, until) = std::sync::mpsc::channel();
        let runtime = self.runtime.as_ref().unwrap();
        // The runtime has only this thread.
        runtime.spawn(async move { until.recv() });
        hanging
    }

    /// Finishes the open calls, and then stops the replica.
    pub(super) async fn end(&mut self) {
        drop(self.end.take());
        (&mut self.serving).await.unwrap();
        self.kill();
    }

    /// Closes all sockets immediately.
    pub(super) fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for RunningReplica {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A resolver that returns the addresses that the test has set.
#[derive(Clone)]
pub(super) struct FakeResolver {
    addresses: Arc<Mutex<Vec<SocketAddr>>>,
    service: &'static str,
}

impl FakeResolver {
    pub(super) fn for_replicas(replicas: &[RunningReplica]) -> Self {
        let names = Self {
            addresses: Arc::default(),
            service: replicas[0].name,
        };
        names.set(replicas);
        names
    }

    pub(super) fn set(&self, replicas: &[RunningReplica]) {
        *self.addresses.lock().unwrap() = replicas.iter().map(|replica| replica.address).collect();
    }

    pub(super) fn link(&self) -> LinkedService {
        let names = self.clone();
        let lookup: resolve::Lookup = Arc::new(move || {
            let addresses = names.addresses.lock().unwrap().clone();
            Box::pin(async move {
                if addresses.is_empty() {
                    return Err(io::Error::other("no such name"));
                }
                Ok(addresses)
            })
        });
        let dial = ReplicaConnector {
            origin: "http://policy.example:7001".parse().unwrap(),
            tls: None,
        };
        create_link(Peer::Policy, self.service, lookup, dial)
    }
}
