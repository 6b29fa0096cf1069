//! An HTTP client that sends exactly what a test specifies.

use std::time::{Duration, Instant};

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// Maximum time for which a request is repeated while it cannot be recorded.
const PATIENCE: Duration = Duration::from_mins(1);
/// Interval between two attempts of a request.
const PAUSE: Duration = Duration::from_millis(50);

/// An HTTP response.
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

    /// Returns the `result` of a JSON-RPC response.
    pub fn result(&self) -> Value {
        match self.json() {
            Value::Object(mut answer) if answer.contains_key("result") => answer["result"].take(),
            other => panic!("no result in {other}"),
        }
    }

    /// Returns `structuredContent.data` of the result of a tool call.
    pub fn rows(&self) -> Vec<Value> {
        let result = self.result();
        assert_eq!(result["isError"], false, "{result}");
        let rows = result["structuredContent"]["data"].as_array();
        rows.unwrap_or_else(|| panic!("no rows in {result}"))
            .clone()
    }

    /// Returns whether nothing was released because the call could not be recorded durably at the moment, for example
    /// while a disk stalled. The caller is asked to try again later.
    fn says_try_again_later(&self) -> bool {
        let Ok(answer) = serde_json::from_str::<Value>(&self.body) else {
            return false;
        };
        let error = &answer["error"];
        let message = error["message"].as_str().unwrap_or_default();
        error["data"]["reason"] == "not_durable" && message.ends_with("Try again later.")
    }

    /// Returns the error text in the result of a tool call.
    pub fn tool_error(&self) -> String {
        let result = self.result();
        assert_eq!(result["isError"], true, "{result}");
        let text = result["content"][0]["text"].as_str();
        text.unwrap_or_else(|| panic!("no text in {result}"))
            .to_owned()
    }

    /// Returns the code and the message of the `error` of a JSON-RPC response.
    pub fn error(&self) -> (i64, String) {
        let error = &self.json()["error"];
        match (error["code"].as_i64(), error["message"].as_str()) {
            (Some(code), Some(message)) => (code, message.to_owned()),
            _ => panic!("no error in {} {}", self.status, self.body),
        }
    }

    /// Returns `_meta` of a result or `data` of an error, with the id of the call and its receipt.
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

/// A client of one gateway.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    /// Creates a client of the gateway at `base`, for example `http://127.0.0.1:8080`.
    pub fn new(base: &str) -> Self {
        let http = reqwest::Client::builder()
            .timeout(Duration::from_secs(40))
            // The server closes idle connections after ten seconds, and a request must not be sent on a connection that
            // it is closing.
            .pool_idle_timeout(Duration::from_secs(3))
            .build()
            .expect("a client");
        Self {
            http,
            base: base.to_owned(),
        }
    }

    /// Returns the base URL of the gateway.
    pub fn base(&self) -> &str {
        &self.base
    }

    /// Sends a GET request.
    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], "").await
    }

    /// Sends `body` unchanged in a POST request, with the media types of JSON and these headers.
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

    /// Sends a request as [`Self::post`] does, and returns an error if the connection is refused or lost.
    async fn try_post(
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

    /// Sends a modern (2026-07-28) request to `/mcp` with everything that such a request must carry, and repeats it
    /// while the response says that it cannot be recorded now.
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

    /// Sends such a request once, and returns an error if the connection is refused or lost.
    async fn try_modern(
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

    /// Sends a modern `tools/call`, and repeats it while the response says that it cannot be recorded now.
    pub async fn call(&self, token: &str, tool: &str, arguments: Value) -> Reply {
        let params = json!({ "name": tool, "arguments": arguments });
        self.modern(token, "tools/call", params).await
    }

    /// Sends such a call once, and returns an error if the connection is refused or lost.
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

    /// Sends a request of an older protocol version, which the header names, to `/mcp`, and repeats it while the
    /// response says that it cannot be recorded now.
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

    /// Returns the names in the result of a modern `tools/list`.
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

    /// Sends a request with any method, headers and body.
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
