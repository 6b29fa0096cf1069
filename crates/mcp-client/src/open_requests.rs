//! Which request a server means when it says or asks something without naming one: the only one that it works on.
//! While there are others nobody can tell whose it is, and it goes nowhere.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::message;
use super::server_message::{ServerMessage, ServerRequest};

/// What the server says that waits for whoever made the request; more is dropped.
pub(super) const MESSAGE_QUEUE: usize = 16;

/// For so long a server that was told to stop may still talk about what it did.
const CANCELLED_REQUEST_TTL: Duration = Duration::from_mins(1);

/// The requests that a server works on and may talk about.
#[derive(Debug, Default)]
pub(super) struct OpenRequests {
    /// Each with who listens to what is said of it, if anybody does.
    open: HashMap<u64, Option<mpsc::Sender<ServerMessage>>>,
    /// Requests that were given up and not answered since, and when.
    given_up: HashMap<u64, Instant>,
}

/// Why nobody is told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum UndeliveredReason {
    /// Nothing is open whose client could be.
    Nobody,
    /// It can be of several requests.
    Unclear,
}

impl OpenRequests {
    pub(super) fn begin(&mut self, id: u64, listener: Option<mpsc::Sender<ServerMessage>>) {
        self.open.insert(id, listener);
    }

    /// The server has answered it; tells whether anybody knew of it.
    pub(super) fn answered(&mut self, id: u64) -> bool {
        let was_open = self.open.remove(&id).is_some();
        self.given_up.remove(&id).is_some() || was_open
    }

    /// Nobody waits for its answer any more.
    pub(super) fn given_up(&mut self, id: u64) {
        if self.open.remove(&id).is_some() {
            self.given_up.insert(id, Instant::now());
        }
    }

    /// Tells whoever made the only request, if they listen.
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

    /// The same of a question; gives what the server is told where nobody takes it.
    pub(super) fn ask_only(&mut self, question: ServerRequest) -> Option<Vec<u8>> {
        let (id, method) = (question.id.clone(), question.method.clone());
        match self.deliver_to_only(ServerMessage::Question(question)) {
            Ok(()) => None,
            Err(UndeliveredReason::Nobody) => message::answer(&id, &method).ok(),
            Err(UndeliveredReason::Unclear) => message::unclear(&id).ok(),
        }
    }

    /// Tells everybody who listens that an elicitation is over: whoever made it knows its id.
    pub(super) fn deliver_completed(&self, elicitation: &str) {
        for listener in self.open.values().flatten() {
            // Who has too much to hear goes without.
            let _ = listener.try_send(ServerMessage::Completed(elicitation.to_owned()));
        }
    }
}
