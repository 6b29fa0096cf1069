//! Tests of P6: every refusal is well-formed, and invalid input never ends a process and never loses state.

use serde_json::{Value, json};
use wardgate_testkit::{Reply, System, TestApp};

use super::super::bad_bodies::bad_bodies;
use super::super::people::{doctor, of_patient};
use super::super::refusals::assert_says_nothing_internal;
use crate::WARDGATE;

/// Returns a valid call in each form of request.
fn good_bodies() -> [Value; 2] {
    let call = |params: Value| json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
    let mut modern = json!({ "name": "get_medical_records", "arguments": of_patient("NUGWI") });
    let older = modern.clone();
    modern["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    [call(older), call(modern)]
}

/// Returns values of every type.
fn strange_values() -> Vec<Value> {
    let deep = (0..40).fold(json!(0), |inner, _| json!([inner]));
    vec![
        json!(null),
        json!(true),
        json!(0),
        json!(-1.5),
        json!(1e308),
        json!(""),
        json!("x"),
        json!("\u{202e}"),
        json!([]),
        json!([[]]),
        json!({}),
        json!({ "": {} }),
        deep,
    ]
}

/// Returns copies of `good` in which one value is replaced by a strange one or one member is removed.
fn variants(good: &Value) -> Vec<Value> {
    let mut found = strange_values();
    if let Value::Object(members) = good {
        for (name, value) in members {
            for variant in variants(value) {
                let mut changed = members.clone();
                changed.insert(name.clone(), variant);
                found.push(Value::Object(changed));
            }
            let mut lacking = members.clone();
            lacking.remove(name);
            found.push(Value::Object(lacking));
        }
    }
    found
}

/// Checks that a reply is a JSON-RPC response with a known code and a message that reveals nothing internal, or is
/// empty for a notification.
fn assert_well_formed(reply: &Reply, sent: &str) {
    if reply.status == 202 {
        assert_eq!(reply.body, "", "{sent}");
        return;
    }
    assert!(
        [200, 400, 404].contains(&reply.status),
        "{}: {sent}",
        reply.status
    );
    let answers = match reply.json() {
        Value::Array(answers) => answers,
        answer => vec![answer],
    };
    for answer in answers {
        assert_eq!(answer["jsonrpc"], "2.0", "{sent}");
        let codes = [-32700, -32600, -32601, -32602, -32020, -32022];
        let code = answer["error"]["code"].as_i64();
        assert!(
            code.map_or(answer["result"].is_object(), |code| codes.contains(&code)),
            "{sent}: {answer}"
        );
        assert!(
            code.is_none()
                || answer["error"]["message"]
                    .as_str()
                    .is_some_and(|words| words.len() > 10)
        );
        if code.is_some() {
            assert_says_nothing_internal(reply);
        }
    }
}

#[tokio::test]
async fn p6_every_refusal_is_well_formed() {
    let mut app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let call = || {
        app.client()
            .call(&token, "get_medical_records", of_patient("NUGWI"))
    };
    assert_eq!(call().await.rows().len(), 2);
    let first = app.records()[0].clone();

    let mut bodies: Vec<Vec<u8>> = bad_bodies().into_iter().map(|case| case.body).collect();
    for good in good_bodies() {
        bodies.extend(
            variants(&good)
                .iter()
                .map(|variant| variant.to_string().into_bytes()),
        );
        let text = good.to_string().into_bytes();
        bodies.extend((0..text.len()).map(|cut| text[..cut].to_vec()));
        bodies.extend((0..text.len()).map(|at| {
            let mut flipped = text.clone();
            flipped[at] ^= 1 << (at % 8);
            flipped
        }));
    }
    for door in ["/mcp", "/message"] {
        for body in &bodies {
            let sent = String::from_utf8_lossy(body)
                .chars()
                .take(300)
                .collect::<String>();
            let reply = app
                .client()
                .post(door, Some(&token), &[], body.clone())
                .await;
            assert_well_formed(&reply, &sent);
        }
    }

    assert_eq!(call().await.rows().len(), 2);
    let records = app.records();
    assert_eq!(records[0], first);
    assert!(
        (0..)
            .zip(&records)
            .all(|(position, record)| record["sequence"] == position)
    );
    assert!(app.process.is_running());
    assert!(
        !app.process.log().contains("panicked"),
        "{}",
        app.process.log()
    );
}
