//! Appends to an audit service in another process.
//!
//! ```text
//!  append ─┐                         ┌──▶ messages with records ─┐
//!  append ─┼─▶ waiting records ──────┤                           ├── audit service
//!  append ─┘    by id                └─◀─ messages with results ─┘
//! ```
//!
//! The records share a call of `Append`, which takes records for a second. After that, another call begins, so that all replicas
//! of the service are used, and a service that shuts down is soon left. Records without a result when a call fails are sent again.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, stream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use wardgate_domain::{InvalidMessage, Receipt, Record};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::append_result;
use wardgate_proto::audit::v1::audit_service_client::AuditServiceClient;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_telemetry::trace_context::TraceContext;

use crate::client::{CallError, open_request};
use crate::{Link, deadline};

/// The time for which a call takes records.
const CALL_DURATION: Duration = Duration::from_secs(1);

/// Maximum number of records in one message, which may have at most 4 MiB.
const MOST_RECORDS: usize = 16;

/// Time without any result after which a call with a late record is given up.
const SILENCE: Duration = Duration::from_millis(250);

/// Time for which a call with a late record may still send a result.
const GRACE: Duration = Duration::from_millis(100);

/// Maximum number of calls in which a record is sent.
const MOST_ATTEMPTS: u32 = 3;

/// The delay before records are sent a second time. It doubles with every further attempt.
const BACK_OFF: Duration = Duration::from_millis(20);

/// A client that appends records with few calls, cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct RemoteAppender {
    client: AuditServiceClient<Link>,
    /// The newest call, which may no longer take records.
    newest: Arc<Mutex<Option<Arc<AppendCall>>>>,
    /// Maximum duration of an append.
    longest: Duration,
}

impl RemoteAppender {
    /// Creates an appender. No append takes longer than `longest`.
    pub(super) fn new(transport: Link, longest: Duration) -> Self {
        Self {
            client: AuditServiceClient::new(transport),
            newest: Arc::default(),
            longest,
        }
    }

    /// Appends `record` durably within `limit`, or the time left of the call that is being served, if that is less.
    pub(super) fn append(
        &self,
        record: Arc<Record>,
        retry: bool,
        limit: Duration,
    ) -> impl Future<Output = Result<Receipt, CallError>> + use<> {
        let limit = deadline::time_left(limit);
        let started = Instant::now();
        let (result, received) = oneshot::channel();
        let call = self.add(WaitingRecord {
            record,
            retry,
            until: started + deadline::in_header(limit),
            context: TraceContext::current(),
            attempts: 1,
            result,
        });
        async move {
            match timeout_at(started + limit, received).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(no_answer_error()),
                Err(_) => {
                    call.report_late(started);
                    Err(CallError::late())
                }
            }
        }
    }

    /// Adds a record to the newest call, and begins another call if that one takes no records. Returns the call.
    fn add(&self, mut waiting: WaitingRecord) -> Arc<AppendCall> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(call) = &*newest {
            match call.add(waiting) {
                Ok(()) => return Arc::clone(call),
                Err(refused) => waiting = refused,
            }
        }
        let (call, ids) = AppendCall::with(waiting);
        *newest = Some(Arc::clone(&call));
        tokio::spawn(self.clone().run(Arc::clone(&call), ids));
        call
    }

    /// Runs `call` to its end, and sends records without a result again. `ids` are the records to send.
    async fn run(self, call: Arc<AppendCall>, ids: mpsc::UnboundedReceiver<u64>) {
        let ended = tokio::select! {
            ended = self.receive(&call, requests(Arc::clone(&call), ids)) => ended,
            () = call.falls_silent() => Ok(()),
            // No caller waits any more.
            () = sleep(CALL_DURATION + self.longest) => Ok(()),
        };
        let error = ended.err().unwrap_or_else(no_answer_error);
        let now = Instant::now();
        let (again, failed): (Vec<_>, Vec<_>) = call.end().into_iter().partition(|waiting| {
            // A stream that breaks off can look like an internal error.
            matches!(
                error.reason(),
                ErrorReason::Unavailable | ErrorReason::Internal
            ) && waiting.attempts < MOST_ATTEMPTS
                && waiting.until > now
        });
        for waiting in failed {
            waiting.complete(Err(error.clone()));
        }
        let Some(attempts) = again.iter().map(|waiting| waiting.attempts).max() else {
            return;
        };
        sleep(BACK_OFF * 2_u32.pow(attempts - 1)).await;
        for mut waiting in again {
            waiting.retry = true;
            waiting.attempts += 1;
            self.add(waiting);
        }
    }

    /// Makes the call with `requests`, and receives its results.
    async fn receive(
        &self,
        call: &AppendCall,
        requests: impl Stream<Item = pb::AppendRequest> + Send + 'static,
    ) -> Result<(), CallError> {
        let mut client = self.client.clone();
        let mut responses = client.append(open_request(requests)).await?.into_inner();
        while let Some(response) = responses.message().await? {
            call.receive(response);
        }
        Ok(())
    }
}

/// One call of `Append`.
#[derive(Debug)]
struct AppendCall {
    /// The ids of records to send. It is closed when the call takes no more records.
    ids: mpsc::UnboundedSender<u64>,
    records: Mutex<CallRecords>,
    /// The time from which on the call takes no more records.
    end: Instant,
    /// Notified of a late record.
    late: Notify,
}

/// The records of a call.
#[derive(Debug)]
struct CallRecords {
    /// The records without a result, by id.
    waiting: HashMap<u64, WaitingRecord>,
    next_id: u64,
    /// The time of the newest message with results.
    last_response: Option<Instant>,
    /// The time since when the newest late record waited.
    late_since: Option<Instant>,
    has_ended: bool,
}

/// A record without a result.
#[derive(Debug)]
struct WaitingRecord {
    record: Arc<Record>,
    retry: bool,
    /// The time until which the service should respond.
    until: Instant,
    context: TraceContext,
    /// The number of calls that the record was added to.
    attempts: u32,
    result: oneshot::Sender<Result<Receipt, CallError>>,
}

impl AppendCall {
    /// Creates a call with its first record, and returns it with the ids of the records to send.
    fn with(first: WaitingRecord) -> (Arc<Self>, mpsc::UnboundedReceiver<u64>) {
        let (sender, ids) = mpsc::unbounded_channel();
        // The receiver exists, so that the channel takes the id.
        let _ = sender.send(0);
        let call = Self {
            ids: sender,
            records: Mutex::new(CallRecords {
                waiting: HashMap::from([(0, first)]),
                next_id: 1,
                last_response: None,
                late_since: None,
                has_ended: false,
            }),
            end: Instant::now() + CALL_DURATION,
            late: Notify::new(),
        };
        (Arc::new(call), ids)
    }

    fn records(&self) -> MutexGuard<'_, CallRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a record, or returns it if the call takes no more records.
    fn add(&self, waiting: WaitingRecord) -> Result<(), WaitingRecord> {
        let mut records = self.records();
        let id = records.next_id;
        if records.has_ended || self.end <= Instant::now() || self.ids.send(id).is_err() {
            return Err(waiting);
        }
        records.next_id += 1;
        records.waiting.insert(id, waiting);
        Ok(())
    }

    /// Returns the message with the records `ids`, without those whose callers gave up.
    fn request(&self, ids: &[u64]) -> pb::AppendRequest {
        let mut records = self.records();
        let now = Instant::now();
        let messages = ids.iter().filter_map(|&id| {
            let waiting = records.waiting.get(&id)?;
            if waiting.result.is_closed() {
                records.waiting.remove(&id);
                return None;
            }
            let [traceparent, tracestate] = waiting.context.fields();
            Some(pb::NewRecord {
                id,
                record: Some(Box::new(waiting.record.as_ref().into())),
                retry: waiting.retry,
                time_limit: waiting.until.saturating_duration_since(now).try_into().ok(),
                traceparent,
                tracestate,
            })
        });
        pb::AppendRequest {
            records: messages.collect(),
            ..pb::AppendRequest::default()
        }
    }

    /// Passes results on to the callers.
    fn receive(&self, response: pb::AppendResponse) {
        let mut records = self.records();
        records.last_response = Some(Instant::now());
        for result in response.results {
            // There is no record if the caller gave up.
            if let Some(waiting) = records.waiting.remove(&result.id) {
                waiting.complete(receipt(result.result));
            }
        }
    }

    /// Records that a record that waited since `since` has no result within its time limit.
    fn report_late(&self, since: Instant) {
        // A short time limit says nothing about the service.
        if since.elapsed() >= SILENCE {
            self.records().late_since = Some(since);
            self.late.notify_one();
        }
    }

    /// Waits until the service has sent no result for as long as a late record waited.
    async fn falls_silent(&self) {
        loop {
            self.late.notified().await;
            sleep(GRACE).await;
            let records = self.records();
            if records.last_response < records.late_since {
                return;
            }
        }
    }

    /// Ends the call, and returns the records without a result.
    fn end(&self) -> Vec<WaitingRecord> {
        let mut records = self.records();
        records.has_ended = true;
        let waiting = std::mem::take(&mut records.waiting);
        waiting.into_values().collect()
    }
}

impl WaitingRecord {
    /// Passes the result on to the caller.
    fn complete(self, result: Result<Receipt, CallError>) {
        // The receiver is gone when the caller gave up.
        drop(self.result.send(result));
    }
}

fn receipt(result: Option<append_result::Result>) -> Result<Receipt, CallError> {
    match result {
        Some(append_result::Result::Receipt(receipt)) => Ok(receipt.try_into()?),
        Some(append_result::Result::Error(error)) => {
            Err(CallError::new(error.reason(), error.message))
        }
        None => Err(InvalidMessage::field("result", "is missing").into()),
    }
}

fn no_answer_error() -> CallError {
    CallError::new(ErrorReason::Unavailable, "the audit service did not answer")
}

/// Returns the messages of `call`: whatever is waiting to be sent becomes one message.
fn requests(
    call: Arc<AppendCall>,
    ids: mpsc::UnboundedReceiver<u64>,
) -> impl Stream<Item = pb::AppendRequest> {
    let end = Box::pin(sleep_until(call.end));
    stream::unfold((ids, end), move |(mut ids, mut end)| {
        let call = Arc::clone(&call);
        async move {
            let mut next = Vec::new();
            loop {
                tokio::select! {
                    biased;
                    () = &mut end, if !ids.is_closed() => ids.close(),
                    count = ids.recv_many(&mut next, MOST_RECORDS) => {
                        return (count > 0).then(|| (call.request(&next), (ids, end)));
                    }
                }
            }
        }
    })
}
