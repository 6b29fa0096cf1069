//! `resources/list` and `resources/templates/list`: the caller's conversations as resources, newest first.

use serde_json::{Value, json};
use wardgate_domain::{Conversation, MemoryMethod};

use super::uri::{ConversationUri, TEMPLATE};
use super::{Desk, Done, Endpoint, Fields, Seen, Stop};
use crate::Gateway;
use crate::mcp::{Request, Version};
use crate::reply::{Answer, RpcError};

/// Conversations on a page.
const PAGE: u32 = 50;

/// Characters of an id that stand in a name.
const NAMED: usize = 8;

pub(super) struct ListResources {
    cursor: String,
}

impl Endpoint for ListResources {
    const METHOD: MemoryMethod = MemoryMethod::List;

    fn read(params: &Fields<'_>) -> Result<Self, RpcError> {
        Ok(Self {
            cursor: params.text("cursor")?.unwrap_or_default(),
        })
    }

    async fn run(&self, desk: &Desk<'_>) -> Result<Done, Stop> {
        let (conversations, next) = desk
            .memory
            .list_conversations(desk.of, PAGE, &self.cursor)
            .await?;
        let mut result = json!({
            "resources": conversations.iter().map(resource).collect::<Vec<_>>(),
        });
        if let Some(next) = next {
            result["nextCursor"] = next.into();
        }
        private(&mut result, desk.version);
        Ok(Done {
            result: result.to_string(),
            conversation: None,
            seen: Seen::default(),
        })
    }
}

fn resource(conversation: &Conversation) -> Value {
    let id = conversation.id.as_str();
    let short: String = id.chars().take(NAMED).collect();
    let uri = ConversationUri::whole(&conversation.id);
    json!({
        "uri": uri.write(),
        "name": format!("Conversation {short}"),
        "description": format!("Conversation history for {id}"),
        "mimeType": "application/json",
    })
}

/// Says for how long a client may keep a result: it changes with every message, and it is the caller's alone.
pub(super) fn private(result: &mut Value, version: Version) {
    if version.is_modern() {
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
    }
}

/// The one template, the same for everyone.
pub(crate) fn templates(
    gateway: &Gateway,
    request: &Request<'_>,
    version: Version,
) -> Result<Answer, RpcError> {
    if gateway.memory().is_none() {
        return Err(RpcError::unknown_method(&request.method, version));
    }
    let mut result = json!({
        "resourceTemplates": [{
            "uriTemplate": TEMPLATE,
            "name": "Conversation",
            "description": "What was said in one of your conversations, oldest first; `next` in it is the URI of what follows",
            "mimeType": "application/json",
        }],
    });
    if version.is_modern() {
        result["ttlMs"] = 3_600_000.into();
        result["cacheScope"] = "public".into();
    }
    Ok(Answer::object(request.id, version, &result, ""))
}
