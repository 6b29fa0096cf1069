//! Concurrent requests over a server's standard input and output, with responses assigned by id.
//!
//! ```text
//!   request ─▶ waiting[id] ─▶ queue ─▶ writer ─▶ stdin
//!                  ▲                                       reader: stdout ─▶ answer | progress ─▶ waiting[id]
//!                  └───────────────────────────────────────────────────────┘
//! ```
//!
//! Log messages and requests of a server name no request here. They are about the only open request; if several requests are
//! open, they cannot be assigned and are not delivered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};
use tracing::debug;
use wardgate_mcp::Era;

use super::lines::{EndOfLines, Line, Lines};
use crate::error::{RequestResult, UpstreamError};
use crate::events::Events;
use crate::message::{self, IncomingMessage, UpstreamRequest};
use crate::open_requests::{MESSAGE_QUEUE, OpenRequests};
use crate::server_message::{self, Listener, ServerMessage, ServerRequest};

/// Maximum number of messages that wait to be written.
const QUEUE: usize = 64;

/// Number of bytes that are skipped of a line that is longer than a message may be. If the line is still
/// longer, the program is stopped.
const MAX_SKIPPED: usize = 16 * message::MAX_MESSAGE_BYTES;

/// The channel to a running server.
#[derive(Debug)]
pub(super) struct Channel {
    queue: mpsc::Sender<Vec<u8>>,
    waiting: PendingRequests,
    next_id: AtomicU64,
    events: Arc<Events>,
    /// Whether the handshake with the server succeeded.
    in_use: AtomicBool,
}

/// The requests that wait for their responses.
#[derive(Debug, Default)]
struct PendingRequests(Mutex<PendingTable>);

#[derive(Debug, Default)]
struct PendingTable {
    /// Whether the server has ended, so that no more responses arrive.
    ended: bool,
    requests: HashMap<u64, Waiter>,
    /// The requests that messages of the server may be about.
    open: OpenRequests,
}

#[derive(Debug)]
struct Waiter {
    answer: oneshot::Sender<RequestResult>,
    messages: Option<mpsc::Sender<ServerMessage>>,
}

impl PendingRequests {
    fn lock(&self) -> MutexGuard<'_, PendingTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Channel {
    /// Creates the channel, and returns it with the queue of messages to write to the server.
    pub(super) fn new(events: Arc<Events>) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (queue, to_write) = mpsc::channel(QUEUE);
        let channel = Self {
            queue,
            waiting: PendingRequests::default(),
            next_id: AtomicU64::new(1),
            events,
            in_use: AtomicBool::new(false),
        };
        (channel, to_write)
    }

    /// Sends a request, and waits for the response without a time limit. Dropping the future notifies the
    /// server of the cancellation.
    pub(super) async fn request(
        &self,
        request: &UpstreamRequest<'_>,
        era: Era,
        mut listener: Option<Listener<'_>>,
    ) -> RequestResult {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let line = message::one_line(request.encode(id, era, listener.is_some())?);
        let (answer, mut answered) = oneshot::channel();
        let (messages, mut received) = mpsc::channel(MESSAGE_QUEUE);
        let messages = listener.is_some().then_some(messages);
        {
            let mut table = self.waiting.lock();
            if table.ended {
                return Err(UpstreamError::Gone);
            }
            if request.is_talked_about() {
                table.open.begin(id, messages.clone());
            }
            table.requests.insert(id, Waiter { answer, messages });
        }
        let _place = PendingRequest {
            channel: self,
            id,
            can_be_cancelled: !request.opens(),
        };
        if self.queue.send(line).await.is_err() {
            return Err(UpstreamError::Gone);
        }
        loop {
            tokio::select! {
                biased;
                Some(message) = received.recv() => {
                    let refusal = message.refusal();
                    let is_taken = listener.as_mut().is_some_and(|listener| listener(message));
                    if let Some(refusal) = refusal.filter(|_| !is_taken) {
                        self.send_message_later(refusal);
                    }
                }
                answer = &mut answered => {
                    let given_up = || UpstreamError::Broken("it was cancelled".to_owned());
                    return answer.unwrap_or_else(|_| Err(given_up()));
                }
            }
        }
    }

    /// Sends a notification.
    pub(super) async fn notify(&self, method: &str) -> Result<(), UpstreamError> {
        self.send_message(message::notification(method, &[])?).await
    }

    pub(super) async fn send_message(&self, message: Vec<u8>) -> Result<(), UpstreamError> {
        let line = message::one_line(message);
        self.queue.send(line).await.map_err(|_| UpstreamError::Gone)
    }

    /// Sends a request and ignores the response.
    pub(super) fn request_later(&self, request: &UpstreamRequest<'_>, era: Era) {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        if let Ok(message) = request.encode(id, era, false) {
            self.send_message_later(message);
        }
    }

    /// Sends a message unless the queue is full, because a server that does not read must not block others.
    pub(super) fn send_message_later(&self, message: Vec<u8>) {
        let _ = self.queue.try_send(message::one_line(message));
    }

    /// Marks the handshake as successful. From now on, the end of the server is reported.
    pub(super) fn take_into_use(&self) {
        self.in_use.store(true, Ordering::Relaxed);
    }

    /// Returns whether the server is running.
    pub(super) fn is_open(&self) -> bool {
        !self.waiting.lock().ended
    }

    /// Fails all waiting and later requests. `cause` is the reason if the server ended by itself.
    pub(super) fn end(&self, cause: Option<&str>) {
        let mut table = self.waiting.lock();
        if table.ended {
            return;
        }
        table.ended = true;
        if let Some(cause) = cause
            && self.in_use.load(Ordering::Relaxed)
        {
            self.events.down(cause);
        }
        let cause = cause.unwrap_or("this gateway stopped it");
        for (_, waiter) in table.requests.drain() {
            let broken = UpstreamError::Broken(cause.to_owned());
            // The receiver may be gone, which does not matter.
            let _ = waiter.answer.send(Err(broken));
        }
    }

    /// Reads the messages of the server until its output ends.
    pub(super) async fn read_output<R: tokio::io::AsyncBufRead + Unpin>(
        &self,
        output: R,
    ) -> EndOfLines {
        let mut lines = Lines::new(output, message::MAX_MESSAGE_BYTES, MAX_SKIPPED);
        loop {
            match lines.next().await {
                Ok(Line::Whole(line)) if line.trim_ascii().is_empty() => {}
                Ok(Line::Whole(line)) => match message::read_messages(line) {
                    Ok(messages) => messages
                        .into_iter()
                        .for_each(|message| self.handle_message(message)),
                    Err(why) => self.events.log_ignored(why),
                },
                Ok(Line::Cut(start)) => {
                    self.events
                        .log_ignored("it exceeds the size limit of messages");
                    let (waiter, _) = id_at_start(start)
                        .map(|id| self.remove_waiter(id))
                        .unwrap_or_default();
                    if let Some(waiter) = waiter {
                        let _ = waiter.answer.send(Err(UpstreamError::TooLarge));
                    }
                }
                Err(end) => return end,
            }
        }
    }

    fn handle_message(&self, message: IncomingMessage<'_>) {
        match message {
            IncomingMessage::Response {
                id: Some(id),
                outcome,
            } => match self.remove_waiter(id) {
                (Some(waiter), _) => {
                    let _ = waiter.answer.send(outcome.map(ToOwned::to_owned));
                }
                (None, true) => {}
                // The response has probably crossed with the cancellation.
                (None, false) if id < self.next_id.load(Ordering::Relaxed) => {
                    debug!(
                        upstream = self.events.upstream,
                        id, "an upstream server responded twice or too late"
                    );
                }
                (None, false) => self.events.handle_unsolicited(&IncomingMessage::Response {
                    id: Some(id),
                    outcome,
                }),
            },
            IncomingMessage::Request { id, method, params } => {
                let answer = match ServerRequest::from_parts(id, &method, params) {
                    Some(question) => self.waiting.lock().open.ask_only(question),
                    None => message::answer(id, &method).ok(),
                };
                if let Some(answer) = answer {
                    self.send_message_later(answer);
                }
            }
            IncomingMessage::Notification { method, params }
                if method == server_message::COMPLETED =>
            {
                if let Some(elicitation) = server_message::read_completed(params) {
                    self.waiting.lock().open.deliver_completed(&elicitation);
                }
            }
            IncomingMessage::Notification { method, params }
                if method == "notifications/message" =>
            {
                if let Some(log) = server_message::read_log(params) {
                    // A message that cannot be delivered is dropped.
                    let _ = self
                        .waiting
                        .lock()
                        .open
                        .deliver_to_only(ServerMessage::Log(log));
                }
            }
            IncomingMessage::Notification { method, params }
                if method == "notifications/progress" =>
            {
                if let Some((id, report)) = server_message::read_progress(params)
                    && let Some(waiter) = self.waiting.lock().requests.get(&id)
                    && let Some(messages) = &waiter.messages
                {
                    let _ = messages.try_send(ServerMessage::Progress(report));
                }
            }
            other => self.events.handle_unsolicited(&other),
        }
    }

    /// Removes the waiter for the response to request `id`. Returns it, and whether the request was known.
    fn remove_waiter(&self, id: u64) -> (Option<Waiter>, bool) {
        let mut table = self.waiting.lock();
        let is_known = table.open.remove_answered(id);
        (table.requests.remove(&id), is_known)
    }
}

/// Returns the id at the start of a message whose rest was not kept.
fn id_at_start(start: &[u8]) -> Option<u64> {
    #[derive(Deserialize)]
    struct Id {
        id: u64,
    }
    let start = &start[..start.len().min(64)];
    let comma_after_id = start.windows(5).position(|bytes| bytes == br#""id":"#)?;
    let end = start[comma_after_id..]
        .iter()
        .position(|&byte| byte == b',')?;
    let head = [&start[..comma_after_id + end], b"}"].concat();
    serde_json::from_slice::<Id>(&head).ok().map(|head| head.id)
}

/// A request that waits for its response. If it is dropped before, the server is notified of the cancellation.
struct PendingRequest<'a> {
    channel: &'a Channel,
    id: u64,
    can_be_cancelled: bool,
}

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        {
            let mut table = self.channel.waiting.lock();
            if table.requests.remove(&self.id).is_none() {
                return;
            }
            table.open.given_up(self.id);
        }
        if self.can_be_cancelled
            && let Ok(message) = message::cancelled_notification(self.id)
        {
            // If the queue is full, the server does not read and cannot be notified.
            let _ = self.channel.queue.try_send(message::one_line(message));
        }
    }
}
