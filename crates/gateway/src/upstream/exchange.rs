//! The forwarding of one upstream request: the route's right, its own right, intent record, relay, outcome record, release.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::Response;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use tokio::time::{Sleep, sleep};
use tracing::Instrument;
use wardgate_domain::{CallFacts, CallId, Event, OfferKind, Status, ToolFacts};
use wardgate_mcp::Version;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_resilience::concurrency::{RecordingSlot, Slot};
use wardgate_rpc::client::{
    CallError, Exchange, Relay, RelayContent, RelayEvent, RelayHead, Relayed,
};
use wardgate_telemetry::names;

use super::answer;
use super::handles::{self, HandleError};
use super::lists::{self, ListError};
use super::outcomes::CUT;
use super::right::{AccessError, AccessRight};
use super::upstream_request::{
    AwaitedResponse, RequestSubject, StreamPosition, UpstreamRequest, no_arguments, within,
};
use super::{RouteRequest, may_connect};
use crate::Gateway;
use crate::authority::Grant;
use crate::catalogue::Source;
use crate::client_interaction::{self, ResponseSender};
use crate::reply::Answer;
use crate::rpc_error::RpcError;
use crate::session::Purpose;
use crate::stored_arguments::{StoreUnavailable, StoredArguments};

const FORGOTTEN: &str = "What was asked for cannot be looked up now. Come back later.";

/// The longest life of a stream of changes; after it the client opens another one, which is decided on again.
const STREAM_LIFE: Duration = Duration::from_mins(15);

/// Forwards one request, and records it.
pub(super) async fn run(
    gateway: &Arc<Gateway>,
    source: Arc<Source>,
    route_request: RouteRequest,
    upstream_request: UpstreamRequest,
    slot: Option<Slot>,
) -> Response {
    let call_id = CallId::new(gateway.ambient());
    let span = tracing::info_span!(
        "upstream",
        source = source.name,
        { names::CALL_ID } = %call_id,
        { names::CALLER } = route_request.caller.subject(),
        { names::TOOL } = tracing::field::Empty,
    );
    let (out, response) = client_interaction::response_channel();
    let exchange = UpstreamExchange {
        gateway: Arc::clone(gateway),
        source,
        awaited: upstream_request.awaited(),
        slot,
        route_request,
        upstream_request,
        call_id,
        out,
        started: Instant::now(),
        unrecorded: None,
        not_forwarded: false,
    };
    // In a task of its own, so that it is recorded even if its client hangs up.
    gateway.calls.spawn(exchange.run().instrument(span));
    response.await.unwrap_or_else(|_| {
        let error = RpcError::internal("panic", "Internal error.").of_call(call_id, None);
        Answer::error(None, &error).into()
    })
}

/// One upstream request, from its arrival to its answer.
pub(super) struct UpstreamExchange {
    pub(super) gateway: Arc<Gateway>,
    pub(super) source: Arc<Source>,
    pub(super) route_request: RouteRequest,
    pub(super) upstream_request: UpstreamRequest,
    pub(super) call_id: CallId,
    pub(super) out: ResponseSender<Response>,
    pub(super) started: Instant,
    /// The facts of a call whose outcome is not on record yet. None for requests that are not recorded, such as lists.
    pub(super) unrecorded: Option<Box<CallFacts>>,
    /// The request whose answer is outstanding.
    pub(super) awaited: Option<AwaitedResponse>,
    /// The place among the requests that are worked on.
    pub(super) slot: Option<Slot>,
    /// Whether the tool-runner declined to forward it, and the gateway can answer it itself.
    pub(super) not_forwarded: bool,
}

impl UpstreamExchange {
    async fn run(mut self) {
        if let Err(error) = may_connect(&self.gateway, &self.source, &self.route_request).await {
            return self.refuse(&error).await;
        }
        if self.load_arguments().await.is_err() {
            return self
                .refuse(&RpcError::internal("store_unavailable", FORGOTTEN))
                .await;
        }
        let right = AccessRight::for_request(
            &self.gateway,
            &self.source,
            &self.route_request,
            &self.upstream_request,
        );
        self.unrecorded = self.facts_for_record(right.as_ref());
        // A call that cannot be recorded is not begun.
        if self.unrecorded.is_some() && !self.gateway.audit_log().is_ready() {
            return self.not_recorded().await;
        }
        let Some(right) = right else {
            let error = self.not_there();
            return self
                .refuse_call(Status::UnknownTool, "unknown_tool", error)
                .await;
        };
        let grant = match self.decide(&right).await {
            Ok(grant) => grant,
            Err(access_error) => return self.denied(access_error).await,
        };
        if let Err(error) = self.may_listen().await {
            return self.refuse(&error).await;
        }
        let tools = match self.may_use_tasks().await {
            Ok(tools) => tools,
            Err(access_error) => return self.denied(access_error).await,
        };
        if let Err(error) = self.may_by_token(&right, &tools) {
            return self
                .refuse_call(Status::Denied, error.reason(), error)
                .await;
        }
        // What an upstream says in the middle of a call leaves before the outcome is on record, and what nobody knows may
        // write.
        let may_write = right.tool.is_some()
            || matches!(self.upstream_request.subject, RequestSubject::Foreign);
        if let Some(unrecorded) = self.unrecorded.as_ref().filter(|_| may_write) {
            let intent = Event::Intent(CallFacts::clone(unrecorded));
            if self.gateway.audit_log().append(intent).await.is_err() {
                return self.not_recorded().await;
            }
        }
        self.forward(&right, &grant).await;
    }

    /// Loads the arguments of the request whose stream is resumed.
    async fn load_arguments(&mut self) -> Result<(), StoreUnavailable> {
        let awaited = self
            .upstream_request
            .resumes
            .as_ref()
            .and_then(|place| place.awaited.as_ref());
        if let RequestSubject::Tool { arguments, .. } = &mut self.upstream_request.subject
            && let Some(asked) = awaited.and_then(|awaited| awaited.asked.as_ref())
        {
            *arguments = asked
                .fetch(&self.gateway, &self.route_request.caller)
                .await?;
        }
        Ok(())
    }

    /// Stores the arguments that are too long for the ids of events. False if that fails: then events have no ids.
    async fn store_arguments(&mut self) -> bool {
        let RequestSubject::Tool { arguments, .. } = &self.upstream_request.subject else {
            return true;
        };
        let Some(awaited) = self.awaited.as_mut().filter(|it| it.asked.is_none()) else {
            return true;
        };
        let caller = &self.route_request.caller;
        let stored = StoredArguments::store(&self.gateway, caller, self.call_id, arguments).await;
        awaited.asked = stored.ok();
        awaited.asked.is_some()
    }

    async fn decide(&mut self, right: &AccessRight) -> Result<Arc<Grant>, AccessError> {
        let decided = right.decide(&self.gateway, &self.route_request).await;
        if let Some(facts) = self.unrecorded.as_deref_mut() {
            match &decided {
                Ok(grant) => {
                    facts.decided(&grant.decision);
                    facts.permit_id = Some(grant.permit_id);
                }
                Err(AccessError::Denied { decision, .. }) => facts.decided(decision),
                Err(AccessError::Undecided(_) | AccessError::Gone) => {}
            }
        }
        decided
    }

    /// Whoever may not read a resource does not hear of its changes either.
    async fn may_listen(&self) -> Result<(), RpcError> {
        let RequestSubject::Listen { uris } = &self.upstream_request.subject else {
            return Ok(());
        };
        let version = self.upstream_request.spoken();
        let unknown = || RpcError::unknown_resource(version);
        for uri in uris {
            let right = AccessRight::for_offer(&self.source, OfferKind::Resources, uri);
            let right = right.ok_or_else(unknown)?;
            match right.decide(&self.gateway, &self.route_request).await {
                Ok(_) => {}
                Err(AccessError::Denied { .. } | AccessError::Gone) => return Err(unknown()),
                Err(AccessError::Undecided(error)) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whoever may not call a tool has nothing of what it does meanwhile either. Gives those tools.
    async fn may_use_tasks(&self) -> Result<Vec<ToolFacts>, AccessError> {
        let mut tools = Vec::with_capacity(self.upstream_request.tasks.len());
        for task in &self.upstream_request.tasks {
            let arguments = match &task.asked {
                Some(StoredArguments::Inline(arguments)) => arguments.get().to_owned().into(),
                Some(StoredArguments::Stored(_)) | None => no_arguments(),
            };
            let (gateway, route_request) = (&self.gateway, &self.route_request);
            match AccessRight::for_tool(gateway, &self.source, route_request, &task.tool, arguments)
            {
                Some(right) => {
                    right.decide(gateway, route_request).await?;
                    tools.push(right.facts);
                }
                None => return Err(AccessError::Gone),
            }
        }
        Ok(tools)
    }

    /// What the caller may do, the token must have been given for too.
    fn may_by_token(&self, right: &AccessRight, tools: &[ToolFacts]) -> Result<(), RpcError> {
        let heard = match &self.upstream_request.subject {
            RequestSubject::Listen { uris } if !uris.is_empty() => {
                self.source.facts.get(&OfferKind::Resources)
            }
            _ => None,
        };
        let (access, method) = (&self.route_request.access, &self.upstream_request.method);
        [&right.facts]
            .into_iter()
            .chain(tools)
            .chain(heard)
            .try_for_each(|facts| access.apply(&self.gateway, method, facts))
    }

    /// Forwards the request to the tool-runner, and its answer to the client.
    async fn forward(&mut self, right: &AccessRight, grant: &Grant) {
        let subject = self.route_request.caller.subject();
        let (place, none_left) = if self.upstream_request.is_open_ended() {
            let place = self.gateway.listeners().place(subject);
            (place, RpcError::too_many_streams())
        } else {
            // The quota bounds the requests of one caller to upstreams.
            let places = if self.upstream_request.is_prompt() {
                &self.gateway.reply_quota
            } else {
                &self.gateway.upstream_quota
            };
            let place = places.take(subject);
            (place, RpcError::too_many_visits())
        };
        let Some(_place) = place else {
            return self.close(Status::Error, "too_many", none_left).await;
        };
        // Whatever comes of it: another use could do again what was done.
        if let Some(used) = &self.upstream_request.used
            && let Err((status, reason, error)) = used.use_up(&self.gateway).await
        {
            return self.close(status, reason, error).await;
        }
        let mut relayed = self.relay(right, grant).await;
        if let Err(error) = &relayed
            && error.reason() == ErrorReason::PermitRefused
        {
            // The definitions or the keys changed since the permit was cached.
            let authority = self.gateway.authority();
            authority.forget(&self.route_request.caller, &right.facts);
            relayed = match self.decide(right).await {
                Ok(grant) => self.relay(right, &grant).await,
                Err(access_error) => return self.denied(access_error).await,
            };
        }
        match relayed {
            Ok(parts) => self.pass(Box::pin(parts)).await,
            Err(error) => self.relay_failed(&error).await,
        }
    }

    async fn relay(
        &self,
        right: &AccessRight,
        grant: &Grant,
    ) -> Result<impl Stream<Item = Result<Relayed, CallError>> + use<>, CallError> {
        let upstream_request = &self.upstream_request;
        let resumes = upstream_request.resumes.as_ref();
        let awaited = self.awaited.as_ref().filter(|_| resumes.is_some());
        let arguments = match (&upstream_request.subject, &upstream_request.exchange) {
            (RequestSubject::Tool { .. }, Exchange::Post(_)) => Bytes::new(),
            _ => right.arguments.clone(),
        };
        let carried = self.gateway.runner().relay(Relay {
            call_id: self.call_id,
            caller: &self.route_request.caller,
            source: &self.source.name,
            offer: right.offer(),
            permit: &grant.permit,
            arguments,
            exchange: upstream_request.exchange.clone(),
            protocol_version: upstream_request.version.map(Version::as_str),
            session: upstream_request
                .session
                .as_ref()
                .map(|session| session.own.as_str()),
            last_event_id: resumes.map(|place| place.event.as_str()),
            headers: &upstream_request.mirrored_headers,
            governed_id: awaited.map(|awaited| awaited.id.as_str()),
            caller_token: self
                .route_request
                .caller
                .token_for_source(self.source.needs_caller_token),
        });
        carried.await
    }

    /// Passes on what comes back, part by part.
    async fn pass(&mut self, mut parts: impl Stream<Item = Result<Relayed, CallError>> + Unpin) {
        let mut end = Box::pin(self.expiry_timer());
        let draining = self.gateway.listeners().draining();
        let (cancels, open_ended) = (
            self.upstream_request.is_modern(),
            self.upstream_request.is_open_ended(),
        );
        loop {
            let part = tokio::select! {
                biased;
                // Only modern clients cancel by hanging up; nobody misses a stream of changes.
                () = self.out.disconnected(), if cancels || open_ended => {
                    return self.ended(Status::Cancelled, "cancelled").await;
                }
                () = draining.cancelled(), if open_ended => {
                    return self.ended(Status::Unknown, "stream_ended").await;
                }
                () = &mut end, if open_ended => {
                    return self.ended(Status::Unknown, "stream_ended").await;
                }
                part = parts.next() => part,
            };
            let is_answered = self.is_answered();
            match part {
                Some(Ok(Relayed::Failed(_)) | Err(_)) if is_answered => {
                    return self.ended(Status::Unknown, "stream_ended").await;
                }
                Some(Ok(Relayed::Head(head))) => {
                    let session = self.session(&head);
                    match head.content {
                        RelayContent::Nothing => {
                            self.out
                                .send_response(answer::whole(&head, session.as_deref(), None));
                            return self.ended(Status::Error, "no_answer").await;
                        }
                        RelayContent::Events => {
                            let session = session.as_deref();
                            self.out
                                .start_stream(|body| answer::stream(&head, session, body));
                        }
                        RelayContent::Json => {
                            return self.body(&mut parts, &head, session.as_deref()).await;
                        }
                    }
                }
                Some(Ok(Relayed::Event(event))) => {
                    if !self.event(event).await {
                        return;
                    }
                }
                // Whose body it was is over.
                Some(Ok(Relayed::Body(_))) => {}
                Some(Ok(Relayed::Failed(failure))) => {
                    return self.failure(&failure).await;
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "what an upstream said was cut");
                    let kind = "tool_runner_unavailable";
                    return self.failed(Status::Unknown, kind, CUT).await;
                }
                // Nobody can come back for it.
                None if self.upstream_request.is_of_batch && !is_answered => {
                    return self.failed(Status::Unknown, "stream_ended", CUT).await;
                }
                // A legacy server may hang up and have its client come back for the answer: that is on record as an
                // request of its own.
                None => return self.ended(Status::Unknown, "stream_ended").await,
            }
        }
    }

    /// Whether the answer that somebody waited for has passed.
    fn is_answered(&self) -> bool {
        self.awaited.is_none() && self.upstream_request.awaited().is_some()
    }

    /// When a stream of changes ends: with the token at the latest.
    fn expiry_timer(&self) -> Sleep {
        let now = self.gateway.ambient().now();
        sleep(
            self.route_request
                .caller
                .expires_at()
                .since(now)
                .min(STREAM_LIFE),
        )
    }

    /// The session that begins with this head, as the client may hold it.
    fn session(&self, head: &RelayHead) -> Option<String> {
        let own = head.session.as_ref()?;
        let sealer = self.gateway.sealer();
        let (purpose, caller) = (Purpose::UpstreamSession, &self.route_request.caller);
        // With every answer of a session the same id, so that no client takes it for another.
        match &self.upstream_request.session {
            Some(session) if session.own == *own => Some(session.sealed.clone()),
            _ => sealer.seal(purpose, caller, &self.source.name, own),
        }
    }

    /// A whole answer.
    async fn body(
        &mut self,
        parts: &mut (impl Stream<Item = Result<Relayed, CallError>> + Unpin),
        head: &RelayHead,
        session: Option<&str>,
    ) {
        let body = match parts.next().await {
            Some(Ok(Relayed::Body(body))) => body,
            Some(Ok(Relayed::Failed(failure))) => return self.failure(&failure).await,
            _ => return self.failed(Status::Unknown, "cut", CUT).await,
        };
        let Ok(message) = self.sealed(body.message) else {
            return self.failed(Status::Error, "bad_result", CUT).await;
        };
        let recording_slot = self.begin_recording();
        let text = match self.unrecorded.take() {
            Some(unrecorded) => {
                self.release(*unrecorded, message, body.result.as_ref())
                    .await
            }
            None => self.unrecorded(message).await,
        };
        drop(recording_slot);
        match text {
            Ok(text) => self
                .out
                .send_response(answer::whole(head, session, Some(text))),
            Err(error) => self.refuse(&error).await,
        }
    }

    /// Gives the place to the next call while the outcome is recorded.
    fn begin_recording(&mut self) -> Option<RecordingSlot> {
        let kind = match &self.upstream_request.subject {
            RequestSubject::Tool { name, .. } => name,
            _ => &self.source.name,
        };
        Some(self.slot.take()?.done(kind))
    }

    /// One event. False when nothing may follow it.
    async fn event(&mut self, mut event: RelayEvent) -> bool {
        let message = match self.sealed(std::mem::take(&mut event.message)) {
            Ok(message) => message,
            Err(HandleError::Withheld) => String::new(),
            Err(HandleError::Misfit) => {
                self.failed(Status::Error, "bad_result", CUT).await;
                return false;
            }
        };
        if message.is_empty() && event.id.is_none() && event.retry.is_none() {
            return true;
        }
        let unrecorded = self.unrecorded.take_if(|_| event.result.is_some());
        let recording_slot = event.result.as_ref().and_then(|_| self.begin_recording());
        let text = match unrecorded {
            Some(unrecorded) => {
                self.release(*unrecorded, message, event.result.as_ref())
                    .await
            }
            None => self.unrecorded(message).await,
        };
        // A client that reads slowly keeps nobody waiting.
        drop(recording_slot);
        let text = match text {
            Ok(text) => text,
            Err(error) => {
                self.refuse(&error).await;
                return false;
            }
        };
        if event.result.is_some() {
            self.awaited = None;
        }
        // What speaks before its answer may wait for a person, and nobody here knows.
        self.slot = None;
        let has_place = event.id.is_some()
            && !self.upstream_request.is_of_batch
            && self.store_arguments().await;
        let awaited = self.awaited.clone();
        let id = event.id.as_ref().filter(|_| has_place).and_then(|own| {
            let place = StreamPosition {
                event: own.clone(),
                awaited,
            };
            let within = within(&self.route_request, self.upstream_request.session.as_ref());
            let sealer = self.gateway.sealer();
            sealer.seal(
                Purpose::UpstreamEvent,
                &self.route_request.caller,
                &within,
                &place,
            )
        });
        let said = client_interaction::format_event(id.as_deref(), event.retry, &text);
        self.out.send_event(said).await;
        true
    }

    /// A message of the upstream's, with the handles that the client may hold.
    fn sealed(&self, message: Vec<u8>) -> Result<String, HandleError> {
        let message = String::from_utf8(message).map_err(|_| HandleError::Misfit)?;
        if self.upstream_request.method == "initialize" {
            return Ok(handles::without_list(message));
        }
        let UpstreamRequest { subject, tasks, .. } = &self.upstream_request;
        handles::seal_handles(&self.gateway, &self.route_request, subject, tasks, message)
    }

    /// A message that is not on the record, as the client may have it.
    async fn unrecorded(&self, message: String) -> Result<String, RpcError> {
        let RequestSubject::List(list) = self.upstream_request.subject else {
            return Ok(message);
        };
        // An event that only has an id.
        if message.is_empty() {
            return Ok(message);
        }
        let listed = lists::filter_list(
            &self.gateway,
            &self.source,
            &self.route_request,
            list,
            message,
        );
        listed.await.map_err(|unlisted| match unlisted {
            ListError::Misfit => RpcError::internal("bad_result", CUT),
            ListError::Undecided(error) => error,
        })
    }
}
