//! A request to a legacy server that may ask its client something on the way.
//!
//! ```text
//!   driver (a task): connection ─▶ request ─▶ said, asked, … ended ─▶ steps ─▶ a round takes them, and brings answers
//!                                                                        └ between two rounds nobody does
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

/// What is said and asked that waits to be taken up.
const STEPS: usize = 32;

/// As many places among them are kept for questions and the answer.
const RESERVED_FOR_QUESTIONS: usize = 16;

/// Questions of one exchange that are open at the same time.
pub(crate) const MAX_QUESTIONS: usize = 8;

/// Ids of elicitations of one exchange that are known.
const MAX_ELICITATIONS: usize = 64;

/// A request to a legacy server that stays open while its client is asked. Dropped, it is cancelled at the server.
pub struct OpenExchange {
    steps: mpsc::Receiver<ExchangeEvent>,
    /// What the client is asked and has not answered, by the keys it knows.
    pending: BTreeMap<u64, ExchangedRequest>,
    questions: u64,
    client: Arc<Participation>,
    link: Arc<Link>,
    _driver: AbortOnDropHandle<()>,
}

struct ExchangedRequest {
    question: ServerRequest,
    /// Where it came from, and where its answer goes.
    connection: Arc<UpstreamConnection>,
}

enum ExchangeEvent {
    Message(ServerMessage),
    Request(ExchangedRequest),
    Ended(Result<Box<RawValue>, UpstreamError>),
}

impl OpenExchange {
    /// Makes the request over `link`.
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
                            && take(message, connection, profile, &sender)
                    })
                    .await;
                // Whoever left does not mind.
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

    /// Goes on, with the answers that there are, up to the result or to what the client is asked next.
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
                // What has ended meanwhile takes no answers any more.
                if let Some(outcome) = self.catch_up(listener) {
                    return outcome;
                }
                self.answer(responses).await?;
            }
            loop {
                let step = if self.pending.is_empty() {
                    self.steps.recv().await
                } else {
                    // What is asked at once is answered at once.
                    match self.steps.try_recv() {
                        Ok(step) => Some(step),
                        Err(_) => return Ok(None),
                    }
                };
                let step = step.ok_or_else(|| UpstreamError::Broken("it was given up".to_owned()));
                if let Some(outcome) = self.take(step?, listener) {
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

    /// Refuses what the client is asked, so that the server goes on without.
    pub async fn refuse(&mut self) {
        for ExchangedRequest {
            question,
            connection,
        } in std::mem::take(&mut self.pending).into_values()
        {
            if let Ok(refusal) = message::unavailable(&question.id) {
                // Whether the server takes it is the server's affair.
                let _ = connection.say(refusal).await;
            }
        }
    }

    /// Takes what has come since the last round.
    fn catch_up(
        &mut self,
        listener: Listener<'_>,
    ) -> Option<Result<Option<Box<RawValue>>, UpstreamError>> {
        loop {
            match self.steps.try_recv() {
                Ok(step) => {
                    if let Some(outcome) = self.take(step, listener) {
                        return Some(outcome);
                    }
                }
                Err(_) => return None,
            }
        }
    }

    /// Gives the outcome, once it is there.
    fn take(
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

    /// Tells the server what the client answered. What it did not answer stays asked.
    async fn answer(&mut self, responses: &Responses) -> Result<(), UpstreamError> {
        for (key, answer) in &responses.by_key {
            let number = key.parse().ok();
            let request = number.and_then(|number: u64| self.pending.remove(&number));
            if let Some(ExchangedRequest {
                question,
                connection,
            }) = request
            {
                let answered = connection.say(message::answered(&question.id, answer)?);
                answered.await.map_err(|error| {
                    UpstreamError::Broken(format!("it did not take an answer: {error}"))
                })?;
            }
        }
        Ok(())
    }

    fn requests(&self) -> String {
        round::by_number(self.pending.iter().map(|(number, request)| {
            let ServerRequest { method, params, .. } = &request.question;
            (*number, round::written(method, params.as_deref()))
        }))
    }
}

/// Whether it is about this exchange, as `elicitations`, the ids of those that it made, tell. A server says to all of a
/// connection that one is over.
fn is_own(message: &ServerMessage, elicitations: &Mutex<BTreeSet<String>>) -> bool {
    let mut elicitations = elicitations.lock().unwrap_or_else(PoisonError::into_inner);
    match message {
        ServerMessage::Question(question) => {
            // Of a server that asks without end those are known that it began with.
            let has_room = elicitations.len() < MAX_ELICITATIONS;
            elicitations.extend(question.elicitation().filter(|_| has_room));
            true
        }
        ServerMessage::Completed(id) => elicitations.remove(id),
        ServerMessage::Progress(_) | ServerMessage::Log(_) | ServerMessage::StreamClosed => true,
    }
}

/// Whether what the server says or asks has a place.
fn take(
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
    /// A server that is cancelled need not know that its question is void; one that ignores that does.
    fn drop(&mut self) {
        for ExchangedRequest {
            question,
            connection,
        } in std::mem::take(&mut self.pending).into_values()
        {
            if let Ok(refusal) = message::unavailable(&question.id) {
                connection.say_later(refusal);
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
