//! The stream of changes that a GET in a session opens. It lasts for as long as it is the newest one of the session.
//!
//! The stream says that something may have changed, never what, so its events are not stored: a client that lost its stream and
//! reconnects with the id of an event is told that everything may have changed meanwhile.

use std::sync::Arc;

use axum::http::HeaderMap;
use bytes::Bytes;
use futures::{StreamExt, stream};
use wardgate_domain::Caller;
use wardgate_gateway_store::StreamId;
use wardgate_mcp_server::{McpResponse, RpcError};

use super::resumed_stream::resume;
use crate::Gateway;
use crate::catalogue::View;
use crate::governed_call::ResumingClient;
use crate::listen::{self, ListeningClient};
use crate::scopes::TokenAccess;
use crate::stored_stream::{EventPosition, SessionStreams, primer};

/// Answers a GET of a client of an older version.
pub(crate) async fn listen(
    gateway: &Arc<Gateway>,
    view: &View,
    caller: &Arc<Caller>,
    access: &TokenAccess,
    client_ip: &str,
    headers: &HeaderMap,
) -> Result<McpResponse, RpcError> {
    let session = gateway.sessions.find(view, caller, headers).await?;
    let watcher = &gateway.resource_watcher;
    let who = ListeningClient::follower(watcher, caller, access, client_ip, view);
    let Some(session) = session else {
        return Ok(listen::answer_with(
            gateway.listeners.follow(who, None, false).await?,
        ));
    };
    let streams = gateway.stream_store.of_session(caller, &session);
    let place = streams.last_event(headers)?;
    if let Some(EventPosition::Answer(stream, after)) = place {
        let client = ResumingClient {
            caller: Arc::clone(caller),
            access: access.clone(),
            client_ip: client_ip.to_owned(),
            view: view.clone(),
        };
        let (pipeline, listeners, id) = (&gateway.pipeline, &gateway.listeners, StreamId(stream));
        return resume(pipeline, listeners, client, streams, id, after).await;
    }
    let was_away = place == Some(EventPosition::Listening);
    let following = gateway
        .listeners
        .follow(who, Some(session.digest()), was_away);
    let events = following.await?;
    let listener = SessionListener {
        number: streams.begin_listening().await,
        streams,
    };
    let first = listener.primer();
    let rest = stream::unfold((events, listener), async |(mut events, listener)| {
        let words = events.next().await?;
        let words = listener.add_event_ids(&words).await?;
        Some((words, (events, listener)))
    });
    Ok(listen::answer_with(stream::iter(first).chain(rest).boxed()))
}

/// A stream of changes in a session.
struct SessionListener {
    streams: SessionStreams,
    /// The number that distinguishes the stream from others of the session.
    number: [u8; 16],
}

impl SessionListener {
    fn id(&self) -> Option<String> {
        self.streams.event_id(EventPosition::Listening)
    }

    fn primer(&self) -> Option<Bytes> {
        let version = self.streams.session().version;
        let id = self.id().filter(|_| version.primes_streams())?;
        Some(primer(&id))
    }

    /// Adds an id to each event of `words`. Returns `None` if the session has a newer stream or has ended.
    async fn add_event_ids(&self, words: &Bytes) -> Option<Bytes> {
        if !self.streams.is_listening(self.number).await {
            return None;
        }
        let text = std::str::from_utf8(words).ok()?;
        let mut events = String::with_capacity(text.len() + 256);
        for words in text.split_inclusive("\n\n") {
            if let Some(id) = self.id().filter(|_| !words.starts_with(':')) {
                events.push_str("id: ");
                events.push_str(&id);
                events.push('\n');
            }
            events.push_str(words);
        }
        Some(events.into())
    }
}
