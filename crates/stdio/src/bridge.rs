//! Handles each message from the client and from the gateway.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wardgate_mcp::event_stream::EventReader;
use wardgate_mcp::header;

use crate::events::{self, Events, LONGEST_PAUSE, PAUSE};
use crate::fault::RequestFault;
use crate::gateway::{self, GatewayClient, SILENCE};
use crate::headers;
use crate::in_flight::{InFlight, RequestGuard};
use crate::message::{ClientMessage, ClientRequest, MessageLine};
use crate::mirrored_headers::MirroredHeaders;
use crate::pipes::Output;
use crate::session::McpSession;
use crate::{Error, MAX_MESSAGE_BYTES};

/// Maximum time for the gateway to accept a message that has no response.
const NOTICE_LIMIT: Duration = Duration::from_secs(10);

/// Maximum time for the gateway to end a stream after the response, and for cancelled requests to end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Maximum time for ending a session.
const FAREWELL: Duration = Duration::from_secs(2);

/// Maximum number of attempts to resume the stream of a request.
const MAX_ATTEMPTS: u32 = 5;

/// A bridge that carries messages between the client and the gateway.
pub(crate) struct Bridge {
    gateway: GatewayClient,
    out: Output,
    /// The most recent session of a legacy client, or `None` if none was opened.
    session: Mutex<Option<Arc<McpSession>>>,
    mirrored_headers: MirroredHeaders,
    in_flight: InFlight,
    requests: TaskTracker,
    /// Cancelled when the client disconnects or the process shuts down.
    closing: CancellationToken,
}

/// The exchange with the gateway for one line of requests.
struct Exchange {
    body: Bytes,
    mode: RequestMode,
    guard: RequestGuard,
}

/// The protocol era that a line is sent in.
enum RequestMode {
    Modern {
        headers: HeaderMap,
        lists_tools: bool,
    },
    /// A request that opens a session.
    Initialize,
    /// Requests of the session, if one is open. The gateway decides what is allowed without a session.
    Legacy(Option<Arc<McpSession>>),
}

impl Bridge {
    pub(crate) fn new(gateway: GatewayClient, out: Output) -> Self {
        Self {
            gateway,
            out,
            session: Mutex::default(),
            mirrored_headers: MirroredHeaders::default(),
            in_flight: InFlight::new(),
            requests: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    /// Handles the client's lines until there are no more.
    pub(crate) async fn serve(
        self: &Arc<Self>,
        lines: &mut mpsc::Receiver<Result<Bytes, Error>>,
    ) -> Result<(), Error> {
        while let Some(line) = lines.recv().await {
            self.handle_line(line?).await;
        }
        Ok(())
    }

    /// Waits until the requests in flight are finished, for at most `limit`.
    pub(crate) async fn finish(&self, limit: Duration) {
        self.in_flight.drop_listeners();
        self.requests.close();
        let _ = timeout(limit, self.requests.wait()).await;
    }

    /// Cancels the remaining requests, answers each of them with an error, and ends the session.
    pub(crate) async fn close(&self) {
        self.closing.cancel();
        self.requests.close();
        let _ = timeout(LAST_WORDS, self.requests.wait()).await;
        let session = self.session();
        if let Some(session) = session {
            session.over.cancel();
            if session.is_kept() {
                // A failure is ignored, because the gateway discards a session that is no longer used.
                let _ = timeout(FAREWELL, self.gateway.delete(session.headers())).await;
            }
        }
    }

    async fn handle_line(self: &Arc<Self>, text: Bytes) {
        let Some(line) = MessageLine::parse(&text) else {
            self.out.write(RequestFault::NotAMessage.answer(None)).await;
            return;
        };
        let requests: Vec<&ClientRequest> = line.messages().iter().filter_map(request).collect();
        if requests.is_empty() {
            self.note(&line, text).await;
            return;
        }
        let mode = match &line {
            MessageLine::One(ClientMessage::Request(request)) => self.mode(request),
            _ => RequestMode::Legacy(self.session()),
        };
        match self.in_flight.enter(&requests).await {
            Ok(guard) => {
                let exchange = Exchange {
                    body: text,
                    mode,
                    guard,
                };
                self.requests.spawn(Arc::clone(self).run_exchange(exchange));
            }
            Err(fault) => {
                for request in requests {
                    self.out.write(fault.answer(Some(&request.id))).await;
                }
            }
        }
    }

    fn mode(&self, request: &ClientRequest) -> RequestMode {
        match &request.version {
            Some(version) => {
                let mut headers = headers::of_modern(request, version);
                if let (Some(tool), Some(arguments)) = (&request.subject, &request.arguments) {
                    self.mirrored_headers.add(tool, arguments, &mut headers);
                }
                RequestMode::Modern {
                    headers,
                    lists_tools: request.method == "tools/list",
                }
            }
            None if request.method == "initialize" => RequestMode::Initialize,
            None => RequestMode::Legacy(self.session()),
        }
    }

    /// Sends a line without requests. Such lines are sent one after the other and before the requests that follow,
    /// because a notification applies to those requests.
    async fn note(self: &Arc<Self>, line: &MessageLine, text: Bytes) {
        if let MessageLine::One(ClientMessage::Notification {
            cancels: Some(id), ..
        }) = line
            && self.in_flight.drop_modern(id)
        {
            return;
        }
        let session = self.session();
        let headers = session
            .as_deref()
            .map(McpSession::headers)
            .unwrap_or_default();
        let sent = timeout(NOTICE_LIMIT, self.gateway.post(text, headers)).await;
        match sent.unwrap_or(Err(RequestFault::Lost)) {
            Ok(_) => {
                let begins = |message: &ClientMessage| matches!(message, ClientMessage::Notification { method, .. } if method == "notifications/initialized");
                if let Some(session) = session
                    && line.messages().iter().any(begins)
                    && session.begins_to_listen()
                {
                    tokio::spawn(Arc::clone(self).listen(session));
                }
            }
            Err(fault) => {
                stop_ended_session(session.as_deref(), &fault);
                tracing::warn!(reason = %fault, "the gateway did not accept a message that has no response");
            }
        }
    }

    /// Sends requests and makes sure that each is answered, unless the client cancelled them.
    async fn run_exchange(self: Arc<Self>, mut exchange: Exchange) {
        let cancelled = exchange.guard.cancelled.clone();
        let outcome = tokio::select! {
            biased;
            () = cancelled.cancelled() => return,
            () = self.closing.cancelled() => Err(RequestFault::Closing),
            outcome = self.forward_exchange(&mut exchange) => outcome,
        };
        if let Err(fault) = outcome {
            if let RequestMode::Legacy(session) = &exchange.mode {
                stop_ended_session(session.as_deref(), &fault);
            }
            for id in exchange.guard.give_up() {
                self.out.write(fault.answer(Some(&id))).await;
            }
        }
    }

    async fn forward_exchange(&self, exchange: &mut Exchange) -> Result<(), RequestFault> {
        let headers = match &exchange.mode {
            RequestMode::Modern { headers, .. } => headers.clone(),
            RequestMode::Legacy(Some(session)) => session.headers(),
            RequestMode::Initialize | RequestMode::Legacy(None) => HeaderMap::new(),
        };
        let response = self.gateway.post(exchange.body.clone(), headers).await?;
        let headers = response.headers().clone();
        if header::has_media_type(&headers, header::EVENT_STREAM) {
            let reader = EventReader::new(MAX_MESSAGE_BYTES);
            let events = Events { response, reader };
            return self.follow(events, exchange, &headers).await;
        }
        let body = gateway::whole(response).await?;
        self.deliver(&body, exchange, &headers).await?;
        if exchange.guard.all_answered() {
            Ok(())
        } else {
            Err(RequestFault::NotMcp)
        }
    }

    /// Forwards the messages of a stream up to the last response.
    async fn follow(
        &self,
        mut events: Events,
        exchange: &mut Exchange,
        headers: &HeaderMap,
    ) -> Result<(), RequestFault> {
        let mut heard = Instant::now();
        loop {
            let broken = match events.next().await {
                Ok(Some(message)) => {
                    heard = Instant::now();
                    self.deliver(&message, exchange, headers).await?;
                    if exchange.guard.all_answered() {
                        // The connection can be reused only if the stream is read to its end.
                        let rest = self.pass_on(&mut events);
                        let _ = timeout(LAST_WORDS, rest).await;
                        return Ok(());
                    }
                    continue;
                }
                Ok(None) => RequestFault::Lost,
                Err(fault @ RequestFault::Lost) => fault,
                Err(fault) => return Err(fault),
            };
            // A legacy gateway may close the stream and let the client reconnect for the response.
            events = match &exchange.mode {
                RequestMode::Legacy(Some(session)) if heard.elapsed() < SILENCE => {
                    self.resume(session, events, broken).await?
                }
                _ => return Err(broken),
            };
        }
    }

    /// Resumes a stream that was interrupted, after its last event. The stream cannot be resumed if no event had an id.
    async fn resume(
        &self,
        session: &McpSession,
        events: Events,
        mut broken: RequestFault,
    ) -> Result<Events, RequestFault> {
        let reader = events.reader.into_resumed();
        if reader.last_id().is_none() {
            return Err(broken);
        }
        for _ in 0..MAX_ATTEMPTS {
            sleep(events::pause(&reader)).await;
            match self.gateway.get(session.headers(), reader.last_id()).await {
                Ok(response) => return Ok(Events { response, reader }),
                Err(fault) if fault.is_final() => return Err(fault),
                Err(fault) => broken = fault,
            }
        }
        Err(broken)
    }

    /// Forwards one message, or a batch of responses.
    async fn deliver(
        &self,
        text: &[u8],
        exchange: &mut Exchange,
        headers: &HeaderMap,
    ) -> Result<(), RequestFault> {
        let line = MessageLine::parse(text).ok_or(RequestFault::NotMcp)?;
        for message in line.messages() {
            let ClientMessage::Response { id, error } = message else {
                continue;
            };
            match id {
                Some(id) => exchange.guard.mark_answered(id),
                // The response is an error without an id, so it is not known which request it belongs to.
                None => {
                    return Err(RequestFault::Refused {
                        status: StatusCode::OK,
                        reason: error.clone(),
                        advice: None,
                    });
                }
            }
        }
        if exchange.guard.all_answered() {
            self.apply_response(text, &exchange.mode, headers);
        }
        self.out.write(text).await;
        Ok(())
    }

    /// Learns what a response states about the requests that follow.
    fn apply_response(&self, answer: &[u8], mode: &RequestMode, headers: &HeaderMap) {
        match mode {
            RequestMode::Initialize => {
                if let Some(session) = McpSession::from_response(answer, headers)
                    && let Some(before) = self.last_session().replace(Arc::new(session))
                {
                    before.over.cancel();
                }
            }
            RequestMode::Modern {
                lists_tools: true, ..
            } => self.mirrored_headers.update_from(answer),
            RequestMode::Modern { .. } | RequestMode::Legacy(_) => {}
        }
    }

    /// Forwards the messages that the gateway sends on the session's own stream, until the session ends.
    async fn listen(self: Arc<Self>, session: Arc<McpSession>) {
        let listening = async {
            let mut reader = EventReader::new(MAX_MESSAGE_BYTES);
            let mut failures = 0;
            loop {
                let opened = self.gateway.get(session.headers(), reader.last_id()).await;
                let mut pause = PAUSE.saturating_mul(1 << failures).min(LONGEST_PAUSE);
                match opened {
                    Ok(response) => {
                        failures = 0;
                        let mut events = Events { response, reader };
                        if self.pass_on(&mut events).await.is_err() {
                            tracing::debug!("the stream of the session failed");
                        }
                        pause = events::pause(&events.reader);
                        reader = events.reader.into_resumed();
                    }
                    Err(fault) => {
                        stop_ended_session(Some(&session), &fault);
                        if fault.is_final() {
                            return;
                        }
                        failures = (failures + 1).min(5);
                    }
                }
                sleep(pause).await;
            }
        };
        session.over.run_until_cancelled(listening).await;
    }

    async fn pass_on(&self, events: &mut Events) -> Result<(), RequestFault> {
        while let Some(message) = events.next().await? {
            if MessageLine::parse(&message).is_some() {
                self.out.write(message).await;
            }
        }
        Ok(())
    }

    fn session(&self) -> Option<Arc<McpSession>> {
        self.last_session().clone()
    }

    fn last_session(&self) -> MutexGuard<'_, Option<Arc<McpSession>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops listening to a session that has ended.
fn stop_ended_session(session: Option<&McpSession>, fault: &RequestFault) {
    if let (Some(session), RequestFault::SessionEnded) = (session, fault) {
        session.over.cancel();
    }
}

fn request(message: &ClientMessage) -> Option<&ClientRequest> {
    match message {
        ClientMessage::Request(request) => Some(request),
        _ => None,
    }
}
