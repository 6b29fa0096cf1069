//! Scripted servers: legacy servers that misbehave in one way, or that send exactly what a test expects to receive.

use serde_json::{Value, json};

/// An action of a scripted server.
#[derive(Debug)]
pub enum ScriptedAction {
    Say(String),
    Exit,
    /// Writes a line that never ends.
    Flood,
}

/// A tool with everything that a typed client would lose.
pub const ODD_TOOL: &str = r#"{"name":"odd","x-vendor":{"b":1.10,"a":12345678901234567890123},"inputSchema":{"type":"object","properties":{"z":{"minimum":1.0},"a":{}}},"execution":{"taskSupport":"optional"},"description":"\u00e9 é"}"#;

/// A result with everything that a typed client would lose.
pub const ODD_CONTENT: &str =
    r#"[{"type":"text","text":"x","vendor":1.10},{"type":"hologram","depth":1e400}]"#;
pub const ODD_STRUCTURED: &str = r#"{"big":123456789012345678901234567890,"b":[1.0,1],"a":1.10}"#;

/// A running scripted server.
#[derive(Debug)]
pub struct Script {
    kind: String,
    /// The client's responses to requests of this server.
    answers: Vec<Value>,
    /// Ids of calls that wait for their response.
    open: Vec<Value>,
}

impl Script {
    pub fn new(kind: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            answers: Vec::new(),
            open: Vec::new(),
        }
    }

    /// Returns the actions of the server after one message.
    pub fn acts(&mut self, line: &str) -> Vec<ScriptedAction> {
        let message: Value = serde_json::from_str(line).unwrap();
        if message.get("method").is_none() {
            if let Some(call) = self.open.pop() {
                return vec![text_response(&call, &message.to_string())];
            }
            self.answers.push(message);
            return Vec::new();
        }
        if self.kind == "interviews" && message["method"] == "tools/call" {
            self.open.push(message["id"].clone());
            let log = json!({ "level": "error", "data": self.open.len() });
            let log = json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": log });
            let form = json!({ "message": "Who?", "requestedSchema": { "type": "object" } });
            let ask = json!({ "jsonrpc": "2.0", "id": "q", "method": "elicitation/create", "params": form });
            return vec![
                ScriptedAction::Say(log.to_string()),
                ScriptedAction::Say(ask.to_string()),
            ];
        }
        if self.kind == "asks" && message["params"]["name"] == "heard" {
            let text = Value::from(std::mem::take(&mut self.answers)).to_string();
            return vec![text_response(&message["id"], &text)];
        }
        acts(&self.kind, line)
    }
}

fn response(id: &Value, result: &str) -> ScriptedAction {
    ScriptedAction::Say(format!(
        r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
    ))
}

fn text_response(id: &Value, text: &str) -> ScriptedAction {
    let content = json!({ "content": [{ "type": "text", "text": text }] });
    response(id, &content.to_string())
}

fn refusal(id: &Value, code: i64, message: &str) -> ScriptedAction {
    let error = json!({ "code": code, "message": message });
    ScriptedAction::Say(json!({ "jsonrpc": "2.0", "id": id, "error": error }).to_string())
}

fn acts(kind: &str, line: &str) -> Vec<ScriptedAction> {
    let message: Value = serde_json::from_str(line).unwrap();
    let id = &message["id"];
    let result = |result: &str| response(id, result);
    match (kind, message["method"].as_str().unwrap()) {
        ("ignores_discover", "server/discover") => Vec::new(),
        ("exits_unless_initialized", "server/discover") => vec![ScriptedAction::Exit],
        (_, notification) if notification.starts_with("notifications/") => Vec::new(),
        (_, "initialize") => {
            let version = message["params"]["protocolVersion"].as_str().unwrap();
            vec![result(&format!(
                r#"{{"protocolVersion":"{version}","capabilities":{{"tools":{{"listChanged":true}}}},"serverInfo":{{"name":"script","version":"0"}}}}"#
            ))]
        }
        ("noisy", _) => {
            let noise = [
                "Server is listening",
                "{",
                "[]",
                "[1]",
                "null",
                "{}",
                "\u{7f}",
            ];
            let noise = noise
                .into_iter()
                .map(|line| ScriptedAction::Say(line.to_owned()));
            let deep = format!("{{\"a\":{}{}}}", "[".repeat(5000), "]".repeat(5000));
            let twofold = format!(r#"{{"jsonrpc":"2.0","id":{id},"id":{id},"result":{{}}}}"#);
            noise
                .chain([
                    ScriptedAction::Say(deep),
                    ScriptedAction::Say(twofold),
                    text_response(id, "heard"),
                ])
                .collect()
        }
        (_, "tools/list") => list(kind, &message),
        (_, "tools/call") => call(kind, &message, line),
        _ => vec![refusal(id, -32601, "no")],
    }
}

fn list(kind: &str, message: &Value) -> Vec<ScriptedAction> {
    let id = &message["id"];
    let result = |result: &str| response(id, result);
    match kind {
        "odd" => vec![result(&format!(r#"{{"tools":[{ODD_TOOL}]}}"#))],
        "circle" => vec![result(r#"{"tools":[],"nextCursor":"again"}"#)],
        "endless" => {
            let page = message["params"]["cursor"].as_str().map_or(0, str::len);
            vec![result(
                &json!({ "tools": [], "nextCursor": "x".repeat(page + 1) }).to_string(),
            )]
        }
        "faulty" => {
            let object = r#"{"type":"object"}"#;
            let tools = [
                format!(r#"{{"name":"good","inputSchema":{object}}}"#),
                format!(r#"{{"name":"good","description":"again","inputSchema":{object}}}"#),
                format!(r#"{{"name":"","inputSchema":{object}}}"#),
                format!(r#"{{"name":"a b","inputSchema":{object}}}"#),
                format!(r#"{{"name":"{}","inputSchema":{object}}}"#, "x".repeat(129)),
                format!(r#"{{"inputSchema":{object}}}"#),
                format!(r#"{{"name":"twofold","name":"other","inputSchema":{object}}}"#),
                r#"{"name":"schemaless"}"#.to_owned(),
                r#"{"name":"no_object","inputSchema":true}"#.to_owned(),
                r#"{"name":"list","inputSchema":{"type":"array"}}"#.to_owned(),
                r#"{"name":"marked","inputSchema":{"type":"object","x-mcp-header":"A"}}"#
                    .to_owned(),
                r#"["name","inputSchema"]"#.to_owned(),
                format!(
                    r#"{{"name":"task","inputSchema":{object},"execution":{{"taskSupport":"required"}}}}"#
                ),
                r#"{"name":"last","inputSchema":{}}"#.to_owned(),
            ];
            vec![result(&format!(r#"{{"tools":[{}]}}"#, tools.join(",")))]
        }
        _ => vec![refusal(id, -32601, "no")],
    }
}

fn call(kind: &str, message: &Value, line: &str) -> Vec<ScriptedAction> {
    let id = &message["id"];
    let result = |result: &str| response(id, result);
    let text = |text: &str| text_response(id, text);
    match kind {
        "silent" => Vec::new(),
        "dies" => vec![ScriptedAction::Exit],
        "odd" => vec![result(&format!(
            r#"{{"content":{ODD_CONTENT},"isError":true,"structuredContent":{ODD_STRUCTURED},"_meta":{{"k":0.10}}}}"#
        ))],
        "mirror" => vec![text(line)],
        "wrong_id" => {
            let wrong = |id: Value| {
                let answer = json!({ "jsonrpc": "2.0", "id": id, "result": { "content": [] } });
                ScriptedAction::Say(answer.to_string())
            };
            let ids = [
                json!(999_999),
                json!(id.to_string()),
                json!(-1),
                Value::Null,
                json!(1.5),
            ];
            ids.into_iter().map(wrong).chain([text("right")]).collect()
        }
        "twice" => vec![text("first"), text("second")],
        "floods" => vec![ScriptedAction::Flood],
        "large" if message["params"]["name"] == "large" => {
            vec![text(&"x".repeat(17 * 1024 * 1024))]
        }
        "asks" => {
            let ask = |id: &str, method: &str| {
                ScriptedAction::Say(
                    json!({ "jsonrpc": "2.0", "id": id, "method": method }).to_string(),
                )
            };
            vec![
                ask("a", "ping"),
                ask("b", "roots/list"),
                ask("c", "sampling/createMessage"),
                ask("d", "elicitation/create"),
                text("asked"),
            ]
        }
        "environment" => {
            let mut names: Vec<_> = std::env::vars().map(|(name, _)| name).collect();
            // The shell that starts the program sets these.
            names.retain(|name| !matches!(name.as_str(), "PWD" | "OLDPWD" | "SHLVL" | "_"));
            names.sort();
            vec![text(&names.join(" "))]
        }
        "input" => vec![result(
            r#"{"resultType":"input_required","requestState":"s"}"#,
        )],
        "task" => vec![result(r#"{"resultType":"task","taskId":"t"}"#)],
        "contentless" => vec![result(r#"{"isError":false}"#)],
        "listless" => vec![result(r#"{"content":"text"}"#)],
        "scalar" => vec![result("7")],
        "neither" => vec![ScriptedAction::Say(format!(
            r#"{{"jsonrpc":"2.0","id":{id}}}"#
        ))],
        "refuses" => vec![refusal(id, -32602, "secret words")],
        "progress" => {
            let token = &message["params"]["_meta"]["progressToken"];
            let report = |token: &Value, progress: f64, text: String| {
                let params =
                    json!({ "progressToken": token, "progress": progress, "message": text });
                ScriptedAction::Say(json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }).to_string())
            };
            vec![
                report(&json!(12345), 1.0, "of another".to_owned()),
                report(&json!("x"), 1.0, "of nobody".to_owned()),
                report(token, 1.0, "x".repeat(5000)),
                text("done"),
            ]
        }
        _ => vec![text(&std::process::id().to_string())],
    }
}
