//! A fake gateway with a few tools and a memory. It can stop forever before or after any step, like a process that is killed at
//! this point.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future;
use serde_json::{Map, Value, json};
use tokio::sync::Notify;
use wardgate_arguments::InputSchema;
use wardgate_domain::AgentRefusal;

use super::memory::FakeMemory;
use crate::clients::{GatewayClient, GatewayFailure, GatewayFuture, GatewayTool, ToolAnswer};
use crate::model::Function;

/// The implementation of a fake tool.
type Run = dyn Fn(&Map<String, Value>) -> Result<ToolAnswer, GatewayFailure> + Send + Sync;

/// A tool of the fake gateway.
pub(crate) struct FakeTool {
    name: String,
    schema: Value,
    read_only: bool,
    needs_approval: bool,
    hangs: bool,
    run: Arc<Run>,
}

impl FakeTool {
    /// Creates a tool that returns `text`.
    pub(crate) fn gives(name: &str, text: &str) -> Self {
        let text = text.to_owned();
        Self::runs(name, move |_| Ok(answer(&text)))
    }

    pub(crate) fn runs(
        name: &str,
        run: impl Fn(&Map<String, Value>) -> Result<ToolAnswer, GatewayFailure> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.to_owned(),
            schema: json!({"type": "object", "properties": {}}),
            read_only: true,
            needs_approval: false,
            hangs: false,
            run: Arc::new(run),
        }
    }

    pub(crate) fn takes(mut self, schema: Value) -> Self {
        self.schema = schema;
        self
    }

    pub(crate) fn writes(mut self) -> Self {
        self.read_only = false;
        self
    }

    pub(crate) fn asks_first(mut self) -> Self {
        self.needs_approval = true;
        self
    }

    /// Makes calls of the tool hang forever.
    pub(crate) fn hangs(mut self) -> Self {
        self.hangs = true;
        self
    }
}

pub(crate) fn answer(text: &str) -> ToolAnswer {
    ToolAnswer {
        text: text.to_owned(),
        is_error: false,
    }
}

#[derive(Default)]
pub(crate) struct FakeGateway {
    tools: Mutex<Vec<FakeTool>>,
    memory: Mutex<FakeMemory>,
    /// The answers of tools that write, by idempotency key. Each effect occurs once.
    effects: Mutex<BTreeMap<String, ToolAnswer>>,
    called: Mutex<Vec<(String, Value)>>,
    refused: Mutex<Vec<(String, AgentRefusal)>>,
    /// The idempotency keys of the recorded refusals.
    refused_keys: Mutex<HashSet<String>>,
    /// Whether recording refusals fails.
    records_nothing: Mutex<bool>,
    running: AtomicUsize,
    most_running: AtomicUsize,
    cancelled: AtomicUsize,
    steps: AtomicUsize,
    /// The step at which the process dies: odd steps are before their effect, even steps after it.
    dies_at: AtomicUsize,
    pub(crate) died: Notify,
    memory_is_down: Mutex<bool>,
    /// The number of further requests that are rejected as busy.
    turns_away: AtomicUsize,
    /// The reason why memory rejects tool results, or `None` if memory accepts them.
    takes_no_results: Mutex<Option<&'static str>>,
}

impl FakeGateway {
    pub(crate) fn new(tools: impl IntoIterator<Item = FakeTool>) -> Self {
        Self {
            tools: Mutex::new(tools.into_iter().collect()),
            ..Self::default()
        }
    }

    pub(crate) fn set_tools(&self, tools: impl IntoIterator<Item = FakeTool>) {
        *self.tools.lock().unwrap() = tools.into_iter().collect();
    }

    /// Rejects the next `requests` requests as busy.
    pub(crate) fn turn_away(&self, requests: usize) {
        self.turns_away.store(requests, Ordering::SeqCst);
    }

    fn has_room(&self) -> Result<(), GatewayFailure> {
        let less = |left: usize| left.checked_sub(1);
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        match self.turns_away.fetch_update(set, fetch, less) {
            Err(_) => Ok(()),
            Ok(_) => Err(GatewayFailure::Busy {
                retry_after: Some(Duration::from_secs(1)),
                message: "There is too much to do.".to_owned(),
            }),
        }
    }

    pub(crate) fn lose_memory(&self) {
        *self.memory_is_down.lock().unwrap() = true;
    }

    /// Makes memory reject tool results for `reason`, or accept them again if it is `None`.
    pub(crate) fn refuse_results(&self, reason: Option<&'static str>) {
        *self.takes_no_results.lock().unwrap() = reason;
    }

    /// Returns the calls that were made, with their arguments.
    pub(crate) fn calls(&self) -> Vec<(String, Value)> {
        self.called.lock().unwrap().clone()
    }

    /// Returns the calls that are recorded as refused.
    pub(crate) fn refusals(&self) -> Vec<(String, AgentRefusal)> {
        self.refused.lock().unwrap().clone()
    }

    /// Makes recording refusals fail.
    pub(crate) fn record_nothing(&self) {
        *self.records_nothing.lock().unwrap() = true;
    }

    /// Returns the number of effects of tools that write.
    pub(crate) fn effects(&self) -> usize {
        self.effects.lock().unwrap().len()
    }

    pub(crate) fn most_running(&self) -> usize {
        self.most_running.load(Ordering::SeqCst)
    }

    pub(crate) fn cancellations(&self) -> usize {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Returns the role and the content of all messages that a context of the conversation could contain.
    pub(crate) fn messages(&self, conversation: &str) -> Vec<(String, String)> {
        let text = |message: &Value, name: &str| message[name].as_str().unwrap_or("").to_owned();
        let complete = self.memory.lock().unwrap().complete(conversation);
        complete
            .iter()
            .map(|message| (text(message, "role"), text(message, "content")))
            .collect()
    }

    /// Returns the number of rounds of the turn in memory.
    pub(crate) fn rounds_kept(&self, conversation: &str, turn: &str) -> usize {
        let params = json!({"conversation_id": conversation, "turn_id": turn});
        let turn = self
            .memory
            .lock()
            .unwrap()
            .answer("memory/get_turn", &params);
        let messages = turn.map_or_else(|_| json!([]), |turn| turn["messages"].clone());
        let messages = messages.as_array().unwrap();
        messages
            .iter()
            .filter(|message| message["role"] == "assistant")
            .count()
    }

    /// Returns the number of steps so far.
    pub(crate) fn steps(&self) -> usize {
        self.steps.load(Ordering::SeqCst)
    }

    /// Returns the id and the state of the only turn of a conversation.
    pub(crate) fn only_turn(&self, conversation: &str) -> (String, String) {
        self.memory.lock().unwrap().only_turn(conversation)
    }

    pub(crate) fn remembers_nothing(&self) -> bool {
        self.memory.lock().unwrap().is_empty()
    }

    pub(crate) fn state(&self, conversation: &str, turn: &str) -> String {
        let memory = self.memory.lock().unwrap();
        memory.state(conversation, turn).to_owned()
    }

    /// Calls a memory method directly, on behalf of another client.
    pub(crate) fn memory_now(&self, method: &str, params: &Value) -> Value {
        self.memory.lock().unwrap().answer(method, params).unwrap()
    }

    /// Makes the gateway die at `step`, counted from now on; 0 means never.
    pub(crate) fn die_at(&self, step: usize) {
        self.steps.store(0, Ordering::SeqCst);
        self.dies_at.store(step, Ordering::SeqCst);
    }

    /// Counts a step, and waits forever at the step to die at.
    async fn step(&self) {
        let step = self.steps.fetch_add(1, Ordering::SeqCst) + 1;
        if step == self.dies_at.load(Ordering::SeqCst) {
            self.died.notify_one();
            future::pending::<()>().await;
        }
    }

    fn run(
        &self,
        name: &str,
        arguments: &Map<String, Value>,
        key: &str,
    ) -> Result<ToolAnswer, GatewayFailure> {
        let tools = self.tools.lock().unwrap();
        let tool = tools.iter().find(|tool| tool.name == name);
        let Some(tool) = tool else {
            return Err(GatewayFailure::Refused {
                code: -32602,
                reason: Some("unknown_tool".to_owned()),
                message: format!("Unknown tool: {name}"),
            });
        };
        if tool.read_only {
            self.note(name, arguments);
            return (tool.run)(arguments);
        }
        if let Some(answer) = self.effects.lock().unwrap().get(key) {
            return Ok(answer.clone());
        }
        self.note(name, arguments);
        let answer = (tool.run)(arguments)?;
        if !answer.is_error {
            let mut effects = self.effects.lock().unwrap();
            effects.insert(key.to_owned(), answer.clone());
        }
        Ok(answer)
    }

    fn note(&self, name: &str, arguments: &Map<String, Value>) {
        let mut called = self.called.lock().unwrap();
        called.push((name.to_owned(), arguments.clone().into()));
    }

    fn hangs(&self, name: &str) -> bool {
        let tools = self.tools.lock().unwrap();
        tools.iter().any(|tool| tool.name == name && tool.hangs)
    }
}

/// Counts a call as cancelled if it is dropped before it ends.
struct RunningCallGuard<'g>(&'g FakeGateway, bool);

impl Drop for RunningCallGuard<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            self.0.cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl GatewayClient for FakeGateway {
    fn tools<'a>(&'a self, _toolsets: &'a [String]) -> GatewayFuture<'a, Vec<GatewayTool>> {
        let listed = |tool: &FakeTool| GatewayTool {
            name: tool.name.clone(),
            function: Function {
                name: tool.name.clone(),
                description: String::new(),
                parameters: tool.schema.clone(),
            },
            schema: Arc::new(InputSchema::compile_open(&tool.schema).unwrap()),
            read_only: tool.read_only,
            needs_approval: tool.needs_approval,
        };
        let tools = self.tools.lock().unwrap().iter().map(listed).collect();
        future::ready(self.has_room().map(|()| tools)).boxed()
    }

    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Map<String, Value>,
        key: &'a str,
        _conversation: &'a str,
    ) -> GatewayFuture<'a, ToolAnswer> {
        async move {
            let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_running.fetch_max(running, Ordering::SeqCst);
            let mut watch = RunningCallGuard(self, false);
            self.step().await;
            if self.hangs(tool) {
                future::pending::<()>().await;
            }
            tokio::task::yield_now().await;
            let answer = self.run(tool, arguments, key);
            self.step().await;
            watch.1 = true;
            answer
        }
        .boxed()
    }

    fn record_refused<'a>(
        &'a self,
        tool: &'a str,
        refusal: AgentRefusal,
        key: &'a str,
    ) -> GatewayFuture<'a, ()> {
        async move {
            if *self.records_nothing.lock().unwrap() {
                return Err(GatewayFailure::Unreachable);
            }
            if self.refused_keys.lock().unwrap().insert(key.to_owned()) {
                let mut refused = self.refused.lock().unwrap();
                refused.push((tool.to_owned(), refusal));
            }
            Ok(())
        }
        .boxed()
    }

    fn memory<'a>(&'a self, method: &'static str, params: Value) -> GatewayFuture<'a, Value> {
        async move {
            self.has_room()?;
            if *self.memory_is_down.lock().unwrap() {
                return Err(GatewayFailure::Refused {
                    code: -32603,
                    reason: None,
                    message: "The memory cannot be reached.".to_owned(),
                });
            }
            if let Some(reason) = *self.takes_no_results.lock().unwrap()
                && params["messages"][0]["tool"].is_object()
            {
                return Err(GatewayFailure::Refused {
                    code: -32602,
                    reason: Some(reason.to_owned()),
                    message: "not kept".to_owned(),
                });
            }
            self.step().await;
            let answer = self.memory.lock().unwrap().answer(method, &params);
            self.step().await;
            answer
        }
        .boxed()
    }
}
