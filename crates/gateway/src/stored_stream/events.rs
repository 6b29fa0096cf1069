//! The ids of events: each names, readable for gateways alone, an event of a stream of a session.

use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wardgate_domain::Caller;
use wardgate_gateway_store::{Purpose, StreamId};
use wardgate_mcp::header::LAST_EVENT_ID;
use wardgate_mcp_server::{RpcError, format_event};

use crate::Gateway;
use crate::session::StreamableSession;

/// How long a client that lost its stream waits before it asks for the rest.
const RETRY: Duration = Duration::from_secs(1);

/// The position of an event, which its id holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EventPosition {
    /// In a stream of changes.
    #[serde(rename = "l")]
    Listening,
    /// After so many events of an answer.
    #[serde(rename = "a")]
    Answer([u8; 16], i64),
}

impl EventPosition {
    pub(crate) fn in_answer(stream: StreamId, position: i64) -> Self {
        Self::Answer(stream.0, position)
    }

    /// The position as an event id.
    pub(crate) fn seal(
        self,
        gateway: &Gateway,
        caller: &Caller,
        session: &StreamableSession,
    ) -> Option<String> {
        let within = session.name();
        gateway
            .sealer()
            .seal(Purpose::Event, caller, &within, &self)
    }

    /// The position in the header `Last-Event-ID`. None if the request has none.
    pub(crate) fn of_headers(
        gateway: &Gateway,
        caller: &Caller,
        session: &StreamableSession,
        headers: &HeaderMap,
    ) -> Result<Option<Self>, RpcError> {
        let Some(named) = headers.get(LAST_EVENT_ID) else {
            return Ok(None);
        };
        let within = session.name();
        let place = named
            .to_str()
            .ok()
            .and_then(|text| gateway.sealer().open(Purpose::Event, caller, &within, text));
        place.map(Some).ok_or_else(RpcError::unknown_event)
    }
}

/// An event, sealed for the store.
pub(crate) fn seal_event(
    gateway: &Gateway,
    caller: &Caller,
    session: &StreamableSession,
    (stream, position): (StreamId, i64),
    message: &str,
) -> Option<Vec<u8>> {
    let within = within(session, stream, position);
    gateway
        .sealer()
        .seal_for_store(caller, &within, message.as_bytes())
}

pub(crate) fn open_event(
    gateway: &Gateway,
    caller: &Caller,
    session: &StreamableSession,
    (stream, position): (StreamId, i64),
    sealed: &[u8],
) -> Option<String> {
    let within = within(session, stream, position);
    let message = gateway.sealer().open_from_store(caller, &within, sealed)?;
    String::from_utf8(message).ok()
}

/// The id of the request that a stream answers, sealed for the store.
pub(crate) fn seal_request(
    gateway: &Gateway,
    caller: &Caller,
    session: &StreamableSession,
    stream: StreamId,
    id: &RawValue,
) -> Option<Vec<u8>> {
    seal_event(gateway, caller, session, (stream, 0), id.get())
}

pub(crate) fn open_request(
    gateway: &Gateway,
    caller: &Caller,
    session: &StreamableSession,
    stream: StreamId,
    sealed: &[u8],
) -> Option<Box<RawValue>> {
    let id = open_event(gateway, caller, session, (stream, 0), sealed)?;
    RawValue::from_string(id).ok()
}

/// A suspended call, sealed for the store.
pub(crate) fn seal_suspended_call(
    gateway: &Gateway,
    caller: &Caller,
    session: &StreamableSession,
    stream: StreamId,
    suspended_call: &[u8],
) -> Option<Vec<u8>> {
    let within = within(session, stream, SUSPENDED_CALL);
    gateway
        .sealer()
        .seal_for_store(caller, &within, suspended_call)
}

pub(crate) fn open_suspended_call(
    gateway: &Gateway,
    caller: &Caller,
    session: &StreamableSession,
    stream: StreamId,
    sealed: &[u8],
) -> Option<Vec<u8>> {
    let within = within(session, stream, SUSPENDED_CALL);
    gateway.sealer().open_from_store(caller, &within, sealed)
}

/// The replay grant of a stream, sealed for the store.
pub(crate) fn seal_replay_grant(
    gateway: &Gateway,
    caller: &Caller,
    session: &StreamableSession,
    stream: StreamId,
    replay_grant: &[u8],
) -> Option<Vec<u8>> {
    let within = within(session, stream, REPLAY_GRANT);
    gateway
        .sealer()
        .seal_for_store(caller, &within, replay_grant)
}

pub(crate) fn open_replay_grant(
    gateway: &Gateway,
    caller: &Caller,
    session: &StreamableSession,
    stream: StreamId,
    sealed: &[u8],
) -> Option<Vec<u8>> {
    let within = within(session, stream, REPLAY_GRANT);
    gateway.sealer().open_from_store(caller, &within, sealed)
}

/// The positions of the sealed texts that are not events: the suspended call and the replay grant.
const SUSPENDED_CALL: i64 = -1;
const REPLAY_GRANT: i64 = -2;

fn within(session: &StreamableSession, stream: StreamId, position: i64) -> String {
    let stream = u128::from_be_bytes(stream.0);
    format!("{}/{stream:032x}/{position}", session.name())
}

/// The event that a stream begins with.
pub(crate) fn primer(id: &str) -> Bytes {
    format_event(Some(id), Some(RETRY), "")
}
