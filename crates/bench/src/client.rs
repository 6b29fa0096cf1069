//! An MCP client of one gateway for one caller.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Url, redirect};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wardgate_mcp::message::{Envelope, ErrorObject};
use wardgate_mcp::{Era, header, meta};

/// Maximum size of a response, in bytes.
const LONGEST: usize = 32 << 20;

/// The settings of a client.
#[derive(Clone)]
pub struct Settings {
    /// The URL of the MCP endpoint. If it has no path, `/mcp` is used.
    pub url: Url,
    /// The bearer token of the caller.
    pub token: String,
    /// The era of the protocol, which determines the framing of requests. The client uses the newest version of the era.
    pub era: Era,
    /// Timeout of one call.
    pub limit: Duration,
    /// Whether each response must carry a receipt. Servers behind a gateway send none.
    pub requires_receipt: bool,
}

/// The name and the arguments of a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallToolParams {
    name: String,
    arguments: String,
}

/// The reason why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The settings are invalid. Nothing was sent.
    #[error("{0}")]
    Settings(String),
    /// There was no response.
    #[error("no answer: {0}")]
    Transport(&'static str),
    /// The HTTP status is not 200, and the body is not a JSON-RPC error.
    #[error("HTTP {0}")]
    Status(u16),
    /// The response is a JSON-RPC error.
    #[error("error {code}: {message}")]
    Rpc {
        /// The `code` of the error.
        code: i64,
        /// The `message` of the error.
        message: String,
    },
    /// The tool failed: the result has `isError`.
    #[error("the tool failed: {0}")]
    Tool(String),
    /// The response is not a valid response to the call.
    #[error("not an answer to the call: {0}")]
    Wrong(&'static str),
    /// The response has no receipt, so there is no proof that the call is on record.
    #[error("the answer has no receipt")]
    NoReceipt,
}

impl Fault {
    /// Returns a short name under which the fault is counted.
    pub fn kind(&self) -> String {
        match self {
            Self::Settings(_) => "settings".to_owned(),
            Self::Transport(what) => format!("transport: {what}"),
            Self::Status(status) => format!("http {status}"),
            Self::Rpc { code, .. } => format!("error {code}"),
            Self::Tool(_) => "tool failed".to_owned(),
            Self::Wrong(what) => format!("wrong answer: {what}"),
            Self::NoReceipt => "no receipt".to_owned(),
        }
    }
}

impl CallToolParams {
    /// Creates the parameters of a call. `arguments` must be a JSON object.
    pub fn new(name: &str, arguments: &str) -> Result<Self, Fault> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        if name.is_empty() || !name.bytes().all(plain) {
            let why = "a tool's name has only letters, digits, `_`, `-` and `.`";
            return Err(Fault::Settings(why.to_owned()));
        }
        match serde_json::from_str::<Value>(arguments) {
            Ok(Value::Object(_)) => Ok(Self {
                name: name.to_owned(),
                arguments: arguments.to_owned(),
            }),
            Ok(_) => Err(Fault::Settings(
                "the arguments are no JSON object".to_owned(),
            )),
            Err(error) => Err(Fault::Settings(format!(
                "the arguments are no JSON: {error}"
            ))),
        }
    }
}

/// A client of one gateway. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct McpClient {
    http: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    era: Era,
    requires_receipt: bool,
}

impl McpClient {
    /// Creates a client that connects on its first call.
    pub fn new(settings: Settings) -> Result<Self, Fault> {
        let Settings {
            mut url,
            token,
            era,
            limit,
            requires_receipt,
        } = settings;
        if url.path() == "/" {
            url.set_path("/mcp");
        }
        let bearer = HeaderValue::try_from(format!("Bearer {}", token.trim()));
        let mut bearer = bearer.map_err(|_| {
            Fault::Settings("the token has characters no header may have".to_owned())
        })?;
        bearer.set_sensitive(true);
        let headers = [
            (AUTHORIZATION, bearer),
            (
                ACCEPT,
                HeaderValue::from_static(header::JSON_OR_EVENT_STREAM),
            ),
            (CONTENT_TYPE, HeaderValue::from_static(header::JSON)),
        ];
        let mut headers: HeaderMap = headers.into_iter().collect();
        let version = HeaderValue::from_static(era.newest_version().as_str());
        headers.insert(header::PROTOCOL_VERSION, version);
        if era == Era::Modern {
            headers.insert(header::METHOD, HeaderValue::from_static("tools/call"));
        }
        let http = reqwest::Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .tcp_nodelay(true)
            .timeout(limit)
            // Every caller keeps its connection.
            .pool_max_idle_per_host(usize::MAX)
            .build()
            .map_err(|_| Fault::Settings("the system's certificates cannot be read".to_owned()))?;
        Ok(Self {
            http,
            url,
            headers,
            era,
            requires_receipt,
        })
    }

    /// Calls a tool once. Verifies the response, and returns its result unchanged.
    pub async fn call(&self, id: u64, tool: &CallToolParams) -> Result<Box<RawValue>, Fault> {
        let mut headers = self.headers.clone();
        if self.era == Era::Modern {
            headers.insert(header::NAME, header::encode_value(&tool.name));
        }
        let (status, text) = self.exchange(headers, self.body(id, tool)).await?;
        verify_response(id, status, &text, self.requires_receipt)
    }

    /// Returns every tool that the caller may call, as the server describes it.
    pub async fn list_tools(&self) -> Result<Vec<Box<RawValue>>, Fault> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Page {
            tools: Vec<Box<RawValue>>,
            next_cursor: Option<String>,
        }
        let (mut tools, mut cursor) = (Vec::new(), None::<String>);
        for id in 1.. {
            let params = cursor.iter().map(|cursor| ("cursor", cursor.as_str()));
            let page = self.request(id, "tools/list", params).await?;
            let page: Page = serde_json::from_str(page.get())
                .map_err(|_| Fault::Wrong("it is no list of tools"))?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(tools)
    }

    /// Sends a request of another method than `tools/call`, and returns its result unchanged.
    pub async fn request<'p>(
        &self,
        id: u64,
        method: &'static str,
        params: impl IntoIterator<Item = (&'p str, &'p str)>,
    ) -> Result<Box<RawValue>, Fault> {
        let mut headers = self.headers.clone();
        if self.era == Era::Modern {
            headers.insert(header::METHOD, HeaderValue::from_static(method));
        }
        let params = params.into_iter();
        let mut params: Map<String, Value> = params
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        params.insert("_meta".to_owned(), self.own_meta());
        let body = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let (status, text) = self.exchange(headers, body.to_string()).await?;
        verify_response(id, status, &text, false)
    }

    async fn exchange(&self, headers: HeaderMap, body: String) -> Result<(u16, Bytes), Fault> {
        let request = self.http.post(self.url.clone()).headers(headers).body(body);
        let response = request.send().await;
        let mut response = response.map_err(|error| Fault::Transport(why(&error)))?;
        let status = response.status().as_u16();
        let mut text = Vec::new();
        while let Some(chunk) = response
            .chunk()
            .await
            .map_err(|error| Fault::Transport(why(&error)))?
        {
            if text.len() + chunk.len() > LONGEST {
                return Err(Fault::Wrong("it is too long"));
            }
            text.extend_from_slice(&chunk);
        }
        Ok((status, text.into()))
    }

    fn own_meta(&self) -> Value {
        match self.era {
            Era::Modern => json!({
                meta::PROTOCOL_VERSION: self.era.newest_version().as_str(),
                meta::CLIENT_CAPABILITIES: {},
                meta::CLIENT_INFO: {
                    "name": "wardgate", "version": env!("CARGO_PKG_VERSION"),
                },
            }),
            Era::Legacy => json!({}),
        }
    }

    fn body(&self, id: u64, tool: &CallToolParams) -> String {
        let CallToolParams { name, arguments } = tool;
        let own_meta = self.own_meta();
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}","arguments":{arguments},"_meta":{own_meta}}}}}"#,
        )
    }
}

fn why(error: &reqwest::Error) -> &'static str {
    if error.is_timeout() {
        "none in time"
    } else if error.is_connect() {
        "no connection"
    } else {
        "the connection broke"
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallToolResult {
    #[serde(default)]
    is_error: bool,
    #[serde(default)]
    content: Value,
    #[serde(default, rename = "_meta")]
    meta: Value,
}

/// Returns the result of the call with this id, if it succeeded and has a receipt where one is required.
fn verify_response(
    id: u64,
    status: u16,
    body: &Bytes,
    requires_receipt: bool,
) -> Result<Box<RawValue>, Fault> {
    let unreadable = || match status {
        200 => Fault::Wrong("it is no JSON-RPC message"),
        _ => Fault::Status(status),
    };
    let text = std::str::from_utf8(body).map_err(|_| unreadable())?;
    let answer = Envelope::parse(text).ok_or_else(unreadable)?;
    if let Some(error) = answer.error {
        let error = serde_json::from_str(error.get());
        let ErrorObject { code, message, .. } = error.map_err(|_| unreadable())?;
        return Err(Fault::Rpc { code, message });
    }
    if answer.id.map(RawValue::get) != Some(&*id.to_string()) {
        return Err(Fault::Wrong("it has another id"));
    }
    let result = answer.result.ok_or(Fault::Wrong("it has no result"))?;
    let Ok(outcome) = serde_json::from_str::<CallToolResult>(result.get()) else {
        return Err(Fault::Wrong("its result is no object"));
    };
    if outcome.is_error {
        let said = outcome.content[0]["text"].as_str().unwrap_or_default();
        return Err(Fault::Tool(said.to_owned()));
    }
    if requires_receipt && outcome.meta[meta::RECEIPT].is_null() {
        return Err(Fault::NoReceipt);
    }
    Ok(result.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verify_answer(status: u16, body: &str) -> Result<Box<RawValue>, Fault> {
        verify_response(7, status, &Bytes::copy_from_slice(body.as_bytes()), true)
    }

    const GOOD: &str = r#"{"jsonrpc":"2.0","id":7,"result":{"content":[],"_meta":{"dev.wardgate/receipt":{"sequence":1}}}}"#;

    #[test]
    fn only_an_answer_to_this_very_call_that_is_on_record_counts() {
        assert!(verify_answer(200, GOOD).is_ok());
        let other = GOOD.replace("\"id\":7", "\"id\":8");
        assert_eq!(
            verify_answer(200, &other).unwrap_err(),
            Fault::Wrong("it has another id")
        );
        let unrecorded = GOOD.replace("receipt", "other");
        assert_eq!(
            verify_answer(200, &unrecorded).unwrap_err(),
            Fault::NoReceipt
        );
        let direct = verify_response(7, 200, &unrecorded.into_bytes().into(), false);
        assert!(direct.is_ok(), "a server itself gives no receipt");
        let failed = GOOD.replace(
            "\"content\":[]",
            r#""isError":true,"content":[{"text":"no"}]"#,
        );
        assert_eq!(
            verify_answer(200, &failed).unwrap_err(),
            Fault::Tool("no".to_owned())
        );
        assert_eq!(verify_answer(503, "busy").unwrap_err(), Fault::Status(503));
        assert_eq!(
            verify_answer(200, "[]").unwrap_err(),
            Fault::Wrong("it is no JSON-RPC message")
        );
        let error = r#"{"id":7,"error":{"code":-32602,"message":"Unknown tool: x"}}"#;
        assert_eq!(
            verify_answer(400, error).unwrap_err().kind(),
            "error -32602"
        );
    }

    #[test]
    fn what_is_no_call_is_refused_before_anything_is_sent() {
        assert!(CallToolParams::new("get_x", "{}").is_ok());
        for (name, arguments) in [("", "{}"), ("a\nb", "{}"), ("a", "[]"), ("a", "{")] {
            assert!(
                CallToolParams::new(name, arguments).is_err(),
                "{name:?} {arguments}"
            );
        }
    }
}
