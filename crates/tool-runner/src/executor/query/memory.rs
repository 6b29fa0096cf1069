//! `interface: memory`: the caller's remembered conversations, for clients that support only tools.
//!
//! The memory service decides what this caller may read, and withholds the rest. A tool that adds a message is called
//! by a model, so the source of the message is the model, whichever role it names.

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use wardgate_domain::{ConversationId, Message, NewMessage, Role, Source};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{CallError, MemoryClient, MessageBatch, OnBehalfOf};

use super::{Interface, not_implemented_error};
use crate::Error;
use crate::executor::{Invocation, Output, Sources};
use crate::executor_error::{ExecutorError, TimeLimit};

/// The interface to conversations and their messages.
pub(super) struct Memory;

impl Interface for Memory {
    fn check(&self, sources: &Sources) -> Result<(), Error> {
        sources.memory().map(drop)
    }

    fn answer<'a>(
        &'a self,
        question: &'a str,
        call: &'a Invocation<'a>,
        sources: &'a Sources,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            let memory = sources
                .memory()
                .map_err(|error| ExecutorError::Unreachable(error.to_string()))?;
            let handler = MemoryHandler {
                memory,
                of: OnBehalfOf {
                    caller: call.caller,
                    client_ip: "",
                },
            };
            let arguments = call.arguments;
            let answer = match question {
                "search" => handler.search(parse_arguments(arguments)?).await?,
                "get_context" => handler.context(parse_arguments(arguments)?).await?,
                "list_conversations" => handler.list(parse_arguments(arguments)?).await?,
                "add_message" => handler.add(parse_arguments(arguments)?).await?,
                other => return Err(not_implemented_error(other)),
            };
            out.document(answer).map(drop)
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    query: String,
    conversation_id: Option<String>,
    #[serde(default)]
    limit: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Context {
    conversation_id: String,
    #[serde(default)]
    max_messages: u32,
    #[serde(default)]
    max_tokens: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    limit: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Add {
    conversation_id: String,
    content: String,
    #[serde(default)]
    role: Speaker,
}

/// The role of an added message.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Speaker {
    User,
    #[default]
    Assistant,
}

struct MemoryHandler<'a> {
    memory: &'a MemoryClient,
    of: OnBehalfOf<'a>,
}

impl MemoryHandler<'_> {
    async fn search(&self, request: Search) -> Result<Value, ExecutorError> {
        let within = request.conversation_id.as_deref().map(id).transpose()?;
        let hits = self
            .memory
            .search(self.of, &request.query, within.as_ref(), request.limit)
            .await
            .map_err(|error| executor_error(&error))?;
        let hits = hits.iter().filter(|hit| may_pass_on(&hit.message));
        let rows = hits.map(|hit| {
            let mut row = row(&hit.message);
            row["conversation_id"] = hit.conversation_id.as_str().into();
            row
        });
        Ok(rows.collect())
    }

    async fn context(&self, request: Context) -> Result<Value, ExecutorError> {
        let id = id(&request.conversation_id)?;
        let window = self
            .memory
            .get_context(self.of, &id, request.max_messages, request.max_tokens)
            .await
            .map_err(|error| executor_error(&error))?;
        let messages = window.summary.iter().chain(&window.messages);
        Ok(messages.filter(|it| may_pass_on(it)).map(row).collect())
    }

    async fn list(&self, request: List) -> Result<Value, ExecutorError> {
        let listed = self.memory.list_conversations(self.of, request.limit, "");
        let (conversations, _) = listed.await.map_err(|error| executor_error(&error))?;
        let rows = conversations.iter().map(|conversation| {
            json!({
                "conversation_id": conversation.id.as_str(),
                "messages": conversation.messages,
                "created_at": conversation.created_at.to_string(),
                "updated_at": conversation.updated_at.to_string(),
            })
        });
        Ok(rows.collect())
    }

    /// Adds a message to the conversation. The conversation is created if it does not exist, because such clients have
    /// no other way to start one.
    async fn add(&self, request: Add) -> Result<Value, ExecutorError> {
        let id = id(&request.conversation_id)?;
        let role = match request.role {
            Speaker::User => Role::User,
            Speaker::Assistant => Role::Assistant,
        };
        // The memory service assigns the id: an id that a model chose could replace the next step of a turn.
        let addition = MessageBatch {
            messages: vec![NewMessage::text(role, Source::Model, request.content)],
            turn: None,
        };
        self.memory
            .get_or_create(self.of, Some(&id))
            .await
            .map_err(|error| executor_error(&error))?;
        let added = self.memory.add_messages(self.of, &id, &addition);
        let added = added.await.map_err(|error| executor_error(&error))?;
        let rows = added.messages.iter().map(
            |message| json!({ "message_id": message.id.as_str(), "position": message.position }),
        );
        Ok(rows.collect())
    }
}

/// Returns whether a message may be part of the result. The output of a tool stays under the rights to that tool: as
/// part of this tool's result it would be kept under the rights to this tool, and would outlive the original rights.
fn may_pass_on(message: &Message) -> bool {
    message.role != Role::Tool
}

fn row(message: &Message) -> Value {
    json!({
        "role": message.role.as_str(),
        "source": message.source.as_str(),
        "author": message.author,
        "content": message.content,
        "withheld": message.withheld,
        "time": message.time.to_string(),
    })
}

/// Deserializes the arguments. Arguments that fit the tool's own schema but not the question are a fault of
/// `tools.yaml`.
fn parse_arguments<'de, T: Deserialize<'de>>(
    arguments: &'de Map<String, Value>,
) -> Result<T, ExecutorError> {
    T::deserialize(arguments).map_err(|_| {
        bad("the arguments do not match the query type; use the types of its reference in the tool's `input_schema`")
    })
}

fn id(text: &str) -> Result<ConversationId, ExecutorError> {
    text.parse()
        .map_err(|error| bad(&format!("`conversation_id` {error}")))
}

fn bad(text: &str) -> ExecutorError {
    ExecutorError::BadArgument {
        text: text.to_owned(),
    }
}

fn executor_error(error: &CallError) -> ExecutorError {
    match error.reason() {
        ErrorReason::UnknownConversation => bad("Unknown conversation"),
        ErrorReason::InvalidMessage | ErrorReason::Conflict | ErrorReason::Held => {
            bad(&error.to_string())
        }
        ErrorReason::DeadlineExceeded => ExecutorError::Timeout(TimeLimit::Call),
        _ => ExecutorError::Unreachable(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
