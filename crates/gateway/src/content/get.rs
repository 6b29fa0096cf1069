//! The operation on one prompt, resource, skill or completion: which source it uses, how it runs, and how its result is
//! written. The pipeline around the operation is `governed_call`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wardgate_domain::{Caller, Digest, Reason, Status, ToolFacts};
use wardgate_mcp::Version;
use wardgate_mcp_server::{
    ContentMethod, JsonRpcRequest, McpResponse, RecordStatus, RequestMeta, RpcError, call_meta,
    inner, write_members,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{
    CallError, ContentOutcome, ContentPart, ContentResult, GetContent, ResultFacts,
};

use super::content_request::{ContentName, ContentRequest};
use super::reader::{self, ContentReader};
use super::skill;
use crate::catalogue::{CatalogueIndex, CatalogueSource, View};
use crate::client_interaction::ClientChannel;
use crate::governed_call::{
    AnswerContent, CallPipeline, CatalogueEntry, Description, EntryUse, Operation, Output,
    PermittedRun, Rejection, Reply, RequestBinding, ResumableOperation, RoundOutcome, RunError,
    SealedOperation,
};
use crate::post::Post;
use crate::request_context::RequestContext;
use wardgate_limits::RequestAdmission;

/// Time limit for a tool-runner that does not answer. The tool-runner itself enforces a shorter one.
const LIMIT: Duration = Duration::from_secs(40);

/// The tool-runner's error kind for a name or URI that the source does not know.
const UNKNOWN: Reason = Reason::UNKNOWN;

/// A prompt or resource of the catalogue, and its source.
pub(crate) struct ContentResource {
    source: Arc<CatalogueSource>,
    facts: ToolFacts,
    /// The name or URI at the source.
    own_name: String,
}

/// The output of a source.
pub(crate) struct ContentOutput {
    result: Result<String, ContentError>,
    /// The `_meta` of the server's result, a JSON object. Empty if the result had none.
    meta: Bytes,
    facts: ResultFacts,
}

/// The reason for which a source returned no result.
enum ContentError {
    /// A message for the client.
    Message(String),
    /// The JSON-RPC error of an MCP server, one JSON object.
    Upstream(Bytes),
}

/// Runs `content_request` through the pipeline.
pub(super) async fn get(
    pipeline: &Arc<CallPipeline>,
    post: &Post,
    request: &JsonRpcRequest<'_>,
    context: RequestContext,
    content_request: ContentRequest,
) -> Result<McpResponse, RpcError> {
    let version = context.version;
    let channel = match content_request.wanted {
        ContentPart::Completion { .. } | ContentPart::Skill | ContentPart::Directory(_) => {
            ClientChannel::response_only(version)
        }
        ContentPart::Prompt(_) | ContentPart::Resource => pipeline.channels().for_request(
            post,
            request,
            &RequestMeta::from_request(request)?,
            version,
        )?,
    };
    pipeline
        .run(request, context, channel, content_request)
        .await
}

impl CatalogueEntry for ContentResource {
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
        Some(Digest::compute(result.as_bytes()))
    }
}

impl ResumableOperation for ContentRequest {
    fn seal(&self) -> Option<SealedOperation> {
        self.seal_request().map(SealedOperation::Content)
    }
}

impl Operation for ContentRequest {
    type Entry = ContentResource;
    type Output = ContentOutput;

    fn describe(
        &self,
        catalogue: Option<&CatalogueIndex>,
        view: &View,
    ) -> Description<'_, ContentResource> {
        let resource = catalogue.and_then(|catalogue| self.find_resource(catalogue, view));
        let is_resumable = !matches!(self.wanted, ContentPart::Skill | ContentPart::Directory(_));
        Description {
            method: self.method.as_str(),
            protocol: self.protocol,
            recorded_name: match &self.of {
                ContentName::Prompt(name) => Some(name),
                // A URI may contain personal data that somebody typed.
                ContentName::Resource(_) | ContentName::Template(_) => None,
            },
            arguments: self.params.as_bytes(),
            // Only tool calls belong to a conversation.
            conversation: None,
            mirrored_headers: None,
            agent_refusal: None,
            refusal_key: None,
            binding: self.request_binding(),
            resumable: is_resumable.then_some(self as &dyn ResumableOperation),
            unknown_reason: UNKNOWN,
            entry_use: resource.map(|resource| EntryUse {
                policy_arguments: reader::policy_arguments(self.of.kind(), &resource.own_name),
                may_write: !resource.facts.read_only,
                entry: resource,
            }),
        }
    }

    async fn run(
        &self,
        mut run: PermittedRun<'_, ContentResource>,
    ) -> Result<RoundOutcome<ContentOutput>, RunError> {
        let (services, resource, caller) = (run.services, run.entry, &run.context.caller);
        let capabilities = run.client.capabilities();
        let get = GetContent {
            call_id: run.call_id,
            caller,
            source: &resource.source.name,
            permit: &run.grant.permit,
            decided: reader::policy_arguments(self.of.kind(), &resource.own_name),
            wanted: self.wanted.clone(),
            caller_token: caller.token_for_source(resource.source.needs_caller_token),
            interaction: (run.client)
                .tool_runner_interaction(capabilities.as_deref(), run.resumption.take()),
        };
        let getting = Box::pin(services.runner.get_content(get, LIMIT));
        let output = run.client.unless_cancelled(getting).await?;
        let ContentResult { given, meta, facts } =
            output.map_err(|error| run_error(&services.admission, &error))?;
        let result = match given {
            ContentOutcome::InputRequired(input_required) => {
                return Ok(RoundOutcome::InputRequired(input_required));
            }
            ContentOutcome::Nothing(_) if facts.error_kind == UNKNOWN.as_str() => {
                return Err(Rejection::Unknown.into());
            }
            ContentOutcome::Nothing(message) => Err(ContentError::Message(message)),
            ContentOutcome::Error(error) => Err(ContentError::Upstream(error)),
            ContentOutcome::Result(result) => {
                let shown = self.filter_result(&run, result).await;
                let shown = shown.map_err(Rejection::NotAttempted)?;
                Ok(run.context.view.rewrite_result(shown))
            }
        };
        Ok(RoundOutcome::Output(ContentOutput {
            result,
            meta,
            facts,
        }))
    }

    fn render(&self, reply: &Reply<'_>, ending: AnswerContent<'_, ContentOutput>) -> McpResponse {
        match ending {
            AnswerContent::Completed(output, recorded) => {
                self.render_output(reply, recorded, output)
            }
            AnswerContent::Rejected(rejection, recorded) => {
                reply.error(rejection, recorded, || {
                    self.not_found_error(reply.context.version)
                })
            }
        }
    }
}

impl ContentRequest {
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

    /// Returns the result without the files that the caller may not read.
    async fn filter_result(
        &self,
        run: &PermittedRun<'_, ContentResource>,
        result: String,
    ) -> Result<String, RpcError> {
        let context = run.context;
        let reader = ContentReader {
            authority: run.services.discovery.authority(),
            caller: &context.caller,
            client_ip: &context.client_ip,
            facts: &run.entry.facts,
        };
        match (&self.wanted, &self.of) {
            (ContentPart::Skill, _) => skill::filter_skill(&reader, result).await,
            (ContentPart::Directory(_), ContentName::Resource(uri)) => {
                let sealer = &run.services.sealer;
                skill::filter_directory(&reader, sealer, &context.view, uri, result).await
            }
            _ => Ok(result),
        }
    }

    fn render_output(
        &self,
        reply: &Reply<'_>,
        recorded: RecordStatus,
        output: &ContentOutput,
    ) -> McpResponse {
        let (id, version, call_id) = (&reply.context.id, reply.context.version, reply.call_id);
        let error = match &output.result {
            Ok(result) => {
                let converted = wardgate_mcp_server::convert_content_result(result, version);
                let mut members = inner(&converted).to_owned();
                // The result depends on the caller and may change at any time.
                let is_kept = matches!(
                    self.wanted,
                    ContentPart::Resource | ContentPart::Skill | ContentPart::Directory(_)
                );
                if version.is_modern() && is_kept {
                    members += r#","ttlMs":0,"cacheScope":"private""#;
                }
                let mut meta = call_meta(call_id, recorded);
                write_members(&mut meta, &output.meta);
                return McpResponse::result_with_meta(id, version, &members, &meta);
            }
            Err(ContentError::Upstream(error)) => {
                return McpResponse::protocol_error(id, version, call_id, recorded, error);
            }
            Err(ContentError::Message(message)) => match output.facts.status {
                Status::InvalidArguments => {
                    RpcError::invalid_params(message).because(Reason::INVALID_ARGUMENTS)
                }
                Status::Timeout => RpcError::internal(Reason::TIMEOUT, message),
                _ => RpcError::internal(Reason::SOURCE_FAILED, message),
            },
        };
        McpResponse::error(Some(id), &error.of_call(call_id, recorded.receipt()))
    }

    fn not_found_error(&self, version: Version) -> RpcError {
        match &self.of {
            ContentName::Prompt(name) => RpcError::unknown_prompt(name),
            ContentName::Resource(uri) if self.method == ContentMethod::ReadResource => {
                RpcError::unknown_resource(version).about(uri)
            }
            ContentName::Resource(_) | ContentName::Template(_) => {
                RpcError::invalid_params("Unknown resource template")
                    .because(Reason::UNKNOWN_RESOURCE)
            }
        }
    }
}

fn run_error(admission: &RequestAdmission, error: &CallError) -> RunError {
    match error.reason() {
        ErrorReason::PermitRefused => RunError::PermitRefused,
        ErrorReason::Overloaded => Rejection::NotAttempted(admission.neighbour_overloaded()).into(),
        ErrorReason::NotDurable => Rejection::NotRecorded.into(),
        // The source was removed or switched off since the lists were read.
        ErrorReason::UnknownTool => Rejection::Unknown.into(),
        _ => {
            tracing::warn!(%error, "the tool-runner did not return a prompt or resource");
            let rejection = Rejection::Failed {
                kind: Reason::TOOL_RUNNER_UNAVAILABLE,
                message: "The content could not be read. Try again later.",
            };
            rejection.into()
        }
    }
}
