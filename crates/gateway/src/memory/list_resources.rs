//! The method `resources/list` for the caller's conversations, newest first.

use serde_json::{Value, json};
use wardgate_domain::{Conversation, MemoryMethod};
use wardgate_mcp::Version;
use wardgate_mcp_server::{Cursor, ObjectMembers, RpcError};

use super::uri::{ConversationUri, TEMPLATE};
use super::{MemoryHandler, MemoryOperation, MemoryOutput, MemoryRejection, MessageCounts};

/// Maximum number of conversations on a page.
const PAGE: u32 = 50;

/// Number of characters of an id that are shown in a resource's name.
const NAMED: usize = 8;

/// The resources of sources that the first page lists before the conversations.
#[derive(Debug, Default)]
pub(crate) struct PrecedingResources {
    /// The definitions, as JSON.
    pub(crate) entries: Vec<String>,
    /// The members of `_meta`.
    pub(crate) meta: String,
}

pub(super) struct ListResources {
    /// The cursor of the memory service. Empty for the first page.
    cursor: String,
    before: PrecedingResources,
}

impl ListResources {
    /// Creates the first page, which begins with the resources in `before`.
    pub(super) fn behind(before: PrecedingResources) -> Self {
        Self {
            cursor: String::new(),
            before,
        }
    }
}

impl MemoryOperation for ListResources {
    const METHOD: MemoryMethod = MemoryMethod::List;

    fn parse(params: &ObjectMembers<'_>) -> Result<Self, RpcError> {
        let cursor = match params.parse_optional("cursor")? {
            Some(Cursor::Memory(cursor)) => cursor,
            // A cursor of the resources before the conversations may be left over from a time when sources offered any.
            None | Some(Cursor::After(_)) => String::new(),
        };
        Ok(Self {
            cursor,
            before: PrecedingResources::default(),
        })
    }

    fn meta(&self) -> Option<&str> {
        Some(self.before.meta.as_str()).filter(|meta| !meta.is_empty())
    }

    async fn run(&self, handler: &MemoryHandler<'_>) -> Result<MemoryOutput, MemoryRejection> {
        let (conversations, next) = handler
            .memory
            .list_conversations(handler.of, PAGE, &self.cursor)
            .await?;
        let before = self.before.entries.iter().cloned();
        let own = conversations.iter().map(|it| resource(it).to_string());
        let resources: Vec<_> = before.chain(own).collect();
        let mut others = json!({});
        if let Some(next) = next {
            others["nextCursor"] = Cursor::Memory(next).write().into();
        }
        private(&mut others, handler.version);
        let mut result = format!(r#"{{"resources":[{}]"#, resources.join(","));
        for (name, value) in others.as_object().into_iter().flatten() {
            result += &format!(r#","{name}":{value}"#);
        }
        result.push('}');
        Ok(MemoryOutput {
            result,
            conversation: None,
            seen: MessageCounts::default(),
            recall: None,
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

/// Adds the members for caches to `result`: it may change with every message, and is private to the caller.
pub(super) fn private(result: &mut Value, version: Version) {
    if version.is_modern() {
        result["ttlMs"] = 0.into();
        result["cacheScope"] = "private".into();
    }
}

/// Returns the only resource template of conversations. It is the same for every caller.
pub(crate) fn template() -> Value {
    json!({
        "uriTemplate": TEMPLATE,
        "name": "Conversation",
        "description": "The messages of one of your conversations, oldest first; its `next` is the URI of the next page",
        "mimeType": "application/json",
    })
}
