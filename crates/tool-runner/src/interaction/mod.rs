//! Interaction with clients while their requests run on an MCP server.
//!
//! ```text
//!   Interaction ─▶ Elicitation ─▶ a round with the server ─▶ result
//!                   ▲                            └▶ questions, or the task ─▶ ResumptionState ─▶ the gateway ─▶ the client
//!                   └──────────── resumption: the state and the client's answers ◀──────────────────────────┘
//!                                                     (an exchange that stays open is suspended meanwhile)
//! ```
//!
//! If a permit restricts what may be seen, there is no [`Elicitation`]: no capabilities of the client are offered to
//! the server, and nothing that the server sends besides its result is passed on.

mod elicitation;
mod state;
mod suspended_exchanges;

use std::sync::Arc;

use bytes::Bytes;
use wardgate_domain::InvalidMessage;
use wardgate_rpc::client::{self, PassthroughMeta};

use wardgate_mcp_client::{
    ClientCapabilities, InvalidParticipation, Participation, PassthroughMembers, Responses,
    ServerTaskRequest,
};

pub(crate) use elicitation::{
    Elicitation, ElicitationError, ElicitedRequest, EndedElicitation, FollowedTask, SuspendedRound,
};
pub(crate) use state::ResumptionState;
pub(crate) use suspended_exchanges::SuspendedExchanges;

/// The client's part in a request, before validation. It is validated only if the source may ask the client.
pub(crate) struct UncheckedInteraction {
    /// The MCP `ClientCapabilities` as a JSON object. If it is empty, the client cannot be asked for anything.
    pub(crate) capabilities: Bytes,
    /// The minimum MCP level of the log messages that the client wants. If it is empty, the client wants none.
    pub(crate) log_level: String,
    pub(crate) resumption: Option<client::Resumption>,
    pub(crate) passthrough: PassthroughMeta,
    /// Whether the client uses a protocol version before 2026-07-28.
    pub(crate) is_legacy: bool,
}

/// The client's part in a request, after validation.
pub(crate) struct Interaction {
    participation: Arc<Participation>,
    pub(crate) resumption: Option<Resumption>,
    /// The client's answers that no request of this service asked for.
    unsolicited_responses: Option<Responses>,
}

/// The resumption of a request that waited for its client.
pub(crate) struct Resumption {
    pub(crate) state: ResumptionState,
    responses: Responses,
    /// The request about a task, or `None` if the resumed request is not a task.
    step: Option<ServerTaskRequest>,
}

impl Interaction {
    /// Returns whether the client takes no part at all: it cannot be asked, wants no log messages, does not support
    /// tasks, sends no further members, and resumes nothing.
    pub(crate) fn is_idle(&self) -> bool {
        let Participation {
            capabilities,
            log_level,
            others,
            is_legacy: _,
        } = &*self.participation;
        let is_silent = others.is_empty()
            && self.unsolicited_responses.is_none()
            && !capabilities.accepts_tasks();
        capabilities.can_be_asked_nothing()
            && log_level.is_none()
            && is_silent
            && self.resumption.is_none()
    }

    /// Returns whether the request is about a task that an earlier call became.
    pub(crate) fn is_task_request(&self) -> bool {
        let resumption = self.resumption.as_ref();
        resumption.is_some_and(|resumption| resumption.step.is_some())
    }
}

impl TryFrom<UncheckedInteraction> for Interaction {
    type Error = InvalidMessage;

    fn try_from(interaction: UncheckedInteraction) -> Result<Self, Self::Error> {
        let invalid = |field, why: String| InvalidMessage::field(field, why);
        let capabilities = ClientCapabilities::parse(&interaction.capabilities);
        let log_level = Some(interaction.log_level.as_str()).filter(|level| !level.is_empty());
        let log_level = log_level.map(str::parse).transpose();
        let resumption = interaction.resumption.map(Resumption::try_from);
        let unsolicited =
            Some(interaction.passthrough.unsolicited_responses).filter(|json| !json.is_empty());
        Ok(Self {
            // Answers that cannot be parsed are ignored, because nothing waits for them.
            unsolicited_responses: unsolicited.and_then(|json| Responses::parse(&json)),
            participation: Arc::new(Participation {
                capabilities: capabilities.map_err(|error| {
                    invalid("interaction.client_capabilities_json", error.to_string())
                })?,
                log_level: log_level.map_err(|error: InvalidParticipation| {
                    invalid("interaction.log_level", error.to_string())
                })?,
                is_legacy: interaction.is_legacy,
                others: PassthroughMembers::from_meta(&interaction.passthrough.meta).ok_or_else(
                    || invalid("interaction.meta_json", "is not a JSON object".to_owned()),
                )?,
            }),
            resumption: resumption.transpose()?,
        })
    }
}

impl TryFrom<client::Resumption> for Resumption {
    type Error = InvalidMessage;

    fn try_from(resumption: client::Resumption) -> Result<Self, Self::Error> {
        let missing = |field| InvalidMessage::field(field, "cannot be read");
        let responses = Responses::parse(&resumption.responses)
            .ok_or_else(|| missing("interaction.resumption.input_responses_json"))?;
        Ok(Self {
            state: ResumptionState::decode(&resumption.state)
                .ok_or_else(|| missing("interaction.resumption.state"))?,
            step: resumption.task_step.map(|step| match step {
                client::TaskStep::Get => ServerTaskRequest::Get,
                client::TaskStep::Update => ServerTaskRequest::Update(responses.clone()),
                client::TaskStep::Cancel => ServerTaskRequest::Cancel,
            }),
            responses,
        })
    }
}
