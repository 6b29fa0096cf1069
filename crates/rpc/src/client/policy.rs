//! Client of the policy service.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use wardgate_domain::{
    ApprovalDecision, BearerToken, BundleReference, CallReference, CallToApprove, Caller,
    ConversationFacts, Decision, Digest, InvalidMessage, OperatorAction, ReadDecision,
    ShadowReport, SignedApproval, ToolFacts,
};
use wardgate_proto::policy::v1 as pb;
use wardgate_proto::policy::v1::policy_service_client::PolicyServiceClient;

use super::{CallError, bearer_of, open_request, request, token_of, within};
use crate::local::LocalMethod;
use crate::{Link, ServiceLink};

/// The question whether a caller may call a tool.
#[derive(Debug, Clone, Copy)]
pub struct CallQuestion<'a> {
    /// The caller's token, which the policy service verifies itself.
    pub token: &'a BearerToken,
    /// The tool, or the requested name if there is no such tool.
    pub tool: Result<&'a ToolFacts, &'a str>,
    /// The arguments, byte for byte as the client sent them.
    pub arguments: &'a Bytes,
    /// The IP address of the client, or empty if it is unknown.
    pub client_ip: &'a str,
    /// The approval of this call, or `None` if there is none.
    pub approval: Option<&'a SignedApproval>,
    /// The call that is about to run, or `None` if nothing is about to run.
    pub call: Option<CallReference>,
}

/// The version of the rules of the policy service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyVersion {
    /// The hash of the schema and policies in force.
    pub hash: Digest,
    /// The bundle that the policies in force come from, or `None` if they come from a directory.
    pub bundle: Option<BundleReference>,
    /// Whether roles and attributes of callers are looked up in addition to those in their tokens.
    pub looks_up_callers: bool,
}

/// The functions of the policy service for callers in its process.
#[tonic::async_trait]
pub trait Authorizer: Send + Sync {
    /// Decides whether a call is permitted. A call of a tool that does not exist is denied.
    async fn authorize(&self, question: CallQuestion<'_>) -> Result<Decision, CallError>;
}

impl fmt::Debug for dyn Authorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authorizer")
    }
}

/// The policy service in this process.
pub type LocalPolicy = Arc<dyn Authorizer>;

/// A client of the policy service.
#[derive(Debug, Clone)]
pub struct PolicyClient {
    client: PolicyServiceClient<Link>,
    local: Option<LocalMethod<LocalPolicy>>,
    limit: Duration,
}

impl PolicyClient {
    /// Creates a client over `link` whose requests take at most `limit`.
    pub fn new(link: impl Into<ServiceLink<LocalPolicy>>, limit: Duration) -> Self {
        let link = link.into();
        let authorize = "/wardgate.policy.v1.PolicyService/Authorize";
        Self {
            client: PolicyServiceClient::new(link.transport),
            local: (link.local).map(|(it, peer)| LocalMethod::new(it, peer, authorize)),
            limit,
        }
    }

    /// Returns the verified holder of `token`, with the roles and attributes that the policy service looked up.
    pub async fn identify(&self, token: &BearerToken) -> Result<Caller, CallError> {
        let message = pb::IdentifyRequest {
            caller_token: token.expose().to_owned(),
        };
        let mut client = self.client.clone();
        let answer = within(self.limit, async move {
            let answer = client.identify(request(message, self.limit)).await?;
            Ok(answer.into_inner())
        });
        let caller = answer.await?.caller;
        let caller = caller.ok_or_else(|| InvalidMessage::field("caller", "is missing"))?;
        Ok(Caller::try_from(caller)?.with_token(token.clone()))
    }

    /// Decides what `caller` may see of `tool` while nothing is about to run.
    pub fn authorize<'a>(
        &'a self,
        caller: &'a Caller,
        tool: &'a ToolFacts,
        arguments: &'a Bytes,
        client_ip: &'a str,
    ) -> impl Future<Output = Result<Decision, CallError>> + Send + 'a {
        self.authorize_call(caller, tool, arguments, client_ip, None, None)
    }

    /// Decides whether a call, which may have been approved, is permitted.
    pub fn authorize_call<'a>(
        &'a self,
        caller: &'a Caller,
        tool: &'a ToolFacts,
        arguments: &'a Bytes,
        client_ip: &'a str,
        approval: Option<&'a SignedApproval>,
        call: Option<CallReference>,
    ) -> impl Future<Output = Result<Decision, CallError>> + Send + 'a {
        self.decide(bearer_of(caller).map(|token| CallQuestion {
            token,
            tool: Ok(tool),
            arguments,
            client_ip,
            approval,
            call,
        }))
    }

    /// Approves `call` as `approver`, or refuses it if `approve` is false.
    pub async fn approve(
        &self,
        approver: &Caller,
        call: &CallToApprove,
        approve: bool,
    ) -> Result<ApprovalDecision, CallError> {
        let message = pb::ApproveRequest {
            call: Some(call.into()),
            approver_token: token_of(approver)?,
            refuse: !approve,
        };
        let mut client = self.client.clone();
        within(self.limit, async move {
            let answer = client.approve(request(message, self.limit)).await?;
            Ok(answer.into_inner().try_into()?)
        })
        .await
    }

    /// Requests the denial of a call of a tool that does not exist. It takes as long as the denial of a call of a hidden tool.
    pub async fn deny_unknown(
        &self,
        caller: &Caller,
        name: &str,
        arguments: &Bytes,
        client_ip: &str,
    ) -> Result<Decision, CallError> {
        let token = bearer_of(caller)?;
        self.decide(Ok(CallQuestion {
            token,
            tool: Err(name),
            arguments,
            client_ip,
            approval: None,
            call: None,
        }))
        .await
    }

    async fn decide(
        &self,
        question: Result<CallQuestion<'_>, InvalidMessage>,
    ) -> Result<Decision, CallError> {
        let question = question?;
        if let Some(local) = &self.local {
            let decided = local.service.authorize(question);
            return local.call(self.limit, decided).await;
        }
        let mut client = self.client.clone();
        let decided = within(self.limit, async move {
            let answer = client
                .authorize(request(question.into(), self.limit))
                .await?
                .into_inner();
            let decision = answer
                .decision
                .ok_or_else(|| InvalidMessage::field("decision", "is missing"))?;
            Ok(decision.try_into()?)
        });
        Box::pin(decided).await
    }

    /// Returns the names of the `tools` that are visible to `caller`, in the same order.
    pub async fn list_visible<'a>(
        &self,
        caller: &Caller,
        tools: impl IntoIterator<Item = &'a ToolFacts>,
    ) -> Result<Vec<String>, CallError> {
        let message = pb::ListVisibleRequest {
            caller_token: token_of(caller)?,
            tools: tools.into_iter().map(Into::into).collect(),
        };
        let mut client = self.client.clone();
        within(self.limit, async move {
            Ok(client
                .list_visible(request(message, self.limit))
                .await?
                .into_inner()
                .visible)
        })
        .await
    }

    /// Returns whether `caller` may read a conversation of another caller.
    pub async fn authorize_recall(
        &self,
        caller: &Caller,
        conversation: &ConversationFacts,
    ) -> Result<ReadDecision, CallError> {
        let message = pb::AuthorizeRecallRequest {
            caller_token: token_of(caller)?,
            conversation: Some(conversation.into()),
        };
        let mut client = self.client.clone();
        within(self.limit, async move {
            let answer = client
                .authorize_recall(request(message, self.limit))
                .await?
                .into_inner();
            Ok(answer.try_into()?)
        })
        .await
    }

    /// Returns whether `caller` may do `action`.
    pub async fn authorize_operator(
        &self,
        caller: &Caller,
        action: OperatorAction,
    ) -> Result<ReadDecision, CallError> {
        let message = pb::AuthorizeOperatorRequest {
            caller_token: token_of(caller)?,
            action: pb::OperatorAction::from(action).into(),
        };
        let mut client = self.client.clone();
        within(self.limit, async move {
            let answer = client
                .authorize_operator(request(message, self.limit))
                .await?
                .into_inner();
            Ok(answer.try_into()?)
        })
        .await
    }

    /// Returns the decisions that a candidate policy set would change, for the operator with the token `token`.
    pub async fn list_shadow_flips(&self, token: &BearerToken) -> Result<ShadowReport, CallError> {
        let message = pb::ListShadowFlipsRequest {
            operator_token: token.expose().to_owned(),
        };
        let mut client = self.client.clone();
        within(self.limit, async move {
            let answer = client
                .list_shadow_flips(request(message, self.limit))
                .await?;
            Ok(answer.into_inner().try_into()?)
        })
        .await
    }

    /// Returns a stream of the policy version, which begins with the current one and lasts until the connection is lost.
    pub async fn watch_version(
        &self,
    ) -> Result<impl Stream<Item = Result<PolicyVersion, CallError>> + use<>, CallError> {
        let mut client = self.client.clone();
        let versions = client
            .watch_version(open_request(pb::WatchVersionRequest {}))
            .await?
            .into_inner();
        Ok(versions
            .map_err(CallError::from)
            .map(|version| Ok(PolicyVersion::try_from(version?)?)))
    }
}

impl TryFrom<pb::WatchVersionResponse> for PolicyVersion {
    type Error = InvalidMessage;

    fn try_from(version: pb::WatchVersionResponse) -> Result<Self, Self::Error> {
        Ok(Self {
            hash: Digest::from_wire(&version.policy_hash, "policy_hash")?,
            bundle: version.bundle.map(BundleReference::try_from).transpose()?,
            looks_up_callers: version.looks_up_callers,
        })
    }
}

impl From<CallQuestion<'_>> for pb::AuthorizeRequest {
    fn from(question: CallQuestion<'_>) -> Self {
        Self {
            caller_token: question.token.expose().to_owned(),
            tool: question.tool.ok().map(Into::into),
            arguments_json: question.arguments.clone(),
            client_ip: question.client_ip.to_owned(),
            unknown_tool: question.tool.err().unwrap_or_default().to_owned(),
            approval: question.approval.map(Into::into),
            call: question.call.map(Into::into),
        }
    }
}
