//! The HTTP interface: the paths that are served, and the authentication of requests.

use reqwest::Method;
use serde_json::json;
use wardgate_rpc::Readiness;

use crate::world::{ISSUER, META, MODERN, PING, Reply, World};

/// The paths that need a token.
const CLOSED: [&str; 6] = [
    "/mcp",
    "/mcp/x",
    "/mcp/upstream/x",
    "/message",
    "/sse",
    "/messages/",
];
/// The paths that everyone may read.
const OPEN: [&str; 7] = [
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/health",
    "/healthz",
    "/ready",
    "/readyz",
    "/metrics",
];
const METHODS: [Method; 6] = [
    Method::GET,
    Method::POST,
    Method::PUT,
    Method::DELETE,
    Method::PATCH,
    Method::HEAD,
];

#[tokio::test]
async fn no_path_but_the_open_ones_answers_a_stranger() {
    let world = World::start().await;
    let expired = world.issuer.token_until("dr.lee", &[], 1_700_000_000);
    let mut forged = world.token.clone();
    forged.truncate(forged.rfind('.').unwrap() + 1);
    forged += &"A".repeat(86);
    for path in CLOSED {
        for method in METHODS {
            let request = || world.http.request(method.clone(), world.url(path));
            let missing = Reply::to(request().body(PING)).await;
            assert_eq!(missing.status, 401, "{method} {path}");
            assert_eq!(
                missing.header("www-authenticate"),
                format!(
                    r#"Bearer resource_metadata="https://mcp.hospital.example/.well-known/oauth-protected-resource{}""#,
                    path.replace("/messages/", "/sse")
                )
            );
            for token in ["garbage", "", "a.b.c", &*expired, &*forged] {
                let reply = Reply::to(request().bearer_auth(token).body(PING)).await;
                assert_eq!(reply.status, 401, "{method} {path} {token}");
                let challenge = reply.header("www-authenticate");
                assert!(
                    challenge.starts_with("Bearer resource_metadata="),
                    "{challenge}"
                );
                let blamed = challenge.contains(r#"error="invalid_token""#);
                assert_eq!(blamed, !token.is_empty(), "{challenge}");
            }
        }
    }
    for path in OPEN {
        for request in [
            world.http.get(world.url(path)),
            world.http.get(world.url(path)).bearer_auth("garbage"),
        ] {
            let reply = Reply::to(request).await;
            assert_eq!(reply.status, 200, "{path}");
            assert!(!reply.text.contains("dr.lee"), "{path}");
        }
        let posted = Reply::to(world.http.post(world.url(path)).body(PING)).await;
        assert_eq!(posted.status, 405, "{path}");
    }
    for path in [
        "/", "/mcp/", "/mcp/x/y", "/sse/", "/Mcp", "/console", "//mcp",
    ] {
        let reply = Reply::to(world.http.post(world.url(path)).body(PING)).await;
        assert_eq!(reply.status, 404, "{path}");
    }
    assert_eq!(world.policy.asked.count(), 0);
}

#[test]
fn every_path_of_the_router_is_tried() {
    let mut paths: Vec<&str> = wardgate_gateway::listed_routes()
        .iter()
        .map(|route| route.path)
        .collect();
    paths.retain(|path| *path != "/messages");
    assert_eq!(paths.len(), CLOSED.len());
    for (path, tried) in paths.iter().zip(CLOSED) {
        let path = path.replace("{toolset}", "x").replace("{source}", "x");
        assert_eq!(path, tried);
    }
    // Metadata with a path and without one.
    assert_eq!(wardgate_gateway::listed_metadata_routes().len(), 2);
}

#[tokio::test]
async fn messages_come_by_post_and_nothing_else_is_served() {
    let world = World::start().await;
    for path in ["/mcp", "/mcp/x", "/message"] {
        for method in METHODS.into_iter().filter(|method| *method != Method::POST) {
            let request = world.http.request(method.clone(), world.url(path));
            let reply = Reply::to(request.bearer_auth(&world.token)).await;
            let has_sessions = path != "/message";
            if has_sessions && method == Method::DELETE {
                assert_eq!(reply.status, 400, "no session to end at {path}");
                continue;
            }
            assert_eq!(reply.status, 405, "{method} {path}");
            let allowed = if has_sessions {
                "GET, POST, DELETE"
            } else {
                "POST"
            };
            assert_eq!(reply.header("allow"), allowed, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn the_protected_resource_says_where_tokens_come_from() {
    let world = World::start().await;
    for path in &OPEN[..2] {
        let reply = Reply::to(world.http.get(world.url(path))).await;
        assert_eq!(reply.header("content-type"), "application/json");
        assert_eq!(reply.header("access-control-allow-origin"), "*");
        assert_eq!(
            reply.json(),
            json!({
                "resource": "https://mcp.hospital.example/mcp",
                "resource_name": "Wardgate",
                "authorization_servers": [ISSUER],
                "bearer_methods_supported": ["header"],
            })
        );
    }
}

#[tokio::test]
async fn every_path_that_takes_tokens_is_a_resource_of_its_own_and_no_other_is() {
    let world = World::start().await;
    let metadata = async |path: &str| {
        let url = world.url(&format!("/.well-known/oauth-protected-resource{path}"));
        Reply::to(world.http.get(url)).await
    };
    for path in [
        "/mcp",
        "/mcp/x",
        "/mcp/upstream/a.b-c_d",
        "/message",
        "/sse",
    ] {
        let resource = metadata(path).await.json()["resource"].clone();
        assert_eq!(resource, format!("https://mcp.hospital.example{path}"));
    }
    for path in [
        "/",
        "/metrics",
        "/mcp/",
        "/mcp/a/b",
        "/mcp/upstream/",
        "/mcp/upstream/a/b",
        "/mcp/%22",
        "/messages/",
    ] {
        assert_eq!(metadata(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn readiness_names_the_part_that_is_not() {
    let world = World::start().await;
    let away = || Readiness::NotReady("gone".to_owned());
    for (part, readiness) in [
        ("policy", &world.policy.readiness),
        ("tool-runner", &world.tool_runner.readiness),
        ("audit", &world.audit.readiness),
    ] {
        readiness.send_replace(away());
        let reply = Reply::to(world.http.get(world.url("/ready"))).await;
        assert_eq!(reply.status, 503);
        assert_eq!(reply.at("/parts")[part], "not ready");
        let alive = Reply::to(world.http.get(world.url("/health"))).await;
        assert_eq!(alive.status, 200);
        readiness.send_replace(Readiness::Ready);
    }
    let reply = Reply::to(world.http.get(world.url("/ready"))).await;
    assert_eq!(reply.status, 200);
}

#[tokio::test]
async fn a_part_whose_changed_configuration_is_faulty_is_ready_and_says_so() {
    let world = World::start().await;
    let outdated = Readiness::Outdated("the earlier one is in force");
    world.tool_runner.readiness.send_replace(outdated);
    let reply = Reply::to(world.http.get(world.url("/ready"))).await;
    assert_eq!((reply.status, reply.at("/status")), (200, json!("ready")));
    let part = &reply.at("/parts")["tool-runner"];
    assert_eq!(part, "ready: the earlier one is in force");
    assert!(world.call("reads").await.is_released());
}

#[tokio::test]
async fn metrics_count_calls_and_hold_nothing_of_them() {
    let world = World::start().await;
    let call = world.tools_call(MODERN, "reads", r#"{"canary":"argument"}"#);
    assert!(Reply::to(call).await.is_released());
    let metrics = Reply::to(world.http.get(world.url("/metrics"))).await.text;
    for expected in [
        r#"mcp_requests_total{method="tools/call"}"#,
        r#"wardgate_tool_calls_total{tool="reads",status="ok"}"#,
        r#"wardgate_tool_call_duration_seconds_count{tool="reads"}"#,
        r#"mcp_server_operation_duration_seconds_count{method="tools/call",outcome="answered"}"#,
        r#"stage="authorize""#,
        r#"stage="run""#,
        r#"stage="record""#,
    ] {
        assert!(metrics.contains(expected), "{expected} in {metrics}");
    }
    for raw in ["canary", "secret", "dr.lee", &*world.token] {
        assert!(!metrics.contains(raw), "{raw}");
    }
}

#[tokio::test]
async fn who_asks_for_made_up_tools_finds_none_of_their_names_in_the_metrics() {
    let world = World::start().await;
    for number in 0..20 {
        world.call(&format!("made_up_{number}")).await;
    }
    world.call("reads").await;
    let metrics = Reply::to(world.http.get(world.url("/metrics"))).await.text;
    assert!(!metrics.contains("made_up"), "{metrics}");
    let unknown = r#"wardgate_tool_calls_total{tool="unknown",status="unknown_tool"}"#;
    assert!(metrics.contains(unknown), "{metrics}");
}

#[tokio::test]
async fn the_plain_endpoint_takes_one_post_of_either_era_without_transport_headers() {
    let world = World::start().await;
    let post = |body: String| {
        let request = world
            .http
            .post(world.url("/message"))
            .bearer_auth(&world.token)
            .header("content-type", "application/json")
            .body(body);
        Reply::to(request)
    };
    let call = |meta: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{{{meta}"name":"reads","arguments":{{}}}}}}"#
        )
    };
    let plain = post(call("")).await;
    assert!(plain.is_released());
    assert_eq!(plain.at("/result/resultType"), json!(null));
    assert_eq!(plain.at("/result/structuredContent/rows"), json!([1.10]));
    let modern = post(call(&format!("{META},"))).await;
    assert!(modern.is_released());
    assert_eq!(modern.at("/result/resultType"), "complete");
    for outcome in world.audit.outcomes.entries() {
        assert_eq!(outcome.call.protocol, "jsonrpc");
    }
}
