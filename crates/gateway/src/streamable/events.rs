//! The ids of events: each says, to gateways alone, which event of which stream of which session it is.

use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use wardgate_domain::Caller;

use super::Session;
use crate::Gateway;
use crate::dialogue::event;
use crate::mcp::Version;
use crate::reply::RpcError;
use crate::session::Purpose;
use crate::store::StreamId;

/// Names the last event that a client heard.
const LAST_EVENT_ID: &str = "last-event-id";

/// How long a client that lost its stream waits before it asks for the rest.
const RETRY: Duration = Duration::from_secs(1);

/// Where a client was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Place {
    /// In a stream of changes.
    #[serde(rename = "l")]
    Listening,
    /// After so many events of an answer.
    #[serde(rename = "a")]
    Answer([u8; 16], i64),
}

impl Place {
    pub(super) fn in_answer(stream: StreamId, position: i64) -> Self {
        Self::Answer(stream.0, position)
    }

    /// As an event id. None does not happen: it is short.
    pub(super) fn seal(
        self,
        gateway: &Gateway,
        caller: &Caller,
        session: &Session,
    ) -> Option<String> {
        let within = session.name();
        gateway
            .sealer()
            .seal(Purpose::Event, caller, &within, &self)
    }

    /// Where the client says it was, if it says so.
    pub(super) fn of_headers(
        gateway: &Gateway,
        caller: &Caller,
        session: &Session,
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

/// The event that a stream begins with.
pub(super) fn primer(id: &str) -> Bytes {
    event(Some(id), Some(RETRY), "")
}

impl Version {
    /// A stream begins with an id to come back with, so that it can be resumed before it said anything
    /// (from 2025-11-25; clients before that take no event without a message).
    pub(super) fn primes_streams(self) -> bool {
        self >= Self::V2025_11_25
    }
}
