//! The operation on one prompt, resource, skill or completion: which source it uses, how it runs, and how its result is
//! written. The pipeline around it is `governed_call`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tracing::Span;
use wardgate_domain::{CallFacts, CallId, Caller, Digest, Outcome, Status, ToolFacts};
use wardgate_mcp::Version;
use wardgate_mcp_server::{
    Answer, Meta, RecordStatus, Request, RpcError, call_meta, inner, write_members,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{
    CallError, ContentOutcome, ContentPart, ContentResult, GetContent, Interaction, ResultFacts,
    Resumption,
};
use wardgate_telemetry::names;

use super::content_request::{self, ContentName, ContentRequest};
use super::reader::ContentReader;
use super::skill;
use crate::Gateway;
use crate::authority::Grant;
use crate::catalogue::View;
use crate::catalogue::{CatalogueIndex, Source};
use crate::client_interaction::ClientChannel;
use crate::content_method::ContentMethod;
use crate::governed_call::{
    self, GovernedCall, Operation, Output, Rejection, RequestBinding, Resource, RunError,
    RunOutcome, SealedOperation,
};
use crate::measures;
use crate::post::Post;
use crate::request_context::RequestContext;

/// The time limit for a tool-runner that does not answer; it enforces its own, shorter one itself.
const LIMIT: Duration = Duration::from_secs(40);

/// The error kind of the tool-runner for a name or URI that the source does not know.
const UNKNOWN: &str = "unknown";

/// The prompt or resource in the catalogue, and its source.
pub(crate) struct ContentResource {
    source: Arc<Source>,
    facts: ToolFacts,
    /// The name or URI at the source.
    own_name: String,
}

/// What a source gave.
pub(crate) struct ContentOutput {
    result: Result<String, ContentError>,
    /// The `_meta` of the server's result, a JSON object. Empty if it had none.
    meta: Bytes,
    facts: ResultFacts,
}

/// Why a source gave nothing.
enum ContentError {
    /// In words for the client.
    Message(String),
    /// The JSON-RPC error of an MCP server, one JSON object.
    Upstream(Bytes),
}

/// Runs `content_request` through the pipeline.
pub(super) async fn get(
    gateway: &Arc<Gateway>,
    post: &Post,
    request: &Request<'_>,
    context: RequestContext,
    content_request: ContentRequest,
) -> Result<Answer, RpcError> {
    let version = context.version;
    let channel = match content_request.wanted {
        ContentPart::Completion { .. } | ContentPart::Skill | ContentPart::Directory(_) => {
            ClientChannel::response_only(version)
        }
        ContentPart::Prompt(_) | ContentPart::Resource => ClientChannel::for_request(
            gateway,
            post,
            request,
            &Meta::from_request(request)?,
            version,
        )?,
    };
    governed_call::run(gateway, request, context, channel, content_request).await
}

impl Resource for ContentResource {
    fn facts(&self) -> &ToolFacts {
        &self.facts
    }

    fn is_enabled_for(&self, caller: &Caller) -> bool {
        self.source.switches.allow(caller)
    }

    fn label(&self) -> &str {
        &self.source.name
    }
}

impl Output for ContentOutput {
    fn facts(&self) -> &ResultFacts {
        &self.facts
    }

    fn digest(&self) -> Option<Digest> {
        let result = self.result.as_ref().ok()?;
        Some(Digest::of(result.as_bytes()))
    }
}

impl Operation for ContentRequest {
    type Resource = ContentResource;
    type Output = ContentOutput;

    const UNKNOWN: &'static str = UNKNOWN;

    fn method(&self) -> &'static str {
        self.method.as_str()
    }

    fn describe_arrival(&self, call_id: CallId, context: &RequestContext) -> (CallFacts, Span) {
        let RequestContext {
            caller, client_ip, ..
        } = context;
        let (ip, protocol, params) = (client_ip.clone(), self.protocol, self.params.as_bytes());
        let facts = match &self.of {
            ContentName::Prompt(name) => {
                CallFacts::arriving(call_id, caller, ip, protocol, name, params)
            }
            // A URI can hold anything a person typed.
            ContentName::Resource(_) | ContentName::Template(_) => {
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

    fn find_resource(&self, catalogue: &CatalogueIndex, view: &View) -> Option<ContentResource> {
        let resource = self.of.find(catalogue.content(), view)?;
        let source = catalogue.content().source(&resource.source);
        let is_there = source.is_some_and(|source| view.has(source));
        let source = catalogue.source(&resource.source).filter(|_| is_there)?;
        Some(ContentResource {
            facts: source.facts.get(&self.of.kind())?.clone(),
            source: Arc::clone(source),
            own_name: resource.own_name,
        })
    }

    fn policy_arguments(&self, resource: &ContentResource) -> Bytes {
        content_request::policy_arguments(self.of.kind(), &resource.own_name)
    }

    fn request_binding(&self) -> Option<RequestBinding<'_>> {
        let method = self.method.as_str();
        let (name, arguments): (_, &[u8]) = match (&self.of, &self.wanted) {
            (ContentName::Prompt(name), ContentPart::Prompt(arguments)) => (name, arguments),
            (ContentName::Resource(uri), ContentPart::Resource) => (uri, b""),
            _ => return None,
        };
        Some(RequestBinding {
            method,
            name,
            arguments,
        })
    }

    fn to_sealed(&self) -> Option<SealedOperation> {
        let can_resume = !matches!(self.wanted, ContentPart::Skill | ContentPart::Directory(_));
        let sealed = can_resume.then(|| self.seal()).flatten();
        sealed.map(SealedOperation::Content)
    }

    async fn run(
        call: &mut GovernedCall<Self>,
        resource: &ContentResource,
        grant: &Grant,
        resumption: Option<Resumption>,
    ) -> Result<RunOutcome<ContentOutput>, RunError> {
        let content_request = &call.operation;
        let capabilities = call.client.capabilities();
        let get = GetContent {
            call_id: call.facts.call_id,
            caller: &call.context.caller,
            source: &resource.source.name,
            permit: &grant.permit,
            decided: content_request.policy_arguments(resource),
            wanted: content_request.wanted.clone(),
            caller_token: call
                .context
                .caller
                .token_for_source(resource.source.needs_caller_token),
            interaction: Interaction {
                capabilities: capabilities.as_deref(),
                log_level: None,
                resumption,
                besides: call.client.besides(),
                is_legacy: call.client.is_legacy(),
            },
        };
        let getting = Box::pin(call.gateway.runner().get_content(get, LIMIT));
        let output = call.client.unless_cancelled(getting).await?;
        let ContentResult { given, meta, facts } =
            output.map_err(|error| run_error(&call.gateway, &error))?;
        let result = match given {
            ContentOutcome::InputRequired(input_required) => {
                return Ok(RunOutcome::InputRequired(Box::new(input_required)));
            }
            ContentOutcome::Nothing(_) if facts.error_kind == UNKNOWN => {
                return Err(Rejection::Unknown.into());
            }
            ContentOutcome::Nothing(message) => Err(ContentError::Message(message)),
            ContentOutcome::Error(error) => Err(ContentError::Upstream(error)),
            ContentOutcome::Result(result) => {
                let shown = filter_result(call, resource, result).await;
                Ok(call
                    .context
                    .view
                    .given(shown.map_err(Rejection::NotAttempted)?))
            }
        };
        Ok(RunOutcome::Output(ContentOutput {
            result,
            meta,
            facts,
        }))
    }

    fn report_outcome(&self, outcome: &Outcome, is_hidden: bool) {
        measures::ended(outcome, is_hidden);
        tracing::info!(
            status = outcome.status.as_str(),
            reason = outcome.reason,
            "use of a prompt or resource ended"
        );
    }

    fn release(
        call: &GovernedCall<Self>,
        recorded: RecordStatus,
        output: &ContentOutput,
    ) -> Answer {
        let (id, call_id, version) = (&call.context.id, call.facts.call_id, call.context.version);
        let error = match &output.result {
            Ok(result) => {
                let mut members = inner(&wardgate_mcp_server::given(result, version)).to_owned();
                // The result depends on the caller and may change at any time.
                let is_kept = matches!(
                    call.operation.wanted,
                    ContentPart::Resource | ContentPart::Skill | ContentPart::Directory(_)
                );
                if version.is_modern() && is_kept {
                    members += r#","ttlMs":0,"cacheScope":"private""#;
                }
                let mut meta = call_meta(call_id, recorded);
                write_members(&mut meta, &output.meta);
                return Answer::result_with_meta(id, version, &members, &meta);
            }
            Err(ContentError::Upstream(error)) => {
                return Answer::protocol_error(id, version, call_id, recorded, error);
            }
            Err(ContentError::Message(message)) => match output.facts.status {
                Status::InvalidArguments => {
                    RpcError::invalid_params(message).because("invalid_arguments")
                }
                Status::Timeout => RpcError::internal("timeout", message),
                _ => RpcError::internal("source_failed", message),
            },
        };
        Answer::error(Some(id), &error.of_call(call_id, recorded.receipt()))
    }

    fn not_found_error(&self, version: Version) -> RpcError {
        match &self.of {
            ContentName::Prompt(name) => RpcError::unknown_prompt(name),
            ContentName::Resource(uri) if self.method == ContentMethod::ReadResource => {
                RpcError::unknown_resource(version).about(uri)
            }
            ContentName::Resource(_) | ContentName::Template(_) => {
                RpcError::invalid_params("Unknown resource template").because("unknown_resource")
            }
        }
    }
}

/// The result without the files that the caller may not read.
async fn filter_result(
    call: &GovernedCall<ContentRequest>,
    resource: &ContentResource,
    result: String,
) -> Result<String, RpcError> {
    let context = &call.context;
    let reader = ContentReader {
        gateway: &call.gateway,
        caller: &context.caller,
        client_ip: &context.client_ip,
        facts: &resource.facts,
    };
    match (&call.operation.wanted, &call.operation.of) {
        (ContentPart::Skill, _) => skill::filter_skill(&reader, result).await,
        (ContentPart::Directory(_), ContentName::Resource(uri)) => {
            skill::filter_directory(&reader, (&context.view, uri), result).await
        }
        _ => Ok(result),
    }
}

fn run_error(gateway: &Gateway, error: &CallError) -> RunError {
    match error.reason() {
        ErrorReason::PermitRefused => RunError::PermitRefused,
        ErrorReason::Overloaded => Rejection::NotAttempted(gateway.neighbour_overloaded()).into(),
        ErrorReason::NotDurable => Rejection::NotRecorded.into(),
        // Removed or switched off since the lists were read.
        ErrorReason::UnknownTool => Rejection::Unknown.into(),
        _ => {
            tracing::warn!(%error, "the tool-runner did not give a prompt or resource");
            let rejection = Rejection::Failed {
                kind: "tool_runner_unavailable",
                message: "It could not be read. Try again later.",
            };
            rejection.into()
        }
    }
}
