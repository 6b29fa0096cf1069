//! A record in memory that acknowledges when it is told to.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::{oneshot, watch};
use tonic::{Request, Response, Status};
use wardgate_domain::{CallFacts, Digest, Event, MemoryAccess, Outcome, Receipt, Record, Refusals};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_server::AuditService;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::Readiness;

use super::{Log, failure};

/// What becomes of an append.
#[derive(Debug)]
pub(crate) enum AppendBehavior {
    /// Stored and acknowledged.
    Keep,
    /// Stored and acknowledged, once released.
    Hold(oneshot::Receiver<()>),
    Fail,
    FailAfter(Duration),
    Hang,
    Panic,
}

/// One append as it was asked for.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) record: Record,
    pub(crate) retry: bool,
}

pub(crate) struct Audit {
    /// Appends of intents and outcomes.
    pub(crate) attempts: Log<Attempt>,
    /// Appends of refusals.
    pub(crate) refusal_attempts: Log<Attempt>,
    pub(crate) intents: Log<CallFacts>,
    pub(crate) outcomes: Log<Outcome>,
    pub(crate) refusals: Log<Refusals>,
    pub(crate) accesses: Log<MemoryAccess>,
    pub(crate) readiness: watch::Sender<Readiness>,
    next: Mutex<VecDeque<AppendBehavior>>,
    /// Every append fails, after so long.
    down: Mutex<Option<Duration>>,
    sequence: Mutex<u64>,
}

impl Audit {
    pub(crate) fn new() -> Self {
        Self {
            attempts: Log::default(),
            refusal_attempts: Log::default(),
            intents: Log::default(),
            outcomes: Log::default(),
            refusals: Log::default(),
            accesses: Log::default(),
            readiness: watch::Sender::new(Readiness::Ready),
            next: Mutex::default(),
            down: Mutex::default(),
            sequence: Mutex::new(41),
        }
    }

    /// What becomes of the next intents and outcomes; later ones are kept.
    pub(crate) fn next(&self, appends: impl IntoIterator<Item = AppendBehavior>) {
        self.next.lock().unwrap().extend(appends);
    }

    /// From now on every append fails, after so long.
    pub(crate) fn fails(&self, after: Duration) {
        *self.down.lock().unwrap() = Some(after);
    }

    pub(crate) fn recovers(&self) {
        *self.down.lock().unwrap() = None;
    }

    /// Waits for the first outcome.
    pub(crate) async fn outcome(&self) -> Outcome {
        self.outcomes.reaches(1).await.swap_remove(0)
    }

    fn store(&self, record: Record) -> pb::AppendResponse {
        let mut sequence = self.sequence.lock().unwrap();
        *sequence += 1;
        match record.event {
            Event::Intent(subject) => self.intents.push(subject),
            Event::Outcome(outcome) => self.outcomes.push(outcome),
            Event::Refusals(refusals) => self.refusals.push(refusals),
            Event::MemoryAccess(access) => self.accesses.push(access),
            Event::Execution(call) => panic!("the gateway runs nothing: {call:?}"),
            Event::AdminChange(change) => panic!("the gateway changes nothing: {change:?}"),
        }
        let leaf_hash = Digest::of(&sequence.to_be_bytes());
        pb::AppendResponse {
            receipt: Some(Receipt::for_durable(*sequence, leaf_hash).into()),
        }
    }
}

#[tonic::async_trait]
impl AuditService for Audit {
    async fn append(
        &self,
        request: Request<pb::AppendRequest>,
    ) -> Result<Response<pb::AppendResponse>, Status> {
        let request = request.into_inner();
        let attempt = Attempt {
            record: request.record.unwrap().try_into().unwrap(),
            retry: request.retry,
        };
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
            AppendBehavior::Hold(released) => released.await.unwrap(),
            AppendBehavior::Fail => return Err(failure(ErrorReason::NotDurable)),
            AppendBehavior::FailAfter(delay) => {
                tokio::time::sleep(delay).await;
                return Err(failure(ErrorReason::NotDurable));
            }
            AppendBehavior::Hang => std::future::pending().await,
            AppendBehavior::Panic => panic!("as ordered"),
        }
        Ok(Response::new(self.store(record)))
    }

    type QueryStream = BoxStream<'static, Result<pb::QueryResponse, Status>>;

    async fn query(
        &self,
        _request: Request<pb::QueryRequest>,
    ) -> Result<Response<Self::QueryStream>, Status> {
        Ok(Response::new(stream::empty().boxed()))
    }
}
