//! Runs one round of a request to an MCP server in which the client can take part.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;
use wardgate_domain::{Caller, Digest, RequiredCapabilities};
use wardgate_rpc::client::{InputRequired, ResultFacts};

use super::Interaction;
use super::state::{NextStep, ResumptionState, SuspensionKey};
use super::suspended_exchanges::SuspendedExchanges;
use crate::sorted_arguments::to_sorted_json;
use wardgate_mcp::error_code::INVALID_PARAMS;
use wardgate_mcp_client::{
    Continuation, Responses, Round, RoundStart, ServerMessage, ServerTask, TaskStatus, Upstream,
    UpstreamError, UpstreamOperation,
};

/// The part of the client in one request, which lets the server ask the client for input.
pub(crate) struct Elicitation<'a> {
    interaction: &'a Interaction,
    suspended_exchanges: &'a Arc<SuspendedExchanges>,
    caller: &'a Caller,
    request: ElicitedRequest<'a>,
    may_become_task: bool,
}

/// Identifies a request among all requests of one caller.
pub(crate) enum ElicitedRequest<'a> {
    /// A tool call.
    Call {
        /// The digest of the tool's definition.
        definition: Digest,
        arguments: &'a Map<String, Value>,
        /// The idempotency key, or an empty string if there is none.
        key: &'a str,
    },
    /// A request for a prompt or a resource.
    Content {
        /// The digest of the definition of the source's prompts or resources.
        definition: Digest,
        /// The JSON that the policy service decided on.
        decided: &'a [u8],
        /// The arguments of a prompt.
        arguments: &'a [u8],
    },
}

impl ElicitedRequest<'_> {
    fn digest(&self) -> Digest {
        match self {
            Self::Call {
                definition,
                arguments,
                key,
            } => Digest::of_texts(&[&definition.to_hex(), &to_sorted_json(arguments), key]),
            Self::Content {
                definition,
                decided,
                arguments,
            } => Digest::of_texts(&[
                &definition.to_hex(),
                &Digest::compute(decided).to_hex(),
                &Digest::compute(arguments).to_hex(),
            ]),
        }
    }
}

/// The end of a round.
#[derive(Debug)]
pub(crate) enum EndedElicitation {
    Done(Box<RawValue>),
    Suspended(SuspendedRound),
    Task(FollowedTask),
}

/// A task that a call became, or that a request asked about.
#[derive(Debug)]
pub(crate) struct FollowedTask {
    /// The state with which a later request refers to the task.
    pub(crate) state: Bytes,
    /// The MCP `Task` without its id as one JSON object, or `None` if the request did not return the task.
    pub(crate) about: Option<String>,
    /// The status of the task, or `None` if it has not been requested.
    pub(crate) status: Option<TaskStatus>,
}

/// A round that waits for input from the client.
pub(crate) struct SuspendedRound {
    /// The MCP `inputRequests` as one JSON object.
    pub(crate) requests: String,
    pub(crate) state: Bytes,
}

impl SuspendedRound {
    /// Returns the request for the client's input, with the facts of the round for the audit record.
    pub(crate) fn into_input_required(self, facts: ResultFacts) -> InputRequired {
        InputRequired {
            requests: self.requests,
            state: self.state,
            facts,
            connect: None,
        }
    }
}

impl std::fmt::Debug for SuspendedRound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SuspendedRound")
    }
}

/// The reason why a round failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElicitationError {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// The exchange to resume is over, has already been resumed, or belongs to another request.
    #[error("no call waits for these answers any more")]
    NotWaiting,
    /// The client declined an action that the server requires first.
    #[error("the client declined")]
    Declined,
}

impl<'a> Elicitation<'a> {
    /// Creates the part of the client of `interaction` in `request` of `caller`.
    pub(crate) fn new(
        interaction: &'a Interaction,
        suspended_exchanges: &'a Arc<SuspendedExchanges>,
        caller: &'a Caller,
        request: ElicitedRequest<'a>,
    ) -> Self {
        Self {
            interaction,
            suspended_exchanges,
            caller,
            request,
            may_become_task: false,
        }
    }

    /// Returns the digest of the caller and the request. It is computed only when a request waits or resumes, which is
    /// rare.
    fn subject(&self) -> Digest {
        let owner = self.caller.person().to_hex();
        Digest::of_texts(&[&owner, &self.request.digest().to_hex()])
    }

    /// Sets whether the request may become a task, provided that the client supports tasks.
    pub(crate) fn with_task_if(self, may_become_task: bool) -> Self {
        Self {
            may_become_task,
            ..self
        }
    }

    /// Returns whether the request may become a task.
    pub(crate) fn offers_tasks(&self) -> bool {
        self.may_become_task && self.interaction.participation.capabilities.accepts_tasks()
    }

    /// Returns whether the client has the capabilities `required`, without which the server does not show the tool. A
    /// resumed call started with such a client.
    pub(crate) fn satisfies(&self, required: &RequiredCapabilities) -> bool {
        self.resumes()
            || self
                .interaction
                .participation
                .capabilities
                .satisfies(required)
    }

    /// Returns whether the request resumes one that waited for the client.
    pub(crate) fn resumes(&self) -> bool {
        self.interaction.resumption.is_some()
    }

    /// Ends the exchange that would have been resumed, because its client may no longer talk to the server.
    pub(crate) fn give_up(&self) {
        if let Some(resumption) = &self.interaction.resumption
            && let NextStep::Suspended(key) = &resumption.state.next
        {
            drop(self.suspended_exchanges.take_exchange(key, self.subject()));
        }
    }

    /// Runs one round by `deadline`.
    pub(crate) async fn round(
        &self,
        upstream: &Upstream,
        wanted: &UpstreamOperation,
        deadline: Instant,
        listener: &mut (dyn FnMut(ServerMessage) -> bool + Send),
    ) -> Result<EndedElicitation, ElicitationError> {
        let client = &self.interaction.participation;
        if self.interaction.is_task_request() {
            return self.look_after(upstream, deadline).await;
        }
        let mut start = self.start()?;
        loop {
            let goes_on = matches!(start, RoundStart::Retry { .. });
            let round = upstream.round(wanted, client, start, deadline, listener);
            let round = match round.await {
                // The server has already accepted an earlier request of this call.
                Err(error) if goes_on => return Err(error.after_acceptance().into()),
                round => round?,
            };
            let (requests, then) = match round {
                Round::Done(result) => return Ok(EndedElicitation::Done(result)),
                Round::Task(ServerTask { id, about }) => {
                    // Another replica runs its own process of a local MCP server, which does not know the task.
                    let at = self
                        .suspended_exchanges
                        .address()
                        .filter(|_| !upstream.is_over_http());
                    let at = at.map(str::to_owned);
                    let next = NextStep::Task(SuspensionKey { id, at });
                    return Ok(EndedElicitation::Task(FollowedTask {
                        state: ResumptionState::new(self.subject(), next).encode(),
                        about: Some(about),
                        status: None,
                    }));
                }
                Round::Waits { requests, then } => (requests, then),
            };
            let next = match then {
                Continuation::Retry(state) => NextStep::Retry(state),
                Continuation::Again => NextStep::Again,
                Continuation::Open(exchange) => {
                    match self.suspended_exchanges.suspend(
                        self.caller.person(),
                        self.subject(),
                        exchange,
                    ) {
                        Ok(key) => NextStep::Suspended(key),
                        Err(mut exchange) => {
                            exchange.refuse().await;
                            start = RoundStart::Open {
                                exchange,
                                responses: Responses::default(),
                            };
                            continue;
                        }
                    }
                }
            };
            let state = ResumptionState::new(self.subject(), next).encode();
            return Ok(EndedElicitation::Suspended(SuspendedRound {
                requests,
                state,
            }));
        }
    }

    /// Sends a request about the task that an earlier, identical call became.
    async fn look_after(
        &self,
        upstream: &Upstream,
        deadline: Instant,
    ) -> Result<EndedElicitation, ElicitationError> {
        let resumption = self.interaction.resumption.as_ref();
        let (state, step) = resumption
            .and_then(|resumption| Some((&resumption.state, resumption.step.as_ref()?)))
            .filter(|(state, _)| state.is_of(self.subject()))
            .ok_or(ElicitationError::NotWaiting)?;
        let NextStep::Task(key) = &state.next else {
            return Err(ElicitationError::NotWaiting);
        };
        let client = &self.interaction.participation;
        let answered = upstream.request_task(&key.id, step, client, deadline);
        let (about, status) = match answered.await {
            Ok(Some((task, status))) => (Some(task.about), Some(status)),
            Ok(None) => (None, None),
            // The server does not know the task any more.
            Err(UpstreamError::Rpc(error)) if error.code == INVALID_PARAMS => {
                return Err(ElicitationError::NotWaiting);
            }
            Err(error) => return Err(error.into()),
        };
        Ok(EndedElicitation::Task(FollowedTask {
            state: state.encode(),
            about,
            status,
        }))
    }

    fn start(&self) -> Result<RoundStart, ElicitationError> {
        let Some(resumption) = &self.interaction.resumption else {
            let responses = self.interaction.unsolicited_responses.clone();
            return Ok(responses.map_or(RoundStart::Beginning, RoundStart::Answered));
        };
        if !resumption.state.is_of(self.subject()) {
            return Err(ElicitationError::NotWaiting);
        }
        let responses = resumption.responses.clone();
        match &resumption.state.next {
            NextStep::Retry(state) => Ok(RoundStart::Retry {
                state: state.clone(),
                responses,
            }),
            NextStep::Again if responses.are_all_accepted() => Ok(RoundStart::Beginning),
            NextStep::Again => Err(ElicitationError::Declined),
            NextStep::Task(_) => Err(ElicitationError::NotWaiting),
            NextStep::Suspended(key) => {
                let exchange = self.suspended_exchanges.take_exchange(key, self.subject());
                Ok(RoundStart::Open {
                    exchange: exchange.ok_or(ElicitationError::NotWaiting)?,
                    responses,
                })
            }
        }
    }
}
