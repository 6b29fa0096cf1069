//! The story of one prompt, resource or completion: find → authorise → run → outcome → release.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use metrics::counter;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use wardgate_domain::{
    CallFacts, CallId, Caller, DenialReason, Digest, Event, Outcome, Receipt, Status, ToolFacts,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{CallError, ContentResult, GetContent, Given, Interaction, Wanted};
use wardgate_telemetry::names;

use super::Method;
use super::wish::{Named, Wish, named};
use crate::Gateway;
use crate::authority::{Authorization, Grant};
use crate::catalogue;
use crate::mcp::{Post, Request, Version, inner};
use crate::reply::{Answer, RpcError, call_meta};
use crate::stages::stage;
use crate::view::View;

/// The tool-runner ends what takes longer than its time limit itself; this catches one that does not answer.
const LIMIT: Duration = Duration::from_secs(40);

/// How the tool-runner says that a source has nothing of that name.
const UNKNOWN: &str = "unknown";

/// Why nothing was given.
#[derive(Debug)]
enum Stop {
    /// Nobody offers it.
    Unknown,
    /// Its source is switched off for the caller.
    Disabled,
    /// The caller may not have it.
    Denied(DenialReason),
    /// The policy service, the tool-runner or the record failed.
    Failed {
        kind: &'static str,
        message: &'static str,
    },
    /// The client went away.
    Cancelled,
}

/// What a wish was found to be of.
struct Target {
    source: String,
    facts: ToolFacts,
    /// What the policy decides on.
    decided: Bytes,
}

struct Story {
    gateway: Arc<Gateway>,
    id: Box<RawValue>,
    version: Version,
    view: View,
    caller: Arc<Caller>,
    client_ip: String,
    wish: Wish,
    facts: CallFacts,
    cancel: CancellationToken,
}

/// Carries out `wish`, to its recorded end.
pub(super) async fn get(
    gateway: &Arc<Gateway>,
    post: &Post,
    request: &Request<'_>,
    version: Version,
    wish: Wish,
) -> Result<Answer, RpcError> {
    let cancel = CancellationToken::new();
    // Only modern clients cancel by hanging up.
    let _hang_up = version
        .cancels_on_disconnect()
        .then(|| cancel.clone().drop_guard());
    let call_id = CallId::new(gateway.ambient());
    let params = request.raw_params.map_or("{}", RawValue::get);
    let (ip, protocol) = (post.client_ip.clone(), post.protocol(version));
    let (caller, params) = (&post.caller, params.as_bytes());
    let facts = match &wish.of {
        Named::Prompt(name) => CallFacts::arriving(call_id, caller, ip, protocol, name, params),
        // A URI can hold anything a person typed.
        Named::Resource(_) | Named::Template(_) => {
            CallFacts::without_tool(call_id, caller, ip, protocol, params)
        }
    };
    let method = wish.method.as_str();
    let story = Story {
        gateway: Arc::clone(gateway),
        id: request.id.to_owned(),
        version,
        view: post.view.clone(),
        caller: Arc::clone(&post.caller),
        client_ip: post.client_ip.clone(),
        wish,
        facts: facts.by_method(method),
        cancel,
    };
    let span = tracing::info_span!(
        "content",
        method,
        { names::CALL_ID } = %call_id,
        { names::CALLER } = post.caller.subject(),
    );
    // Its own task: whoever hangs up, the record is written.
    let told = gateway.stories.spawn(story.tell().instrument(span));
    Ok(told.await.unwrap_or_else(|_| {
        let error = RpcError::internal("panic", "Internal error.").of_call(call_id, None);
        Answer::error(Some(request.id), &error)
    }))
}

impl Story {
    /// The story, top to bottom.
    async fn tell(mut self) -> Answer {
        let started = Instant::now();
        // What cannot be recorded is not even begun.
        if !self.gateway.trail().is_ready() {
            return self.not_recorded();
        }
        let ending = match self.find() {
            Ok(target) => self.run_permitted(&target).await,
            Err(stop) => Err(stop),
        };
        let outcome = outcome(self.facts.clone(), &ending, started.elapsed());
        counter!(names::CONTENT_REQUESTS, "method" => self.wish.method.as_str(), "status" => outcome.status.as_str())
            .increment(1);
        tracing::info!(
            status = outcome.status.as_str(),
            reason = outcome.reason,
            "use of a prompt or resource ended"
        );
        let recorded = self.gateway.trail().append(Event::Outcome(outcome)).await;
        match recorded {
            Ok(receipt) => self.release(receipt, ending),
            Err(_) => self.not_recorded(),
        }
    }

    /// Whose it is, and what the policy needs to know of that.
    fn find(&mut self) -> Result<Target, Stop> {
        let (kind, message) = catalogue::NOT_KNOWN;
        let catalogue = self.gateway.catalogue().current();
        let catalogue = catalogue.ok_or(Stop::Failed { kind, message })?;
        let found = self.wish.of.find(catalogue.content(), &self.view);
        let found = found.ok_or(Stop::Unknown)?;
        let source = catalogue.content().source(&found.source);
        let is_there = source.is_some_and(|source| self.view.has(source));
        let source = catalogue.source(&found.source).filter(|_| is_there);
        let source = source.ok_or(Stop::Unknown)?;
        let kind = self.wish.of.kind();
        let facts = source.facts.get(&kind).ok_or(Stop::Unknown)?;
        self.facts.tool = Some(facts.name.clone());
        self.facts.definition_digest = Some(facts.definition_digest);
        if !source.switches.allow(&self.caller) {
            return Err(Stop::Disabled);
        }
        Ok(Target {
            facts: facts.clone(),
            decided: named(kind, &found.own_name),
            source: found.source,
        })
    }

    async fn run_permitted(&mut self, target: &Target) -> Result<ContentResult, Stop> {
        let grant = self.authorize(target).await?;
        match self.run(target, &grant).await {
            // The source or the keys changed since the permit was kept: decide anew, once.
            Err(Ran::PermitRefused) => {
                let authority = self.gateway.authority();
                authority.forget(&self.caller, &target.facts);
                let grant = self.authorize(target).await?;
                self.run(target, &grant).await.map_err(Stop::from)
            }
            ran => ran.map_err(Stop::from),
        }
    }

    async fn authorize(&mut self, target: &Target) -> Result<Arc<Grant>, Stop> {
        let started = Instant::now();
        let answer = self
            .gateway
            .authority()
            .authorize(
                &self.caller,
                &target.facts,
                &target.decided,
                &self.client_ip,
            )
            .await;
        stage("authorize", started.elapsed());
        match answer {
            Ok(Authorization::Allowed(grant)) => {
                self.facts.decided(&grant.decision);
                self.facts.permit_id = Some(grant.permit_id);
                Ok(grant)
            }
            Ok(Authorization::Denied {
                decision, reason, ..
            }) => {
                self.facts.decided(&decision);
                Err(Stop::Denied(reason))
            }
            Err(error) => {
                tracing::warn!(%error, "the policy service did not decide");
                Err(Stop::Failed {
                    kind: "policy_unavailable",
                    message: "The request could not be decided. Try again later.",
                })
            }
        }
    }

    async fn run(&self, target: &Target, grant: &Grant) -> Result<ContentResult, Ran> {
        let started = Instant::now();
        let get = GetContent {
            call_id: self.facts.call_id,
            caller: &self.caller,
            source: &target.source,
            permit: &grant.permit,
            decided: target.decided.clone(),
            wanted: self.wish.wanted.clone(),
            interaction: Interaction::default(),
        };
        let got = tokio::select! {
            // First, so that nothing is started for a client that is already gone.
            biased;
            () = self.cancel.cancelled() => return Err(Ran::Stopped(Stop::Cancelled)),
            got = self.gateway.runner().get_content(get, LIMIT) => got,
        };
        stage("run", started.elapsed());
        let mut got = got.map_err(|error| refused(&error))?;
        if let Given::Result(result) = got.given {
            got.given = Given::Result(self.view.given(result));
        }
        for (name, spent) in &got.facts.stages {
            stage(&format!("run.{name}"), *spent);
        }
        Ok(got)
    }

    /// Lets the ending out. It needs the receipt.
    fn release(&self, receipt: Receipt, ending: Result<ContentResult, Stop>) -> Answer {
        let call_id = self.facts.call_id;
        let error = match ending {
            Ok(ContentResult {
                given: Given::Result(result),
                ..
            }) => {
                let mut members = inner(&result).to_owned();
                // It depends on the caller, and may be another the next time.
                if self.version.is_modern() && matches!(self.wish.wanted, Wanted::Resource) {
                    members += r#","ttlMs":0,"cacheScope":"private""#;
                }
                let meta = call_meta(call_id, receipt);
                return Answer::result_with_meta(&self.id, self.version, &members, &meta);
            }
            Ok(got) if got.facts.error_kind == UNKNOWN => self.unknown(),
            Ok(ContentResult {
                given: Given::Nothing(words),
                facts,
            }) => match facts.status {
                Status::InvalidArguments => {
                    RpcError::invalid_params(words).because("invalid_arguments")
                }
                Status::Timeout => RpcError::internal("timeout", words),
                _ => RpcError::internal("source_failed", words),
            },
            Ok(_) => RpcError::internal(
                "input_required",
                "It asks for input, which is not supported.",
            ),
            // The same words for all: what you may not have you do not see.
            Err(Stop::Unknown | Stop::Disabled | Stop::Denied(_)) => self.unknown(),
            Err(Stop::Failed { kind, message }) => RpcError::internal(kind, message),
            Err(Stop::Cancelled) => RpcError::internal("cancelled", "The request was cancelled."),
        };
        Answer::error(Some(&self.id), &error.of_call(call_id, Some(receipt)))
    }

    fn unknown(&self) -> RpcError {
        match &self.wish.of {
            Named::Prompt(name) => RpcError::unknown_prompt(name),
            Named::Resource(_) if self.wish.method == Method::ReadResource => {
                RpcError::unknown_resource(self.version)
            }
            Named::Resource(_) | Named::Template(_) => {
                RpcError::invalid_params("Unknown resource template").because("unknown_resource")
            }
        }
    }

    fn not_recorded(&self) -> Answer {
        let error = RpcError::internal("not_durable", NOT_RELEASED);
        Answer::error(Some(&self.id), &error.of_call(self.facts.call_id, None))
    }
}

const NOT_RELEASED: &str =
    "The request cannot be recorded durably, so nothing is released. Try again later.";

/// Why a run gave nothing.
enum Ran {
    PermitRefused,
    Stopped(Stop),
}

impl From<Ran> for Stop {
    fn from(ran: Ran) -> Self {
        match ran {
            Ran::PermitRefused => Self::Failed {
                kind: "permit_refused",
                message: "The tool-runner refused the permit. Try again.",
            },
            Ran::Stopped(stop) => stop,
        }
    }
}

fn refused(error: &CallError) -> Ran {
    match error.reason() {
        ErrorReason::PermitRefused => Ran::PermitRefused,
        // Removed or switched off since the lists were read.
        ErrorReason::UnknownTool => Ran::Stopped(Stop::Unknown),
        _ => {
            tracing::warn!(%error, "the tool-runner did not give a prompt or resource");
            Ran::Stopped(Stop::Failed {
                kind: "tool_runner_unavailable",
                message: "It could not be read. Try again later.",
            })
        }
    }
}

/// What the record says of an ending.
fn outcome(call: CallFacts, ending: &Result<ContentResult, Stop>, duration: Duration) -> Outcome {
    let (status, reason) = match ending {
        Ok(got) if got.facts.error_kind == UNKNOWN => (Status::UnknownTool, UNKNOWN),
        Ok(got) => (got.facts.status, got.facts.error_kind.as_str()),
        Err(Stop::Unknown) => (Status::UnknownTool, UNKNOWN),
        Err(Stop::Disabled) => (Status::Denied, "disabled"),
        Err(Stop::Denied(reason)) => (Status::Denied, reason.as_str()),
        Err(Stop::Failed { kind, .. }) => (Status::Error, *kind),
        Err(Stop::Cancelled) => (Status::Cancelled, "cancelled"),
    };
    let got = ending.as_ref().ok();
    let facts = got.map(|got| &got.facts);
    let result = got.and_then(|got| match &got.given {
        Given::Result(result) => Some(result),
        Given::Nothing(_) | Given::InputRequired(_) => None,
    });
    Outcome {
        call,
        status,
        reason: reason.to_owned(),
        rows: facts.map_or(0, |facts| facts.rows),
        rows_withheld: 0,
        fields_redacted: facts.map_or(0, |facts| facts.fields_redacted),
        phi: facts.is_some_and(|facts| facts.phi),
        result_digest: result.map(|result| Digest::of(result.as_bytes())),
        duration,
    }
}
