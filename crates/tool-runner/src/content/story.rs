//! The story of getting one prompt, resource or completion, read from top to bottom.
//!
//! ```text
//!   admit:  source ─▶ permit ─▶ Admitted          refused: nothing was got
//!   get:    own text ─▶ redact ─▶ result
//! ```

use std::sync::Arc;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tracing::info;
use wardgate_domain::{
    CallId, CallToRun, Caller, InvalidId, InvalidMessage, OfferKind, Permit, SignedPermit,
    Timestamp,
};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::get_content_request::{Completion, Wanted};
use wardgate_telemetry::names;

use super::Own;
use super::own::GetError;
use super::released::{Censor, count};
use crate::Error;
use crate::compiled::CompiledPermit;
use crate::loaded::Loaded;
use crate::result::Stopwatch;

/// Most values of one completion (MCP, "completion/complete").
const MAX_VALUES: usize = 100;

/// What is asked for, its fields checked.
pub(crate) struct Asked {
    id: CallId,
    pub(crate) caller: Caller,
    pub(crate) source: String,
    permit: Option<SignedPermit>,
    /// What the policy decided on, byte for byte.
    decided: Bytes,
    wish: Wish,
}

/// What is wanted, each by the source's own name for it.
enum Wish {
    Prompt { name: String, arguments: Bytes },
    Resource { uri: String },
    Completion { of: Named, wanted: Completion },
}

/// What the policy decides on.
enum Named {
    Prompt(String),
    /// Or a template of URIs.
    Resource(String),
}

impl Named {
    fn read(decided: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Decided {
            name: Option<String>,
            uri: Option<String>,
        }
        let decided: Decided = serde_json::from_slice(decided).ok()?;
        match (decided.name, decided.uri) {
            (Some(name), None) => Some(Self::Prompt(name)),
            (None, Some(uri)) => Some(Self::Resource(uri)),
            _ => None,
        }
    }
}

impl Wish {
    fn read(decided: &[u8], wanted: Wanted) -> Option<Self> {
        Some(match (Named::read(decided)?, wanted) {
            (of, Wanted::Completion(wanted)) => Self::Completion { of, wanted },
            (Named::Prompt(name), Wanted::Prompt(wanted)) => Self::Prompt {
                name,
                arguments: wanted.arguments_json,
            },
            (Named::Resource(uri), Wanted::Resource(_)) => Self::Resource { uri },
            (Named::Prompt(_), Wanted::Resource(_)) | (Named::Resource(_), Wanted::Prompt(_)) => {
                return None;
            }
        })
    }

    /// The right that it takes.
    fn kind(&self) -> OfferKind {
        match self {
            Self::Prompt { .. }
            | Self::Completion {
                of: Named::Prompt(_),
                ..
            } => OfferKind::Prompts,
            Self::Resource { .. }
            | Self::Completion {
                of: Named::Resource(_),
                ..
            } => OfferKind::Resources,
        }
    }
}

impl TryFrom<pb::GetContentRequest> for Asked {
    type Error = InvalidMessage;

    fn try_from(request: pb::GetContentRequest) -> Result<Self, Self::Error> {
        let missing = |field| InvalidMessage::field(field, "is missing");
        let wanted = request.wanted.ok_or_else(|| missing("wanted"))?;
        let wish = Wish::read(&request.decided_json, wanted)
            .ok_or_else(|| InvalidMessage::field("decided_json", "does not name what is wanted"))?;
        Ok(Self {
            id: request
                .call_id
                .parse()
                .map_err(|error: InvalidId| InvalidMessage::field("call_id", error.to_string()))?,
            caller: request
                .caller
                .ok_or_else(|| missing("caller"))?
                .try_into()?,
            source: request.source,
            // An empty permit is none.
            permit: request.permit.and_then(|permit| permit.try_into().ok()),
            decided: request.decided_json,
            wish,
        })
    }
}

/// What may be got. Only [`admit`] makes one.
pub(crate) struct Admitted {
    asked: Asked,
    own: Arc<Own>,
    permit: Permit,
    compiled: Arc<CompiledPermit>,
    max_bytes: usize,
    stopwatch: Stopwatch,
}

/// Finds the source and turns the signed permit into the right to get this of it once.
pub(crate) fn admit(
    mut asked: Asked,
    loaded: &Loaded,
    max_bytes: usize,
    now: Timestamp,
) -> Result<Admitted, Error> {
    let mut stopwatch = Stopwatch::start();
    let kind = asked.wish.kind();
    let offers = loaded.offers(&asked.source);
    let facts = offers.and_then(|offers| offers.facts(kind));
    let own = loaded.contents().own(&asked.source);
    let (facts, own) = facts.zip(own).ok_or(Error::UnknownTool)?;
    let signed = asked.permit.take().ok_or(Error::NoPermit)?;
    let to_run = CallToRun {
        caller: &asked.caller,
        tool: &facts.name,
        definition_digest: facts.definition_digest,
        arguments: &asked.decided,
    };
    let (permit, compiled) = loaded.compiled().admit(signed, to_run, None, now)?;
    stopwatch.lap("permit");
    Ok(Admitted {
        own: Arc::clone(own),
        asked,
        permit,
        compiled,
        max_bytes,
        stopwatch,
    })
}

/// Why there is no result: how the record tells it, and words for the client.
struct Failure {
    status: pb::OutcomeStatus,
    kind: &'static str,
    words: String,
}

impl From<GetError> for Failure {
    fn from(error: GetError) -> Self {
        Self {
            status: pb::OutcomeStatus::InvalidArguments,
            kind: match error {
                GetError::Unknown => UNKNOWN,
                GetError::Invalid(_) => "invalid_arguments",
            },
            words: error.to_string(),
        }
    }
}

/// The kind of a failure to find anything of that name.
const UNKNOWN: &str = "unknown";

impl Admitted {
    /// Gets it.
    pub(crate) fn get(mut self) -> pb::GetContentResponse {
        info!(
            { names::CALL_ID } = %self.asked.id,
            source = self.asked.source,
            "getting a prompt, a resource or a completion"
        );
        let got = self.find();
        self.stopwatch.lap("execute");
        match got.and_then(|result| self.release(result)) {
            Ok((result, facts)) => pb::GetContentResponse {
                result_json: result.into(),
                error: String::new(),
                facts: Some(pb::ResultFacts {
                    stages: self.stopwatch.into_stages(),
                    ..facts
                }),
            },
            Err(failure) => pb::GetContentResponse {
                result_json: Bytes::new(),
                error: failure.words,
                facts: Some(pb::ResultFacts {
                    status: failure.status.into(),
                    error_kind: failure.kind.to_owned(),
                    stages: self.stopwatch.into_stages(),
                    ..pb::ResultFacts::default()
                }),
            },
        }
    }

    fn find(&self) -> Result<Value, Failure> {
        Ok(match &self.asked.wish {
            Wish::Prompt { name, arguments } => self.own.get_prompt(name, arguments)?,
            Wish::Resource { uri } => self.own.read_resource(uri)?,
            Wish::Completion { of, wanted } => {
                let (argument, begun) = (&wanted.argument, &wanted.value);
                let values = match of {
                    Named::Prompt(name) => self.own.complete_prompt(name, argument, begun)?,
                    Named::Resource(uri) => self.own.complete_template(uri, argument, begun)?,
                };
                let first = &values[..values.len().min(MAX_VALUES)];
                let has_more = values.len() > MAX_VALUES;
                json!({
                    "completion": { "values": first, "total": values.len(), "hasMore": has_more },
                })
            }
        })
    }

    /// Redacts what was found and makes the result of it.
    fn release(&mut self, found: Value) -> Result<(String, pb::ResultFacts), Failure> {
        let class = &self.own.class;
        let mut censor = Censor {
            redactor: &self.compiled.redactor,
            class,
            tier: self.permit.tier(class),
            redacted: 0,
        };
        let (result, parts, phi) = match &self.asked.wish {
            Wish::Prompt { .. } => {
                let parts = count(&found, "messages");
                (censor.prompt(found), parts, censor.phi())
            }
            Wish::Resource { uri } => {
                let parts = count(&found, "contents");
                (censor.resource(uri, found), parts, censor.phi())
            }
            // What an argument may be is part of its definition.
            Wish::Completion { .. } => {
                let parts = count(&found["completion"], "values");
                (found, parts, false)
            }
        };
        let facts = pb::ResultFacts {
            status: pb::OutcomeStatus::Ok.into(),
            rows: parts,
            fields_redacted: censor.redacted,
            phi: phi && parts > 0,
            ..pb::ResultFacts::default()
        };
        let result = result.to_string();
        self.stopwatch.lap("redact");
        if result.len() > self.max_bytes {
            return Err(Failure {
                status: pb::OutcomeStatus::ToolError,
                kind: "result_too_large",
                words: "It is larger than a result may be.".to_owned(),
            });
        }
        Ok((result, facts))
    }
}
