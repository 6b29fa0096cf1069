//! A record of operators' changes, kept in memory.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::Stream;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use wardgate_domain::{AdminChange, Digest, Event, Receipt, Record};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_server::{AuditService, AuditServiceServer};
use wardgate_rpc::client::AuditClient;
use wardgate_rpc::{Peer, Readiness, Service, link};

use super::database::Database;

/// What happens to which database.
type DatabaseChange = (Arc<Database>, &'static str);

/// A record that keeps what it is told, or refuses.
#[derive(Clone, Default)]
pub(crate) struct Audit {
    down: Arc<AtomicBool>,
    then: Arc<Mutex<Option<DatabaseChange>>>,
    changes: Arc<Mutex<Vec<AdminChange>>>,
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
        let link = link::local(service, Peer::Memory).link;
        AuditClient::new(link, Duration::from_secs(1))
    }

    /// When it is told something next, this happens to the database before it answers.
    pub(crate) fn then(&self, database: &Arc<Database>, sql: &'static str) {
        *self.then.lock().unwrap() = Some((Arc::clone(database), sql));
    }

    /// Everything that was recorded, in order.
    pub(crate) fn changes(&self) -> Vec<AdminChange> {
        self.changes.lock().unwrap().clone()
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
        let Event::AdminChange(change) = record.event else {
            panic!("{record:?}");
        };
        self.changes.lock().unwrap().push(change);
        let then = self.then.lock().unwrap().take();
        if let Some((database, sql)) = then {
            database.execute(sql).await;
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
