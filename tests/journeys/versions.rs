//! Tests of every protocol version on one endpoint (MCP 2025-03-26, 2025-06-18, 2025-11-25 and 2026-07-28).

use serde_json::{Value, json};
use wardgate_testkit::{Client, Reply, System, TestApp};

use super::people::{column, doctor, of_patient};
use crate::WARDGATE;

const MODERN: &str = "2026-07-28";
/// The versions with a handshake, newest first.
const LEGACY: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

fn request(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })
}

fn records_of_nugwi() -> Value {
    json!({ "name": "get_medical_records", "arguments": of_patient("NUGWI") })
}

/// Returns the `_meta` of a modern request.
fn meta(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

#[tokio::test]
async fn a_modern_client_discovers_lists_and_calls_without_a_handshake() {
    let app = TestApp::start(WARDGATE);
    let (client, token) = (app.client(), doctor(&app));

    let discovered = client.modern(&token, "server/discover", json!({})).await;
    assert_eq!(discovered.status, 200);
    let discovered = discovered.result();
    assert_eq!(
        discovered["supportedVersions"],
        json!([MODERN, LEGACY[0], LEGACY[1], LEGACY[2]])
    );
    assert!(discovered["capabilities"]["tools"].is_object());

    let listed = client
        .modern(&token, "tools/list", json!({}))
        .await
        .result();
    let called = client
        .modern(&token, "tools/call", records_of_nugwi())
        .await
        .result();
    for result in [&discovered, &listed, &called] {
        assert_eq!(result["resultType"], "complete");
        assert_eq!(
            result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"],
            "wardgate"
        );
    }
    for (cached, scope) in [(&discovered, "public"), (&listed, "private")] {
        assert!(cached["ttlMs"].as_u64().is_some());
        assert_eq!(cached["cacheScope"], scope);
    }
    assert!(called.get("ttlMs").is_none());
    let tool = &listed["tools"][3];
    assert_eq!(tool["name"], "get_medical_records");
    assert_eq!(tool["inputSchema"]["required"], json!(["patient_id"]));
    assert_eq!(tool["annotations"]["readOnlyHint"], true);
    assert_eq!(
        called["structuredContent"]["data"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn an_older_client_shakes_hands_pings_lists_and_calls() {
    let app = TestApp::start(WARDGATE);
    let (client, token) = (app.client(), doctor(&app));
    for version in LEGACY {
        let hello = json!({
            "protocolVersion": version,
            "capabilities": {},
            "clientInfo": { "name": "journey", "version": "1" },
        });
        let hello = request("initialize", &hello).to_string();
        let reply = client.post("/mcp", Some(&token), &[], hello).await;
        assert!(
            reply.headers.contains_key("mcp-session-id"),
            "a session begins, which nobody has to use"
        );
        let result = reply.result();
        assert_eq!(result["protocolVersion"], version);
        assert_eq!(result["serverInfo"]["name"], "wardgate");
        assert!(result["capabilities"]["tools"].is_object());

        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string();
        let header = [("mcp-protocol-version", version)];
        let reply = client.post("/mcp", Some(&token), &header, ready).await;
        assert_eq!((reply.status, reply.body.as_str()), (202, ""));

        let pong = client.legacy(&token, version, "ping", json!({})).await;
        assert_eq!(
            pong.json(),
            json!({ "jsonrpc": "2.0", "id": 1, "result": {} })
        );

        let listed = client
            .legacy(&token, version, "tools/list", json!({}))
            .await
            .result();
        let called = client
            .legacy(&token, version, "tools/call", records_of_nugwi())
            .await
            .result();
        for result in [&result, &listed, &called] {
            for modern in ["resultType", "ttlMs", "cacheScope"] {
                assert!(result.get(modern).is_none(), "{version} has no {modern}");
            }
        }
        let names = column(listed["tools"].as_array().unwrap(), "name");
        assert_eq!(names.len(), 5);
        assert!(
            called["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains("Hypertension")
        );
        assert!(called["_meta"]["dev.wardgate/receipt"]["leafHash"].is_string());
        // Structured content was introduced in 2025-06-18.
        assert_eq!(
            called.get("structuredContent").is_some(),
            version != "2025-03-26"
        );
    }
    let recorded = app.records_with(&["--tool", "get_medical_records"]);
    assert_eq!(column(&recorded, "protocol"), LEGACY);
}

#[tokio::test]
async fn the_version_is_negotiated_down_to_the_newest_with_a_handshake() {
    let app = TestApp::start(WARDGATE);
    let (client, token) = (app.client(), doctor(&app));
    for asked in [MODERN, "2024-11-05", "2099-01-01", "", "latest"] {
        let hello = request(
            "initialize",
            &json!({ "protocolVersion": asked, "capabilities": {} }),
        );
        let reply = client
            .post("/mcp", Some(&token), &[], hello.to_string())
            .await;
        assert_eq!(reply.result()["protocolVersion"], LEGACY[0], "{asked}");
    }
    for bad in [
        json!({}),
        json!({ "protocolVersion": 20_251_125 }),
        json!({ "protocolVersion": null }),
    ] {
        let reply = client
            .post(
                "/mcp",
                Some(&token),
                &[],
                request("initialize", &bad).to_string(),
            )
            .await;
        let (code, message) = reply.error();
        assert_eq!(code, -32602, "{bad}");
        assert!(message.contains("protocolVersion"), "{message}");
    }
}

#[tokio::test]
async fn a_request_that_names_no_version_is_one_of_2025_03_26() {
    let app = TestApp::start(WARDGATE);
    let call = request("tools/call", &records_of_nugwi()).to_string();
    let reply = app
        .client()
        .post("/mcp", Some(&doctor(&app)), &[], call)
        .await;
    assert!(reply.result().get("structuredContent").is_none());
    assert_eq!(app.records()[0]["protocol"], "2025-03-26");
}

#[tokio::test]
async fn methods_that_a_version_does_not_have_are_not_found_in_it() {
    let app = TestApp::start(WARDGATE);
    let (client, token) = (app.client(), doctor(&app));
    let removed = [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
    ];
    for method in removed
        .into_iter()
        .chain(["sampling/createMessage", "no/such", "Tools/List"])
    {
        let reply = client.modern(&token, method, json!({})).await;
        assert_eq!((reply.status, reply.error().0), (404, -32601), "{method}");
        assert!(reply.error().1.contains(method));
    }
    for version in LEGACY {
        for method in [
            "server/discover",
            "subscriptions/listen",
            "sampling/createMessage",
            "no/such",
        ] {
            let reply = client.legacy(&token, version, method, json!({})).await;
            assert_eq!(
                (reply.status, reply.error().0),
                (200, -32601),
                "{version} {method}"
            );
        }
    }
}

#[tokio::test]
async fn a_version_nobody_speaks_is_refused_with_those_that_are_spoken() {
    let app = TestApp::start(WARDGATE);
    let (client, token) = (app.client(), doctor(&app));
    // The error lists the versions that are supported in the way that the client chose: in `_meta`, or with a handshake.
    let expect = |reply: &Reply, requested: &str, supported: Value| {
        assert_eq!(
            (reply.status, reply.error().0),
            (400, -32022),
            "{requested}"
        );
        let data = &reply.json()["error"]["data"];
        assert_eq!(
            data,
            &json!({ "supported": supported, "requested": requested })
        );
    };
    for version in ["2099-01-01", "2024-11-05", "2025-11-25"] {
        let body = request("tools/list", &json!({ "_meta": meta(version) })).to_string();
        let headers = [
            ("mcp-protocol-version", version),
            ("mcp-method", "tools/list"),
        ];
        let reply = client.post("/mcp", Some(&token), &headers, body).await;
        expect(&reply, version, json!([MODERN]));
    }
    for version in ["2099-01-01", "2024-11-05"] {
        let reply = client
            .legacy(&token, version, "tools/list", json!({}))
            .await;
        expect(&reply, version, json!(LEGACY));
    }
}

#[tokio::test]
async fn a_modern_request_carries_its_meta_or_is_told_what_lacks() {
    let app = TestApp::start(WARDGATE);
    let (client, token) = (app.client(), doctor(&app));
    let modern = [
        ("mcp-protocol-version", MODERN),
        ("mcp-method", "tools/list"),
    ];
    let mut no_capabilities = meta(MODERN);
    no_capabilities
        .as_object_mut()
        .unwrap()
        .remove("io.modelcontextprotocol/clientCapabilities");
    let mut wrong_capabilities = meta(MODERN);
    wrong_capabilities["io.modelcontextprotocol/clientCapabilities"] = json!([]);
    let mut wrong_version = meta(MODERN);
    wrong_version["io.modelcontextprotocol/protocolVersion"] = json!(20_260_728);
    for (params, lacks) in [
        (json!({}), "_meta"),
        (json!({ "_meta": {} }), "_meta"),
        (json!({ "_meta": [] }), "_meta"),
        (json!({ "_meta": no_capabilities }), "clientCapabilities"),
        (json!({ "_meta": wrong_capabilities }), "clientCapabilities"),
        (json!({ "_meta": wrong_version }), "protocolVersion"),
    ] {
        let body = request("tools/list", &params).to_string();
        let reply = client.post("/mcp", Some(&token), &modern, body).await;
        assert_eq!((reply.status, reply.error().0), (400, -32602), "{params}");
        assert!(reply.error().1.contains(lacks), "{params}: {}", reply.body);
    }
}

#[tokio::test]
async fn headers_that_differ_from_the_body_are_refused_and_nothing_runs() {
    let app = TestApp::start(WARDGATE);
    let (client, token) = (app.client(), doctor(&app));
    let mut params = records_of_nugwi();
    params["_meta"] = meta(MODERN);
    let body = request("tools/call", &params).to_string();
    let version = ("mcp-protocol-version", MODERN);
    let method = ("mcp-method", "tools/call");
    let name = ("mcp-name", "get_medical_records");
    // Encoded in Base64, it is the same name.
    let encoded = ("mcp-name", "=?base64?Z2V0X21lZGljYWxfcmVjb3Jkcw==?=");
    let post = |headers: Vec<(&'static str, &'static str)>| {
        let (client, token, body) = (client.clone(), token.clone(), body.clone());
        async move { client.post("/mcp", Some(&token), &headers, body).await }
    };
    for good in [vec![version, method, name], vec![version, method, encoded]] {
        assert_eq!(post(good).await.rows().len(), 2);
    }
    for bad in [
        vec![],
        vec![version],
        vec![method, name],
        vec![version, method],
        vec![version, name],
        vec![version, method, name, name],
        vec![version, version, method, name],
        vec![("mcp-protocol-version", "2025-11-25"), method, name],
        vec![version, ("mcp-method", "tools/list"), name],
        vec![version, ("mcp-method", "TOOLS/CALL"), name],
        vec![version, method, ("mcp-name", "get_patient_overview")],
        vec![version, method, ("mcp-name", "get_patient_records")],
        vec![version, method, ("mcp-name", "=?base64?Z2V0X21lZGljYWxf?=")],
        vec![version, method, ("mcp-name", "=?base64?!!!?=")],
    ] {
        let reply = post(bad.clone()).await;
        assert_eq!((reply.status, reply.error().0), (400, -32020), "{bad:?}");
        assert!(reply.error().1.contains("header"), "{}", reply.body);
    }
    let outcomes = app
        .records()
        .into_iter()
        .filter(|record| record["event"] == "outcome");
    assert_eq!(outcomes.count(), 2);
}

#[tokio::test]
async fn batches_exist_in_2025_03_26_alone() {
    let app = TestApp::start(WARDGATE);
    let (client, token) = (app.client(), doctor(&app));
    let post = |version: Option<&'static str>, body: Value| {
        let (client, token): (Client, String) = (client.clone(), token.clone());
        async move {
            let header = version.map(|version| ("mcp-protocol-version", version));
            client
                .post("/mcp", Some(&token), header.as_slice(), body.to_string())
                .await
        }
    };
    let batch = json!([
        { "jsonrpc": "2.0", "id": "a", "method": "ping" },
        { "jsonrpc": "2.0", "method": "notifications/initialized" },
        { "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": records_of_nugwi() },
        { "jsonrpc": "2.0", "id": 3, "method": "no/such" },
        { "id": 4, "method": "ping" },
    ]);
    for version in [None, Some("2025-03-26")] {
        let answers = post(version, batch.clone()).await.json();
        let answers = answers.as_array().unwrap();
        assert_eq!(
            column(answers, "id"),
            [&json!("a"), &json!(2), &json!(3), &json!(4)]
        );
        assert_eq!(answers[0]["result"], json!({}));
        assert!(answers[1]["result"]["content"].is_array());
        assert_eq!(answers[2]["error"]["code"], -32601);
        assert_eq!(answers[3]["error"]["code"], -32600);
    }
    let notifications = json!([{ "jsonrpc": "2.0", "method": "notifications/initialized" }]);
    assert_eq!(post(None, notifications).await.status, 202);
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    for bad in [json!([]), json!(vec![ping; 51])] {
        assert_eq!(post(None, bad).await.error().0, -32600);
    }
    for version in ["2025-06-18", "2025-11-25", MODERN] {
        let reply = post(Some(version), batch.clone()).await;
        assert_eq!((reply.status, reply.error().0), (400, -32600), "{version}");
        assert!(reply.error().1.contains("2025-03-26"), "{}", reply.body);
    }
}

#[tokio::test]
async fn only_post_is_answered_and_who_asks_for_no_stream_gets_none() {
    let app = TestApp::start(WARDGATE);
    let token = format!("Bearer {}", doctor(&app));
    for (path, accept, allow) in [
        ("/mcp", "application/json", "GET, POST, DELETE"),
        ("/message", "text/event-stream", "POST"),
    ] {
        for method in ["GET", "DELETE", "PUT", "PATCH"] {
            let headers = [("authorization", token.as_str()), ("accept", accept)];
            let reply = app.client().send(method, path, &headers, "").await;
            if (method, path) == ("DELETE", "/mcp") {
                assert_eq!(reply.status, 400, "it names no session to end");
                assert!(reply.error().1.contains("Mcp-Session-Id"), "{}", reply.body);
                continue;
            }
            assert_eq!(reply.status, 405, "{method} {path}");
            assert_eq!(reply.headers["allow"], allow);
            assert!(reply.error().1.contains("POST"), "{}", reply.body);
            // Without a token, the response does not reveal whether there is such a method.
            assert_eq!(
                app.client().send(method, path, &[], "").await.status,
                401,
                "{method} {path}"
            );
        }
    }
}

#[tokio::test]
async fn the_plain_endpoint_needs_no_header_of_the_transport() {
    let app = TestApp::start(WARDGATE);
    let token = format!("Bearer {}", doctor(&app));
    let headers = [
        ("authorization", token.as_str()),
        ("content-type", "application/json"),
    ];
    let mut modern = records_of_nugwi();
    modern["_meta"] = meta(MODERN);
    for (params, is_modern) in [(records_of_nugwi(), false), (modern, true)] {
        let body = request("tools/call", &params).to_string();
        let reply = app.client().send("POST", "/message", &headers, body).await;
        assert_eq!(reply.rows().len(), 2);
        assert_eq!(reply.result().get("resultType").is_some(), is_modern);
    }
    let recorded = app.records();
    assert_eq!(column(&recorded, "protocol"), ["jsonrpc"; 2]);
}

#[tokio::test]
async fn an_id_comes_back_as_it_was_sent() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    for id in [
        "1",
        "0",
        "-7",
        "9007199254740993",
        r#""a""#,
        r#""""#,
        r#""\u0061\"""#,
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let reply = app.client().post("/mcp", Some(&token), &[], body).await;
        assert_eq!(
            reply.body,
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
        );
    }
}

#[tokio::test]
async fn a_message_that_wants_no_answer_gets_none() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    for body in [
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } }),
        json!({ "jsonrpc": "2.0", "method": "notifications/nobody/knows" }),
        json!({ "jsonrpc": "2.0", "method": "tools/call", "params": records_of_nugwi() }),
        json!({ "jsonrpc": "2.0", "id": 1, "result": {} }),
    ] {
        let reply = app
            .client()
            .post("/mcp", Some(&token), &[], body.to_string())
            .await;
        assert_eq!((reply.status, reply.body.as_str()), (202, ""), "{body}");
    }
    assert!(app.records().is_empty(), "a notification runs nothing");
}

#[tokio::test]
async fn a_list_has_one_page() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let listed = app
        .client()
        .modern(&token, "tools/list", json!({}))
        .await
        .result();
    assert!(listed.get("nextCursor").is_none());
    for cursor in [json!("2"), json!("")] {
        let reply = app
            .client()
            .modern(&token, "tools/list", json!({ "cursor": cursor }))
            .await;
        assert_eq!(reply.error().0, -32602);
        assert!(reply.error().1.contains("cursor"));
    }
}
