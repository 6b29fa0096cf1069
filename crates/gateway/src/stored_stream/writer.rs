//! The writer of a stream that answers a POST of a session. Every event is stored before it is sent, so that a client can
//! resume the stream at any replica.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::sleep;
use wardgate_gateway_store::StreamId;
use wardgate_mcp::Version;
use wardgate_mcp_server::format_event;

use super::heartbeat::HeartbeatGuard;
use super::session_streams::{EventPosition, SessionStreams, primer};
use crate::session::StreamableSession;

/// Maximum size of one stream in the store, in bytes. Later events are sent, but the stream can no longer be resumed.
const MOST_BYTES: usize = 16 << 20;

/// Maximum number of attempts to mark a stream in the store that this replica no longer writes.
const TRIES: u32 = 30;
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// The reason for which this replica gives up a stream before its end.
#[derive(Clone, Copy)]
enum ReleaseReason {
    Broken,
    ToAnother,
}

/// Writes one stream.
pub(crate) struct StreamWriter {
    streams: SessionStreams,
    /// The id of the request that the stream answers.
    request: Box<RawValue>,
    /// The serialized grant by which a resumed stream is authorized. `None` before the first message.
    replay_grant: Option<Vec<u8>>,
    stream: StreamStatus,
}

enum StreamStatus {
    /// Nothing has been sent or stored.
    Silent,
    Stored(StoredStream),
    /// Events are sent, but no longer stored.
    Unkept,
    /// The last event is stored.
    Ended,
    /// Another replica continues the stream.
    HandedOver,
}

struct StoredStream {
    id: StreamId,
    /// The position of the last event.
    position: i64,
    bytes: usize,
    /// Whether another replica can take the stream over.
    waits: bool,
    _beating: HeartbeatGuard,
}

impl fmt::Debug for StreamWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamWriter")
            .field("session", self.session())
            .finish_non_exhaustive()
    }
}

impl StreamWriter {
    /// Creates the writer of the stream that answers `request`.
    pub(crate) fn new(streams: SessionStreams, request: &RawValue) -> Self {
        Self {
            streams,
            request: request.to_owned(),
            replay_grant: None,
            stream: StreamStatus::Silent,
        }
    }

    /// Sets the grant by which a resumed stream is authorized. A stream without a grant cannot be resumed.
    pub(crate) fn set_replay_grant(&mut self, replay_grant: Option<Vec<u8>>) {
        self.replay_grant = replay_grant;
    }

    /// Creates the writer of a stream that another replica began, and whose call is suspended.
    pub(crate) fn take_over(
        streams: SessionStreams,
        request: &RawValue,
        id: StreamId,
        position: i64,
        heartbeat_guard: HeartbeatGuard,
    ) -> Self {
        let stored = StoredStream {
            id,
            position,
            bytes: 0,
            waits: true,
            _beating: heartbeat_guard,
        };
        let mut writer = Self::new(streams, request);
        writer.stream = StreamStatus::Stored(stored);
        writer
    }

    pub(crate) fn version(&self) -> Version {
        self.session().version
    }

    pub(crate) fn session(&self) -> &Arc<StreamableSession> {
        self.streams.session()
    }

    /// Stores the suspended call, so that another replica can resume it.
    pub(crate) async fn store_suspended_call(&mut self, suspended_call: &[u8]) {
        let StreamStatus::Stored(stored) = &mut self.stream else {
            return;
        };
        if let Some(waits) = self.streams.suspend_call(stored.id, suspended_call).await {
            stored.waits = waits;
        }
    }

    /// Continues the call at this replica. Returns `false` if another replica has taken the call over, or if that is unknown.
    pub(crate) async fn continue_here(&mut self) -> bool {
        let StreamStatus::Stored(stored) = &mut self.stream else {
            return true;
        };
        if !stored.waits {
            return true;
        }
        if self.streams.take_back_call(stored.id).await {
            stored.waits = false;
            return true;
        }
        if let StreamStatus::Stored(stored) =
            std::mem::replace(&mut self.stream, StreamStatus::HandedOver)
        {
            self.release_stream(stored, ReleaseReason::ToAnother);
        }
        false
    }

    /// Releases the stream for another replica at once. Returns `false` if no replica can take it over.
    pub(crate) async fn hand_over(&mut self) -> bool {
        let StreamStatus::Stored(stored) = &self.stream else {
            return false;
        };
        if !stored.waits || self.streams.store().leave(stored.id).await.is_err() {
            return false;
        }
        self.stream = StreamStatus::HandedOver;
        true
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        matches!(self.stream, StreamStatus::HandedOver)
    }

    /// Returns whether anything was sent.
    pub(crate) fn has_begun(&self) -> bool {
        !matches!(self.stream, StreamStatus::Silent)
    }

    /// Returns whether a client that has the first event can resume the stream.
    pub(crate) fn is_resumable(&self) -> bool {
        let has_primer = self.version().primes_streams() && self.replay_grant.is_some();
        has_primer && matches!(self.stream, StreamStatus::Stored(_))
    }

    /// Begins the stream, and returns the first event, if the version has one.
    pub(crate) async fn begin(&mut self) -> Option<Bytes> {
        self.stream = match self.open().await {
            Some(stored) => StreamStatus::Stored(stored),
            None => StreamStatus::Unkept,
        };
        if !self.version().primes_streams() {
            return None;
        }
        Some(primer(&self.last_event_id()?))
    }

    async fn open(&self) -> Option<StoredStream> {
        let replay_grant = self.replay_grant.as_deref();
        let (id, heartbeat_guard) = self.streams.open(&self.request, replay_grant).await?;
        Some(StoredStream {
            id,
            position: 0,
            bytes: 0,
            waits: false,
            _beating: heartbeat_guard,
        })
    }

    /// Stores `message`, if possible, and returns it as an event.
    pub(crate) async fn store_event(&mut self, message: &str, is_last: bool) -> Bytes {
        let is_kept = self.write(message, is_last).await;
        if !is_kept {
            self.give_up();
        }
        let id = self.last_event_id();
        if is_last && is_kept {
            self.stream = StreamStatus::Ended;
        }
        format_event(id.as_deref(), None, message)
    }

    async fn write(&mut self, message: &str, is_last: bool) -> bool {
        let StreamStatus::Stored(stored) = &mut self.stream else {
            return false;
        };
        stored.bytes += message.len();
        if stored.bytes > MOST_BYTES {
            return false;
        }
        let written = self
            .streams
            .write_event(stored.id, stored.position, message, is_last);
        let is_stored = written.await;
        stored.position += i64::from(is_stored);
        is_stored
    }

    /// Returns the id of the last event.
    fn last_event_id(&self) -> Option<String> {
        let StreamStatus::Stored(stored) = &self.stream else {
            return None;
        };
        let position = EventPosition::in_answer(stored.id, stored.position);
        self.streams.event_id(position)
    }

    /// Stops storing events. A client that resumes the stream gets an error.
    fn give_up(&mut self) {
        if let StreamStatus::Stored(stored) =
            std::mem::replace(&mut self.stream, StreamStatus::Unkept)
        {
            self.release_stream(stored, ReleaseReason::Broken);
        }
    }

    /// Marks the stream in the store as broken or released, as soon as the store is available.
    fn release_stream(&self, stored: StoredStream, how: ReleaseReason) {
        let streams = Arc::clone(self.streams.store());
        tokio::spawn(async move {
            let stored = stored;
            for _ in 0..TRIES {
                let told = match how {
                    ReleaseReason::Broken => streams.give_up(stored.id).await,
                    ReleaseReason::ToAnother => streams.leave(stored.id).await,
                };
                // The store logs a failure.
                if told.is_ok() {
                    return;
                }
                sleep(TRY_AGAIN).await;
            }
        });
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        // The call was dropped before its end.
        self.give_up();
    }
}
