//! A real server, implemented with rmcp.

use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rmcp::ErrorData;
use rmcp::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, DiscoverResult,
    GetPromptRequestParams, GetPromptResponse, GetPromptResult, InputRequiredResult,
    ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, Prompt, PromptMessage, ProtocolVersion,
    ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate, ResourceUpdatedNotificationParam, Role, ServerCapabilities,
    ServerConfig, SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{RequestContext, RoleServer, SubscriptionContext};
use serde_json::{Value, json};
use tokio::sync::watch;

/// The state that outlives the sessions of the server.
#[derive(Debug)]
pub struct FixtureState {
    /// Number of cancelled calls of `wait`.
    pub cancelled: AtomicUsize,
    /// Number of calls of `wait` that have begun.
    pub waiting: AtomicUsize,
    /// Number of requests for the list of tools.
    pub listed: AtomicUsize,
    /// Number of listening requests that have begun.
    pub listening: AtomicUsize,
    /// Number of tools that `grow` has added.
    grown: watch::Sender<usize>,
    /// Number of times that a resource was touched, and the last one.
    touched: watch::Sender<(usize, String)>,
    /// The resources that are subscribed to now, by `resources/subscribe` or by listening requests.
    pub subscribed: Mutex<Vec<String>>,
}

impl FixtureState {
    /// Changes the resource at `uri`.
    pub fn touch(&self, uri: &str) {
        self.touched.send_modify(|(count, last)| {
            *count += 1;
            uri.clone_into(last);
        });
    }

    pub fn subscribed_uris(&self) -> Vec<String> {
        let mut uris = self.subscribed.lock().unwrap().clone();
        uris.sort();
        uris
    }

    fn unsubscribe(&self, uri: &str) {
        let mut subscribed = self.subscribed.lock().unwrap();
        let at = subscribed.iter().position(|own| own == uri);
        subscribed.remove(at.expect("it was subscribed to"));
    }
}

/// A resource that the server does not send notifications about.
pub const QUIET: &str = "memo://quiet";

#[derive(Debug, Clone)]
pub struct Fixture {
    versions: &'static [ProtocolVersion],
    /// Whether the server declares only 2026-07-28 in the response to discovery.
    names_modern_alone: bool,
    /// Whether the server has tools for clients with certain capabilities.
    has_conditional_tools: bool,
    pub state: Arc<FixtureState>,
}

impl Fixture {
    /// Creates a server of one era, or of both. The era `unnamed` means both, but only the modern one is declared.
    pub fn new(era: &str) -> Self {
        let versions: &[ProtocolVersion] = match era {
            "modern" => &[ProtocolVersion::V_2026_07_28],
            "legacy" => &[
                ProtocolVersion::V_2025_03_26,
                ProtocolVersion::V_2025_06_18,
                ProtocolVersion::V_2025_11_25,
            ],
            _ => ProtocolVersion::KNOWN_VERSIONS,
        };
        Self {
            versions,
            names_modern_alone: era == "unnamed",
            has_conditional_tools: false,
            state: Arc::new(FixtureState {
                cancelled: AtomicUsize::new(0),
                waiting: AtomicUsize::new(0),
                listed: AtomicUsize::new(0),
                listening: AtomicUsize::new(0),
                grown: watch::Sender::new(0),
                touched: watch::Sender::default(),
                subscribed: Mutex::default(),
            }),
        }
    }
}

impl Fixture {
    /// Adds tools for clients with certain capabilities.
    #[must_use]
    pub fn with_conditional_tools(self) -> Self {
        Self {
            has_conditional_tools: true,
            ..self
        }
    }

    /// Returns the conditional tools that are shown to the client of `context`.
    fn conditional_tools(&self, context: &RequestContext<RoleServer>) -> Vec<&'static str> {
        if !self.has_conditional_tools {
            return Vec::new();
        }
        let client = json!(context.client_capabilities().unwrap_or_default());
        let has = |path: &str| client.pointer(path).is_some_and(Value::is_object);
        let tools = [
            ("ask_user", has("/elicitation")),
            ("ask_elsewhere", has("/elicitation/url")),
            ("ask_model", has("/sampling")),
            ("ask_model_in_roots", has("/sampling") && has("/roots")),
            ("ask_anybody", has("/sampling") || has("/elicitation")),
            (
                "ask_anybody_in_roots",
                has("/roots") && (has("/sampling") || has("/elicitation")),
            ),
        ];
        let shown = tools.into_iter().filter(|(_, is_shown)| *is_shown);
        shown.map(|(name, _)| name).collect()
    }
}

fn tool(name: String, schema: Value) -> Tool {
    let Value::Object(schema) = schema else {
        panic!("a schema is an object");
    };
    Tool::new(name, "A tool of the fixture.", schema)
}

impl ServerHandler for Fixture {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(self.versions)
    }

    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_prompts()
            .build();
        ServerConfig::new(capabilities).with_instructions("Grow first.")
    }

    async fn discover(&self, _: RequestContext<RoleServer>) -> Result<DiscoverResult, ErrorData> {
        let versions = if self.names_modern_alone {
            vec![ProtocolVersion::V_2026_07_28]
        } else {
            self.versions.to_vec()
        };
        Ok(DiscoverResult::from_server_info(versions, self.get_info()))
    }

    /// Returns two pages, of which the second one grows.
    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let any = json!({"type": "object"});
        if request.and_then(|request| request.cursor).is_none() {
            let echo = json!({"type": "object", "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
            }});
            self.state.listed.fetch_add(1, Ordering::SeqCst);
            let tools = vec![tool("echo".to_owned(), echo)];
            let mut page = ListToolsResult::with_all_items(tools);
            page.next_cursor = Some("second".to_owned());
            return Ok(page);
        }
        let names = ["wait", "steps", "fail", "grow", "cancelled"].map(str::to_owned);
        let grown = (0..*self.state.grown.borrow()).map(|number| format!("grown_{number}"));
        let conditional = self.conditional_tools(&context);
        let conditional = conditional.into_iter().map(str::to_owned);
        let tools = names.into_iter().chain(grown).chain(conditional);
        let tools = tools.map(|name| tool(name, any.clone())).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let text = |text: String| vec![ContentBlock::text(text)];
        let result = match &*request.name {
            "echo" => CallToolResult::structured(arguments),
            "fail" => CallToolResult::error(text("it failed".to_owned())),
            "cancelled" => {
                let cancelled = self.state.cancelled.load(Ordering::SeqCst);
                CallToolResult::success(text(cancelled.to_string()))
            }
            "wait" => {
                self.state.waiting.fetch_add(1, Ordering::SeqCst);
                context.ct.cancelled().await;
                self.state.cancelled.fetch_add(1, Ordering::SeqCst);
                CallToolResult::success(text("stopped".to_owned()))
            }
            "steps" => {
                let token = context.meta.get_progress_token();
                for step in 1..=3_u8 {
                    if let Some(token) = token.clone() {
                        let progress = ProgressNotificationParam::new(token, f64::from(step))
                            .with_total(3.0)
                            .with_message(format!("step {step}"));
                        context.peer.notify_progress(progress).await.unwrap();
                    }
                }
                CallToolResult::success(text(format!("asked for progress: {}", token.is_some())))
            }
            "grow" => {
                self.state.grown.send_modify(|grown| *grown += 1);
                // A modern client is only notified on a listening request.
                let _ = context.peer.notify_tool_list_changed().await;
                CallToolResult::success(text("grown".to_owned()))
            }
            "ask" => {
                let answers = match request.input_responses {
                    Some(answers) => json!(answers),
                    None if context
                        .protocol_version()
                        .is_some_and(|version| version >= ProtocolVersion::V_2026_07_28) =>
                    {
                        let who = json!({ "who": { "method": "roots/list" } });
                        let who = serde_json::from_value(who).unwrap();
                        let state = Some("as it was".to_owned());
                        return Ok(InputRequiredResult::new(Some(who), state).into());
                    }
                    None => {
                        #[expect(deprecated, reason = "servers of the versions before use it")]
                        let roots = context.peer.list_roots().await;
                        json!(roots.unwrap())
                    }
                };
                let state = request.request_state.unwrap_or_default();
                CallToolResult::success(text(format!("{state} {answers}")))
            }
            name if self.conditional_tools(&context).contains(&name) => {
                CallToolResult::success(text("asked".to_owned()))
            }
            other => return Err(ErrorData::invalid_params(format!("no tool {other}"), None)),
        };
        Ok(result.into())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let mut accepted = requested.supported_by(&self.get_info().capabilities);
        if let Some(uris) = &mut accepted.resource_subscriptions {
            uris.retain(|uri| uri != QUIET);
        }
        Some(accepted)
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if request.uri == QUIET {
            return Err(ErrorData::invalid_params("quiet", None));
        }
        let state = Arc::clone(&self.state);
        let mut touched = state.touched.subscribe();
        state.subscribed.lock().unwrap().push(request.uri.clone());
        tokio::spawn(async move {
            while touched.changed().await.is_ok() && state.subscribed_uris().contains(&request.uri)
            {
                let uri = touched.borrow_and_update().1.clone();
                let updated = ResourceUpdatedNotificationParam::new(uri.clone());
                if uri == request.uri
                    && context.peer.notify_resource_updated(updated).await.is_err()
                {
                    return;
                }
            }
        });
        Ok(())
    }

    async fn unsubscribe(
        &self,
        request: UnsubscribeRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.state.unsubscribe(&request.uri);
        Ok(())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let uris = context.accepted().resource_subscriptions.clone();
        let uris = uris.unwrap_or_default();
        let state = &self.state;
        let (mut grown, mut touched) = (state.grown.subscribe(), state.touched.subscribe());
        state.subscribed.lock().unwrap().extend(uris.clone());
        state.listening.fetch_add(1, Ordering::SeqCst);
        loop {
            tokio::select! {
                () = context.cancelled() => break,
                _ = grown.changed() => {
                    let _ = context.sink().notify_tool_list_changed().await;
                }
                _ = touched.changed() => {
                    let uri = touched.borrow_and_update().1.clone();
                    if uris.contains(&uri) {
                        let _ = context.sink().notify_resource_updated(uri).await;
                    }
                }
            }
        }
        for uri in &uris {
            state.unsubscribe(uri);
        }
        Ok(())
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let resource = Resource::new("memo://one", "one");
        Ok(ListResourcesResult::with_all_items(vec![resource]))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let template = ResourceTemplate::new("memo://{name}", "memo");
        Ok(ListResourceTemplatesResult::with_all_items(vec![template]))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let text = ResourceContents::text("a memo", request.uri);
        Ok(ReadResourceResult::new(vec![text]).into())
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let prompt = Prompt::new("greet", Some("Greets."), None);
        Ok(ListPromptsResult::with_all_items(vec![prompt]))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = Value::Object(request.arguments.unwrap_or_default());
        let greeting = PromptMessage::new_text(Role::User, format!("Greet {}", arguments["name"]));
        Ok(GetPromptResult::new(vec![greeting]).into())
    }
}
