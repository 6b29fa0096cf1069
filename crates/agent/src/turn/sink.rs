//! Sends the events of a turn and assigns their ids.
//!
//! ```text
//!   id = (round + 1) · 10 000 000 + position in the round
//!        text up to byte n: n │ call i: 9 000 000 + i │ outcome of call i: 9 100 000 + 4 i + step
//! ```
//!
//! An id states the position of an event in the turn. A turn that is replayed from its journal, by any replica, therefore has the
//! same ids, and a client that names the last event that it saw continues exactly, to the byte, after that event. An event that
//! ends a stream before the turn is complete has no position and shares the id of the event before it.

use tokio::sync::mpsc;
use wardgate_domain::{Ambient, Timestamp};

use crate::event::{AgentEvent, Cap, ErrorKind, EventBody, FinishReason};

const ROUND: u64 = 10_000_000;
const CALLS: u64 = 9_000_000;
const RESULTS: u64 = 9_100_000;
const END: u64 = 9_900_000;

/// Sends events to the client. A slow client makes the turn wait.
pub(super) struct EventSink {
    out: mpsc::Sender<AgentEvent>,
    ambient: Ambient,
    /// The id of the last event that the client already has.
    after: u64,
    last: u64,
    /// Whether the events that the client already has belong to an earlier reply.
    is_new_reply: bool,
    /// The latest round of this reply with text, and whether its text ends with white space.
    spoken: Option<(usize, bool)>,
}

/// The steps of a call, in the order of their events.
#[derive(Debug, Clone, Copy)]
enum CallStep {
    ApprovalRequired = 0,
    Error = 1,
    Result = 2,
}

/// The content of the last event of a turn's stream.
#[derive(Debug)]
pub(super) struct TurnEnd {
    pub(super) reason: FinishReason,
    pub(super) conversation_id: Option<String>,
    pub(super) turn_id: String,
    pub(super) message_id: Option<String>,
    pub(super) cap: Option<Cap>,
}

fn base(round: usize) -> u64 {
    (round as u64 + 1) * ROUND
}

fn of_call(round: usize, call: usize, step: CallStep) -> u64 {
    base(round) + RESULTS + 4 * call as u64 + step as u64
}

/// Returns the id of the event that asks for an approval.
pub(super) fn approval_id(round: usize, call: usize) -> u64 {
    of_call(round, call, CallStep::ApprovalRequired)
}

impl EventSink {
    pub(super) fn new(out: mpsc::Sender<AgentEvent>, ambient: Ambient, after: Option<u64>) -> Self {
        let after = after.unwrap_or(0);
        Self {
            out,
            ambient,
            after,
            last: after,
            is_new_reply: false,
            spoken: None,
        }
    }

    /// Creates a sink for a separate reply that continues after the event `after`.
    pub(super) fn new_reply(out: mpsc::Sender<AgentEvent>, ambient: Ambient, after: u64) -> Self {
        Self {
            is_new_reply: true,
            ..Self::new(out, ambient, Some(after))
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.ambient.now()
    }

    /// Marks that a round is generated again, which invalidates what the client has of it.
    pub(super) fn restart_round(&mut self, round: usize) {
        self.after = self.after.min(base(round));
        self.last = self.last.min(base(round));
    }

    /// Sends the complete text of a round, or the rest that the client does not have.
    pub(super) async fn whole_text(&mut self, round: usize, text: &str) {
        let has = usize::try_from(self.after.saturating_sub(base(round))).unwrap_or(usize::MAX);
        let rest = text.get(has.min(text.len())..).unwrap_or(text);
        if rest.is_empty() && !self.is_new_reply {
            self.set_spoken(round, text);
        }
        self.text(round, text.len(), rest).await;
    }

    /// Sends more text of a round, whose length is then `whole` bytes. Text that follows the text of an earlier round starts a
    /// new paragraph.
    pub(super) async fn text(&mut self, round: usize, whole: usize, more: &str) {
        if !more.is_empty() {
            let text = match self.spoken {
                Some((earlier, false)) if earlier < round && whole == more.len() => {
                    format!("\n\n{more}")
                }
                _ => more.to_owned(),
            };
            self.set_spoken(round, more);
            let place = (whole as u64).min(CALLS - 1);
            self.send(base(round) + place, EventBody::Token { text })
                .await;
        }
    }

    fn set_spoken(&mut self, round: usize, text: &str) {
        if !text.is_empty() {
            self.spoken = Some((round, text.ends_with(char::is_whitespace)));
        }
    }

    pub(super) async fn call(&mut self, round: usize, call: usize, body: EventBody) {
        self.send(base(round) + CALLS + call as u64, body).await;
    }

    pub(super) async fn approval(&mut self, round: usize, call: usize, body: EventBody) {
        self.send(approval_id(round, call), body).await;
    }

    pub(super) async fn call_error(
        &mut self,
        round: usize,
        call: usize,
        kind: ErrorKind,
        message: &str,
    ) {
        let message = message.to_owned();
        let id = of_call(round, call, CallStep::Error);
        self.send(id, EventBody::Error { kind, message }).await;
    }

    pub(super) async fn result(&mut self, round: usize, call: usize, body: EventBody) {
        self.send(of_call(round, call, CallStep::Result), body)
            .await;
    }

    /// Sends an error that ends the stream or explains a refusal.
    pub(super) async fn error(&mut self, kind: ErrorKind, message: &str) {
        let message = message.to_owned();
        self.force(self.last, EventBody::Error { kind, message })
            .await;
    }

    /// Sends the usage unless it is zero.
    pub(super) async fn usage(&mut self, input_tokens: u64, output_tokens: u64) {
        if input_tokens + output_tokens > 0 {
            let body = EventBody::Usage {
                input_tokens,
                output_tokens,
            };
            self.force(self.last, body).await;
        }
    }

    /// Marks the answer as complete, so that the following events have an id of their own.
    pub(super) fn mark_answer_complete(&mut self, round: usize) {
        self.last = base(round) + END;
    }

    pub(super) async fn send_end(&mut self, end: TurnEnd) {
        let body = EventBody::Done {
            finish_reason: end.reason,
            conversation_id: end.conversation_id,
            turn_id: end.turn_id,
            message_id: end.message_id,
            cap: end.cap,
        };
        self.force(self.last, body).await;
    }

    async fn send(&mut self, id: u64, body: EventBody) {
        self.last = self.last.max(id);
        if id > self.after {
            self.force(id, body).await;
        }
    }

    /// Sends an event in any case. Errors are ignored: if the client is gone, its stream and this sink are about to be dropped.
    async fn force(&mut self, id: u64, body: EventBody) {
        let timestamp = self.now();
        let event = AgentEvent {
            id,
            body,
            timestamp,
        };
        let _ = self.out.send(event).await;
    }
}
