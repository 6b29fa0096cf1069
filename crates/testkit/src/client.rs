//! A client that sends exactly what a test says.

use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// How long a request is made again that could not be recorded.
const PATIENCE: Duration = Duration::from_mins(1);
/// Between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// One HTTP answer.
#[derive(Debug)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body as text.
    pub body: String,
}

impl Reply {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body)
            .unwrap_or_else(|error| panic!("not JSON ({error}): {} {:?}", self.status, self.body))
    }

    /// `result` of a JSON-RPC answer.
    pub fn result(&self) -> Value {
        match self.json() {
            Value::Object(mut answer) if answer.contains_key("result") => answer["result"].take(),
            other => panic!("no result in {other}"),
        }
    }

    /// `structuredContent.data` of a call's result.
    pub fn rows(&self) -> Vec<Value> {
        let result = self.result();
        assert_eq!(result["isError"], false, "{result}");
        let rows = result["structuredContent"]["data"].as_array();
        rows.unwrap_or_else(|| panic!("no rows in {result}"))
            .clone()
    }

    /// Whether nothing was released because it could not be recorded durably just then: who is told so tries again later,
    /// as on a machine whose disk stalled.
    fn says_try_again_later(&self) -> bool {
        let Ok(answer) = serde_json::from_str::<Value>(&self.body) else {
            return false;
        };
        let error = &answer["error"];
        let message = error["message"].as_str().unwrap_or_default();
        error["data"]["reason"] == "not_durable" && message.ends_with("Try again later.")
    }

    /// What a call's result says went wrong.
    pub fn tool_error(&self) -> String {
        let result = self.result();
        assert_eq!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text in {result}"))
            .to_owned()
    }

    /// `error` of a JSON-RPC answer: its code and its message.
    pub fn error(&self) -> (i64, String) {
        let error = &self.json()["error"];
        match (error["code"].as_i64(), error["message"].as_str()) {
            (Some(code), Some(message)) => (code, message.to_owned()),
            _ => panic!("no error in {} {}", self.status, self.body),
        }
    }

    /// What `_meta` of a result, or `data` of an error, says of the call: its id and its receipt.
    pub fn call(&self) -> Value {
        let answer = self.json();
        let result = &answer["result"]["_meta"];
        if result.is_object() {
            result.clone()
        } else {
            answer["error"]["data"].clone()
        }
    }
}

/// Talks to one gateway.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    /// For the gateway at `base`, for example `http://127.0.0.1:8080`.
    pub fn new(base: &str) -> Self {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(40))
            // The server ends idle connections after ten seconds: a request must not meet that end.
            .pool_idle_timeout(Duration::from_secs(3))
            .build()
            .expect("a client");
        Self {
            http,
            base: base.to_owned(),
        }
    }

    /// Where the gateway is.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// A GET.
    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "").await
    }

    /// A POST of `body` as it is, with JSON's media types and the headers given.
    pub async fn post(
        &self,
        path: &str,
        token: Option<&str>,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Reply {
        self.try_post(path, token, headers, body)
            .await
            .expect("an answer")
    }

    /// The same, where the connection may be refused or lost.
    pub async fn try_post(
        &self,
        path: &str,
        token: Option<&str>,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> reqwest::Result<Reply> {
        let mut request = self
            .http
            .post(format!("{}{path}", self.base))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .body(body);
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request).await
    }

    /// A modern (2026-07-28) request on `/mcp`, with everything it must carry; made again when the answer says that it
    /// cannot be recorded now.
    pub async fn modern(&self, token: &str, method: &str, params: Value) -> Reply {
        let began = Instant::now();
        loop {
            let sent = self.try_modern(token, method, params.clone()).await;
            let reply = sent.expect("an answer");
            if !reply.says_try_again_later() || began.elapsed() >= PATIENCE {
                return reply;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The same request once, where the connection may be refused or lost.
    pub async fn try_modern(
        &self,
        token: &str,
        method: &str,
        mut params: Value,
    ) -> reqwest::Result<Reply> {
        let named = match method {
            "tools/call" | "prompts/get" => params["name"].as_str(),
            "resources/read" => params["uri"].as_str(),
            _ => None,
        };
        let name = named.map(str::to_owned);
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut headers = vec![
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", method),
        ];
        headers.extend(name.as_deref().map(|name| ("mcp-name", name)));
        self.try_post("/mcp", Some(token), &headers, body.to_string())
            .await
    }

    /// A modern `tools/call`, made again when the answer says that it cannot be recorded now.
    pub async fn call(&self, token: &str, tool: &str, arguments: Value) -> Reply {
        let params = json!({ "name": tool, "arguments": arguments });
        self.modern(token, "tools/call", params).await
    }

    /// The same call once, where the connection may be refused or lost.
    pub async fn try_call(
        &self,
        token: &str,
        tool: &str,
        arguments: Value,
    ) -> reqwest::Result<Reply> {
        self.try_modern(
            token,
            "tools/call",
            json!({ "name": tool, "arguments": arguments }),
        )
        .await
    }

    /// A request of an older version on `/mcp`, which its header names; made again when the answer says that it cannot be
    /// recorded now.
    pub async fn legacy(&self, token: &str, version: &str, method: &str, params: Value) -> Reply {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (body, headers) = (body.to_string(), [("mcp-protocol-version", version)]);
        let began = Instant::now();
        loop {
            let sent = self.post("/mcp", Some(token), &headers, body.clone());
            let reply = sent.await;
            if !reply.says_try_again_later() || began.elapsed() >= PATIENCE {
                return reply;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The names a modern `tools/list` shows.
    pub async fn tool_names(&self, token: &str) -> Vec<String> {
        let result = self.modern(token, "tools/list", json!({})).await.result();
        let tools = result["tools"]
            .as_array()
            .unwrap_or_else(|| panic!("no tools: {result}"));
        tools
            .iter()
            .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
            .collect()
    }

    /// A request of any method, headers and body.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> Reply {
        let method = method.parse().expect("a method");
        let mut request = self
            .http
            .request(method, format!("{}{path}", self.base))
            .body(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(request).await.expect("an answer")
    }
}

async fn answer(request: reqwest::RequestBuilder) -> reqwest::Result<Reply> {
    let response = request.send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Ok(Reply {
        status,
        headers,
        body: response.text().await?,
    })
}
