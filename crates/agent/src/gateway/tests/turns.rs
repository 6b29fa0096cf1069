//! Tests of the gateway client of a turn.

use serde_json::Map;

use super::*;
use crate::caller_gateway::CallerGateway;
use crate::clients::{GatewayClient, GatewayFailure, ToolAnswer};

fn caller(script: &ScriptedGateway) -> CallerGateway {
    CallerGateway::new(script.in_process(), token("t"))
}

#[tokio::test]
async fn tools_of_several_toolsets_come_once_each_and_in_order() {
    let script = ScriptedGateway::new(|seen| {
        let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
        let tools = match seen.path.as_str() {
            "/mcp/a" => json!([tool("x"), tool("y.z")]),
            "/mcp/b" => json!([tool("y.z"), tool("w")]),
            _ => json!([tool("all")]),
        };
        seen.result(&json!({ "tools": tools }))
    });
    let caller = caller(&script);
    let both = ["a".to_owned(), "b".to_owned()];
    for (toolsets, expected) in [(&both[..], vec!["x", "y.z", "w"]), (&[], vec!["all"])] {
        let tools = caller.tools(toolsets).await.unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, expected);
    }
}

#[tokio::test]
async fn a_result_is_text_and_what_gave_none_is_a_refusal() {
    let script = ScriptedGateway::new(|seen| match seen.body["params"]["name"].as_str() {
        Some("fails") => seen.result(&json!({
            "content": [{ "type": "text", "text": "no such patient" }], "isError": true,
        })),
        Some("hidden") => seen.error(
            200,
            -32602,
            "Unknown tool: hidden",
            &json!({ "reason": "unknown_tool" }),
        ),
        Some("busy") => seen.error(
            429,
            -32603,
            "Slow down.",
            &json!({ "retryAfterSeconds": 3 }),
        ),
        Some("slow") => seen.error(
            200,
            -32603,
            "Timeout after 30s",
            &json!({ "reason": "timeout" }),
        ),
        _ => seen.result(
            &json!({ "content": [], "structuredContent": seen.body["params"]["arguments"] }),
        ),
    });
    let caller = caller(&script);
    let mut arguments = Map::new();
    arguments.insert("n".to_owned(), json!(1));
    let called = |name: &'static str| {
        let (caller, arguments) = (caller.clone(), arguments.clone());
        async move { caller.call(name, &arguments, "k", "c").await }
    };
    let answer = |text: &str, is_error| {
        Ok(ToolAnswer {
            text: text.to_owned(),
            is_error,
        })
    };
    let refusal = |code, message: &str| {
        Err(GatewayFailure::Refused {
            code,
            reason: None,
            message: message.to_owned(),
        })
    };
    assert_eq!(called("echo").await, answer("{\n  \"n\": 1\n}", false));
    assert_eq!(called("fails").await, answer("no such patient", true));
    assert_eq!(
        called("hidden").await,
        refusal(-32602, "Unknown tool: hidden")
    );
    // It is unknown whether the tool ran.
    let timeout = GatewayFailure::Unavailable {
        message: "Timeout after 30s".to_owned(),
    };
    assert_eq!(called("slow").await, Err(timeout));
    let busy = GatewayFailure::Busy {
        retry_after: Some(Duration::from_secs(3)),
        message: "Slow down. Try again in 3 seconds.".to_owned(),
    };
    assert_eq!(called("busy").await, Err(busy));
}

#[tokio::test]
async fn an_error_of_memory_keeps_its_code_its_reason_and_words() {
    let script = ScriptedGateway::new(|seen| {
        let data = json!({ "reason": "unknown_conversation" });
        seen.error(200, -32602, "Unknown conversation", &data)
    });
    let refused = caller(&script).memory("memory/clear", json!({})).await;
    assert_eq!(
        refused,
        Err(GatewayFailure::Refused {
            code: -32602,
            reason: Some("unknown_conversation".to_owned()),
            message: "Unknown conversation".to_owned(),
        })
    );
}
