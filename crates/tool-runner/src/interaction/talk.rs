//! A leg of something that runs on an MCP server with a client that can take part.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::Instant;
use wardgate_domain::{Caller, Digest, RequiredCapabilities};

use super::Interaction;
use super::parking::Parking;
use super::state::{Next, Place, State};
use wardgate_mcp::error_code::INVALID_PARAMS;
use wardgate_mcp_client::{
    Leg, News, Responses, ServerTask, Standing, Start, Then, Upstream, UpstreamError, Wanted,
};

/// The right of one run to let server and client talk.
pub(crate) struct Talk<'a> {
    interaction: &'a Interaction,
    parking: &'a Arc<Parking>,
    owner: Digest,
    subject: Digest,
    may_become_task: bool,
}

/// What a leg ends in.
#[derive(Debug)]
pub(crate) enum Ended {
    Done(Box<RawValue>),
    Waits(Waits),
    Task(LookedAfter),
}

/// A task that a call became, or that was looked after.
#[derive(Debug)]
pub(crate) struct LookedAfter {
    /// For whoever looks after it again.
    pub(crate) state: Bytes,
    /// MCP `Task` without its id: one JSON object; none where nothing was asked of that.
    pub(crate) about: Option<String>,
    /// None before it was looked at.
    pub(crate) standing: Option<Standing>,
}

/// What waits for the client.
pub(crate) struct Waits {
    /// MCP `inputRequests`: one JSON object.
    pub(crate) requests: String,
    pub(crate) state: Bytes,
}

impl std::fmt::Debug for Waits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Waits")
    }
}

/// Why a leg ends in neither.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TalkError {
    #[error(transparent)]
    Upstream(#[from] UpstreamError),
    /// What is to go on is over, has gone on before, or is another's.
    #[error("nothing waits for these answers any more")]
    NotWaiting,
    /// The client did not do what the server needs done first.
    #[error("the client declined")]
    Declined,
}

impl<'a> Talk<'a> {
    /// `subject` tells what is asked for from everything else that one caller asks for.
    pub(crate) fn new(
        interaction: &'a Interaction,
        parking: &'a Arc<Parking>,
        caller: &Caller,
        subject: &[&str],
    ) -> Self {
        let owner = caller.person();
        let of = [owner.to_string(), Digest::of_texts(subject).to_string()];
        Self {
            interaction,
            parking,
            owner,
            subject: Digest::of_texts(&of.each_ref().map(String::as_str)),
            may_become_task: false,
        }
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
        self.may_become_task && self.interaction.participation.capabilities.take_tasks()
    }

    /// Whether a tool is called for its client that the server shows only to clients with the capabilities `required`.
    /// What goes on began for such a client.
    pub(crate) fn satisfies(&self, required: &RequiredCapabilities) -> bool {
        self.resumes()
            || self
                .interaction
                .participation
                .capabilities
                .satisfy(required)
    }

    /// Whether it goes on with something that waited.
    pub(crate) fn resumes(&self) -> bool {
        self.interaction.resumption.is_some()
    }

    /// Ends what was to go on: its client may not talk to the server any more.
    pub(crate) fn give_up(&self) {
        if let Some(resumption) = &self.interaction.resumption
            && let Next::Parked(place) = &resumption.state.next
        {
            drop(self.parking.take(place, self.subject));
        }
    }

    /// Runs one leg by `deadline`.
    pub(crate) async fn leg(
        &self,
        upstream: &Upstream,
        wanted: &Wanted,
        deadline: Instant,
        listener: &mut (dyn FnMut(News) -> bool + Send),
    ) -> Result<Ended, TalkError> {
        let client = &self.interaction.participation;
        if self.interaction.looks_after_task() {
            return self.look_after(upstream, deadline).await;
        }
        let mut start = self.start()?;
        loop {
            let goes_on = matches!(start, Start::Retry { .. });
            let leg = upstream.leg(wanted, client, start, deadline, listener);
            let leg = match leg.await {
                // The server took an earlier request of this call.
                Err(error) if goes_on => return Err(error.after_acceptance().into()),
                leg => leg?,
            };
            let (requests, then) = match leg {
                Leg::Done(result) => return Ok(Ended::Done(result)),
                Leg::Task(ServerTask { id, about }) => {
                    // Another replica runs another process of a program, which knows nothing of it.
                    let at = self.parking.address().filter(|_| !upstream.is_over_http());
                    let at = at.map(str::to_owned);
                    let next = Next::Task(Place { id, at });
                    return Ok(Ended::Task(LookedAfter {
                        state: State::new(self.subject, next).write(),
                        about: Some(about),
                        standing: None,
                    }));
                }
                Leg::Waits { requests, then } => (requests, then),
            };
            let next = match then {
                Then::Retry(state) => Next::Retry(state),
                Then::Again => Next::Again,
                Then::Open(exchange) => {
                    match self.parking.park(self.owner, self.subject, exchange) {
                        Ok(place) => Next::Parked(place),
                        Err(mut exchange) => {
                            exchange.refuse().await;
                            start = Start::Open {
                                exchange,
                                responses: Responses::default(),
                            };
                            continue;
                        }
                    }
                }
            };
            let state = State::new(self.subject, next).write();
            return Ok(Ended::Waits(Waits { requests, state }));
        }
    }

    /// Asks about the task that an earlier call of the same became.
    async fn look_after(&self, upstream: &Upstream, deadline: Instant) -> Result<Ended, TalkError> {
        let resumption = self.interaction.resumption.as_ref();
        let (state, step) = resumption
            .and_then(|resumption| Some((&resumption.state, resumption.step.as_ref()?)))
            .filter(|(state, _)| state.is_of(self.subject))
            .ok_or(TalkError::NotWaiting)?;
        let Next::Task(place) = &state.next else {
            return Err(TalkError::NotWaiting);
        };
        let client = &self.interaction.participation;
        let looked = upstream.look_after(&place.id, step, client, deadline);
        let (about, standing) = match looked.await {
            Ok(Some((task, standing))) => (Some(task.about), Some(standing)),
            Ok(None) => (None, None),
            // The server knows it no more.
            Err(UpstreamError::Rpc(error)) if error.code == INVALID_PARAMS => {
                return Err(TalkError::NotWaiting);
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Ended::Task(LookedAfter {
            state: state.write(),
            about,
            standing,
        }))
    }

    fn start(&self) -> Result<Start, TalkError> {
        let Some(resumption) = &self.interaction.resumption else {
            let unasked = self.interaction.unasked.clone();
            return Ok(unasked.map_or(Start::Beginning, Start::Answered));
        };
        if !resumption.state.is_of(self.subject) {
            return Err(TalkError::NotWaiting);
        }
        let responses = resumption.responses.clone();
        match &resumption.state.next {
            Next::Retry(state) => Ok(Start::Retry {
                state: state.clone(),
                responses,
            }),
            Next::Again if responses.are_all_accepted() => Ok(Start::Beginning),
            Next::Again => Err(TalkError::Declined),
            Next::Task(_) => Err(TalkError::NotWaiting),
            Next::Parked(place) => {
                let exchange = self.parking.take(place, self.subject);
                Ok(Start::Open {
                    exchange: exchange.ok_or(TalkError::NotWaiting)?,
                    responses,
                })
            }
        }
    }
}
