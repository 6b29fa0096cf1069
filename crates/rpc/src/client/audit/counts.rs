//! Counts of the recorded calls of a caller, for policies that depend on the history of calls.

use std::time::Duration;

use wardgate_domain::{CallId, Digest, InvalidMessage, Timestamp, ToolName};
use wardgate_proto::audit::v1 as pb;

use super::AuditClient;
use crate::client::{CallError, request, within};

/// A query for the number of recorded calls of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallCountQuery {
    /// The subject whose calls are counted.
    pub subject: String,
    /// The call that is being decided, whose intent is recorded already. It is not counted, and neither are calls without an
    /// outcome whose intents were recorded after it. If `None`, all calls count.
    pub call_id: Option<CallId>,
    /// The selections of calls. Each is counted separately.
    pub selections: Vec<CallSelection>,
    /// The time before which records count.
    pub until: Option<Timestamp>,
}

/// A selection of calls: tool calls without an outcome yet, and those that ended, except denied calls and calls whose
/// arguments were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSelection {
    /// The canonical names of the tools, or empty for all tools.
    pub tools: Vec<ToolName>,
    /// The tags of which a tool must have had one when it was called, or empty for tools with any tags. Must be empty if `tools`
    /// is not.
    pub tags: Vec<String>,
    /// The earliest time of a record.
    pub since: Timestamp,
    /// The digest of the conversation that the calls belong to, or `None` for calls with or without a conversation.
    pub conversation: Option<Digest>,
    /// Whether only calls and other requests count that ended and released health information.
    pub phi: bool,
}

impl CallCountQuery {
    /// Maximum number of selections in one query.
    pub const MAX_SELECTIONS: usize = 8;
}

impl CallSelection {
    /// Maximum number of tools in one selection.
    pub const MAX_TOOLS: usize = 16;

    /// Maximum number of tags in one selection.
    pub const MAX_TAGS: usize = 16;
}

impl AuditClient {
    /// Returns the number of calls for each selection of `query`. Takes at most `limit`. Fails if a selection has tags and the
    /// service does not count by tag.
    pub async fn count_calls(
        &self,
        query: CallCountQuery,
        limit: Duration,
    ) -> Result<Vec<u64>, CallError> {
        let expected = query.selections.len();
        let has_tags = query.selections.iter().any(|it| !it.tags.is_empty());
        let mut client = self.client.clone();
        let message = request(pb::CountCallsRequest::from(query), limit);
        let pb::CountCallsResponse {
            counts,
            counts_by_tag,
        } = within(limit, async move {
            Ok(client.count_calls(message).await?.into_inner())
        })
        .await?;
        if has_tags && !counts_by_tag {
            let problem = "is not set, because the audit service is of an earlier release that does not count by tag";
            return Err(InvalidMessage::field("counts_by_tag", problem).into());
        }
        if counts.len() != expected {
            return Err(InvalidMessage::field("counts", "must be one for each selection").into());
        }
        Ok(counts)
    }
}

impl From<CallCountQuery> for pb::CountCallsRequest {
    fn from(query: CallCountQuery) -> Self {
        Self {
            subject: query.subject,
            call_id: query.call_id.map_or_else(String::new, |id| id.to_string()),
            selections: query.selections.into_iter().map(Into::into).collect(),
            until: query.until.map(Into::into),
        }
    }
}

impl From<CallSelection> for pb::CallSelection {
    fn from(selection: CallSelection) -> Self {
        Self {
            tools: selection.tools.iter().map(ToString::to_string).collect(),
            since: Some(selection.since.into()),
            conversation_digest: selection
                .conversation
                .map(Digest::to_wire)
                .unwrap_or_default(),
            phi: selection.phi,
            tags: selection.tags,
        }
    }
}

impl TryFrom<pb::CountCallsRequest> for CallCountQuery {
    type Error = InvalidMessage;

    fn try_from(request: pb::CountCallsRequest) -> Result<Self, Self::Error> {
        if request.subject.is_empty() {
            return Err(InvalidMessage::field("subject", "is missing"));
        }
        if request.selections.len() > Self::MAX_SELECTIONS {
            return Err(InvalidMessage::field(
                "selections",
                "has more than eight entries",
            ));
        }
        let call_id = match request.call_id.as_str() {
            "" => None,
            id => Some(parse(id, "call_id")?),
        };
        let selections = request.selections.into_iter().map(TryInto::try_into);
        Ok(Self {
            subject: request.subject,
            call_id,
            selections: selections.collect::<Result<_, _>>()?,
            until: request.until.map(TryInto::try_into).transpose()?,
        })
    }
}

impl TryFrom<pb::CallSelection> for CallSelection {
    type Error = InvalidMessage;

    fn try_from(selection: pb::CallSelection) -> Result<Self, Self::Error> {
        if selection.tools.len() > Self::MAX_TOOLS {
            let problem = "has more than sixteen entries";
            return Err(InvalidMessage::field("selections.tools", problem));
        }
        if selection.tags.len() > Self::MAX_TAGS {
            let problem = "has more than sixteen entries";
            return Err(InvalidMessage::field("selections.tags", problem));
        }
        if !selection.tools.is_empty() && !selection.tags.is_empty() {
            let problem = "is not empty although selections.tools is not empty";
            return Err(InvalidMessage::field("selections.tags", problem));
        }
        let tools = selection.tools.iter();
        let tools = tools.map(|tool| parse(tool, "selections.tools"));
        let since = selection.since;
        let since = since.ok_or_else(|| InvalidMessage::field("selections.since", "is missing"))?;
        let conversation = match selection.conversation_digest.as_ref() {
            [] => None,
            digest => Some(Digest::from_wire(digest, "selections.conversation_digest")?),
        };
        Ok(Self {
            tools: tools.collect::<Result<_, _>>()?,
            tags: selection.tags,
            since: since.try_into()?,
            conversation,
            phi: selection.phi,
        })
    }
}

fn parse<T: std::str::FromStr>(text: &str, field: &'static str) -> Result<T, InvalidMessage> {
    let parsed = text.parse();
    parsed.map_err(|_| InvalidMessage::field(field, "cannot be read"))
}
