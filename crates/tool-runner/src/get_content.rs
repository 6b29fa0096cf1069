//! Handles a request for one prompt, resource or completion, from its admission to its result.
//!
//! ```text
//!   admit:  source ─▶ permit ─▶ AdmittedContent   refused: nothing was requested
//!   get:    own text, or the server ─▶ redact ─▶ result
//! ```

mod released;

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tracing::info;
use wardgate_domain::{
    CallFacts, CallId, CallToRun, Caller, OfferKind, Permit, SignedPermit, Status, Timestamp,
};
use wardgate_redact::ConfiguredForms;
use wardgate_rpc::client::ResultFacts;
use wardgate_telemetry::names;

use crate::Error;
use crate::compiled_permit::CompiledPermit;
use crate::content::{
    CompletionRequest, DecisionSubject, GetError, MAX_VALUES, Origin, UpstreamContent,
};
use crate::execution_log::execution_facts;
use crate::interaction::{
    Elicitation, ElicitedRequest, Interaction, SuspendedExchanges, SuspendedRound,
};
use crate::loaded::LoadedCatalogue;
use crate::result::{self, Stopwatch};
use released::{ContentRedactor, count};
use wardgate_catalogue::FileContent;

/// A request for content, with its fields checked.
pub(crate) struct ContentQuery {
    pub(crate) id: CallId,
    pub(crate) caller: Caller,
    pub(crate) source: String,
    pub(crate) permit: Option<SignedPermit>,
    /// The JSON that the policy service decided on, byte for byte.
    pub(crate) decided: Bytes,
    pub(crate) target: ContentTarget,
    /// The caller's token, if the source exchanges it.
    pub(crate) caller_token: Option<String>,
    /// What the client can take part in.
    pub(crate) interaction: Option<Interaction>,
}

/// The requested content. All names are the source's own.
pub(crate) enum ContentTarget {
    Prompt {
        name: String,
        arguments: Bytes,
    },
    Resource {
        uri: String,
    },
    Completion {
        of: DecisionSubject,
        wanted: CompletionRequest,
    },
    /// A skill, by the URI of its SKILL.md.
    Skill {
        uri: String,
    },
    Directory {
        uri: String,
        cursor: Option<String>,
    },
}

impl ContentTarget {
    /// Returns the kind of offer that the caller needs a permit for.
    fn kind(&self) -> OfferKind {
        match self {
            Self::Prompt { .. }
            | Self::Completion {
                of: DecisionSubject::Prompt(_),
                ..
            } => OfferKind::Prompts,
            Self::Resource { .. }
            | Self::Skill { .. }
            | Self::Directory { .. }
            | Self::Completion {
                of: DecisionSubject::Resource(_),
                ..
            } => OfferKind::Resources,
        }
    }
}

/// The answer to a request, redacted.
pub(crate) struct ContentAnswer {
    pub(crate) outcome: ContentOutcome,
    pub(crate) facts: ResultFacts,
}

pub(crate) enum ContentOutcome {
    /// The MCP result and its `_meta` as JSON objects. `meta` is empty if there is none.
    Result { result: String, meta: String },
    /// The source needs the client's answers first.
    InputRequired(SuspendedRound),
    /// The reason for the failure in words for the client, and the JSON-RPC error of the MCP server as a JSON object.
    /// `error` is empty if there is none that the caller may see.
    Failure { text: String, error: String },
}

/// A request that may be answered. Only [`admit`] creates one.
pub(crate) struct AdmittedContent {
    query: ContentQuery,
    origin: Origin,
    permit: Permit,
    compiled: Arc<CompiledPermit>,
    forms: Arc<ConfiguredForms>,
    /// Whether the permit restricts what may be seen.
    is_restricted: bool,
    suspended_exchanges: Arc<SuspendedExchanges>,
    max_bytes: usize,
    stopwatch: Stopwatch,
}

/// Finds the source and verifies the signed permit, which allows getting this content once.
pub(crate) fn admit(
    mut query: ContentQuery,
    loaded: &LoadedCatalogue,
    suspended_exchanges: &Arc<SuspendedExchanges>,
    max_bytes: usize,
    now: Timestamp,
) -> Result<AdmittedContent, Error> {
    let mut stopwatch = Stopwatch::start();
    let kind = query.target.kind();
    let offers = loaded.offers(&query.source);
    let facts = offers.and_then(|offers| offers.facts(kind));
    let origin = loaded.contents().origin(&query.source);
    let (facts, origin) = facts.zip(origin).ok_or(Error::UnknownTool)?;
    let signed = query.permit.take().ok_or(Error::NoPermit)?;
    let to_run = CallToRun {
        caller: &query.caller,
        tool: &facts.name,
        definition_digest: facts.definition_digest,
        arguments: &query.decided,
    };
    let (permit, compiled) = loaded.compiled_permits().admit(signed, to_run, None, now)?;
    stopwatch.lap("permit");
    Ok(AdmittedContent {
        is_restricted: compiled.restricts(&permit, &facts.classes),
        suspended_exchanges: Arc::clone(suspended_exchanges),
        origin: origin.for_caller(&query.caller, query.caller_token.as_deref())?,
        query,
        permit,
        compiled,
        forms: Arc::clone(&loaded.forms),
        max_bytes,
        stopwatch,
    })
}

impl AdmittedContent {
    /// Returns the facts of this request for its audit record.
    pub(crate) fn execution(&self) -> CallFacts {
        let ContentQuery {
            id,
            caller,
            decided,
            target,
            ..
        } = &self.query;
        execution_facts(*id, caller, target.kind(), decided, &self.permit)
    }

    /// Gets the content. Dropping the future stops the work at the source.
    pub(crate) async fn get(mut self) -> ContentAnswer {
        info!(
            { names::CALL_ID } = %self.query.id,
            source = self.query.source,
            "getting a prompt, a resource or a completion"
        );
        let got = self.find().await;
        self.stopwatch.lap("execute");
        let answer = got.and_then(|found| match found {
            UpstreamContent::Value(value) => self.release(value),
            UpstreamContent::Text {
                result,
                parts,
                meta,
            } => {
                let facts = ResultFacts {
                    rows: parts,
                    phi: self.origin.class().is_phi(),
                    ..result::facts(Status::Ok, "", Vec::new())
                };
                self.create_answer(result, meta.unwrap_or_default(), facts)
            }
            UpstreamContent::Suspended(round) => Ok(ContentAnswer {
                outcome: ContentOutcome::InputRequired(round),
                facts: result::facts(Status::Ok, "", Vec::new()),
            }),
        });
        let mut answer = answer.unwrap_or_else(|error| self.failure(error));
        answer.facts.stages = self.stopwatch.into_stages();
        answer
    }

    fn failure(&self, error: GetError) -> ContentAnswer {
        let (status, kind) = error.status_and_reason();
        let text = error.to_string();
        let reported = match error {
            GetError::Reported { error, .. } if !self.is_restricted => error,
            _ => String::new(),
        };
        let facts = ResultFacts {
            phi: !reported.is_empty() && self.origin.class().is_phi(),
            ..result::facts(status, kind.as_str(), Vec::new())
        };
        ContentAnswer {
            outcome: ContentOutcome::Failure {
                text,
                error: reported,
            },
            facts,
        }
    }

    async fn find(&self) -> Result<UpstreamContent, GetError> {
        let elicitation = self.elicitation()?;
        let elicitation = elicitation.as_ref();
        let found = match (&self.query.target, &self.origin) {
            (ContentTarget::Prompt { name, arguments }, Origin::Upstream(of)) => {
                let restricted = self.is_restricted;
                return of
                    .get_prompt(name, arguments, elicitation, restricted)
                    .await;
            }
            (ContentTarget::Resource { uri }, Origin::Upstream(of)) => {
                return of.read_resource(uri, elicitation, self.is_restricted).await;
            }
            // An entry lists sizes and digests of files, which would be wrong if the texts are not shown unchanged.
            (ContentTarget::Skill { .. }, _) if self.is_restricted => {
                return Err(GetError::Unknown);
            }
            (ContentTarget::Skill { uri }, Origin::Upstream(of)) => return of.get_skill(uri).await,
            (ContentTarget::Directory { uri, cursor }, Origin::Upstream(of)) => {
                return of.read_directory(uri, cursor.as_deref()).await;
            }
            (ContentTarget::Skill { .. } | ContentTarget::Directory { .. }, Origin::Own(_)) => {
                return Err(GetError::Unknown);
            }
            (ContentTarget::Prompt { name, arguments }, Origin::Own(own)) => {
                own.get_prompt(name, arguments).map_err(GetError::from)
            }
            (ContentTarget::Resource { uri }, Origin::Own(own)) => {
                own.read_resource(uri).map_err(GetError::from)
            }
            (ContentTarget::Completion { of, wanted }, Origin::Own(own)) => {
                complete(own, of, wanted)
            }
            (ContentTarget::Completion { of, wanted }, Origin::Upstream(upstream)) => {
                upstream.complete(of, wanted).await
            }
        };
        found.map(UpstreamContent::Value)
    }

    /// Returns the exchange with the client if the source may talk to the client. A request that resumes an exchange is
    /// an error otherwise.
    fn elicitation(&self) -> Result<Option<Elicitation<'_>>, GetError> {
        let Some(interaction) = &self.query.interaction else {
            return Ok(None);
        };
        let may_elicit = matches!(
            self.query.target,
            ContentTarget::Prompt { .. } | ContentTarget::Resource { .. }
        ) && matches!(self.origin, Origin::Upstream(_));
        let request = ElicitedRequest::Content {
            definition: self.permit.terms().definition_digest,
            decided: &self.query.decided,
            arguments: match &self.query.target {
                ContentTarget::Prompt { arguments, .. } => arguments,
                _ => &[],
            },
        };
        let elicitation = Elicitation::new(
            interaction,
            &self.suspended_exchanges,
            &self.query.caller,
            request,
        );
        if may_elicit && !self.is_restricted {
            return Ok(Some(elicitation));
        }
        if elicitation.resumes() {
            elicitation.give_up();
            return Err(GetError::NotWaiting);
        }
        Ok(None)
    }

    /// Redacts the content and creates the answer.
    fn release(&mut self, found: Value) -> Result<ContentAnswer, GetError> {
        let class = self.origin.class();
        let mut content_redactor = ContentRedactor {
            redactor: &self.compiled.redactor,
            forms: &self.forms,
            class,
            tier: self.permit.tier(class),
            redacted: 0,
        };
        let (result, parts, phi) = match (&self.query.target, &self.origin) {
            (ContentTarget::Prompt { .. }, _) => {
                let parts = count(&found, "messages");
                (
                    content_redactor.prompt(found),
                    parts,
                    content_redactor.phi(),
                )
            }
            (ContentTarget::Resource { uri }, origin) => {
                let parts = count(&found, "contents");
                let uri = origin.client_uri(&self.query.source, uri);
                (
                    content_redactor.resource(&uri, found),
                    parts,
                    content_redactor.phi(),
                )
            }
            // The possible values of an argument are part of the definition, which is not redacted.
            (ContentTarget::Completion { .. }, Origin::Own(_)) => {
                let parts = count(&found["completion"], "values");
                (found, parts, false)
            }
            (ContentTarget::Completion { .. }, Origin::Upstream(_)) => {
                let parts = count(&found["completion"], "values");
                (
                    content_redactor.completion(found),
                    parts,
                    content_redactor.phi(),
                )
            }
            // Skills and directories are returned unchanged.
            (ContentTarget::Skill { .. } | ContentTarget::Directory { .. }, _) => (found, 1, false),
        };
        let facts = ResultFacts {
            rows: parts,
            fields_redacted: content_redactor.redacted,
            phi: phi && parts > 0,
            ..result::facts(Status::Ok, "", Vec::new())
        };
        self.create_answer(result.to_string(), String::new(), facts)
    }

    /// Creates the answer with a result, or an error if the result is too large.
    fn create_answer(
        &mut self,
        result: String,
        meta: String,
        facts: ResultFacts,
    ) -> Result<ContentAnswer, GetError> {
        self.stopwatch.lap("redact");
        if result.len() + meta.len() > self.max_bytes {
            return Err(GetError::too_large());
        }
        Ok(ContentAnswer {
            outcome: ContentOutcome::Result { result, meta },
            facts,
        })
    }
}

/// Returns the completions of an argument that the catalogue file defines.
fn complete(
    own: &FileContent,
    of: &DecisionSubject,
    wanted: &CompletionRequest,
) -> Result<Value, GetError> {
    let (argument, begun) = (&wanted.argument, &wanted.value);
    let values = match of {
        DecisionSubject::Prompt(name) => own.complete_prompt(name, argument, begun)?,
        DecisionSubject::Resource(uri) => own.complete_template(uri, argument, begun)?,
    };
    let first = &values[..values.len().min(MAX_VALUES)];
    let has_more = values.len() > MAX_VALUES;
    Ok(json!({
        "completion": { "values": first, "total": values.len(), "hasMore": has_more },
    }))
}
