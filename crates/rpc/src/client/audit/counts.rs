//! How many calls of a caller are on record, for policies that look at the history of calls.

use std::time::Duration;

use wardgate_domain::{CallId, Digest, InvalidMessage, Timestamp, ToolName};
use wardgate_proto::audit::v1 as pb;

use super::AuditClient;
use crate::client::{CallError, request, within};

/// The question how many calls of a caller are on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallCountQuery {
    /// Whose calls.
    pub subject: String,
    /// The call that is decided, whose intent is on record: it is not counted, nor are calls without an outcome whose intents
    /// stand behind it. None: there is none, and every call counts.
    pub call_id: Option<CallId>,
    /// Which calls are counted; each by itself.
    pub selections: Vec<CallSelection>,
    /// Only records before this time.
    pub until: Option<Timestamp>,
}

/// Which calls are counted: calls of tools without an outcome, and those that ended, unless they were denied or their
/// arguments were refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSelection {
    /// Of these tools, by canonical name; none: of any.
    pub tools: Vec<ToolName>,
    /// On record from this time on.
    pub since: Timestamp,
    /// Of the conversation with this digest; none: of any, or of none.
    pub conversation: Option<Digest>,
    /// Only calls and other requests that ended and released health information.
    pub phi: bool,
}

impl CallCountQuery {
    /// Selections of one question.
    pub const MAX_SELECTIONS: usize = 8;
}

impl CallSelection {
    /// Tools of one selection.
    pub const MAX_TOOLS: usize = 16;
}

impl AuditClient {
    /// The number of calls for each selection of `query`. Takes at most `limit`.
    pub async fn count_calls(
        &self,
        query: CallCountQuery,
        limit: Duration,
    ) -> Result<Vec<u64>, CallError> {
        let expected = query.selections.len();
        let mut client = self.client.clone();
        let message = request(pb::CountCallsRequest::from(query), limit);
        let counts = within(limit, async move {
            Ok(client.count_calls(message).await?.into_inner().counts)
        })
        .await?;
        if counts.len() != expected {
            return Err(InvalidMessage::field("counts", "are not one for each selection").into());
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
            return Err(InvalidMessage::field("selections", "are more than eight"));
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
            let problem = "are more than sixteen";
            return Err(InvalidMessage::field("selections.tools", problem));
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
