//! Assignment of messages and requests of a server that name no request: they are about the only open request. If several
//! requests are open, they cannot be assigned and are not delivered.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::message;
use super::server_message::{ServerMessage, ServerRequest};

/// Maximum number of messages that wait for the caller of a request. Further messages are dropped.
pub(super) const MESSAGE_QUEUE: usize = 16;

/// Time during which a server may still send messages about a cancelled request.
const CANCELLED_REQUEST_TTL: Duration = Duration::from_mins(1);

/// The open requests of a server that its messages may be about.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    /// The open requests, each with the receiver of its messages if there is one.
    open: HashMap<u64, Option<mpsc::Sender<ServerMessage>>>,
    /// The requests that were cancelled and have no response yet, with the time of the cancellation.
    given_up: HashMap<u64, Instant>,
}

/// The reason why a message was not delivered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UndeliveredReason {
    /// There is no open request with a listener.
    Nobody,
    /// The message may be about several requests.
    Unclear,
}

impl OpenRequests {
    pub(super) fn begin(&mut self, id: u64, listener: Option<mpsc::Sender<ServerMessage>>) {
        self.open.insert(id, listener);
    }

    /// Removes a request that the server responded to. Returns whether it was known.
    pub(super) fn remove_answered(&mut self, id: u64) -> bool {
        let was_open = self.open.remove(&id).is_some();
        self.given_up.remove(&id).is_some() || was_open
    }

    /// Records that a request was cancelled.
    pub(super) fn given_up(&mut self, id: u64) {
        if self.open.remove(&id).is_some() {
            self.given_up.insert(id, Instant::now());
        }
    }

    /// Delivers a message to the caller of the only open request, if it listens.
    pub(super) fn deliver_to_only(
        &mut self,
        message: ServerMessage,
    ) -> Result<(), UndeliveredReason> {
        self.given_up
            .retain(|_, since| since.elapsed() < CANCELLED_REQUEST_TTL);
        let mut open = self.open.values();
        match (open.next(), open.next()) {
            (None, _) => Err(UndeliveredReason::Nobody),
            (Some(only), None) if self.given_up.is_empty() => {
                let delivered = only.as_ref().map(|only| only.try_send(message));
                delivered
                    .and_then(Result::ok)
                    .ok_or(UndeliveredReason::Nobody)
            }
            _ => Err(UndeliveredReason::Unclear),
        }
    }

    /// Delivers a request to the caller of the only open request. Returns the response for the server if it cannot be delivered.
    pub(super) fn ask_only(&mut self, question: ServerRequest) -> Option<Vec<u8>> {
        let (id, method) = (question.id.clone(), question.method.clone());
        match self.deliver_to_only(ServerMessage::Question(question)) {
            Ok(()) => None,
            Err(UndeliveredReason::Nobody) => message::answer(&id, &method).ok(),
            Err(UndeliveredReason::Unclear) => message::unclear(&id).ok(),
        }
    }

    /// Notifies all listeners that an elicitation is complete. The one that made it recognises the id.
    pub(super) fn deliver_completed(&self, elicitation: &str) {
        for listener in self.open.values().flatten() {
            // The message is dropped for a listener whose queue is full.
            let _ = listener.try_send(ServerMessage::Completed(elicitation.to_owned()));
        }
    }
}
