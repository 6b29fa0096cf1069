//! A fake tool-runner that checks permits like the real one and runs no tools.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use serde_json::Value;
use tokio::sync::{broadcast, oneshot, watch};
use tonic::{Request, Response, Status};
use wardgate_domain::{
    Ambient, CallToRun, Caller, Digest, OfferKind, PermitVerifier, SignedPermit, ToolFacts,
};
use wardgate_proto::common::v1::{Caller as CallerOfWire, ErrorReason};
use wardgate_proto::policy::v1::SignedPermit as SignedPermitOfWire;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::call_tool_response::Event;
use wardgate_proto::toolrunner::v1::tool_runner_service_server::{
    ToolRunnerService, ToolRunnerServiceServer,
};
use wardgate_rpc::client::{
    CallError, CallEvent, CallEvents, CallTool, LocalToolRunner, ToolCaller,
};
use wardgate_rpc::link::{self, LinkedService};
use wardgate_rpc::{Peer, Readiness, Service};

use super::{failure, follow};
use crate::{Log, tool_facts};

/// The result of a call.
#[derive(Debug)]
pub enum RunBehavior {
    /// The call ends with this result.
    Give(Box<pb::ToolResult>),
    /// The stream has the events that the test sends, until the sender is dropped.
    Live(mpsc::UnboundedReceiver<Event>),
    /// The call ends with the ordinary result once released.
    Hold(oneshot::Receiver<()>),
    /// The permit is refused.
    RefusePermit,
    /// The call fails.
    Fail(ErrorReason),
    /// The call never ends.
    Hang,
    /// The service panics before it returns a stream.
    Panic,
    /// The service panics when the stream is read.
    PanicLater,
    /// The stream ends without a result.
    EndEarly,
}

/// A fake tool-runner.
pub struct FakeToolRunner {
    /// The requests to call tools.
    pub asked: Log<pb::CallToolRequest>,
    /// One entry for each request to list tools.
    pub listed: Log<()>,
    /// The IDs of the calls whose stream was dropped before its end.
    pub dropped: Arc<Log<String>>,
    /// One entry for each watch that was refused because the catalogue is withdrawn.
    pub turned_away: Log<()>,
    /// The readiness that the service announces.
    pub readiness: watch::Sender<Readiness>,
    /// The names of the upstreams that do not answer.
    pub missing: Mutex<Vec<String>>,
    /// Prompts and resources, and their sources.
    pub content: Mutex<(Vec<pb::Source>, pb::ListContentResponse)>,
    /// The requests for prompts and resources.
    pub got: Log<pb::GetContentRequest>,
    /// The results of the next requests for content. Later requests get the ordinary content.
    pub gives: Mutex<VecDeque<Result<pb::GetContentResponse, ErrorReason>>>,
    /// The requests to watch resources.
    pub watched: Log<pb::WatchResourcesRequest>,
    /// Sends the URI of a changed resource to every watcher of it, or `None` to end every watch. Only resources whose
    /// own URI begins with `own` are watched.
    pub touched: broadcast::Sender<Option<String>>,
    /// The configured tools, or `None` if the catalogue is withdrawn.
    catalogue: watch::Sender<Option<Vec<pb::Tool>>>,
    next: Mutex<VecDeque<RunBehavior>>,
    verifier: PermitVerifier,
    ambient: Ambient,
}

/// Returns a tool with its definition. A name that contains `writes` makes it a writing tool, and `slow` gives it a
/// short time limit.
pub fn listed_tool(name: &str, definition: &Value) -> pb::Tool {
    let facts = ToolFacts {
        definition_digest: Digest::compute(definition.to_string().as_bytes()),
        read_only: !name.contains("writes"),
        ..tool_facts(name)
    };
    let limit = if name.contains("slow") { 100 } else { 30_000 };
    pb::Tool {
        facts: Some((&facts).into()),
        aliases: vec![format!("{name}_alias")],
        definition_json: definition.to_string().into(),
        time_limit: Some(Duration::from_millis(limit).try_into().unwrap()),
        ..pb::Tool::default()
    }
}

/// Returns a result with one text and with structured content, unless it is null.
pub fn tool_result(text: &str, structured: &Value) -> pb::ToolResult {
    let content = serde_json::json!([{ "type": "text", "text": text }]);
    pb::ToolResult {
        content_json: content.to_string().into(),
        structured_content_json: if structured.is_null() {
            bytes::Bytes::new()
        } else {
            structured.to_string().into()
        },
        is_error: false,
        facts: Some(pb::ResultFacts {
            status: pb::OutcomeStatus::Ok.into(),
            rows: 2,
            rows_withheld: 1,
            fields_redacted: 3,
            phi: true,
            ..pb::ResultFacts::default()
        }),
        ..pb::ToolResult::default()
    }
}

/// A guard that records when a stream is dropped before its end.
struct CallDropGuard {
    call_id: String,
    dropped: Arc<Log<String>>,
}

impl Drop for CallDropGuard {
    fn drop(&mut self) {
        self.dropped.push(std::mem::take(&mut self.call_id));
    }
}

impl FakeToolRunner {
    /// Creates a tool-runner with these tools, which accepts the permits that `verifier` accepts.
    pub fn new(verifier: PermitVerifier, ambient: Ambient, tools: Vec<pb::Tool>) -> Arc<Self> {
        Arc::new(Self {
            asked: Log::default(),
            listed: Log::default(),
            dropped: Arc::default(),
            turned_away: Log::default(),
            readiness: watch::Sender::new(Readiness::Ready),
            missing: Mutex::default(),
            content: Mutex::default(),
            got: Log::default(),
            gives: Mutex::default(),
            watched: Log::default(),
            touched: broadcast::Sender::new(64),
            catalogue: watch::Sender::new(Some(tools)),
            next: Mutex::default(),
            verifier,
            ambient,
        })
    }

    /// Returns the link of the gateway to this service.
    pub fn link(self: &Arc<Self>) -> LinkedService<LocalToolRunner> {
        let service = Service {
            server: ToolRunnerServiceServer::from_arc(Arc::clone(self)),
            local: Arc::clone(self) as LocalToolRunner,
            readiness: self.readiness.subscribe(),
        };
        link::local(service, Peer::Gateway)
    }

    /// Sets the results of the next calls. Later calls get the ordinary result.
    pub fn next(&self, runs: impl IntoIterator<Item = RunBehavior>) {
        self.next.lock().unwrap().extend(runs);
    }

    /// Returns a sender of the events of the next call.
    pub fn live(&self) -> mpsc::UnboundedSender<Event> {
        let (sender, events) = mpsc::unbounded();
        self.next([RunBehavior::Live(events)]);
        sender
    }

    /// Replaces the tools, and notifies every watcher.
    pub fn configure(&self, tools: Vec<pb::Tool>) {
        self.catalogue.send_replace(Some(tools));
    }

    /// Ends every watch and makes requests for tools fail.
    pub fn withdraw_catalogue(&self) {
        self.catalogue.send_replace(None);
    }

    /// Returns whether the permit covers exactly this call.
    fn admits(&self, request: &pb::CallToolRequest) -> bool {
        self.covers(
            request.permit.as_ref(),
            request.caller.as_ref(),
            self.facts(&request.tool),
            &request.arguments_json,
        )
    }

    /// Returns whether the permit covers the request for content of one of the sources.
    fn admits_content(&self, request: &pb::GetContentRequest) -> bool {
        let facts = self.facts_of_source(&request.source);
        facts.into_iter().any(|facts| {
            self.covers(
                request.permit.as_ref(),
                request.caller.as_ref(),
                Some(facts),
                &request.decided_json,
            )
        })
    }

    /// Returns whether the permits cover each of the resources.
    fn admits_watch(&self, request: &pb::WatchResourcesRequest) -> bool {
        let facts = self.facts_of_source(&request.source);
        let facts = facts.iter().find(|it| it.kind == OfferKind::Resources);
        request.resources.iter().all(|resource| {
            self.covers(
                resource.permit.as_ref(),
                request.caller.as_ref(),
                facts.cloned(),
                &resource.decided_json,
            )
        })
    }

    /// Returns the facts of the configured tool of that name.
    fn facts(&self, tool: &str) -> Option<ToolFacts> {
        let configured = self.catalogue.borrow();
        let mut facts = configured
            .iter()
            .flatten()
            .filter_map(|tool| tool.facts.clone());
        let facts = facts.find(|facts| facts.name == tool)?;
        Some(ToolFacts::try_from(facts).unwrap())
    }

    fn facts_of_source(&self, source: &str) -> Vec<ToolFacts> {
        let content = self.content.lock().unwrap();
        let mut sources = content.0.iter();
        let source = sources.find(|configured| configured.name == source);
        let facts = source.into_iter().flat_map(|source| source.facts.clone());
        facts
            .map(|facts| ToolFacts::try_from(facts).unwrap())
            .collect()
    }

    fn covers(
        &self,
        permit: Option<&SignedPermitOfWire>,
        caller: Option<&CallerOfWire>,
        facts: Option<ToolFacts>,
        arguments: &[u8],
    ) -> bool {
        let permit = SignedPermit::try_from(permit.unwrap().clone()).unwrap();
        let caller = Caller::try_from(caller.unwrap().clone()).unwrap();
        let Some(facts) = facts else {
            return false;
        };
        let call = CallToRun {
            caller: &caller,
            tool: &facts.name,
            definition_digest: facts.definition_digest,
            arguments,
        };
        self.verifier
            .verify(&permit)
            .is_ok_and(|terms| terms.admit(call, self.ambient.now()).is_ok())
    }
}

/// Returns the response with the content of a prompt or a resource.
pub fn content_response(result: &str) -> pb::GetContentResponse {
    pb::GetContentResponse {
        result_json: result.to_owned().into(),
        facts: Some(pb::ResultFacts {
            status: pb::OutcomeStatus::Ok.into(),
            rows: 2,
            fields_redacted: 3,
            phi: true,
            ..pb::ResultFacts::default()
        }),
        ..pb::GetContentResponse::default()
    }
}

/// Returns the version of a catalogue, which differs for different tools.
fn version(tools: &[pb::Tool]) -> bytes::Bytes {
    Digest::compute(format!("{tools:?}").as_bytes()).to_wire()
}

/// Returns the version of the part of a catalogue that callers see.
fn visible_version(tools: &[pb::Tool]) -> bytes::Bytes {
    let shown = |tool: &pb::Tool| pb::Tool {
        time_limit: None,
        ..tool.clone()
    };
    version(&tools.iter().map(shown).collect::<Vec<_>>())
}

fn event(event: Event) -> pb::CallToolResponse {
    pb::CallToolResponse { event: Some(event) }
}

/// Returns a stream of a progress event and the result `given`.
fn events(given: pb::ToolResult) -> BoxStream<'static, Result<pb::CallToolResponse, Status>> {
    let progress = pb::Progress {
        progress: 1.0,
        ..pb::Progress::default()
    };
    stream::iter([Event::Progress(progress), Event::Result(given)])
        .map(|told| Ok(event(told)))
        .boxed()
}

#[tonic::async_trait]
impl ToolCaller for FakeToolRunner {
    async fn call_tool(&self, call: CallTool<'_>) -> Result<CallEvents, CallError> {
        let request = Request::new(call.into());
        let events = ToolRunnerService::call_tool(self, request).await?;
        let events = events.into_inner();
        Ok(events.map(|event| Ok(CallEvent::try_from(event?)?)).boxed())
    }
}

#[tonic::async_trait]
impl ToolRunnerService for FakeToolRunner {
    async fn list_tools(
        &self,
        _request: Request<pb::ListToolsRequest>,
    ) -> Result<Response<pb::ListToolsResponse>, Status> {
        self.listed.push(());
        let tools = self.catalogue.borrow().clone();
        let tools = tools.ok_or_else(|| failure(ErrorReason::Unavailable))?;
        Ok(Response::new(pb::ListToolsResponse {
            catalogue_version: version(&tools),
            shown_version: visible_version(&tools),
            tools,
            missing_upstreams: self.missing.lock().unwrap().clone(),
            sources: self.content.lock().unwrap().0.clone(),
            ..pb::ListToolsResponse::default()
        }))
    }

    type WatchCatalogueStream = BoxStream<'static, Result<pb::WatchCatalogueResponse, Status>>;

    async fn watch_catalogue(
        &self,
        _request: Request<pb::WatchCatalogueRequest>,
    ) -> Result<Response<Self::WatchCatalogueStream>, Status> {
        if self.catalogue.borrow().is_none() {
            self.turned_away.push(());
            return Err(failure(ErrorReason::Unavailable));
        }
        let versions = follow(self.catalogue.subscribe(), |tools: Vec<pb::Tool>| {
            pb::WatchCatalogueResponse {
                catalogue_version: version(&tools),
            }
        });
        Ok(Response::new(versions))
    }

    type CallToolStream = BoxStream<'static, Result<pb::CallToolResponse, Status>>;

    async fn call_tool(
        &self,
        request: Request<pb::CallToolRequest>,
    ) -> Result<Response<Self::CallToolStream>, Status> {
        let request = request.into_inner();
        self.asked.push(request.clone());
        if !self.admits(&request) {
            return Err(failure(ErrorReason::PermitRefused));
        }
        let ordinary = tool_result("the secret result", &serde_json::json!({ "rows": [1.10] }));
        let run = self.next.lock().unwrap().pop_front();
        let watched = CallDropGuard {
            call_id: request.call_id,
            dropped: Arc::clone(&self.dropped),
        };
        let stream = match run.unwrap_or(RunBehavior::Give(Box::new(ordinary.clone()))) {
            RunBehavior::Give(given) => events(*given),
            RunBehavior::Live(told) => {
                stream::unfold((told, watched), async |(mut told, watched)| {
                    Some((Ok(event(told.next().await?)), (told, watched)))
                })
                .boxed()
            }
            RunBehavior::Hold(released) => stream::once(async move {
                let _watched = watched;
                released.await.unwrap();
                Ok::<_, Status>(events(ordinary))
            })
            .try_flatten()
            .boxed(),
            RunBehavior::Hang => stream::once(async move {
                let _watched = watched;
                std::future::pending().await
            })
            .boxed(),
            RunBehavior::RefusePermit => return Err(failure(ErrorReason::PermitRefused)),
            RunBehavior::Fail(reason) => return Err(failure(reason)),
            RunBehavior::Panic => panic!("as ordered"),
            RunBehavior::PanicLater => stream::once(async { panic!("as ordered") }).boxed(),
            RunBehavior::EndEarly => stream::empty().boxed(),
        };
        Ok(Response::new(stream))
    }

    async fn list_content(
        &self,
        _request: Request<pb::ListContentRequest>,
    ) -> Result<Response<pb::ListContentResponse>, Status> {
        Ok(Response::new(self.content.lock().unwrap().1.clone()))
    }

    async fn get_content(
        &self,
        request: Request<pb::GetContentRequest>,
    ) -> Result<Response<pb::GetContentResponse>, Status> {
        let request = request.into_inner();
        self.got.push(request.clone());
        if !self.admits_content(&request) {
            return Err(failure(ErrorReason::PermitRefused));
        }
        let given = self.gives.lock().unwrap().pop_front();
        let given = given.unwrap_or_else(|| Ok(content_response(r#"{"secret":[1.10]}"#)));
        given.map(Response::new).map_err(failure)
    }

    type WatchResourcesStream = BoxStream<'static, Result<pb::WatchResourcesResponse, Status>>;

    async fn watch_resources(
        &self,
        request: Request<pb::WatchResourcesRequest>,
    ) -> Result<Response<Self::WatchResourcesStream>, Status> {
        let request = request.into_inner();
        self.watched.push(request.clone());
        if !self.admits_watch(&request) {
            return Err(failure(ErrorReason::PermitRefused));
        }
        let own = |resource: &pb::WatchedResource| {
            let decided: Value = serde_json::from_slice(&resource.decided_json).unwrap();
            decided["uri"].as_str().unwrap().to_owned()
        };
        let uris = request.resources.iter().map(own);
        let uris: Vec<_> = uris.filter(|uri| uri.starts_with("own")).collect();
        let touched = stream::unfold(self.touched.subscribe(), async |mut touched| {
            Some((touched.recv().await.ok()??, touched))
        });
        let watched = uris.clone();
        let touched = touched.filter(move |uri| std::future::ready(watched.contains(uri)));
        let touched = touched.map(|uri| vec![uri]);
        let told = stream::once(async { uris }).chain(touched);
        let told = told.map(|uris| Ok(pb::WatchResourcesResponse { uris }));
        Ok(Response::new(told.boxed()))
    }

    async fn set_switch(
        &self,
        _request: Request<pb::SetSwitchRequest>,
    ) -> Result<Response<pb::SetSwitchResponse>, Status> {
        Err(Status::unimplemented("the gateway sets no switches"))
    }

    async fn list_switches(
        &self,
        _request: Request<pb::ListSwitchesRequest>,
    ) -> Result<Response<pb::ListSwitchesResponse>, Status> {
        Err(Status::unimplemented("the gateway lists no switches"))
    }

    async fn describe_connection(
        &self,
        _request: Request<pb::DescribeConnectionRequest>,
    ) -> Result<Response<pb::DescribeConnectionResponse>, Status> {
        Err(Status::unimplemented("nobody connects anything here"))
    }

    async fn start_connection(
        &self,
        _request: Request<pb::StartConnectionRequest>,
    ) -> Result<Response<pb::StartConnectionResponse>, Status> {
        Err(Status::unimplemented("nobody connects anything here"))
    }

    async fn finish_connection(
        &self,
        _request: Request<pb::FinishConnectionRequest>,
    ) -> Result<Response<pb::FinishConnectionResponse>, Status> {
        Err(Status::unimplemented("nobody connects anything here"))
    }

    async fn list_connections(
        &self,
        _request: Request<pb::ListConnectionsRequest>,
    ) -> Result<Response<pb::ListConnectionsResponse>, Status> {
        Err(Status::unimplemented("nobody connects anything here"))
    }

    async fn remove_connections(
        &self,
        _request: Request<pb::RemoveConnectionsRequest>,
    ) -> Result<Response<pb::RemoveConnectionsResponse>, Status> {
        Err(Status::unimplemented("nobody connects anything here"))
    }
}
