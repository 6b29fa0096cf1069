//! The gRPC methods: convert, decide, convert.

use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tonic::{Request, Response, Status};
use wardgate_domain::{
    Ambient, Caller, ConversationFacts, InvalidMessage, PermitSigner, RecordScope, ToolFacts,
};
use wardgate_proto::policy::v1::{self as pb, policy_service_server as server};
use wardgate_rpc::Readiness;
use wardgate_telemetry::names;

use crate::store::PolicyStore;
use crate::{Config, Error, reload};

/// The policy service over the policies of `config`. Fails when these are not usable; afterwards a
/// changed directory is taken up when it is usable and otherwise left alone; the service stays ready and says so.
/// Call it inside a Tokio runtime.
pub async fn service(
    config: Config,
    signer: PermitSigner,
    ambient: Ambient,
) -> Result<wardgate_rpc::Service<server::PolicyServiceServer<impl server::PolicyService>>, Error> {
    config.validate()?;
    let dir = config.policies.clone();
    let (set, seen) = tokio::task::spawn_blocking(move || reload::first(&dir))
        .await
        .map_err(|_| Error::Compiler {
            path: config.policies.clone(),
        })??;
    tracing::info!(policy.hash = %set.hash(), policies = set.policy_ids().len(), "policies are in force");
    metrics::gauge!(names::POLICY_STALE).set(0.0);
    let store = Arc::new(PolicyStore::new(set, signer, ambient, config.permit_ttl));
    let (told, readiness) = watch::channel(Readiness::Ready);
    reload::watch(
        &store,
        config.policies,
        seen,
        config.reload_interval,
        told.clone(),
    );
    let server = server::PolicyServiceServer::new(Policies { store, _told: told });
    Ok(wardgate_rpc::Service { server, readiness })
}

struct Policies {
    store: Arc<PolicyStore>,
    /// Held, so that the readiness keeps its last word for as long as the service lives.
    _told: watch::Sender<Readiness>,
}

#[tonic::async_trait]
impl server::PolicyService for Policies {
    type WatchVersionStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchVersionResponse, Status>> + Send>>;

    async fn authorize(
        &self,
        request: Request<pb::AuthorizeRequest>,
    ) -> Result<Response<pb::AuthorizeResponse>, Status> {
        let pb::AuthorizeRequest {
            caller,
            tool,
            arguments_json,
            client_ip,
        } = request.into_inner();
        let decided = checked::<_, Caller>(caller, "caller").and_then(|caller| {
            let tool: ToolFacts = checked(tool, "tool")?;
            self.store
                .authorize(&caller, &tool, &arguments_json, &client_ip)
        });
        let decision = decided.map_err(|error| wardgate_rpc::invalid(&error))?;
        Ok(Response::new(pb::AuthorizeResponse {
            decision: Some((&decision).into()),
        }))
    }

    async fn list_visible(
        &self,
        request: Request<pb::ListVisibleRequest>,
    ) -> Result<Response<pb::ListVisibleResponse>, Status> {
        let pb::ListVisibleRequest { caller, tools } = request.into_inner();
        let listed = checked::<_, Caller>(caller, "caller").and_then(|caller| {
            let tools = tools
                .into_iter()
                .map(ToolFacts::try_from)
                .collect::<Result<Vec<_>, _>>()?;
            Ok(self.store.visible(&caller, &tools))
        });
        let (visible, hash) = listed.map_err(|error| wardgate_rpc::invalid(&error))?;
        Ok(Response::new(pb::ListVisibleResponse {
            visible: visible.iter().map(ToString::to_string).collect(),
            policy_hash: hash.to_wire(),
        }))
    }

    async fn authorize_recall(
        &self,
        request: Request<pb::AuthorizeRecallRequest>,
    ) -> Result<Response<pb::AuthorizeRecallResponse>, Status> {
        let pb::AuthorizeRecallRequest {
            caller,
            conversation,
        } = request.into_inner();
        let decided = checked::<_, Caller>(caller, "caller").and_then(|caller| {
            let conversation: ConversationFacts = checked(conversation, "conversation")?;
            self.store.authorize_recall(&caller, &conversation)
        });
        let decision = decided.map_err(|error| wardgate_rpc::invalid(&error))?;
        Ok(Response::new((&decision).into()))
    }

    async fn authorize_record(
        &self,
        request: Request<pb::AuthorizeRecordRequest>,
    ) -> Result<Response<pb::AuthorizeRecordResponse>, Status> {
        let request = request.into_inner();
        let scope = RecordScope::try_from(request.scope());
        let decided = checked::<_, Caller>(request.caller, "caller")
            .and_then(|caller| self.store.authorize_record(&caller, scope?));
        let decision = decided.map_err(|error| wardgate_rpc::invalid(&error))?;
        Ok(Response::new((&decision).into()))
    }

    async fn watch_version(
        &self,
        _: Request<pb::WatchVersionRequest>,
    ) -> Result<Response<Self::WatchVersionStream>, Status> {
        let versions = WatchStream::new(self.store.version());
        let versions = versions.map(|hash| {
            Ok(pb::WatchVersionResponse {
                policy_hash: hash.to_wire(),
            })
        });
        Ok(Response::new(Box::pin(versions)))
    }
}

/// A message field that must be there, as its checked type.
fn checked<W, T>(field: Option<W>, name: &'static str) -> Result<T, InvalidMessage>
where
    T: TryFrom<W, Error = InvalidMessage>,
{
    field
        .ok_or_else(|| InvalidMessage::field(name, "is missing"))?
        .try_into()
}
