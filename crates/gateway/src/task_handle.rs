//! The handle of a task, which its client holds as `taskId`. It is sealed for its caller, so that any replica can serve it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::{CallId, Caller, Digest};
use wardgate_gateway_store::{
    ArgumentStore, Purpose, Sealer, Store, StoreUnavailable, StoredArguments,
};
use wardgate_json::replace_part;
use wardgate_mcp::extension::TASKS;
use wardgate_mcp_server::{McpResponse, RecordStatus, call_meta, inner, object};
use wardgate_rpc::client::{ResultFacts, Task};

use crate::post::Post;
use crate::request_context::RequestContext;

/// The capabilities that a client must declare to receive tasks, a JSON object.
pub(crate) const NEEDED: &str = r#"{"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;

/// Returns `capabilities`, an MCP `ClientCapabilities`, without the support of tasks.
pub(crate) fn without_tasks(capabilities: &str) -> String {
    let mut declared: Value = serde_json::from_str(capabilities).unwrap_or_default();
    if let Some(extensions) = declared
        .get_mut("extensions")
        .and_then(Value::as_object_mut)
    {
        extensions.remove(TASKS);
    }
    declared.to_string()
}

/// The content of a `taskId`. It is valid for the same caller on the same path only.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct TaskHandle {
    /// The name of the tool in the view.
    #[serde(rename = "n")]
    pub(crate) tool: String,
    /// The arguments of the call. Every request about the task is authorized with them.
    #[serde(rename = "g")]
    asked: StoredArguments,
    /// The state of the tool-runner, in base64.
    #[serde(rename = "s")]
    state: String,
    /// The digest of the id of the conversation of the call, in hexadecimal.
    #[serde(rename = "c", default, skip_serializing_if = "Option::is_none")]
    conversation: Option<String>,
    /// The sealed handle. The client always receives the same text.
    #[serde(skip)]
    pub(crate) sealed: String,
}

/// A task that a call has become.
pub(crate) struct StartedTask {
    /// The members of the result: the server's description of the task, with the id that the client holds.
    members: String,
    pub(crate) facts: ResultFacts,
}

/// Seals the handles of tasks, and opens them.
pub(crate) struct TaskHandles {
    sealer: Arc<Sealer>,
    arguments: ArgumentStore,
}

impl TaskHandles {
    pub(crate) fn new(store: &Arc<Store>, sealer: &Arc<Sealer>) -> Self {
        Self {
            sealer: Arc::clone(sealer),
            arguments: ArgumentStore::new(store, sealer),
        }
    }

    /// Opens `sealed`. Returns `None` if it was not sealed for the caller and the path of `post`.
    pub(crate) fn open(&self, post: &Post, sealed: &str) -> Option<TaskHandle> {
        let (caller, within) = (&post.caller, post.view.path());
        let handle = self.sealer.open(Purpose::Task, caller, &within, sealed);
        handle.map(|handle| TaskHandle {
            sealed: sealed.to_owned(),
            ..handle
        })
    }

    /// Returns the arguments of the call that became the task, or `None` if they have expired.
    pub(crate) async fn arguments(
        &self,
        handle: &TaskHandle,
        caller: &Caller,
    ) -> Result<Option<Bytes>, StoreUnavailable> {
        self.arguments.find(caller, &handle.asked).await
    }

    /// Seals the handle of the task that the call `call_id` of the tool `name` became. Returns `None` if that is impossible.
    pub(crate) async fn hand_out(
        &self,
        RequestContext { caller, view, .. }: &RequestContext,
        call_id: CallId,
        name: &str,
        arguments: &Bytes,
        conversation: Option<Digest>,
        task: Task,
    ) -> Option<StartedTask> {
        let asked = self.arguments.store(caller, call_id, arguments).await;
        let asked = asked.ok()?;
        let mut handle = TaskHandle {
            tool: name.to_owned(),
            asked,
            state: URL_SAFE_NO_PAD.encode(&task.state),
            conversation: conversation.map(|digest| digest.to_string()),
            sealed: String::new(),
        };
        let within = view.path();
        handle.sealed = self.sealer.seal(Purpose::Task, caller, &within, &handle)?;
        Some(StartedTask {
            members: handle.members(&task.about),
            facts: task.facts,
        })
    }
}

impl TaskHandle {
    pub(crate) fn state(&self) -> Bytes {
        URL_SAFE_NO_PAD
            .decode(&self.state)
            .unwrap_or_default()
            .into()
    }

    /// Returns the digest of the id of the conversation of the call that became the task.
    pub(crate) fn conversation(&self) -> Option<Digest> {
        self.conversation.as_ref()?.parse().ok()
    }

    /// Returns the members of a result: the server's description `about`, with the id that the client holds.
    pub(crate) fn members(&self, about: &str) -> String {
        let about = no_longer(about, self.lasts());
        format!(
            r#""taskId":{},{}"#,
            Value::from(&*self.sealed),
            inner(&about)
        )
    }

    /// Returns the lifetime of the id.
    fn lasts(&self) -> Duration {
        match self.asked {
            StoredArguments::Inline(_) => Purpose::Task.lasts(),
            StoredArguments::Stored(_) => Purpose::UpstreamArguments.lasts(),
        }
    }
}

impl StartedTask {
    /// Returns the digest of the released bytes.
    pub(crate) fn digest(&self) -> Digest {
        Digest::compute(self.members.as_bytes())
    }

    /// Returns the answer to the call.
    pub(crate) fn release(
        &self,
        id: &RawValue,
        call_id: CallId,
        recorded: RecordStatus,
    ) -> McpResponse {
        let meta = call_meta(call_id, recorded);
        McpResponse::task(id, &self.members, &meta)
    }
}

/// Returns whether a client with these capabilities, a JSON object, supports tasks.
pub(crate) fn are_declared(capabilities: Option<&str>) -> bool {
    let member = |json: &str, name: &str| {
        let members: Option<BTreeMap<String, &RawValue>> = object(json);
        members?.remove(name).map(|value| value.get().to_owned())
    };
    let extensions = capabilities.and_then(|json| member(json, "extensions"));
    let tasks = extensions.and_then(|json| member(&json, TASKS));
    tasks.is_some_and(|settings| settings.starts_with('{'))
}

/// Returns `about` with a time to live of at most `longest`, the lifetime of the id.
fn no_longer(about: &str, longest: Duration) -> String {
    #[derive(Deserialize)]
    struct TtlMember<'a> {
        #[serde(borrow, rename = "ttlMs")]
        ttl: &'a RawValue,
    }
    let longest = longest.as_millis();
    let ttl = object::<TtlMember<'_>>(about).map(|lives| lives.ttl.get());
    match ttl {
        Some(ttl) if !ttl.parse().is_ok_and(|ttl: u128| ttl <= longest) => {
            replace_part(about, ttl, &longest.to_string())
        }
        _ => about.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_declared_by_the_extension_alone() {
        assert!(are_declared(Some(NEEDED)));
        assert!(NEEDED.contains(TASKS));
        for other in [
            None,
            Some(r#"{"tasks":{}}"#),
            Some(r#"{"extensions":{"example/other":{}}}"#),
            Some(r#"{"extensions":[]}"#),
        ] {
            assert!(!are_declared(other), "{other:?}");
        }
        assert!(!are_declared(Some(&without_tasks(NEEDED))));
    }

    #[test]
    fn a_task_lives_no_longer_than_its_id() {
        let of = |ttl: &str| {
            no_longer(
                &format!(r#"{{"a":1,"ttlMs":{ttl}}}"#),
                Duration::from_secs(2),
            )
        };
        assert_eq!(of("1999"), r#"{"a":1,"ttlMs":1999}"#);
        for ttl in ["null", "2001", "1e9"] {
            assert_eq!(of(ttl), r#"{"a":1,"ttlMs":2000}"#);
        }
        assert_eq!(no_longer("{}", Duration::ZERO), "{}");
    }
}
