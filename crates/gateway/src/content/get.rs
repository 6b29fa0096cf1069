//! One prompt, resource or completion: which source it is of, and what the client gets of it. How it is told, `story`
//! says.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tracing::Span;
use wardgate_domain::{CallFacts, CallId, Caller, Digest, Outcome, Status, ToolFacts};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{
    CallError, ContentResult, GetContent, Given as Got, Interaction, ResultFacts, Resumption,
    Wanted,
};
use wardgate_telemetry::names;

use super::Method;
use super::reader::Reader;
use super::skill;
use super::wish::{Named, PackedWish, Wish, named};
use crate::Gateway;
use crate::authority::Grant;
use crate::catalogue::{Index, Source};
use crate::dialogue::Terms;
use crate::downgrade;
use crate::mcp::{Meta, Post, Request, Version, inner};
use crate::measures;
use crate::reply::{Answer, RpcError, call_meta, write_members};
use crate::story::{self, Asker, End, Given, Packed, Ran, Stop, Story, Target, Work};
use crate::trail::Recorded;
use crate::view::View;

/// The tool-runner ends what takes longer than its time limit itself; this catches one that does not answer.
const LIMIT: Duration = Duration::from_secs(40);

/// How the tool-runner says that a source has nothing of that name.
const UNKNOWN: &str = "unknown";

/// What a wish was found to be of.
pub(crate) struct Found {
    source: Arc<Source>,
    facts: ToolFacts,
    /// What the source calls it.
    own_name: String,
}

/// What was got: a result, or why there is none.
pub(crate) struct Gotten {
    given: Result<String, String>,
    /// The `_meta` of its server, a JSON object; empty: none.
    meta: Bytes,
    facts: ResultFacts,
}

/// Carries out `wish`, to its recorded end.
pub(super) async fn get(
    gateway: &Arc<Gateway>,
    post: &Post,
    request: &Request<'_>,
    asker: Asker,
    wish: Wish,
) -> Result<Answer, RpcError> {
    let version = asker.version;
    let terms = match wish.wanted {
        Wanted::Completion { .. } | Wanted::Skill | Wanted::Directory(_) => Terms::deaf(version),
        Wanted::Prompt(_) | Wanted::Resource => {
            Terms::of(gateway, post, request, &Meta::of(request)?, version)?
        }
    };
    story::tell(gateway, request, (asker, terms), wish).await
}

impl Target for Found {
    fn facts(&self) -> &ToolFacts {
        &self.facts
    }

    fn is_on(&self, caller: &Caller) -> bool {
        self.source.switches.allow(caller)
    }

    fn label(&self) -> &str {
        &self.source.name
    }
}

impl Given for Gotten {
    fn facts(&self) -> &ResultFacts {
        &self.facts
    }

    fn digest(&self) -> Option<Digest> {
        let result = self.given.as_ref().ok()?;
        Some(Digest::of(result.as_bytes()))
    }
}

impl Work for Wish {
    type Target = Found;
    type Given = Gotten;

    const UNKNOWN: &'static str = UNKNOWN;

    fn method(&self) -> &'static str {
        self.method.as_str()
    }

    fn arrives(&self, call_id: CallId, asker: &Asker) -> (CallFacts, Span) {
        let Asker {
            caller, client_ip, ..
        } = asker;
        let (ip, protocol, params) = (client_ip.clone(), self.protocol, self.params.as_bytes());
        let facts = match &self.of {
            Named::Prompt(name) => CallFacts::arriving(call_id, caller, ip, protocol, name, params),
            // A URI can hold anything a person typed.
            Named::Resource(_) | Named::Template(_) => {
                CallFacts::without_tool(call_id, caller, ip, protocol, params)
            }
        };
        let method = self.method.as_str();
        let span = tracing::info_span!(
            "content",
            method,
            { names::CALL_ID } = %call_id,
            { names::CALLER } = caller.subject(),
        );
        (facts.by_method(method), span)
    }

    fn find(&self, catalogue: &Index, view: &View) -> Option<Found> {
        let found = self.of.find(catalogue.content(), view)?;
        let source = catalogue.content().source(&found.source);
        let is_there = source.is_some_and(|source| view.has(source));
        let source = catalogue.source(&found.source).filter(|_| is_there)?;
        Some(Found {
            facts: source.facts.get(&self.of.kind())?.clone(),
            source: Arc::clone(source),
            own_name: found.own_name,
        })
    }

    fn arguments(&self, found: &Found) -> Bytes {
        named(self.of.kind(), &found.own_name)
    }

    fn matter(&self) -> Option<(&'static str, &str, &[u8])> {
        let method = self.method.as_str();
        match (&self.of, &self.wanted) {
            (Named::Prompt(name), Wanted::Prompt(arguments)) => Some((method, name, arguments)),
            (Named::Resource(uri), Wanted::Resource) => Some((method, uri, b"")),
            _ => None,
        }
    }

    fn pack(&self) -> Option<Packed> {
        let is_packed = !matches!(self.wanted, Wanted::Skill | Wanted::Directory(_));
        is_packed.then(|| Packed::Content(PackedWish::of(self)))
    }

    async fn run(
        story: &mut Story<Self>,
        found: &Found,
        grant: &Grant,
        resumption: Option<Resumption>,
    ) -> Result<End<Gotten>, Ran> {
        let wish = &story.work;
        let capabilities = story.dialogue.capabilities();
        let get = GetContent {
            call_id: story.facts.call_id,
            caller: &story.asker.caller,
            source: &found.source.name,
            permit: &grant.permit,
            decided: wish.arguments(found),
            wanted: wish.wanted.clone(),
            caller_token: story
                .asker
                .caller
                .token_for_source(found.source.needs_caller_token),
            interaction: Interaction {
                capabilities: capabilities.as_deref(),
                log_level: None,
                resumption,
                besides: story.dialogue.besides(),
                is_legacy: story.dialogue.is_legacy(),
            },
        };
        let getting = Box::pin(story.gateway.runner().get_content(get, LIMIT));
        let got = story.dialogue.unless_cancelled(getting).await?;
        let ContentResult { given, meta, facts } =
            got.map_err(|error| refused(&story.gateway, &error))?;
        let given = match given {
            Got::InputRequired(waits) => return Ok(End::InputRequired(Box::new(waits))),
            Got::Nothing(_) if facts.error_kind == UNKNOWN => return Err(Stop::Unknown.into()),
            Got::Nothing(words) => Err(words),
            Got::Result(result) => {
                let shown = shown(story, found, result).await;
                Ok(story.asker.view.given(shown.map_err(Stop::NotTaken)?))
            }
        };
        Ok(End::Given(Gotten { given, meta, facts }))
    }

    fn report(&self, outcome: &Outcome, is_hidden: bool) {
        measures::ended(outcome, is_hidden);
        tracing::info!(
            status = outcome.status.as_str(),
            reason = outcome.reason,
            "use of a prompt or resource ended"
        );
    }

    fn release(story: &Story<Self>, recorded: Recorded, got: &Gotten) -> Answer {
        let (id, call_id, version) = (&story.asker.id, story.facts.call_id, story.asker.version);
        let error = match &got.given {
            Ok(result) => {
                let mut members = inner(&downgrade::given(result, version)).to_owned();
                // It depends on the caller, and may be another the next time.
                let is_kept = matches!(
                    story.work.wanted,
                    Wanted::Resource | Wanted::Skill | Wanted::Directory(_)
                );
                if version.is_modern() && is_kept {
                    members += r#","ttlMs":0,"cacheScope":"private""#;
                }
                let mut meta = call_meta(call_id, recorded);
                write_members(&mut meta, &got.meta);
                return Answer::result_with_meta(id, version, &members, &meta);
            }
            Err(words) => match got.facts.status {
                Status::InvalidArguments => {
                    RpcError::invalid_params(words).because("invalid_arguments")
                }
                Status::Timeout => RpcError::internal("timeout", words),
                _ => RpcError::internal("source_failed", words),
            },
        };
        Answer::error(Some(id), &error.of_call(call_id, recorded.receipt()))
    }

    fn not_there(&self, version: Version) -> RpcError {
        match &self.of {
            Named::Prompt(name) => RpcError::unknown_prompt(name),
            Named::Resource(uri) if self.method == Method::ReadResource => {
                RpcError::unknown_resource(version).about(uri)
            }
            Named::Resource(_) | Named::Template(_) => {
                RpcError::invalid_params("Unknown resource template").because("unknown_resource")
            }
        }
    }
}

/// What of a result its caller may know, beyond what the right to it says.
async fn shown(story: &Story<Wish>, found: &Found, result: String) -> Result<String, RpcError> {
    let asker = &story.asker;
    let reader = Reader {
        gateway: &story.gateway,
        caller: &asker.caller,
        client_ip: &asker.client_ip,
        facts: &found.facts,
    };
    match (&story.work.wanted, &story.work.of) {
        (Wanted::Skill, _) => skill::got(&reader, result).await,
        (Wanted::Directory(_), Named::Resource(uri)) => {
            skill::directory(&reader, (&asker.view, uri), result).await
        }
        _ => Ok(result),
    }
}

fn refused(gateway: &Gateway, error: &CallError) -> Ran {
    match error.reason() {
        ErrorReason::PermitRefused => Ran::PermitRefused,
        ErrorReason::Overloaded => Stop::NotTaken(gateway.neighbour_is_overloaded()).into(),
        ErrorReason::NotDurable => Stop::NotRecorded.into(),
        // Removed or switched off since the lists were read.
        ErrorReason::UnknownTool => Stop::Unknown.into(),
        _ => {
            tracing::warn!(%error, "the tool-runner did not give a prompt or resource");
            let stop = Stop::Failed {
                kind: "tool_runner_unavailable",
                message: "It could not be read. Try again later.",
            };
            stop.into()
        }
    }
}
