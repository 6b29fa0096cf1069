//! A fake policy service that returns the decisions that a test configures, with really signed permits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::BoxStream;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use wardgate_domain::{
    Ambient, ApprovalDecision, ApprovalTerms, ApproverRefusal, Approvers, BundleReference,
    CallToApprove, CallUnderApproval, ColumnClass, ColumnTier, Decision, DecisionId, DenialReason,
    Digest, OfferKind, OperatorAction, PermitId, PermitSigner, PermitTerms, PermitVerifier,
    SignedApproval, SignedPermit, ToolFacts, Verdict,
};
use wardgate_proto::common::v1::{ErrorReason, PolicyBundle};
use wardgate_proto::policy::v1 as pb;
use wardgate_proto::policy::v1::policy_service_server::{PolicyService, PolicyServiceServer};
use wardgate_rpc::client::{
    Authorizer, CallError, CallQuestion, LocalPolicy, PolicyClient, PolicyVersion,
};
use wardgate_rpc::link::{self, LinkedService};
use wardgate_rpc::{Peer, Readiness, Service};

use super::{LIMIT, failure, follow};
use crate::{Log, caller_of, permit_signer, permit_verifier};

/// The decision on a call.
#[derive(Debug, Clone)]
pub enum PolicyAnswer {
    /// Permits the call with any arguments.
    Allow,
    /// Permits the call with exactly these arguments.
    AllowThese,
    /// Permits the call on exactly these terms.
    AllowOn(Box<PermitTerms>),
    /// Permits the call once one of these approvers has approved it.
    NeedsApproval(Approvers),
    /// Permits the call once its intent is on record.
    AllowAfterIntent,
    /// Denies the call once its intent is on record.
    DenyAfterIntent(DenialReason),
    /// Denies the call.
    Deny {
        /// The reason.
        reason: DenialReason,
        /// Whether the caller may know that the tool exists.
        visible: bool,
    },
    /// Returns an error.
    Fail(ErrorReason),
    /// Never answers.
    Hang,
    /// The service panics.
    Panic,
}

/// Default lifetime of permits.
const LIFETIME: Duration = Duration::from_secs(60);

/// Lifetime of approvals.
const APPROVAL_LIFETIME: Duration = Duration::from_mins(15);

/// A fake policy service.
pub struct FakePolicy {
    /// The requests for decisions on known tools.
    pub asked: Log<pb::AuthorizeRequest>,
    /// The unknown tool names in requests.
    pub unknown: Log<String>,
    /// The requests for visible tools.
    pub listed: Log<pb::ListVisibleRequest>,
    /// The requests for access to conversations.
    pub recalled: Log<pb::AuthorizeRecallRequest>,
    /// The readiness that the service announces.
    pub readiness: watch::Sender<Readiness>,
    says: Mutex<PolicyAnswer>,
    /// The tools that no caller may see.
    hidden: Mutex<Vec<String>>,
    /// The actions of operators and the subjects that may do them.
    operators: Mutex<Vec<(OperatorAction, String)>>,
    /// Texts whose occurrence in the arguments of a call denies it.
    forbidden: Mutex<Vec<String>>,
    /// The kinds and names of the sources that no caller may use.
    barred: Mutex<Vec<(OfferKind, String)>>,
    hash: Mutex<Digest>,
    /// The bundle that the policies come from.
    bundle: Mutex<Option<BundleReference>>,
    announced: watch::Sender<Option<PolicyVersion>>,
    lifetime: Mutex<Duration>,
    /// The column tiers of permits.
    tiers: Mutex<BTreeMap<ColumnClass, ColumnTier>>,
    signer: PermitSigner,
    ambient: Ambient,
}

impl FakePolicy {
    /// Creates a policy service that permits everything, with the time of `ambient`.
    pub fn new(ambient: Ambient) -> Arc<Self> {
        let hash = Digest::compute(b"the first policies");
        Arc::new(Self {
            asked: Log::default(),
            unknown: Log::default(),
            listed: Log::default(),
            recalled: Log::default(),
            readiness: watch::Sender::new(Readiness::Ready),
            says: Mutex::new(PolicyAnswer::Allow),
            hidden: Mutex::default(),
            operators: Mutex::default(),
            forbidden: Mutex::default(),
            barred: Mutex::default(),
            hash: Mutex::new(hash),
            bundle: Mutex::default(),
            announced: watch::Sender::new(Some(PolicyVersion {
                hash,
                bundle: None,
                looks_up_callers: false,
            })),
            lifetime: Mutex::new(LIFETIME),
            tiers: Mutex::default(),
            signer: permit_signer(),
            ambient,
        })
    }

    /// Returns the link of `caller` to this service.
    pub fn link(self: &Arc<Self>, caller: Peer) -> LinkedService<LocalPolicy> {
        let service = Service {
            server: PolicyServiceServer::from_arc(Arc::clone(self)),
            local: Arc::clone(self) as LocalPolicy,
            readiness: self.readiness.subscribe(),
        };
        link::local(service, caller)
    }

    /// Returns a client for `caller`.
    pub fn client(self: &Arc<Self>, caller: Peer) -> PolicyClient {
        PolicyClient::new(self.link(caller).link, LIMIT)
    }

    /// Returns a verifier that accepts the permits of this service.
    pub fn verifier(&self) -> PermitVerifier {
        permit_verifier(&self.signer)
    }

    /// Sets the decision on every call from now on.
    pub fn says(&self, say: PolicyAnswer) {
        *self.says.lock().unwrap() = say;
    }

    /// Sets the lifetime of permits from now on.
    pub fn permits_last(&self, lifetime: Duration) {
        *self.lifetime.lock().unwrap() = lifetime;
    }

    /// Sets the tier of `class` in permits from now on.
    pub fn shows(&self, class: &str, tier: ColumnTier) {
        let class = class.parse().unwrap();
        self.tiers.lock().unwrap().insert(class, tier);
    }

    /// Hides `tool` from every caller from now on.
    pub fn hide(&self, tool: &str) {
        self.hidden.lock().unwrap().push(tool.to_owned());
    }

    /// Denies calls whose arguments contain this text from now on.
    pub fn forbid(&self, arguments: &str) {
        self.forbidden.lock().unwrap().push(arguments.to_owned());
    }

    /// Denies every use of this kind of `source` from now on.
    pub fn bar(&self, kind: OfferKind, source: &str) {
        self.barred.lock().unwrap().push((kind, source.to_owned()));
    }

    /// Permits `action` to `subject` from now on.
    pub fn lets_operate(&self, action: OperatorAction, subject: &str) {
        self.operators
            .lock()
            .unwrap()
            .push((action, subject.to_owned()));
    }

    /// Permits no action of operators from now on.
    pub fn lets_nobody_operate(&self) {
        self.operators.lock().unwrap().clear();
    }

    /// Returns the configured failure, if there is one.
    fn ordered_failure(&self) -> Result<(), Status> {
        match *self.says.lock().unwrap() {
            PolicyAnswer::Fail(reason) => Err(failure(reason)),
            _ => Ok(()),
        }
    }

    /// Puts other policies in force, and notifies every watcher.
    pub fn change(&self, policies: &[u8]) {
        *self.hash.lock().unwrap() = Digest::compute(policies);
        self.announce();
    }

    /// Puts the same policies in force from another bundle, and notifies every watcher.
    pub fn change_bundle(&self, bundle: BundleReference) {
        *self.bundle.lock().unwrap() = Some(bundle);
        self.announce();
    }

    /// Puts the same policies in force from another bundle without a notification, like an older version of the service, which
    /// does not announce the bundle in force.
    pub fn change_bundle_silently(&self, bundle: BundleReference) {
        *self.bundle.lock().unwrap() = Some(bundle);
    }

    fn announce(&self) {
        self.announced.send_replace(Some(PolicyVersion {
            hash: *self.hash.lock().unwrap(),
            bundle: *self.bundle.lock().unwrap(),
            looks_up_callers: false,
        }));
    }

    /// Returns the bundle as a response contains it.
    fn wire_bundle(&self) -> Option<PolicyBundle> {
        self.bundle.lock().unwrap().map(Into::into)
    }

    /// Ends every watch and accepts no new one.
    pub fn stop_announcing(&self) {
        self.announced.send_replace(None);
    }

    fn decide(&self, request: &pb::AuthorizeRequest, verdict: Verdict) -> pb::AuthorizeResponse {
        let approval = request.approval.clone().map(|signed| {
            let signed = SignedApproval::try_from(signed).unwrap();
            signed.unverified_terms().unwrap().id
        });
        let decision = Decision {
            id: DecisionId::new(&self.ambient),
            policies: request
                .tool
                .iter()
                .map(|tool| format!("{}.rule", tool.name))
                .collect(),
            policy_hash: *self.hash.lock().unwrap(),
            bundle: *self.bundle.lock().unwrap(),
            approval: match verdict {
                Verdict::Allow(_) => approval,
                Verdict::NeedsApproval { .. } | Verdict::NeedsIntent | Verdict::Deny { .. } => None,
            },
            verdict,
        };
        pb::AuthorizeResponse {
            decision: Some((&decision).into()),
        }
    }

    /// Returns the decision on a call that one of `approvers` has to approve.
    fn decide_approved(&self, request: &pb::AuthorizeRequest, approvers: Approvers) -> Verdict {
        let caller = caller_of(&request.caller_token);
        let tool = ToolFacts::try_from(request.tool.clone().unwrap()).unwrap();
        let call = CallUnderApproval {
            caller: &caller,
            tool: &tool,
            arguments: &request.arguments_json,
            policy_hash: *self.hash.lock().unwrap(),
            approvers: &approvers,
        };
        let signed = request.approval.clone();
        let is_approved = signed.is_some_and(|signed| {
            let signed = SignedApproval::try_from(signed).unwrap();
            let terms = self.signer.verify_approval(&signed);
            terms.is_ok_and(|terms| terms.check(call, self.ambient.now()).is_ok())
        });
        if is_approved {
            return Verdict::Allow(self.permit(request, true));
        }
        Verdict::NeedsApproval {
            approvers,
            lifetime: APPROVAL_LIFETIME,
        }
    }

    fn permit(&self, request: &pb::AuthorizeRequest, bound: bool) -> SignedPermit {
        let caller = caller_of(&request.caller_token);
        let tool = ToolFacts::try_from(request.tool.clone().unwrap()).unwrap();
        let now = self.ambient.now();
        self.signer.sign(&PermitTerms {
            id: PermitId::new(&self.ambient),
            decision_id: DecisionId::new(&self.ambient),
            caller_digest: caller.digest(),
            tool: tool.name,
            definition_digest: tool.definition_digest,
            arguments_digest: bound.then(|| Digest::compute(&request.arguments_json)),
            policy_hash: *self.hash.lock().unwrap(),
            bundle: *self.bundle.lock().unwrap(),
            not_before: now,
            expires_at: now.plus(*self.lifetime.lock().unwrap()),
            row_rule: None,
            column_tiers: self.tiers.lock().unwrap().clone(),
        })
    }
}

#[tonic::async_trait]
impl Authorizer for FakePolicy {
    async fn authorize(&self, question: CallQuestion<'_>) -> Result<Decision, CallError> {
        let request = Request::new(question.into());
        let decided = PolicyService::authorize(self, request).await?;
        Ok(decided.into_inner().decision.unwrap().try_into()?)
    }
}

#[tonic::async_trait]
impl PolicyService for FakePolicy {
    async fn authorize(
        &self,
        request: Request<pb::AuthorizeRequest>,
    ) -> Result<Response<pb::AuthorizeResponse>, Status> {
        let request = request.into_inner();
        if request.tool.is_none() {
            self.unknown.push(request.unknown_tool.clone());
            if let PolicyAnswer::Fail(reason) = *self.says.lock().unwrap() {
                return Err(failure(reason));
            }
            let denied = Verdict::Deny {
                reason: DenialReason::NotPermitted,
                visible: false,
            };
            return Ok(Response::new(self.decide(&request, denied)));
        }
        self.asked.push(request.clone());
        let mut says = self.says.lock().unwrap().clone();
        let arguments = String::from_utf8_lossy(&request.arguments_json);
        let forbidden = self.forbidden.lock().unwrap().clone();
        if forbidden.iter().any(|text| arguments.contains(text)) {
            says = PolicyAnswer::Deny {
                reason: DenialReason::Forbidden,
                visible: true,
            };
        }
        let facts = request.tool.as_ref().unwrap();
        let barred = self.barred.lock().unwrap().clone();
        if barred.contains(&(facts.kind().into(), facts.name.clone())) {
            says = PolicyAnswer::Deny {
                reason: DenialReason::NotPermitted,
                visible: false,
            };
        }
        let verdict = match says {
            PolicyAnswer::Allow => Verdict::Allow(self.permit(&request, false)),
            PolicyAnswer::AllowAfterIntent | PolicyAnswer::DenyAfterIntent(_)
                if !request.call.as_ref().is_none_or(|call| call.has_intent) =>
            {
                Verdict::NeedsIntent
            }
            PolicyAnswer::AllowThese | PolicyAnswer::AllowAfterIntent => {
                Verdict::Allow(self.permit(&request, true))
            }
            PolicyAnswer::NeedsApproval(approvers) => self.decide_approved(&request, approvers),
            PolicyAnswer::DenyAfterIntent(reason) => Verdict::Deny {
                reason,
                visible: true,
            },
            PolicyAnswer::AllowOn(terms) => Verdict::Allow(self.signer.sign(&terms)),
            PolicyAnswer::Deny { reason, visible } => Verdict::Deny { reason, visible },
            PolicyAnswer::Fail(reason) => return Err(failure(reason)),
            PolicyAnswer::Hang => std::future::pending().await,
            PolicyAnswer::Panic => panic!("as ordered"),
        };
        Ok(Response::new(self.decide(&request, verdict)))
    }

    async fn approve(
        &self,
        request: Request<pb::ApproveRequest>,
    ) -> Result<Response<pb::ApproveResponse>, Status> {
        self.ordered_failure()?;
        let request = request.into_inner();
        let approver = caller_of(&request.approver_token);
        let call = CallToApprove::try_from(request.call.unwrap()).unwrap();
        let policy_hash = *self.hash.lock().unwrap();
        let outcome = match self.says.lock().unwrap().clone() {
            PolicyAnswer::NeedsApproval(approvers) => approvers.admit(&approver, &call.caller),
            _ => Err(ApproverRefusal::NotApprovable),
        };
        let sign = |approved_as| {
            let until = self.ambient.now().plus(APPROVAL_LIFETIME);
            let terms = ApprovalTerms::of_call(&call, policy_hash, &approver, approved_as, until);
            self.signer.sign_approval(&terms)
        };
        let decision = ApprovalDecision {
            id: DecisionId::new(&self.ambient),
            policies: vec!["needs-approval".to_owned()],
            policy_hash,
            bundle: *self.bundle.lock().unwrap(),
            outcome: outcome.map(|approved_as| (!request.refuse).then(|| sign(approved_as))),
        };
        Ok(Response::new((&decision).into()))
    }

    async fn list_visible(
        &self,
        request: Request<pb::ListVisibleRequest>,
    ) -> Result<Response<pb::ListVisibleResponse>, Status> {
        let request = request.into_inner();
        self.listed.push(request.clone());
        if let PolicyAnswer::Fail(reason) = *self.says.lock().unwrap() {
            return Err(failure(reason));
        }
        let hidden = self.hidden.lock().unwrap();
        let names = request.tools.into_iter().map(|tool| tool.name);
        Ok(Response::new(pb::ListVisibleResponse {
            visible: names.filter(|name| !hidden.contains(name)).collect(),
            policy_hash: self.hash.lock().unwrap().to_wire(),
        }))
    }

    async fn identify(
        &self,
        request: Request<pb::IdentifyRequest>,
    ) -> Result<Response<pb::IdentifyResponse>, Status> {
        self.ordered_failure()?;
        let caller = caller_of(&request.into_inner().caller_token);
        Ok(Response::new(pb::IdentifyResponse {
            caller: Some((&caller).into()),
        }))
    }

    async fn authorize_recall(
        &self,
        request: Request<pb::AuthorizeRecallRequest>,
    ) -> Result<Response<pb::AuthorizeRecallResponse>, Status> {
        self.recalled.push(request.into_inner());
        let allowed = !matches!(*self.says.lock().unwrap(), PolicyAnswer::Deny { .. });
        Ok(Response::new(pb::AuthorizeRecallResponse {
            allowed,
            decision_id: DecisionId::new(&self.ambient).to_string(),
            policy_hash: self.hash.lock().unwrap().to_wire(),
            bundle: self.wire_bundle(),
        }))
    }

    async fn authorize_operator(
        &self,
        request: Request<pb::AuthorizeOperatorRequest>,
    ) -> Result<Response<pb::AuthorizeOperatorResponse>, Status> {
        self.ordered_failure()?;
        let request = request.into_inner();
        let subject = caller_of(&request.caller_token).subject().to_owned();
        let action = OperatorAction::try_from(request.action()).unwrap();
        let allowed = (action, subject);
        Ok(Response::new(pb::AuthorizeOperatorResponse {
            allowed: self.operators.lock().unwrap().contains(&allowed),
            decision_id: DecisionId::new(&self.ambient).to_string(),
            policy_hash: self.hash.lock().unwrap().to_wire(),
            bundle: self.wire_bundle(),
        }))
    }

    async fn list_shadow_flips(
        &self,
        _: Request<pb::ListShadowFlipsRequest>,
    ) -> Result<Response<pb::ListShadowFlipsResponse>, Status> {
        self.ordered_failure()?;
        Ok(Response::new(pb::ListShadowFlipsResponse::default()))
    }

    type WatchVersionStream = BoxStream<'static, Result<pb::WatchVersionResponse, Status>>;

    async fn watch_version(
        &self,
        _request: Request<pb::WatchVersionRequest>,
    ) -> Result<Response<Self::WatchVersionStream>, Status> {
        if self.announced.borrow().is_none() {
            return Err(failure(ErrorReason::Unavailable));
        }
        let versions = follow(self.announced.subscribe(), |version: PolicyVersion| {
            pb::WatchVersionResponse {
                policy_hash: version.hash.to_wire(),
                looks_up_callers: version.looks_up_callers,
                bundle: version.bundle.map(Into::into),
            }
        });
        Ok(Response::new(versions))
    }
}
