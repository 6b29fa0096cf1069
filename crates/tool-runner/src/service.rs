//! The gRPC service: each method converts, calls a plain function, and converts back.

mod closing;
mod events;
mod follow;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use futures::FutureExt;
use futures::future::try_join;
use futures::stream::{BoxStream, StreamExt};
use metrics::counter;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use tracing::{error, info, warn};
use wardgate_domain::{
    Ambient, BearerToken, Caller, Digest, InvalidId, InvalidMessage, PermitVerifier, SwitchAction,
    SwitchChange,
};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::tool_runner_service_server::{
    ToolRunnerService, ToolRunnerServiceServer,
};
use wardgate_redact::PseudonymKey;
use wardgate_rpc::client::{AuditClient, MemoryClient};
use wardgate_rpc::{Readiness, Service, ServiceError};
use wardgate_telemetry::names;

pub use closing::ServiceCloser;

use crate::call::{self, Call};
use crate::connections;
use crate::execution_log::{ExecutionLog, held_until};
use crate::get_content::{self, ContentQuery};
use crate::imported::{Importer, check_lock};
use crate::loaded::{Keys, LoadedCatalogue, SharedState};
use crate::replicas::{self, Dial, Replicas};
use crate::store::{SealingKey, Store};
use crate::switchboard::{Switchboard, Switches};
use crate::watch_resources::{self, InForce, WatchAsked};
use crate::{Config, Error};
use wardgate_catalogue::Catalogue;
use wardgate_catalogue::Files;
use wardgate_mcp_client::Upstream;

/// What the service calls.
pub struct Links {
    /// Records changes of switches, and executions.
    pub audit: AuditClient,
    /// Each execution is recorded here: calls come from other processes, and nobody's word is taken for their being on
    /// record already.
    pub record_executions: bool,
    /// Tools about conversations ask it.
    pub memory: Option<MemoryClient>,
    /// Links to its other replicas, where there can be any.
    pub replicas: Option<Dial>,
}

/// Loads the catalogue and serves it; a faulty one is an error here. Afterwards the file is looked at
/// every [`Config::reload_interval`], and a faulty change leaves the catalogue in force. Sources are
/// connected to when they are first used, so a dead one stops nothing but its own tools.
///
/// It is ready once it knows which tools are switched off, and says so when a change of the file is faulty.
/// What it starts is ended by the [`ServiceCloser`].
pub async fn service(
    config: Config,
    permits: PermitVerifier,
    pseudonym_key: PseudonymKey,
    sealing_key: SealingKey,
    links: Links,
    ambient: Ambient,
) -> Result<
    (
        Service<ToolRunnerServiceServer<impl ToolRunnerService>>,
        ServiceCloser,
    ),
    Error,
> {
    config.check()?;
    let Links {
        audit,
        record_executions,
        memory,
        replicas,
    } = links;
    let executions = record_executions.then(|| ExecutionLog::new(audit.clone(), ambient.clone()));
    let keys = Keys {
        permits,
        pseudonyms: Arc::new(pseudonym_key),
    };
    let store = Store::open(
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
    let runner = start(config, keys, switchboard, importer, shared)?;
    let closing = ServiceCloser::of(&runner);
    let service = Service {
        readiness: runner.readiness(),
        server: ToolRunnerServiceServer::from_arc(runner),
    };
    Ok((service, closing))
}

/// Reads and checks what [`service`] would load, without connecting to anything: the catalogue and its lock file.
pub fn check(config: &Config) -> Result<Catalogue, Error> {
    config.check()?;
    let catalogue =
        Catalogue::load(&config.catalogue, &config.variables).map_err(Error::Catalogue)?;
    check_lock(&config.catalogue)?;
    Ok(catalogue)
}

/// The loaded runner, its files and switches followed.
pub(crate) fn start(
    config: Config,
    keys: Keys,
    switchboard: Arc<Switchboard>,
    importer: Importer,
    shared: SharedState,
) -> Result<Arc<Runner>, Error> {
    let mut seen = Files::read(&config.catalogue, &[]).unwrap_or_default();
    let mut catalogue =
        Catalogue::load(&config.catalogue, &config.variables).map_err(Error::Catalogue)?;
    log_warnings(&catalogue);
    importer.import(&mut catalogue, &seen.lock)?;
    let loaded = LoadedCatalogue::new(catalogue, &config, &keys, &shared, None)?;
    seen.attached = loaded.contents().files();
    // Before anyone can answer.
    let mut upstreams = vec![importer.changes()];
    upstreams.extend(shared.following.changes());
    importer.follow(loaded.upstreams());
    shared.following.follow(loaded.contents());
    let (version, _) = watch::channel(loaded.version());
    let runner = Arc::new(Runner {
        loaded: Arc::new(ArcSwap::from_pointee(loaded)),
        version,
        readiness: watch::Sender::new(Readiness::Ready),
        is_outdated: AtomicBool::new(false),
        shared,
        config,
        keys,
        switchboard,
        importer,
    });
    tokio::spawn(follow::files(Arc::downgrade(&runner), seen, upstreams));
    let switches = runner.switchboard.subscribe();
    runner.tell_version();
    runner.tell_readiness();
    tokio::spawn(follow::switches(Arc::downgrade(&runner), switches));
    tokio::spawn(follow::servers(Arc::downgrade(&runner)));
    Ok(runner)
}

/// Logs what of a changed file is probably not meant, with file, line and what to do.
fn log_warnings(catalogue: &Catalogue) {
    let unclassified = catalogue.unclassified_columns();
    for warning in catalogue.warnings().iter().chain(&unclassified) {
        warn!("{warning}");
    }
}

/// The service's state.
pub(crate) struct Runner {
    loaded: Arc<ArcSwap<LoadedCatalogue>>,
    /// Of catalogue and switches together.
    version: watch::Sender<Digest>,
    readiness: watch::Sender<Readiness>,
    /// What the files say now is not in force, since it has faults.
    is_outdated: AtomicBool,
    shared: SharedState,
    config: Config,
    keys: Keys,
    switchboard: Arc<Switchboard>,
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
        let switches = self.switches().map_err(|error| refused(&error))?;
        let loaded = self.loaded.load();
        let mut list = loaded.list().clone();
        list.catalogue_version = version(&loaded, Some(&switches)).to_wire();
        list.shown_version = shown(&loaded, Some(&switches)).to_wire();
        for tool in &mut list.tools {
            let name = tool.facts.as_ref().map(|facts| facts.name.as_str());
            if let Some(tool_in_force) = name.and_then(|name| loaded.tool(name)) {
                tool.switches = (&tool_in_force.switches(&switches)).into();
                tool.may_be_task = loaded.may_be_task(tool_in_force);
            }
        }
        for source in &mut list.sources {
            source.switches = (&switches.of_source(&source.name)).into();
            source.capabilities = loaded.capabilities(&source.name);
        }
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
        if let Some(mut other) = replicas.holding(request.interaction.as_ref(), &metadata) {
            let call = replicas::handed_on(&metadata, request.clone());
            if let Some(events) = replicas::unless_gone(other.call_tool(call).await) {
                return Ok(Response::new(events?.into_inner().boxed()));
            }
        }
        let call = Call::try_from(request).map_err(|invalid| wardgate_rpc::invalid(&invalid))?;
        let loaded = self.loaded.load_full();
        let admitted = self
            .check_switch(&call, &loaded)
            .and_then(|()| call::admit(call, &loaded, self.shared.ambient.now()))
            .map_err(|error| refused(&error))?;
        let counted = self.shared.platform.begin(admitted.tool());
        let log = self.shared.executions.as_ref();
        let recorded = log.map(|log| log.append(admitted.execution()));
        let may_write = admitted.may_write();
        let events = events::events(admitted, self.shared.clone(), counted).boxed();
        recorded_before(recorded, may_write, events).await
    }

    async fn list_content(
        &self,
        _: Request<pb::ListContentRequest>,
    ) -> Result<Response<pb::ListContentResponse>, Status> {
        let switches = self.switches().map_err(|error| refused(&error))?;
        let loaded = self.loaded.load();
        let mut list = loaded.contents().list().clone();
        list.catalogue_version = version(&loaded, Some(&switches)).to_wire();
        Ok(Response::new(list))
    }

    async fn get_content(
        &self,
        request: Request<pb::GetContentRequest>,
    ) -> Result<Response<pb::GetContentResponse>, Status> {
        let (metadata, _, request) = request.into_parts();
        let replicas = &self.shared.replicas;
        if let Some(mut other) = replicas.holding(request.interaction.as_ref(), &metadata) {
            let get = replicas::handed_on(&metadata, request.clone());
            if let Some(given) = replicas::unless_gone(other.get_content(get).await) {
                return Ok(Response::new(given?.into_inner()));
            }
        }
        let asked =
            ContentQuery::try_from(request).map_err(|invalid| wardgate_rpc::invalid(&invalid))?;
        let loaded = self.loaded.load();
        let (max_bytes, now) = (self.config.max_result_bytes, self.shared.ambient.now());
        let admitted = self
            .check_source(&asked.source, &asked.caller)
            .and_then(|()| get_content::admit(asked, &loaded, &self.shared.parking, max_bytes, now))
            .map_err(|error| refused(&error))?;
        let log = self.shared.executions.as_ref();
        let recorded = log.map(|log| log.append(admitted.execution()));
        let got = Box::pin(admitted.get());
        let Some(recorded) = recorded else {
            return Ok(Response::new(got.await));
        };
        let released = try_join(recorded, got.map(Ok)).await;
        let ((), given) = released.map_err(|error| refused(&error))?;
        Ok(Response::new(given))
    }

    async fn watch_resources(
        &self,
        request: Request<pb::WatchResourcesRequest>,
    ) -> Result<Response<Self::WatchResourcesStream>, Status> {
        let asked = WatchAsked::try_from(request.into_inner())
            .map_err(|invalid| wardgate_rpc::invalid(&invalid))?;
        let loaded = self.loaded.load();
        let admitted = self
            .check_source(&asked.source, &asked.caller)
            .and_then(|()| watch_resources::admit(asked, &loaded, self.shared.ambient.now()))
            .map_err(|error| refused(&error))?;
        let in_force = InForce {
            loaded: Arc::clone(&self.loaded),
            switchboard: Arc::clone(&self.switchboard),
            changes: self.version.subscribe(),
        };
        Ok(Response::new(admitted.run(in_force).boxed()))
    }

    async fn set_switch(
        &self,
        request: Request<pb::SetSwitchRequest>,
    ) -> Result<Response<pb::SetSwitchResponse>, Status> {
        let change = SwitchChange::try_from(request.into_inner())
            .map_err(|invalid| wardgate_rpc::invalid(&invalid))?;
        self.set(change)
            .await
            .map_err(|error| wardgate_rpc::status(&error))?;
        Ok(Response::new(pb::SetSwitchResponse {}))
    }

    async fn list_switches(
        &self,
        _: Request<pb::ListSwitchesRequest>,
    ) -> Result<Response<pb::ListSwitchesResponse>, Status> {
        let switches = self
            .switchboard
            .list()
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
        let answer = connections::describe(&self.loaded.load_full(), request.into_inner()).await;
        answer.map(Response::new)
    }

    async fn start_connection(
        &self,
        request: Request<pb::StartConnectionRequest>,
    ) -> Result<Response<pb::StartConnectionResponse>, Status> {
        let answer = connections::start(&self.loaded.load_full(), request.into_inner()).await;
        answer.map(Response::new)
    }

    async fn finish_connection(
        &self,
        request: Request<pb::FinishConnectionRequest>,
    ) -> Result<Response<pb::FinishConnectionResponse>, Status> {
        let (loaded, board) = (self.loaded.load_full(), Arc::clone(&self.switchboard));
        // Its own task: a code is good once, whoever hangs up.
        let finishing = tokio::spawn(async move {
            connections::finish(&loaded, &board, request.into_inner()).await
        });
        let interrupted = |_| wardgate_rpc::status(&Error::Interrupted);
        finishing.await.map_err(interrupted)?.map(Response::new)
    }

    async fn list_connections(
        &self,
        _: Request<pb::ListConnectionsRequest>,
    ) -> Result<Response<pb::ListConnectionsResponse>, Status> {
        let answer = connections::list(self.switchboard.store()).await;
        answer.map(Response::new)
    }

    async fn remove_connections(
        &self,
        request: Request<pb::RemoveConnectionsRequest>,
    ) -> Result<Response<pb::RemoveConnectionsResponse>, Status> {
        let (loaded, board) = (self.loaded.load_full(), Arc::clone(&self.switchboard));
        // Its own task: what is forgotten here is taken back there, whoever hangs up.
        let removing = tokio::spawn(async move {
            connections::remove(&loaded, &board, request.into_inner()).await
        });
        let interrupted = |_| wardgate_rpc::status(&Error::Interrupted);
        removing.await.map_err(interrupted)?.map(Response::new)
    }
}

/// The answer of what runs under a permit: what may write begins once it is on record, of what only reads nothing is let out
/// before that. `recorded` is none where the caller records it.
async fn recorded_before<T: Send + 'static>(
    recorded: Option<impl Future<Output = Result<(), Error>> + Send + 'static>,
    may_write: bool,
    events: BoxStream<'static, Result<T, Status>>,
) -> Result<Response<BoxStream<'static, Result<T, Status>>>, Status> {
    Ok(Response::new(match recorded {
        None => events,
        Some(recorded) if may_write => {
            recorded.await.map_err(|error| refused(&error))?;
            events
        }
        Some(recorded) => held_until(recorded, events),
    }))
}

fn refused(error: &Error) -> Status {
    counter!(names::CALLS_REFUSED, "reason" => error.reason().as_str_name()).increment(1);
    wardgate_rpc::status(error)
}

impl TryFrom<pb::CallToolRequest> for Call {
    type Error = InvalidMessage;

    fn try_from(request: pb::CallToolRequest) -> Result<Self, Self::Error> {
        let id = request
            .call_id
            .parse()
            .map_err(|error: InvalidId| InvalidMessage::field("call_id", error.to_string()))?;
        let mut caller: Caller = request
            .caller
            .ok_or_else(|| InvalidMessage::field("caller", "is missing"))?
            .try_into()?;
        if !request.caller_token.is_empty() {
            caller = caller.with_token(BearerToken::new(&request.caller_token));
        }
        Ok(Self {
            id,
            caller,
            tool: request.tool,
            arguments: request.arguments_json,
            // An empty permit is none.
            permit: request.permit.and_then(|permit| permit.try_into().ok()),
            caller_token: Some(request.caller_token).filter(|token| !token.is_empty()),
            idempotency_key: Some(request.idempotency_key).filter(|key| !key.is_empty()),
            interaction: request.interaction,
        })
    }
}

impl Runner {
    /// Until they were read once nobody knows what is off, and nothing may run.
    fn switches(&self) -> Result<Arc<Switches>, Error> {
        self.switchboard.current().ok_or(Error::SwitchesUnknown)
    }

    /// A tool that is off for its caller is answered like one that does not exist.
    fn check_switch(&self, call: &Call, loaded: &LoadedCatalogue) -> Result<(), Error> {
        let switches = self.switches()?;
        match loaded.tool(&call.tool) {
            Some(tool) if tool.switches(&switches).allow(&call.caller) => Ok(()),
            _ => Err(Error::UnknownTool),
        }
    }

    /// A source that is off for its caller is answered like one that does not exist.
    fn check_source(&self, source: &str, caller: &Caller) -> Result<(), Error> {
        let switches = self.switches()?.of_source(source);
        if switches.allow(caller) {
            Ok(())
        } else {
            Err(Error::UnknownTool)
        }
    }

    /// A switch for what does not exist would be a slip of the hand that nobody notices. One that is left
    /// over can be taken away all the same.
    async fn set(&self, change: SwitchChange) -> Result<(), Error> {
        let target = &change.target;
        if change.action != SwitchAction::Reset && !self.loaded.load().has(target) {
            return Err(Error::NoSuchTarget {
                kind: target.kind.as_str(),
                name: target.name.clone(),
            });
        }
        self.switchboard.set(change).await
    }

    /// Tells whoever watches when catalogue or switches are others than before.
    fn tell_version(&self) {
        self.version.send_if_modified(|current| {
            let switches = self.switchboard.current();
            let version = version(&self.loaded.load(), switches.as_deref());
            let changed = *current != version;
            *current = version;
            changed
        });
    }

    pub(crate) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// Ends every call that waits for its client.
    pub(crate) fn end_waiting(&self) {
        self.shared.parking.clear();
    }

    /// The MCP servers of the catalogue in force.
    pub(crate) fn upstreams(&self) -> Vec<Arc<Upstream>> {
        self.loaded.load().servers()
    }

    /// Tells whoever watches when it is ready in another way than before.
    fn tell_readiness(&self) {
        self.readiness.send_if_modified(|current| {
            let readiness = if self.switchboard.current().is_none() {
                Readiness::NotReady("the switches have not been read yet".to_owned())
            } else if self.is_outdated.load(Ordering::Relaxed) {
                Readiness::Outdated(
                    "the changed catalogue has a fault; the earlier one is in force",
                )
            } else {
                Readiness::Ready
            };
            let changed = *current != readiness;
            *current = readiness;
            changed
        });
    }

    /// Puts the files in force if they differ from what was `seen` last and have no faults. True if it did.
    pub(crate) async fn reload(&self, seen: &mut Files) -> bool {
        let path = self.config.catalogue.clone();
        let attached = seen.attached.clone();
        let read = tokio::task::spawn_blocking(move || Files::read(&path, &attached)).await;
        // A file that is gone for the moment, while it is being replaced, changes nothing.
        let Ok(Ok(found)) = read else {
            return false;
        };
        if found == *seen || found.texts.is_empty() {
            return false;
        }
        *seen = found;
        let reloaded = self.try_reload(seen, log_warnings);
        self.is_outdated.store(reloaded.is_err(), Ordering::Relaxed);
        self.tell_readiness();
        match reloaded {
            Ok(version) => {
                seen.attached = self.loaded.load().contents().files();
                counter!(names::CATALOGUE_RELOADS, "outcome" => "loaded").increment(1);
                info!(%version, "the tool catalogue changed and is in force");
                true
            }
            Err(error) => {
                counter!(names::CATALOGUE_RELOADS, "outcome" => "faulty").increment(1);
                error!(%error, "the changed tool catalogue has faults; the old one stays in force");
                false
            }
        }
    }

    /// Takes in what upstreams offer now, beside the files that are in force.
    fn reimport(&self, files: &Files) {
        match self.try_reload(files, |_| {}) {
            Ok(version) => info!(%version, "the tools of upstreams were looked at again"),
            Err(error) => {
                error!(%error, "the tools of upstreams cannot be taken in; the old ones stay in force");
            }
        }
    }

    fn try_reload(&self, files: &Files, log: fn(&Catalogue)) -> Result<Digest, Error> {
        let mut catalogue =
            Catalogue::parse(&files.texts, &self.config.variables).map_err(Error::Catalogue)?;
        log(&catalogue);
        self.importer.import(&mut catalogue, &files.lock)?;
        let previous = self.loaded.load();
        let loaded = LoadedCatalogue::new(
            catalogue,
            &self.config,
            &self.keys,
            &self.shared,
            Some(&previous),
        )?;
        let version = loaded.version();
        self.importer.follow(loaded.upstreams());
        self.shared.following.follow(loaded.contents());
        self.loaded.store(Arc::new(loaded));
        self.tell_version();
        Ok(version)
    }
}

/// Whatever a list of the tools says, this tells it from every other list.
fn version(loaded: &LoadedCatalogue, switches: Option<&Switches>) -> Digest {
    let servers = loaded.servers();
    let servers = servers.iter();
    let shown_by_servers: Vec<_> = servers
        .map(|server| {
            let shown = *server.shown().borrow();
            (shown.has_tasks, shown.declares)
        })
        .collect();
    Digest::of_parts([
        loaded.version().as_bytes().as_slice(),
        shown(loaded, switches).as_bytes(),
        format!("{shown_by_servers:?}").as_bytes(),
    ])
}

/// The same of what of it callers are shown.
fn shown(loaded: &LoadedCatalogue, switches: Option<&Switches>) -> Digest {
    let switches = switches.map_or(0, Switches::version).to_be_bytes();
    Digest::of_parts([loaded.shown().as_bytes().as_slice(), &switches])
}
