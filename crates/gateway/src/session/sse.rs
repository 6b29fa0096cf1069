//! The HTTP+SSE sessions whose streams are served by this replica.

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

/// Maximum number of messages of one session that are processed at once.
const AT_A_TIME: usize = 32;

/// Number of answers that are buffered for a slow client before the senders have to wait.
const AHEAD: usize = 4;

/// Maximum time that an answer waits for a client that does not read.
const PATIENCE: Duration = Duration::from_secs(30);

/// A session of HTTP+SSE, with the stream to its client.
#[derive(Debug)]
pub(crate) struct SseSession {
    number: u64,
    out: mpsc::Sender<Bytes>,
    /// The version that `initialize` negotiated.
    version: Mutex<Version>,
    /// The capabilities that the client declared with `initialize`.
    declared: Mutex<DeclaredCapabilities>,
    log_level: Mutex<Option<LogLevel>>,
    turns: Arc<Semaphore>,
    calls: Mutex<HashMap<String, CancellationToken>>,
}

impl SseSession {
    /// Returns the version of `request`. An `initialize` request sets the version for the ones that follow.
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

    /// Returns the capabilities that the client declared.
    pub(crate) fn declared_capabilities(&self) -> DeclaredCapabilities {
        lock(&self.declared).clone()
    }

    /// Returns the lowest level of the log messages that the client wants.
    pub(crate) fn log_level(&self) -> Option<LogLevel> {
        *lock(&self.log_level)
    }

    pub(crate) fn set_log_level(&self, level: LogLevel) {
        *lock(&self.log_level) = Some(level);
    }

    /// Returns the name of the session, to which sealed values are bound.
    pub(crate) fn name(&self) -> String {
        format!("sse {:016x}", self.number)
    }

    /// Returns the digest by which the memory service knows the subscriptions of the session.
    pub(crate) fn digest(&self) -> Digest {
        sse_digest(self.number)
    }

    /// Registers a call, which can be cancelled until the result is dropped.
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

    /// Cancels the call of this id, if it is in progress.
    pub(crate) fn cancel(&self, id: &str) {
        if let Some(call) = lock(&self.calls).get(&spelt_alike(id)) {
            call.cancel();
        }
    }

    /// Waits until fewer messages are in progress.
    pub(crate) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turns).acquire_owned().await.ok()
    }

    /// Sends a message on the stream. The message is lost if the stream is closed or the client does not read it.
    pub(crate) async fn send_message(&self, message: &str) {
        // A line break inside JSON is white space, but would end the data line of the event.
        let message = message.replace(['\n', '\r'], " ");
        let event = format!("event: message\ndata: {message}\n\n");
        let _ = timeout(PATIENCE, self.out.send(event.into())).await;
    }
}

/// A call in progress in a session.
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

/// The sessions of this replica, by their numbers.
#[derive(Debug, Clone, Default)]
pub(crate) struct SseStreams(Arc<Mutex<HashMap<u64, Arc<SseSession>>>>);

impl SseStreams {
    /// Opens a session, which can be found until the result is dropped. Also returns the receiver of the messages for its stream.
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

/// Keeps a session open for messages until it is dropped.
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

/// Returns the digest by which the memory service knows the subscriptions of the session `number`.
pub(crate) fn sse_digest(number: u64) -> Digest {
    Digest::compute(&number.to_be_bytes())
}
