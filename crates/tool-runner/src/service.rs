//! The gRPC service: each method converts, calls a plain function, and converts back.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::stream::{self, BoxStream, StreamExt};
use metrics::counter;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};
use tracing::{error, info};
use wardgate_domain::{Ambient, Caller, Digest, InvalidId, InvalidMessage, PermitVerifier};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::tool_runner_service_server::{
    ToolRunnerService, ToolRunnerServiceServer,
};
use wardgate_redact::PseudonymKey;
use wardgate_rpc::{Readiness, Service, ServiceError};
use wardgate_telemetry::names;

use crate::call::{self, Call};
use crate::catalogue::Catalogue;
use crate::loaded::{Keys, Loaded};
use crate::{Config, Error};

/// Loads the catalogue and serves it; a faulty one is an error here. Afterwards the file is looked at
/// every [`Config::reload_interval`], and a faulty change leaves the catalogue in force. Sources are
/// connected to when they are first used, so a dead one stops nothing but its own tools.
pub async fn service(
    config: Config,
    permits: PermitVerifier,
    pseudonym_key: PseudonymKey,
    ambient: Ambient,
) -> Result<Service<ToolRunnerServiceServer<impl ToolRunnerService>>, Error> {
    let keys = Keys {
        permits,
        pseudonyms: Arc::new(pseudonym_key),
    };
    let runner = start(config, keys, ambient).await?;
    let (_, readiness) = watch::channel(Readiness::Ready);
    Ok(Service {
        server: ToolRunnerServiceServer::from_arc(runner),
        readiness,
    })
}

/// The loaded runner, its file followed.
pub(crate) async fn start(
    config: Config,
    keys: Keys,
    ambient: Ambient,
) -> Result<Arc<Runner>, Error> {
    let text = tokio::fs::read(&config.catalogue).await.unwrap_or_default();
    let catalogue =
        Catalogue::load(&config.catalogue, &config.variables).map_err(Error::Catalogue)?;
    let loaded = Loaded::new(catalogue, &config, &keys, None)?;
    let (version, _) = watch::channel(loaded.version());
    let runner = Arc::new(Runner {
        loaded: ArcSwap::from_pointee(loaded),
        version,
        config,
        keys,
        ambient,
    });
    tokio::spawn(follow_file(Arc::downgrade(&runner), Digest::of(&text)));
    Ok(runner)
}

/// The service's state.
pub(crate) struct Runner {
    loaded: ArcSwap<Loaded>,
    version: watch::Sender<Digest>,
    config: Config,
    keys: Keys,
    ambient: Ambient,
}

#[tonic::async_trait]
impl ToolRunnerService for Runner {
    type WatchCatalogueStream = BoxStream<'static, Result<pb::WatchCatalogueResponse, Status>>;
    type CallToolStream = BoxStream<'static, Result<pb::CallToolResponse, Status>>;

    async fn list_tools(
        &self,
        _: Request<pb::ListToolsRequest>,
    ) -> Result<Response<pb::ListToolsResponse>, Status> {
        Ok(Response::new(self.loaded.load().list().clone()))
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
        let call = Call::try_from(request.into_inner())
            .map_err(|invalid| wardgate_rpc::invalid(&invalid))?;
        let admitted = call::admit(call, &self.loaded.load(), self.ambient.now())
            .map_err(|error| refused(&error))?;
        let result = async move {
            let event = pb::call_tool_response::Event::Result(admitted.run().await);
            Ok(pb::CallToolResponse { event: Some(event) })
        };
        Ok(Response::new(stream::once(result).boxed()))
    }

    async fn set_switch(
        &self,
        _: Request<pb::SetSwitchRequest>,
    ) -> Result<Response<pb::SetSwitchResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn list_switches(
        &self,
        _: Request<pb::ListSwitchesRequest>,
    ) -> Result<Response<pb::ListSwitchesResponse>, Status> {
        Err(Status::unimplemented(""))
    }
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
        let caller: Caller = request
            .caller
            .ok_or_else(|| InvalidMessage::field("caller", "is missing"))?
            .try_into()?;
        Ok(Self {
            id,
            caller,
            tool: request.tool,
            arguments: request.arguments_json,
            // An empty permit is none.
            permit: request.permit.and_then(|permit| permit.try_into().ok()),
        })
    }
}

impl Runner {
    /// Puts the file in force if it differs from what was `seen` last and has no faults.
    pub(crate) async fn reload(&self, seen: &mut Digest) {
        let path = &self.config.catalogue;
        // A file that is gone for the moment, while it is being replaced, changes nothing.
        let Ok(bytes) = tokio::fs::read(path).await else {
            return;
        };
        let digest = Digest::of(&bytes);
        if digest == *seen {
            return;
        }
        *seen = digest;
        match self.try_reload(&String::from_utf8_lossy(&bytes)) {
            Ok(version) => {
                counter!(names::CATALOGUE_RELOADS, "outcome" => "loaded").increment(1);
                info!(%version, "the tool catalogue changed and is in force");
            }
            Err(error) => {
                counter!(names::CATALOGUE_RELOADS, "outcome" => "faulty").increment(1);
                error!(%error, "the changed tool catalogue has faults; the old one stays in force");
            }
        }
    }

    fn try_reload(&self, text: &str) -> Result<Digest, Error> {
        let catalogue = Catalogue::parse(&self.config.catalogue, text, &self.config.variables)
            .map_err(Error::Catalogue)?;
        let previous = self.loaded.load();
        let loaded = Loaded::new(catalogue, &self.config, &self.keys, Some(&previous))?;
        let version = loaded.version();
        self.loaded.store(Arc::new(loaded));
        self.version.send_if_modified(|current| {
            let changed = *current != version;
            *current = version;
            changed
        });
        Ok(version)
    }
}

/// Looks at the catalogue's file again and again, as long as the service lives.
async fn follow_file(runner: Weak<Runner>, mut seen: Digest) {
    let Some(interval) = runner.upgrade().map(|runner| runner.config.reload_interval) else {
        return;
    };
    loop {
        tokio::time::sleep(interval.max(Duration::from_millis(10))).await;
        match runner.upgrade() {
            Some(runner) => runner.reload(&mut seen).await,
            None => return,
        }
    }
}
