//! The messages of a stream, in the format of its version.

use std::collections::BTreeSet;
use std::fmt::Write;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use wardgate_domain::Digest;
use wardgate_mcp::meta::SUBSCRIPTION_ID;
use wardgate_mcp_server::{JsonRpcRequest, RpcError, SERVER_INFO, object};

use super::following::{ConversationSelection, ResourceUpdates};
use super::resources::ResourceChanges;
use crate::discovery::OfferedContent;
use crate::memory::{self, ConversationUri};
use crate::tasks::{FollowedTasks, TaskUpdate};

/// Maximum size of a subscription's id, in bytes. Every message of the subscription repeats the id.
const ID_BYTES: usize = 256;

/// Maximum number of resources that one stream can follow.
const MOST_RESOURCES: usize = 1_000;

/// Maximum number of tasks that one stream can follow. They are polled one after the other.
const MOST_TASKS: usize = 32;

/// The messages of one stream, each a complete event.
#[derive(Debug)]
pub(crate) struct StreamScript {
    /// The event at the beginning of the stream.
    pub(super) first: Bytes,
    /// The lists of the catalogue whose changes the client asked for.
    pub(super) lists: Vec<&'static str>,
    /// The conversations whose changes the client asked for.
    pub(super) conversations: Option<ConversationSelection>,
    /// The changes of resources of sources.
    pub(super) resources: Option<ResourceChanges>,
    /// The tasks whose status is sent.
    pub(super) tasks: Option<FollowedTasks>,
    /// The event that is sent when the gateway ends the stream.
    pub(super) last: Option<Bytes>,
    /// The members of the `_meta` that every message repeats. Older versions have none.
    meta: Option<String>,
}

/// The parameters of `subscriptions/listen`.
pub(crate) struct ListenRequest {
    /// The id of the request, as the client wrote it.
    id: Box<RawValue>,
    filter: ListenFilter,
}

/// Those members of the MCP filter that the gateway supports.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListenFilter {
    #[serde(default)]
    tools_list_changed: bool,
    #[serde(default)]
    prompts_list_changed: bool,
    #[serde(default)]
    resources_list_changed: bool,
    #[serde(default)]
    resource_subscriptions: Vec<String>,
    #[serde(default)]
    task_ids: Vec<String>,
}

impl ListenRequest {
    pub(super) fn parse(request: &JsonRpcRequest<'_>) -> Result<Self, RpcError> {
        if request.id.get().len() > ID_BYTES {
            return Err(RpcError::invalid_params(format!(
                "the `id` of a subscription must have at most {ID_BYTES} bytes"
            )));
        }
        let filter: ListenFilter = request
            .params
            .notifications
            .and_then(|filter| object(filter.get()))
            .ok_or_else(|| {
                RpcError::invalid_params(
                    "`params.notifications` must be an object, for example {\"toolsListChanged\":true,\"resourceSubscriptions\":[\"memory://conversation/1\"]}",
                )
            })?;
        if filter.resource_subscriptions.len() > MOST_RESOURCES {
            return Err(RpcError::invalid_params(format!(
                "`params.notifications.resourceSubscriptions` contains more than {MOST_RESOURCES} URIs"
            )));
        }
        if filter.task_ids.len() > MOST_TASKS {
            return Err(RpcError::invalid_params(format!(
                "`params.notifications.taskIds` contains more than {MOST_TASKS} ids"
            )));
        }
        Ok(Self {
            id: request.id.to_owned(),
            filter,
        })
    }

    /// Returns the ids of the tasks that the client wants to follow.
    pub(super) fn tasks(&self) -> &[String] {
        &self.filter.task_ids
    }

    /// Returns the URIs of the resources that are not conversations.
    pub(super) fn of_sources(&self, offered: OfferedContent) -> BTreeSet<String> {
        let uris = self.filter.resource_subscriptions.iter();
        let is_of_source = |uri: &&String| {
            let is_of_memory = offered.conversations && memory::is_uri(uri);
            offered.resources && !is_of_memory
        };
        uris.filter(is_of_source).cloned().collect()
    }
}

impl StreamScript {
    /// Creates the script of a GET before 2026-07-28, whose client subscribes to resources by separate requests.
    pub(crate) fn of_get(session: Option<Digest>, offered: OfferedContent) -> Self {
        Self {
            // A comment event, which shows the client that the stream is open.
            first: Bytes::from_static(b":\n\n"),
            lists: lists([true, offered.prompts, offered.resources]),
            conversations: offered
                .conversations
                .then_some(ConversationSelection::Subscribed { session }),
            resources: None,
            tasks: None,
            last: None,
            meta: None,
        }
    }

    /// Adds notifications for a client that had no stream for a while: every list may have changed, and the resources at
    /// `uris`, which the client is subscribed to.
    pub(crate) fn after_absence(mut self, uris: &[String]) -> Self {
        let words = ResourceUpdates {
            list: true,
            uris: uris.to_vec(),
        };
        let parts = [
            self.first.clone(),
            self.lists_changed(),
            self.resources_changed(&words),
        ];
        self.first = parts.concat().into();
        self
    }

    /// Adds the changes of resources of sources.
    pub(crate) fn with_resources(self, resources: Option<ResourceChanges>) -> Self {
        Self { resources, ..self }
    }

    /// Creates the script of `subscriptions/listen`. The client receives only the changes of what is `offered`, of the watched
    /// `resources` and of the followed `tasks`.
    pub(super) fn of_subscription(
        subscription: ListenRequest,
        offered: OfferedContent,
        resources: Option<(ResourceChanges, BTreeSet<String>)>,
        tasks: Option<FollowedTasks>,
    ) -> Self {
        let ListenRequest { id, filter } = subscription;
        let id = id.get();
        let mut accepted = json!({});
        if filter.tools_list_changed {
            accepted["toolsListChanged"] = true.into();
        }
        let prompts = filter.prompts_list_changed && offered.prompts;
        if prompts {
            accepted["promptsListChanged"] = true.into();
        }
        let list_of_sources = filter.resources_list_changed && offered.resources;
        let (resources, watched) = resources.unzip();
        let watched = watched.unwrap_or_default();
        let mut conversations = Vec::new();
        let mut heard_of = Vec::new();
        for uri in filter.resource_subscriptions {
            let id = ConversationUri::id_of_whole(&uri).filter(|_| offered.conversations);
            // The acknowledgement names only resources whose changes are reported.
            if id.is_some() || watched.contains(&uri) {
                heard_of.push(uri.clone());
            }
            conversations.extend(id.map(|id| (id, uri)));
        }
        if !heard_of.is_empty() {
            accepted["resourceSubscriptions"] = heard_of.into();
        }
        if let Some(tasks) = &tasks {
            accepted["taskIds"] = tasks.ids().into();
        }
        let list = offered.conversations && filter.resources_list_changed;
        if list || list_of_sources {
            accepted["resourcesListChanged"] = true.into();
        }
        let meta = format!(r#""{SUBSCRIPTION_ID}":{id}"#);
        let wants = list || !conversations.is_empty();
        Self {
            first: event(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{{"_meta":{{{meta}}},"notifications":{accepted}}}}}"#
            )),
            lists: lists([filter.tools_list_changed, prompts, list_of_sources]),
            conversations: wants.then_some(ConversationSelection::Chosen {
                list,
                conversations,
            }),
            last: Some(event(&format!(
                r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","_meta":{{{meta},"io.modelcontextprotocol/serverInfo":{SERVER_INFO}}}}}}}"#
            ))),
            resources: resources.filter(|_| !watched.is_empty()),
            tasks,
            meta: Some(meta),
        }
    }

    /// Returns the notifications that the catalogue's lists, or what is visible of them, may have changed. They cover all lists
    /// that the client asked for, because it is not known which of them changed.
    pub(super) fn lists_changed(&self) -> Bytes {
        let lists = self.lists.iter();
        let update = lists.map(|list| self.notification(&format!("{list}/list_changed"), None));
        update.collect::<Vec<_>>().concat().into()
    }

    /// Returns the notifications that resources, or the list of them, changed.
    pub(super) fn resources_changed(&self, words: &ResourceUpdates) -> Bytes {
        let list = words
            .list
            .then(|| self.notification("resources/list_changed", None));
        let updated = words.uris.iter();
        let updated = updated.map(|uri| self.notification("resources/updated", Some(uri)));
        let all: Vec<_> = list.into_iter().chain(updated).collect();
        all.concat().into()
    }

    /// Returns the notification of a task's current status.
    pub(super) fn task_updated(&self, update: &TaskUpdate) -> Bytes {
        let own = self.meta.as_deref().unwrap_or_default();
        let (meta, members) = (update.meta(), update.members());
        event(&format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/tasks","params":{{"_meta":{{{own},{meta}}},{members}}}}}"#
        ))
    }

    fn notification(&self, method: &str, uri: Option<&str>) -> Bytes {
        let meta = self.meta.as_ref();
        let meta = meta.map(|meta| format!(r#""_meta":{{{meta}}}"#));
        let uri = uri.map(|uri| format!(r#""uri":{}"#, json!(uri)));
        let members: Vec<_> = meta.into_iter().chain(uri).collect();
        let mut message = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{method}""#);
        if !members.is_empty() {
            // Writing to a string cannot fail.
            let _ = write!(message, r#","params":{{{}}}"#, members.join(","));
        }
        message.push('}');
        event(&message)
    }
}

/// Returns the names of the selected lists, out of tools, prompts and resources.
fn lists(filter: [bool; 3]) -> Vec<&'static str> {
    let lists = ["tools", "prompts", "resources"].into_iter().zip(filter);
    lists
        .filter_map(|(list, filter)| filter.then_some(list))
        .collect()
}

fn event(message: &str) -> Bytes {
    format!("event: message\ndata: {message}\n\n").into()
}
