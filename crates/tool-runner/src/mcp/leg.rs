//! One leg of a request whose client can take part: from its start, or from the client's answers, up to its result or
//! to what the client is asked next.
//!
//! ```text
//!   modern server:  a request of its own ─▶ result ∣ input_required              ─▶ state of the server's
//!   legacy server:  an open exchange, kept going by a task ─▶ result ∣ questions ─▶ the exchange itself, still open
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::error::{RpcError, UpstreamError};
use super::link::{Connection, Link};
use super::message::{self, Part, Request};
use super::news::{Listener, News, Question};
use super::participation::{Participation, Profile, object};
use super::result::{Outcome, read_outcome};

/// What is said and asked that waits to be taken up.
const STEPS: usize = 32;

/// As many places among them are kept for questions and the answer.
const KEPT_FOR_QUESTIONS: usize = 16;

/// Questions of one exchange that are open at the same time.
const MAX_QUESTIONS: usize = 8;

/// "URL elicitation required" (2025-11-25): nothing was done before the user has been there.
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// What is asked of a server.
#[derive(Debug, Clone)]
pub(crate) enum Wanted {
    Tool {
        name: String,
        arguments: Box<RawValue>,
    },
    Prompt {
        name: String,
        arguments: Box<RawValue>,
    },
    Resource {
        uri: String,
    },
}

/// Where a leg begins.
#[derive(Debug)]
pub(crate) enum Start {
    Beginning,
    /// A modern server's own state, exactly as it gave it, if it gave any.
    Retry {
        state: Option<String>,
        responses: Responses,
    },
    Open {
        exchange: OpenExchange,
        responses: Responses,
    },
}

/// What a leg ends in.
#[derive(Debug)]
pub(crate) enum Leg {
    Done(Box<RawValue>),
    Waits {
        /// MCP `inputRequests`: one JSON object.
        requests: String,
        then: Then,
    },
}

/// How it goes on once the client has answered.
#[derive(Debug)]
pub(crate) enum Then {
    /// By the same request again, with the server's own state if it gave any.
    Retry(Option<String>),
    /// Where it stopped.
    Open(OpenExchange),
    /// From the beginning, as nothing was done.
    Again,
}

/// What a client answered: each a JSON object, by the keys of what it was asked.
#[derive(Clone)]
pub(crate) struct Responses {
    by_key: BTreeMap<String, Box<RawValue>>,
    raw: Box<RawValue>,
}

impl Default for Responses {
    /// No answer at all.
    fn default() -> Self {
        Self {
            by_key: BTreeMap::new(),
            raw: RawValue::from_string("{}".to_owned()).unwrap_or_default(),
        }
    }
}

impl std::fmt::Debug for Responses {
    /// Without the answers.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responses")
            .field("answers", &self.by_key.len())
            .finish_non_exhaustive()
    }
}

impl Responses {
    /// `None` if it is something else.
    pub(crate) fn read(json: &[u8]) -> Option<Self> {
        let json = if json.is_empty() { b"{}" } else { json };
        let by_key: BTreeMap<String, Box<RawValue>> = serde_json::from_slice(json).ok()?;
        let are_objects = by_key.values().all(|answer| answer.get().starts_with('{'));
        are_objects.then_some(Self {
            by_key,
            raw: serde_json::from_slice(json).ok()?,
        })
    }

    /// Whether the client did everything it was asked to do elsewhere.
    pub(crate) fn are_all_accepted(&self) -> bool {
        #[derive(Deserialize)]
        struct Answer {
            action: String,
        }
        let mut answers = self.by_key.values();
        answers.all(|answer| {
            serde_json::from_str::<Answer>(answer.get())
                .is_ok_and(|answer| answer.action == "accept")
        })
    }
}

impl Wanted {
    pub(super) fn request(&self) -> Request<'_> {
        match self {
            Self::Tool { name, arguments } => Request::new(
                "tools/call",
                vec![
                    ("name", Part::Text(name)),
                    ("arguments", Part::Raw(arguments)),
                ],
            ),
            Self::Prompt { name, arguments } => Request::new(
                "prompts/get",
                vec![
                    ("name", Part::Text(name)),
                    ("arguments", Part::Raw(arguments)),
                ],
            ),
            Self::Resource { uri } => {
                Request::new("resources/read", vec![("uri", Part::Text(uri))])
            }
        }
    }
}

impl Responses {
    /// What makes a request the retry of one that waited.
    pub(super) fn add_to<'a>(&'a self, request: &mut Request<'a>, state: Option<&'a str>) {
        let members = &mut request.members;
        members.push(("inputResponses", Part::Raw(&self.raw)));
        members.extend(state.map(|state| ("requestState", Part::Text(state))));
    }
}

/// What becomes of the answer to a request.
pub(super) fn end(
    outcome: Result<Box<RawValue>, UpstreamError>,
    client: &Participation,
) -> Result<Leg, UpstreamError> {
    match outcome {
        Ok(result) => Ok(match read_outcome(result, client)? {
            Outcome::Complete(result) => Leg::Done(result),
            Outcome::InputRequired { requests, state } => Leg::Waits {
                requests,
                then: Then::Retry(state),
            },
        }),
        Err(UpstreamError::Rpc(error)) => match urls(&error, client.capabilities.profile) {
            Some(requests) => Ok(Leg::Waits {
                requests,
                then: Then::Again,
            }),
            None => Err(UpstreamError::Rpc(error)),
        },
        Err(error) => Err(error),
    }
}

/// The elicitations that a server asks for by an error, where the client takes part in them.
fn urls(error: &RpcError, profile: Profile) -> Option<String> {
    #[derive(Deserialize)]
    struct Data {
        elicitations: Vec<Box<RawValue>>,
    }
    if error.code != URL_ELICITATION_REQUIRED {
        return None;
    }
    let data: Data = serde_json::from_str(error.data.as_deref()?.get()).ok()?;
    let asked = &data.elicitations;
    let is_of_mode = |params: &RawValue| {
        let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
        params["mode"] == "url" && params["url"].is_string()
    };
    let is_covered = (1..=MAX_QUESTIONS).contains(&asked.len())
        && asked
            .iter()
            .all(|one| is_of_mode(one) && profile.covers("elicitation/create", Some(one)));
    let numbered = (1..).zip(asked);
    let requests =
        numbered.map(|(number, params)| (number, written("elicitation/create", Some(params))));
    is_covered.then(|| by_number(requests))
}

fn written(method: &str, params: Option<&RawValue>) -> String {
    let params = params.map(|params| ("params", params.get().to_owned()));
    let method = ("method", Value::from(method).to_string());
    object([method].into_iter().chain(params))
}

fn by_number(requests: impl Iterator<Item = (u64, String)>) -> String {
    let requests: Vec<_> = requests
        .map(|(number, request)| (number.to_string(), request))
        .collect();
    let requests = requests.iter();
    object(requests.map(|(key, request)| (key.as_str(), request.clone())))
}

/// A request to a legacy server that stays open while its client is asked. Dropped, it is cancelled at the server.
pub(crate) struct OpenExchange {
    steps: mpsc::Receiver<Step>,
    /// What the client is asked and has not answered, by the keys it knows.
    asked: BTreeMap<u64, Asked>,
    questions: u64,
    client: Arc<Participation>,
    link: Arc<Link>,
    _driver: AbortOnDropHandle<()>,
}

struct Asked {
    question: Question,
    /// Where it came from, and where its answer goes.
    connection: Arc<Connection>,
}

enum Step {
    Said(News),
    Asked(Asked),
    Ended(Result<Box<RawValue>, UpstreamError>),
}

impl OpenExchange {
    /// Makes the request over `link`.
    pub(super) fn begin(
        link: Arc<Link>,
        wanted: Wanted,
        is_task: bool,
        client: Arc<Participation>,
    ) -> Self {
        let (sender, steps) = mpsc::channel(STEPS);
        let driver = {
            let (client, link) = (Arc::clone(&client), Arc::clone(&link));
            async move {
                let request = wanted.request().with(&client).as_task(is_task);
                let profile = client.capabilities.profile;
                let outcome = link
                    .converse(&request, |news, connection| {
                        take(news, connection, profile, &sender)
                    })
                    .await;
                // Whoever left does not mind.
                let _ = sender.send(Step::Ended(outcome)).await;
            }
        };
        Self {
            steps,
            asked: BTreeMap::new(),
            questions: 0,
            client,
            link,
            _driver: AbortOnDropHandle::new(tokio::spawn(driver)),
        }
    }

    /// Goes on, with the answers that there are, up to the result or to what the client is asked next.
    pub(super) async fn leg(
        mut self,
        responses: Option<&Responses>,
        deadline: Instant,
        listener: Listener<'_>,
    ) -> Result<Leg, UpstreamError> {
        let link = Arc::clone(&self.link);
        let going = async {
            let _turn = link.turn().await?;
            if let Some(responses) = responses {
                // What has ended meanwhile takes no answers any more.
                if let Some(outcome) = self.catch_up(listener) {
                    return outcome;
                }
                self.answer(responses).await?;
            }
            loop {
                let step = if self.asked.is_empty() {
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
            Ok(None) => Ok(Leg::Waits {
                requests: self.requests(),
                then: Then::Open(self),
            }),
            Ok(Some(result)) => {
                self.asked.clear();
                end(Ok(result), &self.client)
            }
            Err(error) => {
                let client = Arc::clone(&self.client);
                end(Err(error), &client)
            }
        }
    }

    /// Refuses what the client is asked, so that the server goes on without.
    pub(crate) async fn refuse(&mut self) {
        for Asked {
            question,
            connection,
        } in std::mem::take(&mut self.asked).into_values()
        {
            if let Ok(refusal) = message::unavailable(&question.id) {
                // Whether the server takes it is the server's affair.
                let _ = connection.say(refusal).await;
            }
        }
    }

    /// Takes what has come since the last leg.
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
        step: Step,
        listener: Listener<'_>,
    ) -> Option<Result<Option<Box<RawValue>>, UpstreamError>> {
        match step {
            Step::Said(news) => {
                listener(news);
                None
            }
            Step::Asked(asked) => {
                self.questions += 1;
                self.asked.insert(self.questions, asked);
                None
            }
            Step::Ended(outcome) => Some(outcome.map(Some)),
        }
    }

    /// Tells the server what the client answered. What it did not answer stays asked.
    async fn answer(&mut self, responses: &Responses) -> Result<(), UpstreamError> {
        for (key, answer) in &responses.by_key {
            let number = key.parse().ok();
            let asked = number.and_then(|number: u64| self.asked.remove(&number));
            if let Some(Asked {
                question,
                connection,
            }) = asked
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
        by_number(self.asked.iter().map(|(number, asked)| {
            let Question { method, params, .. } = &asked.question;
            (*number, written(method, params.as_deref()))
        }))
    }
}

/// Whether what the server says or asks has a place.
fn take(
    news: News,
    connection: &Arc<Connection>,
    profile: Profile,
    steps: &mpsc::Sender<Step>,
) -> bool {
    let free = steps.capacity();
    match news {
        News::Question(question) => {
            let is_covered = profile.covers(&question.method, question.params.as_deref());
            let asked = Asked {
                question,
                connection: Arc::clone(connection),
            };
            is_covered
                && free > STEPS - KEPT_FOR_QUESTIONS - MAX_QUESTIONS
                && steps.try_send(Step::Asked(asked)).is_ok()
        }
        said => free > KEPT_FOR_QUESTIONS && steps.try_send(Step::Said(said)).is_ok(),
    }
}

impl Drop for OpenExchange {
    /// A server that is cancelled need not know that its question is void; one that ignores that does.
    fn drop(&mut self) {
        for Asked {
            question,
            connection,
        } in std::mem::take(&mut self.asked).into_values()
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
            .field("asked", &self.asked.len())
            .finish_non_exhaustive()
    }
}
