//! A fake audit service with its records in memory, which acknowledges appends as the test configures it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tonic::{Request, Response, Status, Streaming};
use wardgate_domain::{
    AdminChange, CallFacts, Digest, Event, MemoryAccess, Outcome, Receipt, Record, Refusals,
};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_server::{AuditService, AuditServiceServer};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{AuditClient, CallError, LocalAudit, RecordAppender};
use wardgate_rpc::link::{self, LinkedService};
use wardgate_rpc::{Peer, Readiness, Service};

use super::{LIMIT, failure};
use crate::Log;

/// The result of an append.
pub enum AppendBehavior {
    /// The record is stored and acknowledged.
    Keep,
    /// The record is stored and acknowledged after the future completes.
    KeepAfter(BoxFuture<'static, ()>),
    /// The append fails and nothing is stored.
    Fail,
    /// The append fails after this delay and nothing is stored.
    FailAfter(Duration),
    /// The append never completes.
    Hang,
    /// The service panics.
    Panic,
}

impl AppendBehavior {
    /// Returns a behavior that stores and acknowledges once `released` receives.
    pub fn keep_after(released: oneshot::Receiver<()>) -> Self {
        Self::KeepAfter(released.map(|released| released.expect("released")).boxed())
    }
}

/// One append request.
#[derive(Debug, Clone)]
pub struct AppendAttempt {
    /// The record to append.
    pub record: Record,
    /// Whether the record may have been appended before.
    pub retry: bool,
}

/// A fake audit service for one writer.
pub struct FakeAudit {
    this: Weak<Self>,
    writer: Peer,
    /// Appends of all records except refusals.
    pub attempts: Log<AppendAttempt>,
    /// Appends of refusals.
    pub refusal_attempts: Log<AppendAttempt>,
    /// Stored intents of calls that may write.
    pub intents: Log<CallFacts>,
    /// Stored outcomes of calls.
    pub outcomes: Log<Outcome>,
    /// Stored counts of refusals.
    pub refusals: Log<Refusals>,
    /// Stored reads and changes of conversations.
    pub accesses: Log<MemoryAccess>,
    /// Stored executions of a tool-runner.
    pub executions: Log<CallFacts>,
    /// Stored changes by operators.
    pub changes: Log<AdminChange>,
    /// The readiness that the service announces.
    pub readiness: watch::Sender<Readiness>,
    next: Mutex<VecDeque<AppendBehavior>>,
    /// Delay after which every append fails, or `None` if appends work.
    down: Mutex<Option<Duration>>,
    sequence: Mutex<u64>,
    /// The records that queries return.
    held: Mutex<Vec<Value>>,
    /// The sequence number and the description of the damage with which queries begin.
    damage: Mutex<Option<(u64, String)>>,
    /// The counts that `count_calls` returns, or `None` if it fails.
    counts: Mutex<Option<Vec<u64>>>,
    /// Whether `count_calls` supports tags.
    counts_by_tag: AtomicBool,
    /// The requests of `count_calls`.
    pub counted: Log<pb::CountCallsRequest>,
}

impl FakeAudit {
    /// Creates an empty service that `writer` writes to.
    pub fn new(writer: Peer) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            writer,
            attempts: Log::default(),
            refusal_attempts: Log::default(),
            intents: Log::default(),
            outcomes: Log::default(),
            refusals: Log::default(),
            accesses: Log::default(),
            executions: Log::default(),
            changes: Log::default(),
            readiness: watch::Sender::new(Readiness::Ready),
            next: Mutex::default(),
            down: Mutex::default(),
            sequence: Mutex::new(41),
            held: Mutex::default(),
            damage: Mutex::default(),
            counts: Mutex::default(),
            counts_by_tag: AtomicBool::new(true),
            counted: Log::default(),
        })
    }

    /// Returns the link of the writer to this service.
    pub fn link(self: &Arc<Self>) -> LinkedService<LocalAudit> {
        let service = Service {
            server: AuditServiceServer::from_arc(Arc::clone(self)),
            local: Arc::clone(self) as LocalAudit,
            readiness: self.readiness.subscribe(),
        };
        link::local(service, self.writer)
    }

    /// Returns the client of the writer.
    pub fn client(self: &Arc<Self>) -> AuditClient {
        AuditClient::new(self.link().link, LIMIT)
    }

    /// Sets the results of the next appends except refusals. Later appends are stored.
    pub fn next(&self, appends: impl IntoIterator<Item = AppendBehavior>) {
        self.next.lock().unwrap().extend(appends);
    }

    /// Makes every append fail from now on.
    pub fn fails(&self) {
        self.fails_after(Duration::ZERO);
    }

    /// Makes every append fail after this delay from now on.
    pub fn fails_after(&self, after: Duration) {
        *self.down.lock().unwrap() = Some(after);
    }

    /// Makes appends succeed again.
    pub fn recovers(&self) {
        *self.down.lock().unwrap() = None;
    }

    /// Adds a record that queries return, besides those appended.
    pub fn holds(&self, record: Value) {
        self.held.lock().unwrap().push(record);
    }

    /// Makes every query begin with a report of damage to the record at `sequence`.
    pub fn reports_damage(&self, sequence: u64, problem: &str) {
        *self.damage.lock().unwrap() = Some((sequence, problem.to_owned()));
    }

    /// Sets the counts that `count_calls` returns for the selections of a request, or makes it fail with `None`.
    pub fn counts(&self, counts: Option<Vec<u64>>) {
        *self.counts.lock().unwrap() = counts;
    }

    /// Makes `count_calls` ignore tags from now on, like a service of an earlier release.
    pub fn ignores_tags(&self) {
        self.counts_by_tag.store(false, Ordering::Relaxed);
    }

    /// Waits for the first outcome, and returns it.
    pub async fn outcome(&self) -> Outcome {
        self.outcomes.reaches(1).await.swap_remove(0)
    }

    /// Returns the actions of operators, and whether each failed.
    pub fn actions(&self) -> Vec<(String, bool)> {
        let changes = self.changes.entries().into_iter();
        changes
            .map(|change| (change.action, change.failed))
            .collect()
    }

    fn store(&self, record: Record) -> Receipt {
        match (self.writer, record.event) {
            (Peer::Gateway, Event::Intent(subject)) => self.intents.push(subject),
            (Peer::Gateway | Peer::Console, Event::Outcome(outcome)) => self.outcomes.push(outcome),
            (Peer::Gateway, Event::Refusals(refusals)) => self.refusals.push(refusals),
            (Peer::Gateway, Event::MemoryAccess(access)) => self.accesses.push(access),
            (Peer::ToolRunner, Event::Execution(call)) => self.executions.push(call),
            (Peer::Gateway | Peer::ToolRunner | Peer::Memory, Event::AdminChange(change)) => {
                self.changes.push(change);
            }
            (writer, other) => panic!("{writer:?} records no such thing: {other:?}"),
        }
        let mut sequence = self.sequence.lock().unwrap();
        *sequence += 1;
        let leaf_hash = Digest::compute(&sequence.to_be_bytes());
        Receipt::for_durable(*sequence, leaf_hash)
    }

    async fn attempt(&self, attempt: AppendAttempt) -> Result<Receipt, CallError> {
        let record = attempt.record.clone();
        let append = if let Event::Refusals(_) = record.event {
            self.refusal_attempts.push(attempt);
            AppendBehavior::Keep
        } else {
            self.attempts.push(attempt);
            let next = self.next.lock().unwrap().pop_front();
            next.unwrap_or(AppendBehavior::Keep)
        };
        let down = *self.down.lock().unwrap();
        let append = down.map_or(append, AppendBehavior::FailAfter);
        match append {
            AppendBehavior::Keep => {}
            AppendBehavior::KeepAfter(first) => first.await,
            AppendBehavior::Fail => return Err(failure(ErrorReason::NotDurable).into()),
            AppendBehavior::FailAfter(delay) => {
                tokio::time::sleep(delay).await;
                return Err(failure(ErrorReason::NotDurable).into());
            }
            AppendBehavior::Hang => std::future::pending().await,
            AppendBehavior::Panic => panic!("as ordered"),
        }
        Ok(self.store(record))
    }
}

impl RecordAppender for FakeAudit {
    fn append(
        self: Arc<Self>,
        record: Arc<Record>,
        retry: bool,
    ) -> BoxFuture<'static, Result<Receipt, CallError>> {
        let record = Arc::unwrap_or_clone(record);
        async move { self.attempt(AppendAttempt { record, retry }).await }.boxed()
    }
}

#[tonic::async_trait]
impl AuditService for FakeAudit {
    type AppendStream = BoxStream<'static, Result<pb::AppendResponse, Status>>;

    async fn append(
        &self,
        request: Request<Streaming<pb::AppendRequest>>,
    ) -> Result<Response<Self::AppendStream>, Status> {
        let this = self.this.upgrade().expect("the service exists");
        Ok(Response::new(wardgate_rpc::serve_appends(this, request)?))
    }

    async fn count_calls(
        &self,
        request: Request<pb::CountCallsRequest>,
    ) -> Result<Response<pb::CountCallsResponse>, Status> {
        self.counted.push(request.into_inner());
        match self.counts.lock().unwrap().clone() {
            Some(counts) => Ok(Response::new(pb::CountCallsResponse {
                counts,
                counts_by_tag: self.counts_by_tag.load(Ordering::Relaxed),
            })),
            None => Err(failure(ErrorReason::Unavailable)),
        }
    }

    async fn get_checkpoint(
        &self,
        _: Request<pb::GetCheckpointRequest>,
    ) -> Result<Response<pb::GetCheckpointResponse>, Status> {
        Err(Status::unimplemented("the fake signs nothing"))
    }

    async fn get_proof(
        &self,
        _: Request<pb::GetProofRequest>,
    ) -> Result<Response<pb::GetProofResponse>, Status> {
        Err(Status::unimplemented("the fake proves nothing"))
    }

    type QueryStream = BoxStream<'static, Result<pb::QueryResponse, Status>>;

    /// Returns the records newest first, filtered by sequence number and subject only.
    async fn query(
        &self,
        request: Request<pb::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        let query = request.into_inner();
        let before = match query.before_sequence {
            0 => u64::MAX,
            before => before,
        };
        let held = self.held.lock().unwrap();
        let mut matching: Vec<_> = (0_u64..).zip(held.iter()).collect();
        matching.retain(|(sequence, record)| {
            (query.from_sequence..before).contains(sequence)
                && (query.subject.is_empty() || record["caller"]["subject"] == *query.subject)
        });
        let limit = usize::try_from(query.limit).expect("a limit is small");
        let newest = matching.into_iter().rev().take(limit);
        let newest = newest.map(|(sequence, record)| {
            let record = record.to_string();
            pb::QueryResponse {
                sequence,
                leaf_hash: Digest::compute(record.as_bytes()).to_wire(),
                record: record.into(),
                ..pb::QueryResponse::default()
            }
        });
        let damage = self.damage.lock().unwrap().clone();
        let damage = damage.map(|(sequence, damage)| pb::QueryResponse {
            sequence,
            damage,
            ..pb::QueryResponse::default()
        });
        let answers: Vec<_> = damage.into_iter().chain(newest).map(Ok).collect();
        Ok(Response::new(stream::iter(answers).boxed()))
    }

    type ReadRecordsStream = BoxStream<'static, Result<pb::ReadRecordsResponse, Status>>;

    async fn read_records(
        &self,
        _: Request<pb::ReadRecordsRequest>,
    ) -> Result<Response<Self::ReadRecordsStream>, Status> {
        Err(Status::unimplemented(NO_OPERATOR))
    }

    type WatchRecordsStream = BoxStream<'static, Result<pb::WatchRecordsResponse, Status>>;

    async fn watch_records(
        &self,
        _: Request<pb::WatchRecordsRequest>,
    ) -> Result<Response<Self::WatchRecordsStream>, Status> {
        Err(Status::unimplemented(NO_OPERATOR))
    }

    async fn read_checkpoint(
        &self,
        _: Request<pb::ReadCheckpointRequest>,
    ) -> Result<Response<pb::ReadCheckpointResponse>, Status> {
        Err(Status::unimplemented(NO_OPERATOR))
    }

    async fn read_proof(
        &self,
        _: Request<pb::ReadProofRequest>,
    ) -> Result<Response<pb::ReadProofResponse>, Status> {
        Err(Status::unimplemented(NO_OPERATOR))
    }

    type ExportRecordsStream = BoxStream<'static, Result<pb::ExportRecordsResponse, Status>>;

    async fn export_records(
        &self,
        _: Request<pb::ExportRecordsRequest>,
    ) -> Result<Response<Self::ExportRecordsStream>, Status> {
        Err(Status::unimplemented(NO_OPERATOR))
    }

    async fn read_retention(
        &self,
        _: Request<pb::ReadRetentionRequest>,
    ) -> Result<Response<pb::ReadRetentionResponse>, Status> {
        Err(Status::unimplemented(NO_OPERATOR))
    }

    type ApplyRetentionStream = BoxStream<'static, Result<pb::ApplyRetentionResponse, Status>>;

    async fn apply_retention(
        &self,
        _: Request<pb::ApplyRetentionRequest>,
    ) -> Result<Response<Self::ApplyRetentionStream>, Status> {
        Err(Status::unimplemented(NO_OPERATOR))
    }

    async fn change_legal_hold(
        &self,
        _: Request<pb::ChangeLegalHoldRequest>,
    ) -> Result<Response<pb::ChangeLegalHoldResponse>, Status> {
        Err(Status::unimplemented(NO_OPERATOR))
    }

    async fn erase_data_subject(
        &self,
        _: Request<pb::EraseDataSubjectRequest>,
    ) -> Result<Response<pb::EraseDataSubjectResponse>, Status> {
        Err(Status::unimplemented(NO_OPERATOR))
    }
}

/// The message of the methods for operators, which the fake does not implement.
const NO_OPERATOR: &str = "the fake knows no operators";
