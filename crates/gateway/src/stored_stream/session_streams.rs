//! The stored streams of one session: their entries in the store, sealed for the session's caller, and the ids of their events.

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wardgate_domain::{Ambient, Caller};
use wardgate_gateway_store::{
    Purpose, Sealer, Store, StoreError, StreamId, StreamPage, TakenOverStream, WriteResult,
};
use wardgate_mcp::header::LAST_EVENT_ID;
use wardgate_mcp_server::{RpcError, format_event};

use super::heartbeat::{Heartbeat, HeartbeatGuard};
use crate::session::StreamableSession;

/// Time that a client should wait before it reconnects to a lost stream.
const RETRY: Duration = Duration::from_secs(1);

/// The position of an event, which its id holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EventPosition {
    /// The event is in a stream of changes.
    #[serde(rename = "l")]
    Listening,
    /// The event is in the answer with this stream id, at this position.
    #[serde(rename = "a")]
    Answer([u8; 16], i64),
}

impl EventPosition {
    pub(crate) fn in_answer(stream: StreamId, position: i64) -> Self {
        Self::Answer(stream.0, position)
    }
}

/// An entry of a stream in the store. Each entry is sealed for its place in the stream.
#[derive(Clone, Copy)]
enum StreamEntry {
    /// The event at a position, counted from 1.
    Event(i64),
    /// The id of the request that the stream answers.
    Request,
    SuspendedCall,
    ReplayGrant,
}

impl StreamEntry {
    fn place(self) -> i64 {
        match self {
            Self::Event(position) => position,
            Self::Request => 0,
            Self::SuspendedCall => -1,
            Self::ReplayGrant => -2,
        }
    }
}

/// The streams that replicas write, in the store that they share.
pub(crate) struct StreamStore {
    store: Arc<Store>,
    sealer: Arc<Sealer>,
    heartbeat: Arc<Heartbeat>,
    ambient: Ambient,
}

impl StreamStore {
    pub(crate) fn new(store: &Arc<Store>, sealer: &Arc<Sealer>, ambient: &Ambient) -> Arc<Self> {
        Arc::new(Self {
            store: Arc::clone(store),
            sealer: Arc::clone(sealer),
            heartbeat: Heartbeat::new(store, ambient),
            ambient: ambient.clone(),
        })
    }

    /// Returns the streams of `session`, which belongs to `caller`.
    pub(crate) fn of_session(
        self: &Arc<Self>,
        caller: &Arc<Caller>,
        session: &Arc<StreamableSession>,
    ) -> SessionStreams {
        SessionStreams {
            all: Arc::clone(self),
            caller: Arc::clone(caller),
            session: Arc::clone(session),
        }
    }

    /// Marks a stream as broken, so that no further event of it is stored.
    pub(super) async fn give_up(&self, stream: StreamId) -> Result<(), StoreError> {
        self.store.give_up_stream(stream).await
    }

    /// Releases a stream of this replica, so that another replica can take it over.
    pub(super) async fn leave(&self, stream: StreamId) -> Result<(), StoreError> {
        self.store.leave_stream(stream, self.heartbeat.id()).await
    }
}

/// The streams of one session.
#[derive(Clone)]
pub(crate) struct SessionStreams {
    all: Arc<StreamStore>,
    caller: Arc<Caller>,
    session: Arc<StreamableSession>,
}

impl SessionStreams {
    pub(crate) fn session(&self) -> &Arc<StreamableSession> {
        &self.session
    }

    pub(super) fn store(&self) -> &Arc<StreamStore> {
        &self.all
    }

    /// Returns the id of the event at `position`.
    pub(crate) fn event_id(&self, position: EventPosition) -> Option<String> {
        let within = self.session.name();
        let sealer = &self.all.sealer;
        sealer.seal(Purpose::Event, &self.caller, &within, &position)
    }

    /// Returns the position in the header `Last-Event-ID`, or `None` if the request has no such header.
    pub(crate) fn last_event(
        &self,
        headers: &HeaderMap,
    ) -> Result<Option<EventPosition>, RpcError> {
        let Some(named) = headers.get(LAST_EVENT_ID) else {
            return Ok(None);
        };
        let (within, sealer) = (self.session.name(), &self.all.sealer);
        let id = named.to_str().ok();
        let position = id.and_then(|id| sealer.open(Purpose::Event, &self.caller, &within, id));
        position.map(Some).ok_or_else(RpcError::unknown_event)
    }

    /// Opens a stream that answers `request`. Returns `None` if the stream cannot be stored.
    pub(super) async fn open(
        &self,
        request: &RawValue,
        replay_grant: Option<&[u8]>,
    ) -> Option<(StreamId, HeartbeatGuard)> {
        let StreamStore {
            store,
            heartbeat,
            ambient,
            ..
        } = &*self.all;
        let heartbeat_guard = heartbeat.beat().await.ok()?;
        let id = StreamId(ambient.random());
        let request = self.seal(id, StreamEntry::Request, request.get().as_bytes())?;
        let replay_grant =
            replay_grant.and_then(|grant| self.seal(id, StreamEntry::ReplayGrant, grant));
        let (session, replica) = (self.session.id, heartbeat.id());
        let opened = store.open_stream(id, session, replica, &request, replay_grant.as_deref());
        opened.await.ok()?.then_some((id, heartbeat_guard))
    }

    /// Stores `message` as the event after `position`. Returns `false` if it cannot be stored.
    pub(crate) async fn write_event(
        &self,
        stream: StreamId,
        position: i64,
        message: &str,
        is_last: bool,
    ) -> bool {
        let entry = StreamEntry::Event(position + 1);
        let Some(sealed) = self.seal(stream, entry, message.as_bytes()) else {
            return false;
        };
        let (store, replica, events) = (&self.all.store, self.all.heartbeat.id(), [sealed]);
        let written = store.write_stream(stream, replica, position, &events, is_last);
        matches!(written.await, Ok(WriteResult::Stored))
    }

    /// Stores the suspended call of a stream. Returns whether another replica can resume it, or `None` if it cannot be sealed.
    pub(super) async fn suspend_call(&self, stream: StreamId, call: &[u8]) -> Option<bool> {
        let sealed = self.seal(stream, StreamEntry::SuspendedCall, call)?;
        let (store, replica) = (&self.all.store, self.all.heartbeat.id());
        let stored = store.set_suspended_call(stream, replica, Some(&sealed));
        // A failed write may have been stored nevertheless, so another replica may continue the call in that case too.
        Some(!matches!(stored.await, Ok(WriteResult::Gone)))
    }

    /// Takes the suspended call of a stream back. Returns `false` if another replica has taken it over, or may have.
    pub(super) async fn take_back_call(&self, stream: StreamId) -> bool {
        let (store, replica) = (&self.all.store, self.all.heartbeat.id());
        let taken = store.set_suspended_call(stream, replica, None).await;
        matches!(taken, Ok(WriteResult::Stored))
    }

    /// Returns the events of a stream after `position`, or `None` if the session has no such stream.
    pub(crate) async fn read_events(
        &self,
        stream: StreamId,
        position: i64,
    ) -> Result<Option<StreamPage>, StoreError> {
        let (store, session) = (&self.all.store, self.session.id);
        store.read_stream(stream, session, position).await
    }

    /// Returns the serialized grant by which a replay of the stream is authorized, or `None` if none can be opened.
    pub(crate) async fn replay_grant(
        &self,
        stream: StreamId,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let (store, session) = (&self.all.store, self.session.id);
        let sealed = store.replay_grant_of_stream(stream, session).await?;
        Ok(sealed.and_then(|sealed| self.unseal(stream, StreamEntry::ReplayGrant, &sealed)))
    }

    /// Takes over a stream whose replica is gone. Returns `None` if another replica was faster, or the store is unavailable.
    pub(crate) async fn take_over(
        &self,
        stream: StreamId,
    ) -> Option<(TakenOverStream, HeartbeatGuard)> {
        let StreamStore {
            store, heartbeat, ..
        } = &*self.all;
        let heartbeat_guard = heartbeat.beat().await.ok()?;
        let taken = store
            .take_over_stream(stream, heartbeat.id())
            .await
            .ok()??;
        Some((taken, heartbeat_guard))
    }

    /// Returns the message of the event at `position`.
    pub(crate) fn open_event(
        &self,
        stream: StreamId,
        position: i64,
        sealed: &[u8],
    ) -> Option<String> {
        let message = self.unseal(stream, StreamEntry::Event(position), sealed)?;
        String::from_utf8(message).ok()
    }

    /// Returns the id of the request that a stream answers.
    pub(crate) fn open_request(&self, stream: StreamId, sealed: &[u8]) -> Option<Box<RawValue>> {
        let id = self.unseal(stream, StreamEntry::Request, sealed)?;
        RawValue::from_string(String::from_utf8(id).ok()?).ok()
    }

    /// Returns the serialized suspended call of a stream.
    pub(crate) fn open_suspended_call(&self, stream: StreamId, sealed: &[u8]) -> Option<Vec<u8>> {
        self.unseal(stream, StreamEntry::SuspendedCall, sealed)
    }

    /// Registers a new stream of changes as the newest one of the session, and returns its number.
    pub(crate) async fn begin_listening(&self) -> [u8; 16] {
        let number = self.all.ambient.random();
        // Without the store the stream works, but does not end earlier ones.
        let _ = self
            .all
            .store
            .listen_in_session(self.session.id, number)
            .await;
        number
    }

    /// Returns whether the stream of changes `number` is still the session's newest. An unavailable store ends no stream.
    pub(crate) async fn is_listening(&self, number: [u8; 16]) -> bool {
        let listens = self.all.store.listens_in_session(self.session.id, number);
        !matches!(listens.await, Ok(false))
    }

    fn seal(&self, stream: StreamId, entry: StreamEntry, plain: &[u8]) -> Option<Vec<u8>> {
        let within = self.within(stream, entry);
        self.all.sealer.seal_for_store(&self.caller, &within, plain)
    }

    fn unseal(&self, stream: StreamId, entry: StreamEntry, sealed: &[u8]) -> Option<Vec<u8>> {
        let within = self.within(stream, entry);
        self.all
            .sealer
            .open_from_store(&self.caller, &within, sealed)
    }

    fn within(&self, stream: StreamId, entry: StreamEntry) -> String {
        let (stream, place) = (u128::from_be_bytes(stream.0), entry.place());
        format!("{}/{stream:032x}/{place}", self.session.name())
    }
}

/// Returns the first event of a stream, from whose id the stream can be resumed.
pub(crate) fn primer(id: &str) -> Bytes {
    format_event(Some(id), Some(RETRY), "")
}
