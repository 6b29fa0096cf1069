//! The rest of an answer for a client that lost its stream, if the policy still allows it.
//!
//! ```text
//!  GET, Last-Event-ID ─▶ authorize again ─▶ stored events ─▶ stream goes on: poll ─▶ ended
//!                                                         └─▶ its replica is gone: take it over, resume or end it
//! ```

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use wardgate_domain::Reason;
use wardgate_gateway_store::{StreamId, StreamPage, StreamState};
use wardgate_mcp_server::{KEEP_ALIVE, McpResponse, RpcError, format_event};

use super::sealed_operation::{allows_replay, resume_suspended};
use crate::governed_call::{CallPipeline, DecisionUnavailable, ReplayGrant, ResumingClient};
use crate::listen::{Lease, Listeners};
use crate::stored_stream::{EventPosition, HeartbeatGuard, SessionStreams, StreamWriter};

/// Interval at which the store is polled for more events.
const LOOK: Duration = Duration::from_millis(250);

/// Answers a GET with the events after `after` in the stream `id`.
pub(super) async fn resume(
    pipeline: &Arc<CallPipeline>,
    listeners: &Listeners,
    client: ResumingClient,
    streams: SessionStreams,
    id: StreamId,
    after: i64,
) -> Result<McpResponse, RpcError> {
    let is_there = streams.read_events(id, after).await;
    let is_there = is_there.map_err(|_| RpcError::store_unavailable())?;
    is_there.ok_or_else(RpcError::unknown_event)?;
    let replay_grant = streams.replay_grant(id).await;
    let replay_grant = replay_grant.map_err(|_| RpcError::store_unavailable())?;
    let replay_grant =
        replay_grant.and_then(|replay_grant| serde_json::from_slice(&replay_grant).ok());
    // A stream without a grant cannot be authorized, so it is not replayed.
    let replay_grant: ReplayGrant = replay_grant.ok_or_else(RpcError::unknown_event)?;
    let version = streams.session().version;
    let discovery = &pipeline.services().discovery;
    match allows_replay(discovery, &replay_grant, &client, version).await {
        Ok(true) => {}
        Ok(false) => return Err(RpcError::unknown_event()),
        Err(DecisionUnavailable) => return Err(RpcError::undecided_stream()),
    }
    let place = listeners.place(client.caller.subject());
    let stream = ResumedStream {
        pipeline: Arc::clone(pipeline),
        streams,
        id,
        after,
        draining: listeners.drain_token(),
        token_ends: listeners.until_token_ends(&client.caller),
        client,
        replay_grant,
        silent_since: None,
        _place: place.ok_or_else(RpcError::too_many_streams)?,
    };
    let events = stream::unfold(Some(stream), async |stream| stream?.next().await);
    let events = futures::StreamExt::map(events, Ok::<_, Infallible>);
    Ok(McpResponse::events(Body::from_stream(events)))
}

/// A stream that is being resumed.
struct ResumedStream {
    pipeline: Arc<CallPipeline>,
    streams: SessionStreams,
    /// The client that resumes the stream.
    client: ResumingClient,
    /// The grant by which each further page is authorized.
    replay_grant: ReplayGrant,
    id: StreamId,
    /// The position of the last event that the client has.
    after: i64,
    draining: CancellationToken,
    token_ends: BoxFuture<'static, ()>,
    /// The time of the last bytes that were sent, or `None` before the first ones.
    silent_since: Option<Instant>,
    _place: Lease,
}

impl ResumedStream {
    /// Returns the next bytes of the stream and the stream that continues it, or `None` at the end.
    async fn next(mut self) -> Option<(Bytes, Option<Self>)> {
        if self.silent_since.is_none() {
            return Some(self.keep_alive());
        }
        loop {
            match self.streams.read_events(self.id, self.after).await {
                Ok(Some(page)) if !page.events.is_empty() && !self.may_still_replay().await => {
                    return None;
                }
                Ok(Some(page)) => {
                    if let Some(events) = self.page_events(&page) {
                        let goes_on = page.state != StreamState::Ended;
                        self.silent_since = Some(Instant::now());
                        return Some((events, goes_on.then_some(self)));
                    }
                    match page.state {
                        StreamState::Ended => return None,
                        StreamState::Broken => return Some((self.lost_event(&page), None)),
                        StreamState::Orphaned => self.take_over(&page).await,
                        StreamState::GoesOn => {}
                    }
                }
                // The stream has expired, or its session has ended.
                Ok(None) => return None,
                // The store logs a failure, and may become available again.
                Err(_) => {}
            }
            let silent_until = self.silent_since.unwrap_or_else(Instant::now) + KEEP_ALIVE;
            tokio::select! {
                // The stream ends without a final message: the client reconnects with its next token, or to another gateway.
                () = self.draining.cancelled() => return None,
                () = &mut self.token_ends => return None,
                () = sleep_until(silent_until) => return Some(self.keep_alive()),
                () = sleep(LOOK) => {}
            }
        }
    }

    /// Returns a comment event, which keeps the connection alive.
    fn keep_alive(mut self) -> (Bytes, Option<Self>) {
        self.silent_since = Some(Instant::now());
        (Bytes::from_static(b":\n\n"), Some(self))
    }

    /// Returns whether the client may still receive events under the current policy. If that is unknown the stream ends, and
    /// the client gets the error when it reconnects.
    async fn may_still_replay(&mut self) -> bool {
        let holds = allows_replay(
            &self.pipeline.services().discovery,
            &self.replay_grant,
            &self.client,
            self.streams.session().version,
        );
        holds.await.unwrap_or(false)
    }

    /// Returns the events of `page` as bytes, or `None` if there are none.
    fn page_events(&mut self, page: &StreamPage) -> Option<Bytes> {
        let mut events = Vec::new();
        for (position, sealed) in &page.events {
            let Some(message) = self.streams.open_event(self.id, *position, sealed) else {
                tracing::error!("an event of the gateway's store cannot be decrypted with its key");
                continue;
            };
            let position_in_stream = EventPosition::in_answer(self.id, *position);
            let id = self.streams.event_id(position_in_stream);
            events.extend_from_slice(&format_event(id.as_deref(), None, &message));
            self.after = *position;
        }
        (!events.is_empty()).then(|| events.into())
    }

    /// Returns the error event that tells the client that the rest is not stored.
    fn lost_event(&self, page: &StreamPage) -> Bytes {
        let message = self.error(page, Reason::STREAM_NOT_KEPT, NOT_KEPT);
        format_event(None, None, &message)
    }

    /// Takes over a stream whose replica is gone: resumes the suspended call, or ends the stream with an error.
    async fn take_over(&mut self, page: &StreamPage) {
        // The store logs a failure, and the next poll tries again.
        let Some((taken, heartbeat_guard)) = self.streams.take_over(self.id).await else {
            return;
        };
        if let Some(waiting) = &taken.waiting
            && self.resume_call(page, waiting, taken.position, heartbeat_guard)
        {
            return;
        }
        let message = self.error(page, Reason::GATEWAY_GONE, POSSIBLY_RAN);
        let last = self
            .streams
            .write_event(self.id, taken.position, &message, true);
        last.await;
    }

    /// Resumes the call that is suspended in the stream. Returns `false` if it cannot be resumed.
    fn resume_call(
        &self,
        page: &StreamPage,
        waiting: &[u8],
        position: i64,
        heartbeat_guard: HeartbeatGuard,
    ) -> bool {
        let (streams, id) = (&self.streams, self.id);
        let suspended_call = streams.open_suspended_call(id, waiting);
        let request = streams.open_request(id, &page.request);
        let (Some(suspended_call), Some(request)) = (suspended_call, request) else {
            return false;
        };
        let streams = streams.clone();
        let writer = StreamWriter::take_over(streams, &request, id, position, heartbeat_guard);
        let (pipeline, client) = (&self.pipeline, &self.client);
        resume_suspended(pipeline, client, writer, request, &suspended_call)
    }

    fn error(&self, page: &StreamPage, reason: Reason, message: &str) -> String {
        let request = self.streams.open_request(self.id, &page.request);
        let error = RpcError::internal(reason, message).with_reason();
        let answer = McpResponse::error(request.as_deref(), &error);
        answer.into_text().unwrap_or_default()
    }
}

const POSSIBLY_RAN: &str = "The gateway that ran this request stopped. It is not known whether the request completed; check before you \
                            repeat it.";

const NOT_KEPT: &str = "The following events are no longer stored. The outcome of the request is not known; check before you repeat it.";
