//! The policy service, as its callers see it.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use wardgate_domain::{
    BearerToken, Caller, ConversationFacts, Decision, Digest, InvalidMessage, ReadDecision,
    RecordScope, ToolFacts,
};
use wardgate_proto::policy::v1 as pb;
use wardgate_proto::policy::v1::policy_service_client::PolicyServiceClient;

use super::{CallError, open_request, request, token_of, within};
use crate::Link;

/// Asks the policy service.
#[derive(Debug, Clone)]
pub struct PolicyClient {
    client: PolicyServiceClient<Link>,
    limit: Duration,
}

impl PolicyClient {
    /// Over `link`; no answer takes longer than `limit`.
    pub fn new(link: Link, limit: Duration) -> Self {
        Self {
            client: PolicyServiceClient::new(link),
            limit,
        }
    }

    /// Whose `token` is, once the policy service has verified it.
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

    /// Decides one call.
    pub async fn authorize(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        arguments: Bytes,
        client_ip: &str,
    ) -> Result<Decision, CallError> {
        self.decide(pb::AuthorizeRequest {
            caller_token: token_of(caller)?,
            tool: Some(tool.into()),
            arguments_json: arguments,
            client_ip: client_ip.to_owned(),
            unknown_tool: String::new(),
        })
        .await
    }

    /// Has the call of a tool that there is not denied, which takes as long as the denial of a hidden one.
    pub async fn deny_unknown(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Bytes,
        client_ip: &str,
    ) -> Result<Decision, CallError> {
        self.decide(pb::AuthorizeRequest {
            caller_token: token_of(caller)?,
            tool: None,
            arguments_json: arguments,
            client_ip: client_ip.to_owned(),
            unknown_tool: name.to_owned(),
        })
        .await
    }

    async fn decide(&self, message: pb::AuthorizeRequest) -> Result<Decision, CallError> {
        let mut client = self.client.clone();
        within(self.limit, async move {
            let answer = client
                .authorize(request(message, self.limit))
                .await?
                .into_inner();
            let decision = answer
                .decision
                .ok_or_else(|| InvalidMessage::field("decision", "is missing"))?;
            Ok(decision.try_into()?)
        })
        .await
    }

    /// Names of those of `tools` that `caller` may see, in the same order.
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

    /// Whether `caller` may read a conversation that is somebody else's.
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

    /// Whether `caller` may read this part of the record.
    pub async fn authorize_record(
        &self,
        caller: &Caller,
        scope: RecordScope,
    ) -> Result<ReadDecision, CallError> {
        let message = pb::AuthorizeRecordRequest {
            caller_token: token_of(caller)?,
            scope: pb::RecordScope::from(scope).into(),
        };
        let mut client = self.client.clone();
        within(self.limit, async move {
            let answer = client
                .authorize_record(request(message, self.limit))
                .await?
                .into_inner();
            Ok(answer.try_into()?)
        })
        .await
    }

    /// The policy version in force, now and on every change, until the connection is lost.
    pub async fn watch_version(
        &self,
    ) -> Result<impl Stream<Item = Result<Digest, CallError>> + use<>, CallError> {
        let mut client = self.client.clone();
        let versions = client
            .watch_version(open_request(pb::WatchVersionRequest {}))
            .await?
            .into_inner();
        Ok(versions
            .map_err(CallError::from)
            .map(|version| Ok(Digest::from_wire(&version?.policy_hash, "policy_hash")?)))
    }
}
