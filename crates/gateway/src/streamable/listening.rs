//! The stream of GET in a session: what changed, for as long as it is the session's newest.
//!
//! It says that something may have changed, never what. So nothing of it is kept: a client that lost its stream and
//! comes back with the id of an event hears that everything may have changed meanwhile.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderMap;
use bytes::Bytes;
use futures::{StreamExt, stream};
use wardgate_domain::Caller;
use wardgate_gateway_store::StreamId;
use wardgate_mcp_server::{McpResponse, RpcError};
use wardgate_rpc::client::ConversationSubscriber as OfMemory;

use super::resumed_stream::resume;
use crate::Gateway;
use crate::catalogue::View;
use crate::content;
use crate::governed_call::ResumingClient;
use crate::listen::{ListeningClient, StreamScript};
use crate::memory::ConversationUri;
use crate::scopes::TokenAccess;
use crate::session::StreamableSession;
use crate::stored_stream::{EventPosition, SessionStreams, primer};

/// Answers a GET of a client of an older version.
pub(crate) async fn listen(
    gateway: &Arc<Gateway>,
    view: &View,
    (caller, access): (&Arc<Caller>, &TokenAccess),
    client_ip: &str,
    headers: &HeaderMap,
) -> Result<McpResponse, RpcError> {
    let offered = content::offered(gateway, view);
    let who = ListeningClient::follower(gateway, (caller, access), client_ip, view);
    let Some(session) = gateway.sessions.find(view, caller, headers).await? else {
        let script =
            StreamScript::of_get(None, offered).hearing(who.subscribed(None, offered, false));
        return gateway.listeners().open(caller, script, gateway.ambient());
    };
    let streams = gateway.stream_store.of_session(caller, &session);
    let place = streams.last_event(headers)?;
    let id = Some(session.digest());
    let was_away = place == Some(EventPosition::Listening);
    let mut script = StreamScript::of_get(id, offered);
    match place {
        None => {}
        Some(EventPosition::Listening) => {
            script = script.after_absence(&subscribed(gateway, caller, &session).await);
        }
        Some(EventPosition::Answer(stream, after)) => {
            let place = (StreamId(stream), after);
            let comer = ResumingClient {
                caller: Arc::clone(caller),
                access: access.clone(),
                client_ip: client_ip.to_owned(),
                view: view.clone(),
            };
            return resume(gateway, comer, streams, place).await;
        }
    }
    let script = script.hearing(who.subscribed(id, offered, was_away));
    let said = gateway
        .listeners()
        .listen(caller, script, gateway.ambient())?;
    let listener = SessionListener {
        number: streams.begin_listening().await,
        streams,
    };
    let first = listener.primer();
    let rest = stream::unfold((said, listener), async |(mut said, listener)| {
        let words = said.next().await?;
        let words = listener.say(&words).await?;
        Some((words, (said, listener)))
    });
    let events = stream::iter(first).chain(rest).map(Ok::<_, Infallible>);
    Ok(McpResponse::events(Body::from_stream(events)))
}

/// What the session is subscribed to; nothing where that cannot be known.
async fn subscribed(
    gateway: &Gateway,
    caller: &Caller,
    session: &StreamableSession,
) -> Vec<String> {
    let Some(memory) = gateway.memory() else {
        return Vec::new();
    };
    let subscriptions = memory.list_subscriptions(OfMemory {
        caller,
        session: Some(session.digest()),
    });
    let ids = subscriptions.await.unwrap_or_default();
    let uris = ids.iter().map(|id| ConversationUri::whole(id).write());
    uris.collect()
}

/// One stream.
struct SessionListener {
    streams: SessionStreams,
    /// Tells it from the others of its session.
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

    /// `words` with an id for each event. None when a newer stream says them, or the session has ended.
    async fn say(&self, words: &Bytes) -> Option<Bytes> {
        if !self.streams.is_listening(self.number).await {
            return None;
        }
        let text = std::str::from_utf8(words).ok()?;
        let mut said = String::with_capacity(text.len() + 256);
        for words in text.split_inclusive("\n\n") {
            if let Some(id) = self.id().filter(|_| !words.starts_with(':')) {
                said.push_str("id: ");
                said.push_str(&id);
                said.push('\n');
            }
            said.push_str(words);
        }
        Some(said.into())
    }
}
