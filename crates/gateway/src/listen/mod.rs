//! Streams that notify connected clients when their tools, prompts, resources or conversations may have changed.
//!
//! ```text
//!  catalogue ──┐                                        ┌──▶ POST subscriptions/listen, from 2026-07-28
//!  (switches)  ├──▶ ChangeCounter ───────┐              │
//!  policy ─────┘    a number             ├▶ one stream ─┤
//!  memory ────────▶ ConversationWatcher ─┤  per client  └──▶ GET /mcp, before
//!                   by owner             │
//!  sources ───────▶ ResourceChanges ─────┤
//!                   by permits           │
//!  calls ─────────▶ FollowedTasks ───────┘
//!                   by polling
//! ```
//!
//! A notification says that something changed, never what. It therefore reveals no hidden tools, and it is sent only to the
//! owner of a conversation. The status of a task is the exception: it is authorized and recorded each time. A stream is not a
//! session: a client that lost its stream opens another one on any replica, then lists and reads again.

mod conversations;
mod following;
mod resources;
mod script;
mod stream_quota;

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use wardgate_domain::{Ambient, Caller, Digest};
use wardgate_edge::RevocationWatch;
use wardgate_mcp::Version;
use wardgate_mcp::header::PROTOCOL_VERSION;
use wardgate_mcp_server::{
    JsonRpcRequest, KEEP_ALIVE, LISTEN, McpResponse, RpcError, StreamAcceptance,
};
use wardgate_rpc::client::{ConversationSubscriber, MemoryClient};

use self::following::{ConversationFeed, ResourceUpdates};
use crate::change_counter::ChangeCounter;
use crate::governed_call::CallPipeline;
use crate::memory::ConversationUri;
use crate::post::Post;
use crate::tasks::{self, FollowedTasks, TaskUpdate};

pub(crate) use self::conversations::ConversationWatcher;
pub(crate) use self::resources::{
    ListeningClient, ResourceChanges, ResourceSubscriptions, ResourceWatcher, SUBSCRIBE,
    Subscriber, subscribe, unsubscribe,
};
use self::script::ListenRequest;
pub(crate) use self::script::StreamScript;
pub(crate) use self::stream_quota::{Lease, StreamQuota};

/// Delay between a change and its notification. Further changes during the delay need no second notification, and the other
/// replicas know the change by the end of it.
const SETTLE: Duration = Duration::from_millis(100);
/// Minimum interval between two notifications of the same kind, so that clients do not request a changing list all the time.
const PAUSE: Duration = Duration::from_millis(500);

/// Returns whether a GET with these headers opens a stream: its version has such streams, and its client accepts one.
pub(crate) fn is_asked_for(headers: &HeaderMap) -> bool {
    let version = headers
        .get(PROTOCOL_VERSION)
        .map(|named| named.to_str().unwrap_or_default().parse::<Version>());
    StreamAcceptance::from_headers(headers) != StreamAcceptance::Refused
        && version.is_none_or(|named| named.is_ok_and(|version| !version.is_modern()))
}

/// Opens the streams of all clients.
#[derive(Debug)]
pub(crate) struct Listeners {
    changes: ChangeCounter,
    /// The watcher of conversations, or `None` without a memory service.
    conversations: Option<ConversationWatcher>,
    places: StreamQuota,
    draining: CancellationToken,
    revocations: RevocationWatch,
    ambient: Ambient,
}

impl Listeners {
    /// Creates listeners with at most `streams` open streams.
    pub(crate) fn new(
        changes: ChangeCounter,
        conversations: Option<ConversationWatcher>,
        streams: usize,
        revocations: RevocationWatch,
        ambient: Ambient,
    ) -> Self {
        Self {
            changes,
            conversations,
            places: StreamQuota::new(streams),
            draining: CancellationToken::new(),
            revocations,
            ambient,
        }
    }

    /// Opens a stream for `caller`, until the token expires or is revoked, the gateway drains, or the client disconnects.
    pub(crate) fn open(
        &self,
        caller: &Arc<Caller>,
        script: StreamScript,
    ) -> Result<McpResponse, RpcError> {
        Ok(answer_with(self.listen(caller, script)?))
    }

    /// Returns the events of a stream that follows the subscriptions of `session`, for a client before 2026-07-28. For a client
    /// that was disconnected, everything counts as changed.
    pub(crate) async fn follow(
        &self,
        client: ListeningClient,
        session: Option<Digest>,
        was_away: bool,
    ) -> Result<BoxStream<'static, Bytes>, RpcError> {
        let caller = Arc::clone(&client.caller);
        let offered = client.watcher.discovery().offered_content(&client.view);
        let mut script = StreamScript::of_get(session, offered);
        if was_away {
            script = script.after_absence(&self.subscribed_conversations(&caller, session).await);
        }
        let script = script.with_resources(client.follow_session(session, offered, was_away));
        self.listen(&caller, script)
    }

    /// Returns the URIs of the conversations that `session` is subscribed to. Empty if they cannot be read.
    async fn subscribed_conversations(
        &self,
        caller: &Caller,
        session: Option<Digest>,
    ) -> Vec<String> {
        let Some(memory) = self.memory() else {
            return Vec::new();
        };
        let subscriptions = memory.list_subscriptions(ConversationSubscriber { caller, session });
        let ids = subscriptions.await.unwrap_or_default();
        let uris = ids.iter().map(|id| ConversationUri::whole(id).write());
        uris.collect()
    }

    /// Returns the client of the memory service, if there is one.
    pub(crate) fn memory(&self) -> Option<&MemoryClient> {
        self.conversations.as_ref().map(ConversationWatcher::memory)
    }

    /// Returns the events of a stream.
    fn listen(
        &self,
        caller: &Arc<Caller>,
        mut script: StreamScript,
    ) -> Result<BoxStream<'static, Bytes>, RpcError> {
        let place = self
            .places
            .acquire_lease(caller.subject())
            .ok_or_else(RpcError::too_many_streams)?;
        let changes = self.changes.follow();
        let seen = *changes.borrow();
        let first = script.first.clone();
        let resources = script.resources.take();
        let tasks = script.tasks.take();
        let wants = script.conversations.take();
        let following = wants.zip(self.conversations.as_ref());
        let listener = Listener {
            following: following.map(|(wants, all)| ConversationFeed::new(wants, caller, all)),
            resources,
            tasks,
            changes,
            seen,
            due: None,
            silent_until: Instant::now(),
            script,
            draining: self.draining.clone(),
            token_ends: self.until_token_ends(caller),
            _place: place,
        };
        let rest = stream::unfold(Some(listener), async |listener| listener?.next().await);
        Ok(stream::iter([first]).chain(rest).boxed())
    }

    /// Waits until the token of `caller` expires or is revoked.
    pub(crate) fn until_token_ends(&self, caller: &Arc<Caller>) -> BoxFuture<'static, ()> {
        let end = Instant::now() + caller.expires_at().since(self.ambient.now());
        let (revocations, caller) = (self.revocations.clone(), Arc::clone(caller));
        Box::pin(async move {
            tokio::select! {
                () = sleep_until(end) => {}
                () = revocations.until_revoked(&caller) => {}
            }
        })
    }

    /// Returns a lease for a stream of `subject`, or `None` if the quota is used up.
    pub(crate) fn place(&self, subject: &str) -> Option<Lease> {
        self.places.acquire_lease(subject)
    }

    /// Returns the token that is cancelled when all streams are to end.
    pub(crate) fn drain_token(&self) -> CancellationToken {
        self.draining.clone()
    }

    /// Ends all streams, so that a shutdown need not wait for them.
    pub(crate) fn drain(&self) {
        self.draining.cancel();
    }
}

/// Returns the response whose body is the stream of `events`.
pub(crate) fn answer_with(events: BoxStream<'static, Bytes>) -> McpResponse {
    let events = events.map(Ok::<_, std::convert::Infallible>);
    McpResponse::events(Body::from_stream(events))
}

/// The state of one stream.
struct Listener {
    script: StreamScript,
    changes: watch::Receiver<u64>,
    /// The count of changes at the last notification to the client.
    seen: u64,
    /// The time at which the next change is sent, or `None` if none is waiting.
    due: Option<Instant>,
    /// The earliest time of the next notification.
    silent_until: Instant,
    following: Option<ConversationFeed>,
    resources: Option<ResourceChanges>,
    tasks: Option<FollowedTasks>,
    draining: CancellationToken,
    token_ends: BoxFuture<'static, ()>,
    _place: Lease,
}

impl Listener {
    /// Returns the next bytes of the stream and the listener that continues it, or `None` at the end of the stream.
    async fn next(mut self) -> Option<(Bytes, Option<Self>)> {
        tokio::select! {
            biased;
            () = self.draining.cancelled() => self.script.last.map(|last| (last, None)),
            // The stream ends without a final message: the client reconnects with its next token.
            () = &mut self.token_ends => None,
            change = next_settled_change(&mut self.changes, self.seen, &mut self.due, self.silent_until), if !self.script.lists.is_empty() => {
                self.seen = change?;
                self.silent_until = Instant::now() + PAUSE;
                Some((self.script.lists_changed(), Some(self)))
            }
            updates = next_conversation_updates(&mut self.following) => {
                Some((self.script.resources_changed(&updates), Some(self)))
            }
            uris = next_resource_updates(&mut self.resources) => {
                let updates = ResourceUpdates { list: false, uris };
                Some((self.script.resources_changed(&updates), Some(self)))
            }
            seen = next_task_update(&mut self.tasks) => {
                Some((self.script.task_updated(&seen), Some(self)))
            }
            () = sleep(KEEP_ALIVE) => Some((Bytes::from_static(b":\n\n"), Some(self))),
        }
    }
}

/// Returns the count of changes after the first change since `seen` and those that follow soon after it, but not before
/// `silent_until`. If the future is dropped while it waits, a second call with the same `due` continues the same wait.
async fn next_settled_change(
    changes: &mut watch::Receiver<u64>,
    seen: u64,
    due: &mut Option<Instant>,
    silent_until: Instant,
) -> Option<u64> {
    changes.wait_for(|now| *now != seen).await.ok()?;
    sleep_until(*due.get_or_insert_with(|| silent_until.max(Instant::now() + SETTLE))).await;
    *due = None;
    Some(*changes.borrow())
}

/// Returns the next updates of conversations. Never completes if the stream does not follow conversations.
async fn next_conversation_updates(following: &mut Option<ConversationFeed>) -> ResourceUpdates {
    match following {
        Some(following) => following.next().await,
        None => std::future::pending().await,
    }
}

/// Returns the next updates of resources of sources. Never completes if the stream does not follow resources.
async fn next_resource_updates(resources: &mut Option<ResourceChanges>) -> Vec<String> {
    match resources {
        Some(resources) => resources.next().await,
        None => std::future::pending().await,
    }
}

/// Returns the next update of a task. Never completes if the stream does not follow tasks.
async fn next_task_update(tasks: &mut Option<FollowedTasks>) -> TaskUpdate {
    match tasks {
        Some(tasks) => tasks.next().await,
        None => std::future::pending().await,
    }
}

/// Answers `subscriptions/listen` with a stream.
pub(crate) async fn listen(
    listeners: &Listeners,
    watcher: &Arc<ResourceWatcher>,
    pipeline: &Arc<CallPipeline>,
    post: &Post,
    request: &JsonRpcRequest<'_>,
) -> Result<McpResponse, RpcError> {
    let offered = watcher.discovery().offered_content(&post.view);
    let subscription = ListenRequest::parse(request)?;
    let uris = subscription.of_sources(offered);
    let resources = if uris.is_empty() {
        None
    } else {
        // Sources must not do any work for a stream that exceeds the quota.
        let place = listeners.place(post.caller.subject());
        let _place = place.ok_or_else(RpcError::too_many_streams)?;
        let client = ListeningClient::for_post(watcher, post, LISTEN);
        Some(ResourceChanges::for_uris(client, uris).await)
    };
    let tasks = tasks::follow(pipeline, post, request, subscription.tasks()).await?;
    let script = StreamScript::of_subscription(subscription, offered, resources, tasks);
    listeners.open(&post.caller, script)
}

#[cfg(test)]
mod tests;
