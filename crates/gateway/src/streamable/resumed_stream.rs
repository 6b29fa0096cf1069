//! The rest of an answer for a client that lost its stream, as far as the policy still allows it.
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

/// The interval at which the store is polled for more events.
const LOOK: Duration = Duration::from_millis(250);

/// Answers a GET with what followed `after` in the stream `id`.
pub(super) async fn resume(
    (pipeline, listeners): (&Arc<CallPipeline>, &Listeners),
    client: ResumingClient,
    streams: SessionStreams,
    (id, after): (StreamId, i64),
) -> Result<McpResponse, RpcError> {
    let is_there = streams.read(id, after).await;
    let is_there = is_there.map_err(|_| RpcError::store_unavailable())?;
    is_there.ok_or_else(RpcError::unknown_event)?;
    let replay_grant = streams.replay_grant(id).await;
    let replay_grant = replay_grant.map_err(|_| RpcError::store_unavailable())?;
    let replay_grant =
        replay_grant.and_then(|replay_grant| serde_json::from_slice(&replay_grant).ok());
    // What cannot be decided on is not given.
    let replay_grant: ReplayGrant = replay_grant.ok_or_else(RpcError::unknown_event)?;
    let version = streams.session().version;
    let discovery = &pipeline.services().discovery;
    match allows_replay(discovery, &replay_grant, &client, version).await {
        Ok(true) => {}
        Ok(false) => return Err(RpcError::unknown_event()),
        Err(DecisionUnavailable) => return Err(RpcError::undecided()),
    }
    let place = listeners.place(client.caller.subject());
    let stream = ResumedStream {
        pipeline: Arc::clone(pipeline),
        streams,
        id,
        after,
        draining: listeners.draining(),
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

/// A stream that is resumed.
struct ResumedStream {
    pipeline: Arc<CallPipeline>,
    streams: SessionStreams,
    /// The client that resumes it.
    client: ResumingClient,
    /// The grant that each further page is decided on by.
    replay_grant: ReplayGrant,
    id: StreamId,
    /// The position of the last event that the client has.
    after: i64,
    draining: CancellationToken,
    token_ends: BoxFuture<'static, ()>,
    /// None before the first sign of life.
    silent_since: Option<Instant>,
    _place: Lease,
}

impl ResumedStream {
    /// What to say next, and who says what follows, if anything does.
    async fn next(mut self) -> Option<(Bytes, Option<Self>)> {
        if self.silent_since.is_none() {
            return Some(self.keep_alive());
        }
        loop {
            match self.streams.read(self.id, self.after).await {
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
                // It expired, or its session ended, meanwhile.
                Ok(None) => return None,
                // Told where it happens; it may come back.
                Err(_) => {}
            }
            let silent_until = self.silent_since.unwrap_or_else(Instant::now) + KEEP_ALIVE;
            tokio::select! {
                // Without a farewell: the client comes again, with the next token, or to the next gateway.
                () = self.draining.cancelled() => return None,
                () = &mut self.token_ends => return None,
                () = sleep_until(silent_until) => return Some(self.keep_alive()),
                () = sleep(LOOK) => {}
            }
        }
    }

    /// A sign of life, which is no event.
    fn keep_alive(mut self) -> (Bytes, Option<Self>) {
        self.silent_since = Some(Instant::now());
        (Bytes::from_static(b":\n\n"), Some(self))
    }

    /// Whether the client may hear more, as things are now. It comes again, and hears why, where that is not known.
    async fn may_still_replay(&mut self) -> bool {
        let holds = allows_replay(
            &self.pipeline.services().discovery,
            &self.replay_grant,
            &self.client,
            self.streams.session().version,
        );
        holds.await.unwrap_or(false)
    }

    /// The events of `page` as bytes. None if there are none.
    fn page_events(&mut self, page: &StreamPage) -> Option<Bytes> {
        let mut events = Vec::new();
        for (position, sealed) in &page.events {
            let Some(message) = self.streams.open_event(self.id, *position, sealed) else {
                tracing::error!("an event of the gateway's store cannot be opened with its key");
                continue;
            };
            let position_in_stream = EventPosition::in_answer(self.id, *position);
            let id = self.streams.event_id(position_in_stream);
            events.extend_from_slice(&format_event(id.as_deref(), None, &message));
            self.after = *position;
        }
        (!events.is_empty()).then(|| events.into())
    }

    /// The error event that says that the rest is not stored.
    fn lost_event(&self, page: &StreamPage) -> Bytes {
        let message = self.error(page, Reason::STREAM_NOT_KEPT, NOT_KEPT);
        format_event(None, None, &message)
    }

    /// Takes over a stream whose replica is gone: resumes the suspended call, or ends the stream with an error.
    async fn take_over(&mut self, page: &StreamPage) {
        // A failure is told where it happens, and whoever looks next tries again.
        let Some((taken, heartbeat_guard)) = self.streams.take_over(self.id).await else {
            return;
        };
        if let Some(waiting) = &taken.waiting
            && self.resume_call(page, waiting, (taken.position, heartbeat_guard))
        {
            return;
        }
        let message = self.error(page, Reason::GATEWAY_GONE, POSSIBLY_RAN);
        let last = self
            .streams
            .write_event(self.id, taken.position, &message, true);
        last.await;
    }

    /// Resumes the call that is suspended in the stream.
    fn resume_call(
        &self,
        page: &StreamPage,
        waiting: &[u8],
        (position, heartbeat_guard): (i64, HeartbeatGuard),
    ) -> bool {
        let (streams, id) = (&self.streams, self.id);
        let suspended_call = streams.open_suspended_call(id, waiting);
        let request = streams.open_request(id, &page.request);
        let (Some(suspended_call), Some(request)) = (suspended_call, request) else {
            return false;
        };
        let stream = (id, position);
        let writer = StreamWriter::take_over(streams.clone(), &request, stream, heartbeat_guard);
        resume_suspended(
            &self.pipeline,
            &self.client,
            (writer, request),
            &suspended_call,
        )
    }

    fn error(&self, page: &StreamPage, reason: Reason, message: &str) -> String {
        let request = self.streams.open_request(self.id, &page.request);
        let error = RpcError::internal(reason, message).with_reason();
        let answer = McpResponse::error(request.as_deref(), &error);
        answer.into_text().unwrap_or_default()
    }
}

const POSSIBLY_RAN: &str = "The gateway that ran this went away. It is not known whether it ran to its end; check before you repeat it.";

const NOT_KEPT: &str =
    "What followed is no longer kept. It is not known how it ended; check before you repeat it.";
