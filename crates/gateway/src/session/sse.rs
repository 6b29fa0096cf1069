//! The sessions whose streams are at this replica.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wardgate_domain::Digest;
use wardgate_mcp::Version;
use wardgate_mcp_server::{
    DeclaredCapabilities, JsonRpcRequest, LogLevel, RpcError, negotiate_on_stream, spelt_alike,
};

/// Messages of one session that may be under way.
const AT_A_TIME: usize = 32;

/// Answers that wait for a slow client before those after them have to.
const AHEAD: usize = 4;

/// How long an answer waits for a client that reads nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// One client with its stream.
#[derive(Debug)]
pub(crate) struct SseSession {
    number: u64,
    out: mpsc::Sender<Bytes>,
    /// Agreed on by `initialize`.
    version: Mutex<Version>,
    /// What the client can be asked for, by the same.
    declared: Mutex<DeclaredCapabilities>,
    log_level: Mutex<Option<LogLevel>>,
    turns: Arc<Semaphore>,
    calls: Mutex<HashMap<String, CancellationToken>>,
}

impl SseSession {
    /// Which version this request speaks: `initialize` says it for those that follow.
    pub(crate) fn speaks(&self, request: &JsonRpcRequest<'_>) -> Result<Version, RpcError> {
        if request.method == "initialize" {
            let version = negotiate_on_stream(request)?;
            *lock(&self.version) = version;
            *lock(&self.declared) = DeclaredCapabilities::from_initialize(request, version);
        }
        Ok(self.version())
    }

    pub(crate) fn version(&self) -> Version {
        *lock(&self.version)
    }

    /// What its client can be asked for.
    pub(crate) fn declared(&self) -> DeclaredCapabilities {
        lock(&self.declared).clone()
    }

    /// From which level on its client wants log messages.
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        *lock(&self.log_level)
    }

    pub(crate) fn set_log_level(&self, level: LogLevel) {
        *lock(&self.log_level) = Some(level);
    }

    /// What is sealed within it is of use nowhere else.
    pub(crate) fn name(&self) -> String {
        format!("sse {:016x}", self.number)
    }

    /// Under what the memory knows its subscriptions.
    pub(crate) fn digest(&self) -> Digest {
        sse_digest(self.number)
    }

    /// A call begins that can be cancelled while what this returns is kept.
    pub(crate) fn begin(self: &Arc<Self>, id: &RawValue) -> ActiveCall {
        let id = spelt_alike(id.get());
        let cancel = CancellationToken::new();
        lock(&self.calls).insert(id.clone(), cancel.clone());
        ActiveCall {
            session: Arc::clone(self),
            id,
            cancel,
        }
    }

    /// Cancels the call of this id, if it is under way.
    pub(crate) fn cancel(&self, id: &str) {
        if let Some(call) = lock(&self.calls).get(&spelt_alike(id)) {
            call.cancel();
        }
    }

    /// Waits until fewer messages are under way.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).acquire_owned().await.ok()
    }

    /// Says a message on the stream. If that is lost, or nobody reads it, so is the message.
    pub(crate) async fn send_message(&self, message: &str) {
        // A line end inside JSON is white space, and would end the event's line.
        let message = message.replace(['\n', '\r'], " ");
        let event = format!("event: message\ndata: {message}\n\n");
        let _ = timeout(PATIENCE, self.out.send(event.into())).await;
    }
}

/// A call of a session.
pub(crate) struct ActiveCall {
    session: Arc<SseSession>,
    id: String,
    pub(crate) cancel: CancellationToken,
}

impl Drop for ActiveCall {
    fn drop(&mut self) {
        lock(&self.session.calls).remove(&self.id);
    }
}

/// Those of this replica, by number.
#[derive(Debug, Clone, Default)]
pub(crate) struct SseStreams(Arc<Mutex<HashMap<u64, Arc<SseSession>>>>);

impl SseStreams {
    /// A session that can be found while what this returns is kept, and what is said on its stream.
    pub(crate) fn open(&self, number: u64) -> (OpenStream, mpsc::Receiver<Bytes>) {
        let (out, messages) = mpsc::channel(AHEAD);
        let session = SseSession {
            number,
            out,
            version: Mutex::new(Version::V2024_11_05),
            declared: Mutex::default(),
            log_level: Mutex::default(),
            turns: Arc::new(Semaphore::new(AT_A_TIME)),
            calls: Mutex::default(),
        };
        lock(&self.0).insert(number, Arc::new(session));
        let open = OpenStream {
            streams: self.clone(),
            number,
        };
        (open, messages)
    }

    pub(crate) fn find(&self, number: u64) -> Option<Arc<SseSession>> {
        lock(&self.0).get(&number).cloned()
    }
}

/// A session takes messages while this lives.
pub(crate) struct OpenStream {
    streams: SseStreams,
    number: u64,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        lock(&self.streams.0).remove(&self.number);
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The digest under which the memory knows the subscriptions of the session `number`.
pub(crate) fn sse_digest(number: u64) -> Digest {
    Digest::of(&number.to_be_bytes())
}
