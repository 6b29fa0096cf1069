//! A record of operators' changes, kept in memory.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::Stream;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use wardgate_domain::{AdminChange, CallFacts, Digest, Event, Receipt, Record};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_server::{AuditService, AuditServiceServer};
use wardgate_rpc::client::AuditClient;
use wardgate_rpc::{Peer, Readiness, Service, link};

/// A record that keeps what it is told, or refuses.
#[derive(Clone, Default)]
pub(crate) struct Audit {
    down: Arc<AtomicBool>,
    changes: Arc<Mutex<Vec<AdminChange>>>,
    executions: Arc<Mutex<Vec<CallFacts>>>,
}

impl Audit {
    /// From now on it refuses everything, or takes it again.
    pub(crate) fn is_down(&self, down: bool) {
        self.down.store(down, Ordering::Relaxed);
    }

    pub(crate) fn client(&self) -> AuditClient {
        let (_, readiness) = watch::channel(Readiness::Ready);
        let service = Service {
            server: AuditServiceServer::new(self.clone()),
            readiness,
        };
        let link = link::local(service, Peer::ToolRunner).link;
        AuditClient::new(link, Duration::from_secs(1))
    }

    /// What was run.
    pub(crate) fn executions(&self) -> Vec<CallFacts> {
        self.executions.lock().unwrap().clone()
    }

    /// What was done to what kind of thing, and whether it failed.
    pub(crate) fn actions(&self) -> Vec<(String, bool)> {
        let changes = self.changes.lock().unwrap();
        let actions = changes.iter();
        actions
            .map(|change| (change.action.clone(), change.failed))
            .collect()
    }
}

#[tonic::async_trait]
impl AuditService for Audit {
    async fn append(
        &self,
        request: Request<pb::AppendRequest>,
    ) -> Result<Response<pb::AppendResponse>, Status> {
        if self.down.load(Ordering::Relaxed) {
            return Err(Status::unavailable("as ordered"));
        }
        let record = Record::try_from(request.into_inner().record.unwrap()).unwrap();
        match record.event {
            Event::AdminChange(change) => self.changes.lock().unwrap().push(change),
            Event::Execution(call) => self.executions.lock().unwrap().push(call),
            other => panic!("{other:?}"),
        }
        Ok(Response::new(pb::AppendResponse {
            receipt: Some(Receipt::for_durable(0, Digest::of(b"")).into()),
        }))
    }

    type QueryStream = Pin<Box<dyn Stream<Item = Result<pb::QueryResponse, Status>> + Send>>;

    async fn query(
        &self,
        _: Request<pb::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        Err(Status::unimplemented("not needed here"))
    }
}
