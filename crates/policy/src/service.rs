//! The gRPC methods of the policy service: each verifies the caller's token, converts the request, decides, and
//! converts the response.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_stream::{Stream, StreamExt};
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Response, Status};
use wardgate_domain::{
    Ambient, BearerToken, CallReference, CallToApprove, Caller, ConversationFacts, Decision,
    InvalidMessage, OperatorAction, PermitSigner, SignedApproval, ToolFacts,
};
use wardgate_edge::{Authenticator, CallerLookup, TokenRefusal};
use wardgate_policy_bundle::BundleConfig;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::policy::v1::{self as pb, policy_service_server as server};
use wardgate_rpc::client::{Authorizer, CallError, CallQuestion, IdentifiedOperator, LocalPolicy};
use wardgate_rpc::{Readiness, ServiceError};
use wardgate_telemetry::names;

use crate::authorizer::PolicyAuthorizer;
use crate::history::CallHistory;
use crate::reload::DirectoryState;
use crate::rollout::BundleFollower;
use crate::set::PolicySet;
use crate::shadow::ShadowEvaluator;
use crate::{Config, Error, ShadowConfig, candidate, reload, rollout};

/// Creates the policy service for the policies of `config`. It counts earlier calls with `history`. The function fails
/// if the policies, or the keys of the issuers, are not usable. Later, a changed directory or a newer bundle is put in
/// force if it is usable and ignored otherwise; in that case the service stays ready and reports the fault in its readiness. Must be
/// called inside a Tokio runtime.
pub async fn service(
    config: Config,
    signer: PermitSigner,
    history: CallHistory,
    ambient: Ambient,
) -> Result<
    wardgate_rpc::Service<server::PolicyServiceServer<impl server::PolicyService>, LocalPolicy>,
    Error,
> {
    config.validate()?;
    let time_zone = config.parse_time_zone()?;
    let auth = Authenticator::new(
        config.auth,
        config
            .public_url
            .as_deref()
            .map(|url| url.trim_end_matches('/')),
        ambient.clone(),
    )
    .await?;
    let lookup = match &config.caller_lookup {
        Some(config) => Some(wardgate_caller_lookup::open(config, ambient.clone()).await?),
        None => None,
    };
    let interval = config.reload_interval;
    let (set, origin) = PolicyOrigin::open(config.policies, config.bundle).await?;
    tracing::info!(policy.hash = %set.hash(), policies = set.policy_ids().len(), "policies are in force");
    let shadow = config.shadow;
    let shadow = shadow.map(|shadow| open_shadow(shadow, interval, history.clone()));
    let authorizer = PolicyAuthorizer::new(
        set,
        signer,
        ambient,
        config.permit_ttl,
        config.approval_ttl,
        time_zone,
    );
    let authorizer = authorizer.with_shadow(shadow).with_history(history);
    let authorizer = Arc::new(authorizer);
    let (readiness_sender, policies) = watch::channel(origin.readiness());
    origin.follow(&authorizer, interval, &readiness_sender);
    let (readiness, following) = both_ready(auth.readiness(), policies);
    let handler = Arc::new(PolicyHandler {
        authorizer,
        auth,
        lookup,
        _readiness_sender: readiness_sender,
        _following: following,
    });
    Ok(wardgate_rpc::Service {
        local: handler.clone(),
        server: server::PolicyServiceServer::from_arc(handler),
        readiness,
    })
}

/// Creates the evaluator of the candidate policies, and checks their origin for changes as long as it is in use.
fn open_shadow(
    config: ShadowConfig,
    interval: Duration,
    history: CallHistory,
) -> Arc<ShadowEvaluator> {
    let shadow = ShadowEvaluator::new(history);
    if let Some(bundle) = config.bundle {
        candidate::follow(&shadow, bundle);
    }
    if let Some(dir) = config.policies {
        let mut state = DirectoryState::Unread;
        // This runs before the first call, because a permit that is used again is not compared later.
        reload::reload_candidate(&shadow, &mut state, &dir);
        reload::watch(&shadow, dir, state, interval, reload::reload_candidate);
    }
    shadow
}

/// The origin of the policies in force, which is checked for changes.
enum PolicyOrigin {
    Directory(PathBuf, DirectoryState),
    Bundles(Box<BundleFollower>, Duration),
}

impl PolicyOrigin {
    /// Loads the policies with which the service starts.
    async fn open(
        dir: Option<PathBuf>,
        bundle: Option<BundleConfig>,
    ) -> Result<(PolicySet, Self), Error> {
        if let Some(config) = bundle {
            let interval = config.poll_interval;
            let mut follower = Box::new(BundleFollower::open(config).await?);
            let set = follower.first().await?;
            if let Some(bundle) = set.bundle() {
                rollout::report_in_force(bundle);
            }
            return Ok((set, Self::Bundles(follower, interval)));
        }
        let path = dir.ok_or(Error::Origin)?;
        let dir = path.clone();
        let first = tokio::task::spawn_blocking(move || reload::first(&dir)).await;
        let (set, state) = first.map_err(|_| Error::Compiler { path: path.clone() })??;
        metrics::gauge!(names::POLICY_STALE).set(0.0);
        Ok((set, Self::Directory(path, state)))
    }

    fn readiness(&self) -> Readiness {
        match self {
            Self::Directory(..) => Readiness::Ready,
            Self::Bundles(follower, _) => follower.readiness(),
        }
    }

    /// Checks the origin for changes as long as `authorizer` is in use.
    fn follow(
        self,
        authorizer: &Arc<PolicyAuthorizer>,
        reload_interval: Duration,
        readiness: &watch::Sender<Readiness>,
    ) {
        let readiness = readiness.clone();
        match self {
            Self::Directory(dir, state) => reload::watch(
                authorizer,
                dir,
                state,
                reload_interval,
                move |authorizer: &PolicyAuthorizer, state: &mut DirectoryState, dir: &Path| {
                    reload::reload_policies(authorizer, state, dir, &readiness);
                },
            ),
            Self::Bundles(follower, interval) => {
                rollout::follow(authorizer, *follower, interval, readiness);
            }
        }
    }
}

/// Returns a readiness that is ready if the keys of the issuers can be used and the policies are in force.
fn both_ready(
    mut keys: watch::Receiver<Readiness>,
    mut policies: watch::Receiver<Readiness>,
) -> (watch::Receiver<Readiness>, AbortOnDropHandle<()>) {
    let now = |keys: &watch::Receiver<Readiness>, policies: &watch::Receiver<Readiness>| {
        let keys = keys.borrow().clone();
        if keys.is_ready() {
            policies.borrow().clone()
        } else {
            keys
        }
    };
    let (sender, readiness) = watch::channel(now(&keys, &policies));
    let following = tokio::spawn(async move {
        loop {
            let changed = tokio::select! {
                changed = keys.changed() => changed,
                changed = policies.changed() => changed,
            };
            if changed.is_err() {
                return;
            }
            sender.send_replace(now(&keys, &policies));
        }
    });
    (readiness, AbortOnDropHandle::new(following))
}

/// The implementation of the gRPC methods.
struct PolicyHandler {
    authorizer: Arc<PolicyAuthorizer>,
    auth: Authenticator,
    /// The lookup of roles and attributes in addition to those of the tokens.
    lookup: Option<CallerLookup>,
    /// The sender of the policies' readiness, kept so that the readiness keeps its last value as long as the service
    /// lives.
    _readiness_sender: watch::Sender<Readiness>,
    _following: AbortOnDropHandle<()>,
}

impl PolicyHandler {
    /// Verifies the caller's own token and looks up the caller's rights. Claims of the peer about the caller are not
    /// used.
    async fn caller(&self, token: &str) -> Result<Arc<Caller>, CallError> {
        let verified = self.auth.verify_token(token).await;
        let known = match (verified, &self.lookup) {
            (Ok(caller), Some(lookup)) => lookup.complete(caller).await,
            (verified, _) => verified,
        };
        known.map_err(|refusal| CallError::from(&UnverifiedCaller(refusal)))
    }
}

#[tonic::async_trait]
impl Authorizer for PolicyHandler {
    async fn authorize(&self, question: CallQuestion<'_>) -> Result<Decision, CallError> {
        let caller = self.caller(question.token.expose()).await?;
        let (arguments, client_ip) = (question.arguments, question.client_ip);
        let decision = match question.tool {
            Ok(tool) => {
                let counting = self.authorizer.count_calls(&caller, tool, question.call);
                let (earlier, approval) = (counting.await, question.approval);
                self.authorizer
                    .authorize(&caller, tool, arguments, client_ip, approval, earlier)
            }
            Err(name) => {
                let problem = "is missing, and unknown_tool is not a name";
                let name = name.parse();
                let name = name.map_err(|_| InvalidMessage::field("tool", problem))?;
                self.authorizer
                    .deny_unknown(&caller, name, arguments, client_ip)
            }
        };
        Ok(decision?)
    }
}

/// An error for a request whose token does not verify.
#[derive(Debug, thiserror::Error)]
#[error("the caller cannot be verified: {0}")]
struct UnverifiedCaller(TokenRefusal);

impl ServiceError for UnverifiedCaller {
    fn reason(&self) -> ErrorReason {
        match self.0 {
            TokenRefusal::KeysUnavailable | TokenRefusal::RightsUnavailable => {
                ErrorReason::Unavailable
            }
            TokenRefusal::CallerUnlisted => ErrorReason::Denied,
            _ => ErrorReason::TokenRefused,
        }
    }
}

#[tonic::async_trait]
impl server::PolicyService for PolicyHandler {
    type WatchVersionStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchVersionResponse, Status>> + Send>>;

    async fn identify(
        &self,
        request: Request<pb::IdentifyRequest>,
    ) -> Result<Response<pb::IdentifyResponse>, Status> {
        let caller = self.caller(&request.into_inner().caller_token).await?;
        Ok(Response::new(pb::IdentifyResponse {
            caller: Some((&*caller).into()),
        }))
    }

    async fn authorize(
        &self,
        request: Request<pb::AuthorizeRequest>,
    ) -> Result<Response<pb::AuthorizeResponse>, Status> {
        let pb::AuthorizeRequest {
            tool,
            arguments_json,
            client_ip,
            caller_token,
            unknown_tool,
            approval,
            call,
        } = request.into_inner();
        let call = call.map(CallReference::try_from).transpose();
        let call = call.map_err(|error| wardgate_rpc::invalid(&error))?;
        let approval = approval.map(SignedApproval::try_from).transpose();
        let approval = approval.map_err(|error| wardgate_rpc::invalid(&error))?;
        let tool = tool.map(ToolFacts::try_from).transpose();
        let tool = tool.map_err(|error| wardgate_rpc::invalid(&error))?;
        let question = CallQuestion {
            token: &BearerToken::new(&caller_token),
            tool: tool.as_ref().ok_or(&*unknown_tool),
            arguments: &arguments_json,
            client_ip: &client_ip,
            approval: approval.as_ref(),
            call,
        };
        let decision = Authorizer::authorize(self, question).await?;
        Ok(Response::new(pb::AuthorizeResponse {
            decision: Some((&decision).into()),
        }))
    }

    async fn approve(
        &self,
        request: Request<pb::ApproveRequest>,
    ) -> Result<Response<pb::ApproveResponse>, Status> {
        let pb::ApproveRequest {
            call,
            approver_token,
            refuse,
        } = request.into_inner();
        let call = call
            .ok_or_else(|| InvalidMessage::field("call", "is missing"))
            .and_then(CallToApprove::try_from)
            .map_err(|error| wardgate_rpc::invalid(&error))?;
        let approver = self.caller(&approver_token).await?;
        let decision = self.authorizer.approve(&approver, &call, !refuse);
        let decision = decision.map_err(|error| wardgate_rpc::invalid(&error))?;
        Ok(Response::new((&decision).into()))
    }

    async fn list_visible(
        &self,
        request: Request<pb::ListVisibleRequest>,
    ) -> Result<Response<pb::ListVisibleResponse>, Status> {
        let pb::ListVisibleRequest {
            tools,
            caller_token,
        } = request.into_inner();
        let caller = self.caller(&caller_token).await?;
        let tools = tools.into_iter().map(ToolFacts::try_from);
        let tools: Result<Vec<_>, _> = tools.collect();
        let tools = tools.map_err(|error| wardgate_rpc::invalid(&error))?;
        let (visible, hash) = self.authorizer.visible(&caller, &tools);
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
            conversation,
            caller_token,
        } = request.into_inner();
        let caller = self.caller(&caller_token).await?;
        let conversation = conversation
            .ok_or_else(|| InvalidMessage::field("conversation", "is missing"))
            .and_then(ConversationFacts::try_from)
            .map_err(|error| wardgate_rpc::invalid(&error))?;
        let decision = self.authorizer.authorize_recall(&caller, &conversation);
        Ok(Response::new((&decision).into()))
    }

    async fn authorize_operator(
        &self,
        request: Request<pb::AuthorizeOperatorRequest>,
    ) -> Result<Response<pb::AuthorizeOperatorResponse>, Status> {
        let request = request.into_inner();
        let action = OperatorAction::try_from(request.action());
        let action = action.map_err(|error| wardgate_rpc::invalid(&error))?;
        let caller = self.caller(&request.caller_token).await?;
        let decision = self.authorizer.authorize_operator(&caller, action);
        Ok(Response::new((&decision).into()))
    }

    async fn list_shadow_flips(
        &self,
        request: Request<pb::ListShadowFlipsRequest>,
    ) -> Result<Response<pb::ListShadowFlipsResponse>, Status> {
        let operator = self.caller(&request.into_inner().operator_token).await?;
        let action = OperatorAction::ReadRecord;
        let operator = IdentifiedOperator {
            decision: self.authorizer.authorize_operator(&operator, action),
            caller: Caller::clone(&operator),
            action,
        };
        let permitted = operator.check_permitted();
        permitted.map_err(|refused| CallError::from(&refused))?;
        // An operator without a tenant may see the differences of all tenants.
        let tenant = Some(operator.caller.tenant()).filter(|it| !it.is_empty());
        let report = self.authorizer.shadow_report(tenant);
        Ok(Response::new(report.into()))
    }

    async fn watch_version(
        &self,
        _: Request<pb::WatchVersionRequest>,
    ) -> Result<Response<Self::WatchVersionStream>, Status> {
        let versions = WatchStream::new(self.authorizer.version());
        let looks_up_callers = self.lookup.is_some();
        let versions = versions.map(move |identity| {
            Ok(pb::WatchVersionResponse {
                policy_hash: identity.hash.to_wire(),
                looks_up_callers,
                bundle: identity.bundle.map(Into::into),
            })
        });
        Ok(Response::new(Box::pin(versions)))
    }
}
