//! The policy service, as its callers see it.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use wardgate_domain::{
    Caller, ConversationFacts, Decision, Digest, InvalidMessage, ReadDecision, RecordScope,
    ToolFacts,
};
use wardgate_proto::policy::v1 as pb;
use wardgate_proto::policy::v1::policy_service_client::PolicyServiceClient;

use super::{CallError, open_request, request, within};
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

    /// Decides one call.
    pub async fn authorize(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        arguments: Bytes,
        client_ip: &str,
    ) -> Result<Decision, CallError> {
        let message = pb::AuthorizeRequest {
            caller: Some(caller.into()),
            tool: Some(tool.into()),
            arguments_json: arguments,
            client_ip: client_ip.to_owned(),
        };
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
            caller: Some(caller.into()),
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
            caller: Some(caller.into()),
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
            caller: Some(caller.into()),
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
