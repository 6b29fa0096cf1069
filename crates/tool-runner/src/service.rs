//! The gRPC service: each method converts, calls a plain function, and converts back.

mod closing;
mod connections;
mod events;
mod follow;
mod reload;
mod requests;
mod responses;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use futures::FutureExt;
use futures::future::try_join;
use futures::stream::{BoxStream, StreamExt};
use metrics::counter;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use wardgate_domain::{
    Ambient, Caller, Digest, InvalidMessage, OperatorAction, PermitVerifier, Switch, SwitchAction,
    SwitchChange,
};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::tool_runner_service_client::ToolRunnerServiceClient;
use wardgate_proto::toolrunner::v1::tool_runner_service_server::{
    ToolRunnerService, ToolRunnerServiceServer,
};
use wardgate_redact::PseudonymKey;
use wardgate_rpc::client::{
    AuditClient, CallError, CallEvents, CallTool, IdentifiedOperator, LocalToolRunner,
    MemoryClient, OperatorRights, PolicyClient, ToolCaller,
};
use wardgate_rpc::{Readiness, Service, ServiceError};
use wardgate_telemetry::{SecretFilesInUse, SecretKind, names};

pub use closing::ServiceCloser;

use self::reload::{log_warnings, shown_version, version};
use self::requests::resumed_state;
use crate::call::{self, CallEnd, CallRequest};
use crate::connections as grants;
use crate::execution_log::{ExecutionLog, held_until};
use crate::get_content::{self, ContentQuery};
use crate::imported::{Importer, load_lock};
use crate::loaded::{Keys, LoadedCatalogue, SharedState};
use crate::replicas::{self, Dial, Replicas};
use crate::store::{SealingKey, ToolRunnerStore};
use crate::switchboard::{Switchboard, Switches, switch_record};
use crate::watch_resources::{self, InForce, WatchRequest};
use crate::{Config, Error};
use wardgate_catalogue::{Catalogue, Files, Pins};
use wardgate_egress::Person;
use wardgate_mcp_client::Upstream;

/// The services that the tool-runner calls.
pub struct Links {
    /// The audit log, which records changes of switches, and executions.
    pub audit: AuditClient,
    /// Whether each execution is recorded here. This is needed if calls come from other processes, because the
    /// tool-runner cannot rely on them to have recorded the call.
    pub record_executions: bool,
    /// The policy service, which decides whether an operator may manage tools. Without it no operator may.
    pub policy: Option<PolicyClient>,
    /// The memory service, which tools about conversations query.
    pub memory: Option<MemoryClient>,
    /// The function that creates links to other replicas, or `None` if there are no other replicas.
    pub replicas: Option<Dial>,
}

/// Loads the catalogue and serves it. A faulty catalogue is an error here. Afterwards the file is checked for changes
/// every [`Config::reload_interval`], and a faulty change leaves the current catalogue in force. A source is connected
/// to when it is first used, so an unavailable source affects only its own tools.
///
/// The service is ready once it knows which tools are switched off, and reports through its readiness when a change of
/// the file is faulty. The [`ServiceCloser`] stops everything that the service started.
pub async fn service(
    config: Config,
    permits: PermitVerifier,
    pseudonym_key: PseudonymKey,
    sealing_key: SealingKey,
    links: Links,
    ambient: Ambient,
) -> Result<
    (
        Service<ToolRunnerServiceServer<impl ToolRunnerService>, LocalToolRunner>,
        ServiceCloser,
    ),
    Error,
> {
    config.check()?;
    let Links {
        audit,
        record_executions,
        policy,
        memory,
        replicas,
    } = links;
    let executions = record_executions.then(|| ExecutionLog::new(audit.clone(), ambient.clone()));
    let keys = Keys {
        permits,
        pseudonyms: Arc::new(pseudonym_key),
    };
    let store = ToolRunnerStore::open(
        &config.store,
        &config.database,
        sealing_key,
        ambient.clone(),
    )?;
    let importer = Importer::new(&config.catalogue, audit.clone(), ambient.clone());
    let switchboard = Switchboard::open(store, audit, ambient.clone()).await?;
    let shared = SharedState {
        executions,
        memory,
        replicas: Arc::new(Replicas::new(config.advertise.clone(), replicas)),
        ..SharedState::new(&config, switchboard.store().clone(), ambient)
    };
    let operators = OperatorRights::new(policy, "tool_runner.links.policy");
    let runner = start(config, keys, switchboard, operators, importer, shared)?;
    let closing = ServiceCloser::new(&runner);
    let service = Service {
        readiness: runner.readiness(),
        local: Arc::clone(&runner) as LocalToolRunner,
        server: ToolRunnerServiceServer::from_arc(runner),
    };
    Ok((service, closing))
}

/// Reads and checks what [`service`] would load, which is the catalogue and its lock file, without connecting to
/// anything.
pub fn check(config: &Config) -> Result<(Catalogue, Pins), Error> {
    config.check()?;
    let catalogue =
        Catalogue::load(&config.catalogue, &config.variables).map_err(Error::Catalogue)?;
    let pins = load_lock(&config.catalogue)?;
    Ok((catalogue, pins))
}

/// Loads the catalogue, creates the runner, and starts the tasks that follow its files and switches.
pub(crate) fn start(
    config: Config,
    keys: Keys,
    switchboard: Arc<Switchboard>,
    operators: OperatorRights,
    importer: Importer,
    shared: SharedState,
) -> Result<Arc<Runner>, Error> {
    let mut seen = Files::load(&config.catalogue, &[]).unwrap_or_default();
    let mut catalogue =
        Catalogue::load(&config.catalogue, &config.variables).map_err(Error::Catalogue)?;
    log_warnings(&catalogue);
    importer.import(&mut catalogue, &seen.lock)?;
    let loaded = LoadedCatalogue::new(catalogue, &config, &keys, &shared, None)?;
    seen.attached = loaded.attached_files();
    let secret_files = SecretFilesInUse::record(SecretKind::Credential, loaded.secret_files());
    // The subscriptions are made before any server can answer, so that no change is missed.
    let mut upstreams = vec![importer.changes()];
    upstreams.extend(shared.following.changes());
    importer.follow(loaded.upstreams());
    loaded.contents().follow_servers(&shared.following);
    let (version, _) = watch::channel(loaded.version());
    let runner = Arc::new(Runner {
        loaded: Arc::new(ArcSwap::from_pointee(loaded)),
        secret_files: ArcSwap::from_pointee(secret_files),
        version,
        readiness: watch::Sender::new(Readiness::Ready),
        is_outdated: AtomicBool::new(false),
        shared,
        config,
        keys,
        switchboard,
        operators,
        importer,
    });
    tokio::spawn(follow::files(Arc::downgrade(&runner), seen, upstreams));
    let switches = runner.switchboard.subscribe();
    runner.publish_version();
    runner.publish_readiness();
    tokio::spawn(follow::switches(Arc::downgrade(&runner), switches));
    tokio::spawn(follow::servers(Arc::downgrade(&runner)));
    Ok(runner)
}

/// The state of the service.
pub(crate) struct Runner {
    loaded: Arc<ArcSwap<LoadedCatalogue>>,
    /// The files from which the sources of the catalogue read their secrets.
    secret_files: ArcSwap<SecretFilesInUse>,
    /// The version of the catalogue and the switches together.
    version: watch::Sender<Digest>,
    readiness: watch::Sender<Readiness>,
    /// Whether the current files have faults and so are not in force.
    is_outdated: AtomicBool,
    shared: SharedState,
    config: Config,
    keys: Keys,
    switchboard: Arc<Switchboard>,
    operators: OperatorRights,
    importer: Importer,
}

#[tonic::async_trait]
impl ToolRunnerService for Runner {
    type WatchCatalogueStream = BoxStream<'static, Result<pb::WatchCatalogueResponse, Status>>;
    type CallToolStream = BoxStream<'static, Result<pb::CallToolResponse, Status>>;
    type WatchResourcesStream = BoxStream<'static, Result<pb::WatchResourcesResponse, Status>>;

    async fn list_tools(
        &self,
        _: Request<pb::ListToolsRequest>,
    ) -> Result<Response<pb::ListToolsResponse>, Status> {
        let switches = self
            .switches()
            .map_err(|error| count_and_convert_error(&error))?;
        let loaded = self.loaded.load();
        let version = version(&loaded, Some(&switches));
        let shown = shown_version(&loaded, Some(&switches));
        let list = responses::tools(&loaded, &switches, version, shown);
        Ok(Response::new(list))
    }

    async fn watch_catalogue(
        &self,
        _: Request<pb::WatchCatalogueRequest>,
    ) -> Result<Response<Self::WatchCatalogueStream>, Status> {
        let versions = WatchStream::new(self.version.subscribe());
        let responses = versions.map(|version| {
            Ok(pb::WatchCatalogueResponse {
                catalogue_version: version.to_wire(),
            })
        });
        Ok(Response::new(responses.boxed()))
    }

    async fn call_tool(
        &self,
        request: Request<pb::CallToolRequest>,
    ) -> Result<Response<Self::CallToolStream>, Status> {
        let (metadata, _, request) = request.into_parts();
        let replicas = &self.shared.replicas;
        let state = resumed_state(request.interaction.as_ref());
        if let Some(link) = replicas.link_to_holder(state, &metadata) {
            let mut other = ToolRunnerServiceClient::new(link);
            let call = replicas::forwarded_request(&metadata, request.clone());
            if let Some(events) = replicas::unless_unavailable(other.call_tool(call).await) {
                return Ok(Response::new(events?.into_inner().boxed()));
            }
        }
        let call = CallRequest::try_from(request).map_err(invalid)?;
        let events = self.run_call(call).await?;
        let responses = events.map(|event| Ok(event.map(pb::CallToolResponse::from)?));
        Ok(Response::new(responses.boxed()))
    }

    async fn list_content(
        &self,
        _: Request<pb::ListContentRequest>,
    ) -> Result<Response<pb::ListContentResponse>, Status> {
        let switches = self
            .switches()
            .map_err(|error| count_and_convert_error(&error))?;
        let loaded = self.loaded.load();
        let version = version(&loaded, Some(&switches));
        Ok(Response::new(responses::content(
            loaded.contents().lists(),
            version,
        )))
    }

    async fn get_content(
        &self,
        request: Request<pb::GetContentRequest>,
    ) -> Result<Response<pb::GetContentResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let replicas = &self.shared.replicas;
        let state = resumed_state(request.interaction.as_ref());
        if let Some(link) = replicas.link_to_holder(state, &metadata) {
            let mut other = ToolRunnerServiceClient::new(link);
            let get = replicas::forwarded_request(&metadata, request.clone());
            if let Some(given) = replicas::unless_unavailable(other.get_content(get).await) {
                return Ok(Response::new(given?.into_inner()));
            }
        }
        let query = ContentQuery::try_from(request).map_err(invalid)?;
        let loaded = self.loaded.load();
        let (max_bytes, now) = (self.config.max_result_bytes, self.shared.ambient.now());
        let admitted = self
            .check_source(&query.source, &query.caller)
            .and_then(|()| {
                get_content::admit(
                    query,
                    &loaded,
                    &self.shared.suspended_exchanges,
                    max_bytes,
                    now,
                )
            })
            .map_err(|error| count_and_convert_error(&error))?;
        let log = self.shared.executions.as_ref();
        let recorded = log.map(|log| log.append(admitted.execution()));
        let got = Box::pin(admitted.get());
        let Some(recorded) = recorded else {
            return Ok(Response::new(got.await.into()));
        };
        let released = try_join(recorded, got.map(Ok)).await;
        let ((), given) = released.map_err(|error| count_and_convert_error(&error))?;
        Ok(Response::new(given.into()))
    }

    async fn watch_resources(
        &self,
        request: Request<pb::WatchResourcesRequest>,
    ) -> Result<Response<Self::WatchResourcesStream>, Status> {
        let query = WatchRequest::try_from(request.into_inner()).map_err(invalid)?;
        let loaded = self.loaded.load();
        let admitted = self
            .check_source(&query.source, &query.caller)
            .and_then(|()| watch_resources::admit(query, &loaded, self.shared.ambient.now()))
            .map_err(|error| count_and_convert_error(&error))?;
        let in_force = InForce {
            loaded: Arc::clone(&self.loaded),
            switchboard: Arc::clone(&self.switchboard),
            changes: self.version.subscribe(),
        };
        let changes = admitted.run(in_force).map(|uris| {
            let uris = uris.into_iter().collect();
            Ok(pb::WatchResourcesResponse { uris })
        });
        Ok(Response::new(changes.boxed()))
    }

    async fn set_switch(
        &self,
        request: Request<pb::SetSwitchRequest>,
    ) -> Result<Response<pb::SetSwitchResponse>, Status> {
        let request = request.into_inner();
        let operator = self.operator(&request.caller_token).await?;
        let change = SwitchChange::try_from(request).map_err(invalid)?;
        self.set(&operator, change)
            .await
            .map_err(|error| wardgate_rpc::status(&error))?;
        Ok(Response::new(pb::SetSwitchResponse {}))
    }

    async fn list_switches(
        &self,
        request: Request<pb::ListSwitchesRequest>,
    ) -> Result<Response<pb::ListSwitchesResponse>, Status> {
        let operator = self.operator(&request.into_inner().caller_token).await?;
        let switches = self
            .list_for(&operator)
            .await
            .map_err(|error| wardgate_rpc::status(&error))?;
        Ok(Response::new(pb::ListSwitchesResponse {
            switches: switches.iter().map(Into::into).collect(),
        }))
    }

    async fn describe_connection(
        &self,
        request: Request<pb::DescribeConnectionRequest>,
    ) -> Result<Response<pb::DescribeConnectionResponse>, Status> {
        let request = request.into_inner();
        let connect = connections::connect(request.connect).map_err(invalid)?;
        let person = self.verify_person(request.person, &connect.source, &connect.caller_proof)?;
        let described = grants::describe(&self.loaded.load_full(), &person, &connect).await;
        let described = described.map_err(|error| wardgate_rpc::status(&error))?;
        Ok(Response::new(connections::description(described)))
    }

    async fn start_connection(
        &self,
        request: Request<pb::StartConnectionRequest>,
    ) -> Result<Response<pb::StartConnectionResponse>, Status> {
        let mut request = request.into_inner();
        let connect = connections::connect(request.connect.take()).map_err(invalid)?;
        let person = request.person.take();
        let person = self.verify_person(person, &connect.source, &connect.caller_proof)?;
        let grant = connections::grant_request(&request, &person, &connect).map_err(invalid)?;
        let started = grants::start(&self.loaded.load_full(), &connect.source, grant).await;
        let started = started.map_err(|error| wardgate_rpc::status(&error))?;
        Ok(Response::new(connections::started_grant(started)))
    }

    async fn finish_connection(
        &self,
        request: Request<pb::FinishConnectionRequest>,
    ) -> Result<Response<pb::FinishConnectionResponse>, Status> {
        let mut request = request.into_inner();
        let person = request.person.take();
        let person = self.verify_person(person, &request.source, &request.caller_proof)?;
        let (loaded, switchboard) = (self.loaded.load_full(), Arc::clone(&self.switchboard));
        // A separate task, because an authorization code can be used only once, even if the caller disconnects.
        let finishing = tokio::spawn(async move {
            let callback = connections::grant_callback(&request, &person).map_err(invalid)?;
            let finished = grants::finish(&loaded, &switchboard, &request.source, callback).await;
            finished.map_err(|error| wardgate_rpc::status(&error))
        });
        let interrupted = |_| wardgate_rpc::status(&Error::Interrupted);
        finishing.await.map_err(interrupted)??;
        Ok(Response::new(pb::FinishConnectionResponse {}))
    }

    async fn list_connections(
        &self,
        request: Request<pb::ListConnectionsRequest>,
    ) -> Result<Response<pb::ListConnectionsResponse>, Status> {
        let operator = self.operator(&request.into_inner().caller_token).await?;
        let connections = grants::list(&self.switchboard, &operator).await;
        let connections = connections.map_err(|error| wardgate_rpc::status(&error))?;
        Ok(Response::new(pb::ListConnectionsResponse {
            connections: connections.into_iter().map(Into::into).collect(),
        }))
    }

    async fn remove_connections(
        &self,
        request: Request<pb::RemoveConnectionsRequest>,
    ) -> Result<Response<pb::RemoveConnectionsResponse>, Status> {
        let request = request.into_inner();
        let operator = self.operator(&request.caller_token).await?;
        let (loaded, switchboard) = (self.loaded.load_full(), Arc::clone(&self.switchboard));
        // A separate task, because a grant that is deleted here has to be revoked at the source even if the caller
        // disconnects.
        let removing = tokio::spawn(async move {
            let remove = connections::remove_connections(&request).map_err(invalid)?;
            let removed = grants::remove(&loaded, &switchboard, &operator, &remove).await;
            removed.map_err(|error| wardgate_rpc::status(&error))
        });
        let interrupted = |_| wardgate_rpc::status(&Error::Interrupted);
        let removed = removing.await.map_err(interrupted)??;
        Ok(Response::new(pb::RemoveConnectionsResponse { removed }))
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "it stands where errors are mapped"
)]
fn invalid(message: InvalidMessage) -> Status {
    wardgate_rpc::invalid(&message)
}

fn count_and_convert_error(error: &Error) -> CallError {
    counter!(names::CALLS_REFUSED, "reason" => error.reason().as_str_name()).increment(1);
    CallError::from(error)
}

#[tonic::async_trait]
impl ToolCaller for Runner {
    /// Runs the call on this replica. Only calls that arrive as gRPC messages can belong to another replica.
    async fn call_tool(&self, call: CallTool<'_>) -> Result<CallEvents, CallError> {
        self.run_call(call.into()).await
    }
}

impl Runner {
    /// Runs a call under its permit. A call that may write starts once its execution is recorded; the events of a call
    /// that only reads are held back until then. Within one process the caller records the execution instead.
    async fn run_call(&self, call: CallRequest) -> Result<CallEvents, CallError> {
        let loaded = self.loaded.load_full();
        let admitted = self
            .check_switch(&call, &loaded)
            .and_then(|()| call::admit(call, &loaded, self.shared.ambient.now()))
            .map_err(|error| count_and_convert_error(&error))?;
        let counted = self.shared.platform.begin(admitted.tool());
        let log = self.shared.executions.as_ref();
        let recorded = log.map(|log| log.append(admitted.execution()));
        let may_write = admitted.may_write();
        let shared = self.shared.clone();
        let events = events::events(move |listener| async move {
            let end = Box::pin(admitted.run(&shared, &listener)).await;
            counted.record_end(matches!(&end, CallEnd::Result(result) if result.is_error));
            end
        });
        let events = events.boxed();
        Ok(match recorded {
            None => events,
            Some(recorded) if may_write => {
                recorded
                    .await
                    .map_err(|error| count_and_convert_error(&error))?;
                events
            }
            Some(recorded) => held_until(recorded, events),
        })
    }

    /// Returns the switches in force. Until the switches have been read once, nothing may run.
    fn switches(&self) -> Result<Arc<Switches>, Error> {
        self.switchboard.current().ok_or(Error::SwitchesUnknown)
    }

    /// Checks that the tool is switched on for the caller. A tool that is off is reported like one that does not exist.
    fn check_switch(&self, call: &CallRequest, loaded: &LoadedCatalogue) -> Result<(), Error> {
        let switches = self.switches()?;
        match loaded.tool(&call.tool) {
            Some(tool) if tool.switches(&switches).allow(&call.caller) => Ok(()),
            _ => Err(Error::UnknownTool),
        }
    }

    /// Checks that the source is switched on for the caller. A source that is off is reported like one that does not
    /// exist.
    fn check_source(&self, source: &str, caller: &Caller) -> Result<(), Error> {
        let switches = self.switches()?.of_source(source);
        if switches.allow(caller) {
            Ok(())
        } else {
            Err(Error::UnknownTool)
        }
    }

    /// Returns the person of a request about a connection to `source`. The tool-runner created `proof` for the caller of a
    /// permitted call, so that the gateway can connect no source for a person whom it invented.
    fn verify_person(
        &self,
        person: Option<pb::Person>,
        source: &str,
        proof: &[u8],
    ) -> Result<Person, Status> {
        let person = connections::person(person).map_err(invalid)?;
        let store = &self.shared.store;
        if !store.accepts_caller_proof(person.digest(), source, proof) {
            return Err(wardgate_rpc::status(&Error::NoCallerProof));
        }
        Ok(person)
    }

    /// Identifies the operator of `token` and checks whether the operator may manage tools.
    async fn operator(&self, token: &str) -> Result<IdentifiedOperator, Status> {
        let operator = self.operators.decide(token, OperatorAction::ManageTools);
        operator.await.map_err(|error| wardgate_rpc::status(&error))
    }

    /// Returns every stored switch, and records that the operator has read them.
    async fn list_for(&self, operator: &IdentifiedOperator) -> Result<Vec<Switch>, Error> {
        let board = &self.switchboard;
        let reading = operator.change("switch.list", "*");
        board.log().record_reading(operator, reading).await?;
        board.list().await
    }

    /// Changes a switch. A switch for a target that does not exist is refused, because it is probably a typing error
    /// that would go unnoticed. A leftover switch can be reset even if its target no longer exists.
    async fn set(&self, operator: &IdentifiedOperator, change: SwitchChange) -> Result<(), Error> {
        let record = switch_record(&change, operator);
        let log = self.switchboard.log();
        log.check_permitted(operator, &record).await?;
        let target = &change.target;
        if change.action != SwitchAction::Reset && !self.loaded.load().has(target) {
            return Err(Error::NoSuchTarget {
                kind: target.kind.as_str(),
                name: target.name.clone(),
            });
        }
        self.switchboard.set(change, record).await
    }

    pub(crate) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// Ends every call that waits for input from its client.
    pub(crate) fn end_waiting(&self) {
        self.shared.suspended_exchanges.clear();
    }

    /// Returns the MCP servers of the catalogue in force.
    pub(crate) fn upstreams(&self) -> Vec<Arc<Upstream>> {
        self.loaded.load().servers()
    }
}
