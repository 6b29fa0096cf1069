//! A request to a legacy server that may request input from its client in between.
//!
//! ```text
//!   driver (a task): connection ─▶ request ─▶ said, asked, … ended ─▶ steps ─▶ a round takes them, and brings answers
//!                                                                        └ between two rounds they wait
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::{self as round, Continuation, Round, UpstreamOperation};
use crate::connection::UpstreamConnection;
use crate::error::UpstreamError;
use crate::link::Link;
use crate::message;
use crate::participation::{ClientProfile, Participation};
use crate::responses::Responses;
use crate::server_message::{Listener, ServerMessage, ServerRequest};

/// Maximum number of steps that wait to be received.
const STEPS: usize = 32;

/// Number of places in this queue that are reserved for questions and the result.
const RESERVED_FOR_QUESTIONS: usize = 16;

/// Maximum number of open questions of one exchange.
pub(crate) const MAX_QUESTIONS: usize = 8;

/// Maximum number of known elicitation ids of one exchange.
const MAX_ELICITATIONS: usize = 64;

/// A request to a legacy server that stays open while the client is asked for input. Dropping it cancels
/// the request at the server.
pub struct OpenExchange {
    steps: mpsc::Receiver<ExchangeEvent>,
    /// The questions that the client has not answered, by their keys.
    pending: BTreeMap<u64, ExchangedRequest>,
    questions: u64,
    client: Arc<Participation>,
    link: Arc<Link>,
    _driver: AbortOnDropHandle<()>,
}

struct ExchangedRequest {
    question: ServerRequest,
    /// The connection that the question came from, which also takes the answer.
    connection: Arc<UpstreamConnection>,
}

enum ExchangeEvent {
    Message(ServerMessage),
    Request(ExchangedRequest),
    Ended(Result<Box<RawValue>, UpstreamError>),
}

impl OpenExchange {
    /// Sends the request over `link`.
    pub(crate) fn begin(
        link: Arc<Link>,
        operation: UpstreamOperation,
        is_task: bool,
        client: Arc<Participation>,
    ) -> Self {
        let (sender, steps) = mpsc::channel(STEPS);
        let driver = {
            let (client, link) = (Arc::clone(&client), Arc::clone(&link));
            let elicitations = Mutex::default();
            async move {
                let request = operation.request().with(&client).task_if(is_task);
                let profile = client.capabilities.profile;
                let outcome = link
                    .request_without_deadline(&request, |message, connection| {
                        is_own(&message, &elicitations)
                            && queue_message(message, connection, profile, &sender)
                    })
                    .await;
                // The receiver may be gone, which does not matter.
                let _ = sender.send(ExchangeEvent::Ended(outcome)).await;
            }
        };
        Self {
            steps,
            pending: BTreeMap::new(),
            questions: 0,
            client,
            link,
            _driver: AbortOnDropHandle::new(tokio::spawn(driver)),
        }
    }

    /// Continues with the given responses, up to the result or to the next questions.
    pub(crate) async fn round(
        mut self,
        responses: Option<&Responses>,
        deadline: Instant,
        listener: Listener<'_>,
    ) -> Result<Round, UpstreamError> {
        let link = Arc::clone(&self.link);
        let going = async {
            let _permit = link.request_permit().await?;
            if let Some(responses) = responses {
                // A request that has ended in the meantime takes no more responses.
                if let Some(outcome) = self.catch_up(listener) {
                    return outcome;
                }
                self.answer(responses).await?;
            }
            loop {
                let step = if self.pending.is_empty() {
                    self.steps.recv().await
                } else {
                    // Questions that arrive together are passed on together.
                    match self.steps.try_recv() {
                        Ok(step) => Some(step),
                        Err(_) => return Ok(None),
                    }
                };
                let step = step.ok_or_else(|| UpstreamError::Broken("it was cancelled".to_owned()));
                if let Some(outcome) = self.handle_event(step?, listener) {
                    return outcome;
                }
            }
        };
        let ended = timeout_at(deadline, going).await;
        match ended.unwrap_or(Err(UpstreamError::Timeout)) {
            Ok(None) => Ok(Round::Waits {
                requests: self.requests(),
                then: Continuation::Open(self),
            }),
            Ok(Some(result)) => {
                self.pending.clear();
                round::end(Ok(result), &self.client, false)
            }
            Err(error) => {
                let client = Arc::clone(&self.client);
                round::end(Err(error), &client, false)
            }
        }
    }

    /// Refuses the open questions, so that the server continues without answers.
    pub async fn refuse(&mut self) {
        for ExchangedRequest {
            question,
            connection,
        } in std::mem::take(&mut self.pending).into_values()
        {
            if let Ok(refusal) = message::unavailable(&question.id) {
                // It does not matter whether the server accepts the refusal.
                let _ = connection.send_message(refusal).await;
            }
        }
    }

    /// Handles the steps since the last round. Returns the outcome if the request has ended.
    fn catch_up(
        &mut self,
        listener: Listener<'_>,
    ) -> Option<Result<Option<Box<RawValue>>, UpstreamError>> {
        loop {
            match self.steps.try_recv() {
                Ok(step) => {
                    if let Some(outcome) = self.handle_event(step, listener) {
                        return Some(outcome);
                    }
                }
                Err(_) => return None,
            }
        }
    }

    /// Handles one step. Returns the outcome if the request has ended.
    fn handle_event(
        &mut self,
        step: ExchangeEvent,
        listener: Listener<'_>,
    ) -> Option<Result<Option<Box<RawValue>>, UpstreamError>> {
        match step {
            ExchangeEvent::Message(message) => {
                listener(message);
                None
            }
            ExchangeEvent::Request(request) => {
                self.questions += 1;
                self.pending.insert(self.questions, request);
                None
            }
            ExchangeEvent::Ended(outcome) => Some(outcome.map(Some)),
        }
    }

    /// Sends the client's responses to the server. Questions without a response stay open.
    async fn answer(&mut self, responses: &Responses) -> Result<(), UpstreamError> {
        for (key, answer) in &responses.by_key {
            let number = key.parse().ok();
            let request = number.and_then(|number: u64| self.pending.remove(&number));
            if let Some(ExchangedRequest {
                question,
                connection,
            }) = request
            {
                let answered =
                    connection.send_message(message::encode_response(&question.id, answer)?);
                answered.await.map_err(|error| {
                    UpstreamError::Broken(format!("it did not accept an answer: {error}"))
                })?;
            }
        }
        Ok(())
    }

    fn requests(&self) -> String {
        round::by_number(self.pending.iter().map(|(number, request)| {
            let ServerRequest { method, params, .. } = &request.question;
            (*number, round::input_request(method, params.as_deref()))
        }))
    }
}

/// Returns whether a message is about this exchange. `elicitations` contains the ids of the elicitations of this exchange,
/// because a server announces their completion to all requests of a connection.
fn is_own(message: &ServerMessage, elicitations: &Mutex<BTreeSet<String>>) -> bool {
    let mut elicitations = elicitations.lock().unwrap_or_else(PoisonError::into_inner);
    match message {
        ServerMessage::Question(question) => {
            // If a server asks without end, only the first elicitations are remembered.
            let has_room = elicitations.len() < MAX_ELICITATIONS;
            elicitations.extend(question.elicitation().filter(|_| has_room));
            true
        }
        ServerMessage::Completed(id) => elicitations.remove(id),
        ServerMessage::Progress(_) | ServerMessage::Log(_) | ServerMessage::StreamClosed => true,
    }
}

/// Puts a message or question of the server into the queue. Returns whether there was room.
fn queue_message(
    message: ServerMessage,
    connection: &Arc<UpstreamConnection>,
    profile: ClientProfile,
    steps: &mpsc::Sender<ExchangeEvent>,
) -> bool {
    let free = steps.capacity();
    match message {
        ServerMessage::Question(question) => {
            let is_covered = profile.covers(&question.method, question.params.as_deref());
            let request = ExchangedRequest {
                question,
                connection: Arc::clone(connection),
            };
            is_covered
                && free > STEPS - RESERVED_FOR_QUESTIONS - MAX_QUESTIONS
                && steps.try_send(ExchangeEvent::Request(request)).is_ok()
        }
        message => {
            free > RESERVED_FOR_QUESTIONS && steps.try_send(ExchangeEvent::Message(message)).is_ok()
        }
    }
}

impl Drop for OpenExchange {
    /// Refuses the open questions. A server that processes the cancellation does not need this, but one that ignores it does.
    fn drop(&mut self) {
        for ExchangedRequest {
            question,
            connection,
        } in std::mem::take(&mut self.pending).into_values()
        {
            if let Ok(refusal) = message::unavailable(&question.id) {
                connection.send_message_later(refusal);
            }
        }
    }
}

impl std::fmt::Debug for OpenExchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenExchange")
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}
