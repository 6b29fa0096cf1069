//! A round of something that runs on an MCP server with a client that can take part.

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
use crate::sorted_arguments::sorted;
use wardgate_mcp::error_code::INVALID_PARAMS;
use wardgate_mcp_client::{
    Continuation, Responses, Round, RoundStart, ServerMessage, ServerTask, TaskStatus, Upstream,
    UpstreamError, UpstreamOperation,
};

/// The right of one run to let server and client talk.
pub(crate) struct Elicitation<'a> {
    interaction: &'a Interaction,
    suspended_exchanges: &'a Arc<SuspendedExchanges>,
    caller: &'a Caller,
    request: ElicitedRequest<'a>,
    may_become_task: bool,
}

/// Tells what is asked for from everything else that one caller asks for.
pub(crate) enum ElicitedRequest<'a> {
    /// A call of a tool.
    Call {
        /// Of the tool.
        definition: Digest,
        arguments: &'a Map<String, Value>,
        /// The idempotency key; empty where there is none.
        key: &'a str,
    },
    /// A prompt or a resource.
    Content {
        /// Of the prompt or the resource.
        definition: Digest,
        /// What the policy decided on.
        decided: &'a [u8],
        /// Of a prompt.
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
            } => Digest::of_texts(&[&definition.to_hex(), &sorted(arguments), key]),
            Self::Content {
                definition,
                decided,
                arguments,
            } => Digest::of_texts(&[
                &definition.to_hex(),
                &Digest::of(decided).to_hex(),
                &Digest::of(arguments).to_hex(),
            ]),
        }
    }
}

/// What a round ends in.
#[derive(Debug)]
pub(crate) enum EndedElicitation {
    Done(Box<RawValue>),
    Suspended(SuspendedRound),
    Task(FollowedTask),
}

/// A task that a call became, or that was looked after.
#[derive(Debug)]
pub(crate) struct FollowedTask {
    /// For whoever looks after it again.
    pub(crate) state: Bytes,
    /// MCP `Task` without its id: one JSON object; none where nothing was asked of that.
    pub(crate) about: Option<String>,
    /// None before it was looked at.
    pub(crate) status: Option<TaskStatus>,
}

/// What waits for the client.
pub(crate) struct SuspendedRound {
    /// MCP `inputRequests`: one JSON object.
    pub(crate) requests: String,
    pub(crate) state: Bytes,
}

impl SuspendedRound {
    /// What the client is asked, with what the record says of the round.
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

/// Why a round ends in neither.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ElicitationError {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// What is to go on is over, has gone on before, or is another's.
    #[error("nothing waits for these answers any more")]
    NotWaiting,
    /// The client did not do what the server needs done first.
    #[error("the client declined")]
    Declined,
}

impl<'a> Elicitation<'a> {
    /// Lets the client of `interaction` take part in `request` of `caller`.
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

    /// Stands for the request of this caller. Worked out where something waits or goes on, which few calls do.
    fn subject(&self) -> Digest {
        let owner = self.caller.person().to_hex();
        Digest::of_texts(&[&owner, &self.request.digest().to_hex()])
    }

    /// What is asked for may become a task, where its client takes one.
    pub(crate) fn with_task_if(self, may_become_task: bool) -> Self {
        Self {
            may_become_task,
            ..self
        }
    }

    /// Whether what is asked for may become a task.
    pub(crate) fn offers_tasks(&self) -> bool {
        self.may_become_task && self.interaction.participation.capabilities.accepts_tasks()
    }

    /// Whether a tool is called for its client that the server shows only to clients with the capabilities `required`.
    /// What goes on began for such a client.
    pub(crate) fn satisfies(&self, required: &RequiredCapabilities) -> bool {
        self.resumes()
            || self
                .interaction
                .participation
                .capabilities
                .satisfies(required)
    }

    /// Whether it goes on with something that waited.
    pub(crate) fn resumes(&self) -> bool {
        self.interaction.resumption.is_some()
    }

    /// Ends what was to go on: its client may not talk to the server any more.
    pub(crate) fn give_up(&self) {
        if let Some(resumption) = &self.interaction.resumption
            && let NextStep::Suspended(key) = &resumption.state.next
        {
            drop(self.suspended_exchanges.take(key, self.subject()));
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
                // The server took an earlier request of this call.
                Err(error) if goes_on => return Err(error.after_acceptance().into()),
                round => round?,
            };
            let (requests, then) = match round {
                Round::Done(result) => return Ok(EndedElicitation::Done(result)),
                Round::Task(ServerTask { id, about }) => {
                    // Another replica runs another process of a program, which knows nothing of it.
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

    /// Asks about the task that an earlier call of the same became.
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
            // The server knows it no more.
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
                let exchange = self.suspended_exchanges.take(key, self.subject());
                Ok(RoundStart::Open {
                    exchange: exchange.ok_or(ElicitationError::NotWaiting)?,
                    responses,
                })
            }
        }
    }
}
