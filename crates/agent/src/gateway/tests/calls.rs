//! Tests of tool calls: the requests that are sent, and all outcomes.

use tokio::sync::Notify;
use wardgate_domain::AgentRefusal;

use super::*;
use crate::gateway::fault::ApprovalRequest;
use crate::mcp_tool::ToolResult;

const CALLED: &str =
    r#"{"dev.wardgate/callId":"call-1","dev.wardgate/receipt":{"sequence":42},"reason":"REASON"}"#;

#[tokio::test]
async fn a_call_goes_out_as_the_protocol_wants_it() {
    let script = ScriptedGateway::new(|seen| {
        seen.result(&json!({ "resultType": "complete", "content": [] }))
    });
    for gateway in script.doors().await {
        let call = ToolCall {
            name: "naïve",
            arguments: &raw(r#"{"n": 1.10, "big": 123456789012345678901}"#),
            idempotency_key: "turn-1/0",
            conversation: "c-1",
            cancel: &CancellationToken::new(),
        };
        gateway.call_tool(&token("secret"), &call).await.unwrap();
    }
    for seen in script.requests() {
        assert_eq!(seen.path, "/mcp");
        for (name, value) in [
            ("authorization", "Bearer secret"),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "tools/call"),
            ("mcp-name", "=?base64?bmHDr3Zl?="),
        ] {
            assert_eq!(seen.header(name), value);
        }
        let as_written = r#""arguments":{"n": 1.10, "big": 123456789012345678901}"#;
        assert!(seen.text.contains(as_written), "{}", seen.text);
        assert_eq!(seen.body["method"], "tools/call");
        assert_eq!(seen.body["params"]["name"], "naïve");
        let meta = &seen.body["params"]["_meta"];
        assert_eq!(
            meta["io.modelcontextprotocol/protocolVersion"],
            "2026-07-28"
        );
        assert_eq!(
            meta["io.modelcontextprotocol/clientCapabilities"],
            json!({})
        );
        assert_eq!(meta["dev.wardgate/idempotencyKey"], "turn-1/0");
        assert_eq!(meta["dev.wardgate/conversation"], "c-1");
    }
    let ids: Vec<_> = script
        .requests()
        .iter()
        .map(|seen| seen.body["id"].clone())
        .collect();
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn a_result_comes_with_its_place_in_the_record() {
    let result = json!({
        "resultType": "complete",
        "content": [{ "type": "text", "text": "two rows" }],
        "structuredContent": null,
        "isError": false,
        "_meta": serde_json::from_str::<Value>(CALLED).unwrap(),
    });
    let script = ScriptedGateway::new(move |seen| seen.result(&result));
    for gateway in script.doors().await {
        let outcome = call(&gateway, "get").await.unwrap();
        assert_eq!(outcome.call_id.as_deref(), Some("call-1"));
        assert_eq!(outcome.receipt, Some(json!({ "sequence": 42 })));
        assert_eq!(
            outcome.ending,
            CallEnding::Result(ToolResult {
                content: vec![json!({ "type": "text", "text": "two rows" })],
                structured: Some(Value::Null),
                is_error: false,
            })
        );
    }
}

#[tokio::test]
async fn a_tool_that_failed_is_a_result_and_a_denial_is_not() {
    let meta = json!({ "dev.wardgate/decisionId": "decision-1" });
    let content = json!([{ "type": "text", "text": "Not permitted." }]);
    let answers = [
        json!({ "content": content, "isError": true }),
        json!({ "content": content, "isError": true, "_meta": meta }),
    ];
    let endings = [
        CallEnding::Result(ToolResult {
            content: content.as_array().unwrap().clone(),
            structured: None,
            is_error: true,
        }),
        CallEnding::Denied {
            decision_id: "decision-1".to_owned(),
            text: "Not permitted.".to_owned(),
        },
    ];
    for (answer, ending) in answers.into_iter().zip(endings) {
        let script = ScriptedGateway::new(move |seen| seen.result(&answer));
        assert_eq!(
            call(&script.in_process(), "get").await.unwrap().ending,
            ending
        );
    }
}

#[tokio::test]
async fn every_error_of_a_call_is_an_ending_of_its_own() {
    let message = || "in the gateway's words".to_owned();
    let cases = [
        (200, -32602, "unknown_tool", CallEnding::UnknownTool),
        (
            200,
            -32603,
            "timeout",
            CallEnding::TimedOut { message: message() },
        ),
        (200, -32603, "cancelled", CallEnding::Cancelled),
        (
            200,
            -32603,
            "policy_unavailable",
            CallEnding::Unavailable { message: message() },
        ),
        (
            200,
            -32603,
            "unknown",
            CallEnding::Unavailable { message: message() },
        ),
        // Nothing ran, and the message says so.
        (
            200,
            -32603,
            "approval_refused",
            CallEnding::Refused { message: message() },
        ),
        (
            200,
            -32602,
            "invalid_params",
            CallEnding::Refused { message: message() },
        ),
    ];
    for (status, code, reason, ending) in cases {
        let data = serde_json::from_str(&CALLED.replace("REASON", reason)).unwrap();
        let script = ScriptedGateway::new(move |seen| seen.error(status, code, &message(), &data));
        for gateway in script.doors().await {
            let outcome = call(&gateway, "get").await.unwrap();
            assert_eq!(outcome.ending, ending, "{reason}");
            assert_eq!(outcome.call_id.as_deref(), Some("call-1"), "{reason}");
            assert!(outcome.receipt.is_some(), "{reason}");
        }
    }
}

#[tokio::test]
async fn a_call_that_waits_for_an_approval_says_under_which_id_and_until_when() {
    let data = json!({
        "reason": "approval_required",
        "approval": { "id": "a1", "expiresAt": "2027-01-15T08:15:00Z", "approvers": { "roles": ["M"] } },
    });
    let script = ScriptedGateway::new(move |seen| seen.error(200, -32603, "It waits.", &data));
    for gateway in script.doors().await {
        let outcome = call(&gateway, "get").await.unwrap();
        let request = ApprovalRequest {
            id: "a1".to_owned(),
            expires_at: "2027-01-15T08:15:00Z".to_owned(),
        };
        let message = "It waits.".to_owned();
        assert_eq!(
            outcome.ending,
            CallEnding::NeedsApproval { request, message }
        );
    }
}

#[tokio::test]
async fn a_gateway_that_has_no_room_says_when_to_come_back() {
    let by_data = ScriptedGateway::new(|seen| {
        seen.error(429, -32603, "busy", &json!({ "retryAfterSeconds": 7 }))
    });
    let by_header = ScriptedGateway::new(|seen| {
        let mut response = seen.error(429, -32603, "busy", &json!(null));
        response.headers_mut().insert("retry-after", 7.into());
        response
    });
    let shed = ScriptedGateway::new(|seen| {
        let data = json!({ "reason": "overloaded", "retryAfterSeconds": 7 });
        seen.error(503, -32603, "busy", &data)
    });
    for script in [by_data, by_header, shed] {
        for gateway in script.doors().await {
            let Err(GatewayError::Refused(fault)) = call(&gateway, "get").await else {
                panic!("nothing ran")
            };
            let waits = Some(Duration::from_secs(7));
            assert_eq!((fault.is_busy(), fault.data.retry_after()), (true, waits));
        }
    }
}

#[tokio::test]
async fn what_was_not_asked_for_is_no_result() {
    let script =
        ScriptedGateway::new(|seen| seen.result(&json!({ "resultType": "input_required" })));
    assert_eq!(
        call(&script.in_process(), "get").await,
        Err(GatewayError::Unreadable)
    );
}

/// Sends a notification when it is dropped.
struct DropSignal(Arc<Notify>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn who_stops_waiting_hangs_up_and_so_does_who_cancels() {
    let (begun, gone) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let script = {
        let (begun, gone) = (Arc::clone(&begun), Arc::clone(&gone));
        ScriptedGateway::slow(move |_| {
            let (begun, gone) = (Arc::clone(&begun), DropSignal(Arc::clone(&gone)));
            Box::pin(async move {
                begun.notify_one();
                let _gone = gone;
                std::future::pending().await
            })
        })
    };
    let soon = |what: Arc<Notify>| async move {
        let waited = tokio::time::timeout(Duration::from_mins(1), what.notified()).await;
        waited.expect("the other side notices");
    };
    for gateway in script.doors().await {
        let waiting = tokio::spawn({
            let gateway = gateway.clone();
            async move { call(&gateway, "get").await }
        });
        soon(Arc::clone(&begun)).await;
        waiting.abort();
        soon(Arc::clone(&gone)).await;

        let cancel = CancellationToken::new();
        let cancelled = tokio::spawn({
            let (gateway, cancel) = (gateway.clone(), cancel.clone());
            async move {
                let call = ToolCall {
                    name: "get",
                    arguments: &raw("{}"),
                    idempotency_key: "k",
                    conversation: "c-1",
                    cancel: &cancel,
                };
                gateway.call_tool(&token("t"), &call).await
            }
        });
        soon(Arc::clone(&begun)).await;
        cancel.cancel();
        let outcome = cancelled.await.unwrap().unwrap();
        assert_eq!(outcome.ending, CallEnding::Cancelled);
        soon(Arc::clone(&gone)).await;
    }
}

#[tokio::test]
async fn nothing_is_sent_for_a_turn_that_is_already_over() {
    let script = ScriptedGateway::new(|seen| seen.result(&json!({ "content": [] })));
    let cancel = CancellationToken::new();
    cancel.cancel();
    let call = ToolCall {
        name: "get",
        arguments: &raw("{}"),
        idempotency_key: "k",
        conversation: "c-1",
        cancel: &cancel,
    };
    let outcome = script
        .in_process()
        .call_tool(&token("t"), &call)
        .await
        .unwrap();
    assert_eq!(outcome.ending, CallEnding::Cancelled);
    assert!(script.requests().is_empty());
}

#[tokio::test]
async fn a_gateway_in_the_same_process_hears_who_calls() {
    let script = ScriptedGateway::new(|seen| {
        seen.result(&json!({ "resultType": "complete", "content": [] }))
    });
    let peer = "192.0.2.7:50000".parse().unwrap();
    let token = token("secret").of_peer(Some(peer));
    let params = json!({ "conversation_id": "c" });
    let gateway = script.in_process();
    let answer = gateway.memory(&token, "memory/clear", params).await;
    answer.unwrap();
    assert_eq!(script.requests()[0].peer, Some(peer));
}

#[tokio::test]
async fn a_refused_call_is_put_on_record_without_its_arguments() {
    let script = ScriptedGateway::new(|seen| {
        let data = json!({ "reason": "refused_by_agent", "dev.wardgate/callId": "call-1" });
        seen.error(200, -32602, "The agent refused this call.", &data)
    });
    let token = token("t");
    for gateway in script.doors().await {
        let long = "x".repeat(100_000);
        for name in ["wipe", "", "naïve\n", &long] {
            let recorded = gateway.record_refused(&token, name, AgentRefusal::InData, "key-1");
            recorded.await.unwrap();
        }
    }
    for seen in script.requests() {
        let params = &seen.body["params"];
        assert_eq!(seen.body["method"], "tools/call");
        assert!(params["name"].as_str().unwrap().len() <= 128);
        assert_eq!(params["arguments"], Value::Null);
        assert_eq!(params["_meta"]["dev.wardgate/refusedByAgent"], "in_data");
        assert_eq!(params["_meta"]["dev.wardgate/idempotencyKey"], "key-1");
    }
    assert_eq!(script.requests().len(), 8);
}

#[tokio::test]
async fn a_refused_call_that_the_gateway_did_not_record_is_an_error() {
    let token = token("t");
    let data = json!({ "reason": "not_durable" });
    let script =
        ScriptedGateway::new(move |seen| seen.error(200, -32603, "Try again later.", &data));
    let gateway = script.in_process();
    let recorded = gateway.record_refused(&token, "wipe", AgentRefusal::InData, "key-1");
    assert!(matches!(recorded.await, Err(GatewayError::Refused(_))));
    // A tool result does not confirm that a refusal is recorded.
    let script = ScriptedGateway::new(|seen| seen.result(&json!({ "content": [] })));
    let gateway = script.in_process();
    let recorded = gateway.record_refused(&token, "wipe", AgentRefusal::InData, "key-1");
    assert_eq!(recorded.await, Err(GatewayError::Unreadable));
}
