//! The view of a single server, with the server's own names and URIs.

use std::time::Duration;

use serde_json::{Value, json};
use wardgate_domain::OfferKind;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::get_content_request::Wanted;

use super::*;
use crate::world::{LEGACY, OLDEST};
use wardgate_testkit::{RunBehavior, content_response, tool_result, until_true};

/// The sources of the catalogue.
const NAMES: [&str; 3] = ["program", "old", "guides"];

/// Returns a prompt, two resources and a template of every source.
fn content() -> pb::ListContentResponse {
    let entry = |source: &str, name: String, own_name: &str| pb::ContentEntry {
        source: source.to_owned(),
        name,
        own_name: own_name.to_owned(),
        definition_json: r#"{"x":1.10,"title":"One"}"#.to_owned().into(),
    };
    let mut listed = pb::ListContentResponse::default();
    for source in NAMES {
        let shown = |own: &str| format!("{source}+{own}");
        listed.sources.push(pb::ContentSource {
            name: source.to_owned(),
            prompts: true,
            resources: true,
            is_upstream: true,
            ..pb::ContentSource::default()
        });
        listed
            .prompts
            .push(entry(source, format!("{source}__greet"), "greet"));
        for own in ["memo:a", "memo:b"] {
            listed.resources.push(entry(source, shown(own), own));
        }
        let template = "memo:{x}";
        listed
            .resource_templates
            .push(entry(source, shown(template), template));
    }
    for list in [
        &mut listed.prompts,
        &mut listed.resources,
        &mut listed.resource_templates,
    ] {
        list.sort_by(|a, b| a.name.cmp(&b.name));
    }
    listed
}

fn tools() -> Vec<pb::Tool> {
    let mut page = definition();
    page["_meta"] = json!({ "ui": { "resourceUri": "ui://program/page" } });
    let mut marked = definition();
    marked["inputSchema"]["properties"]["n"] = json!({ "type": "string", "x-mcp-header": "N" });
    vec![
        listed_tool("reads", &page),
        listed_tool("writes", &marked),
        listed_tool("elsewhere", &definition()),
    ]
}

async fn start_world() -> World {
    offer_sources(World::start().await).await
}

async fn offer_sources(world: World) -> World {
    let sources = NAMES.map(|name| pb::Source {
        prefix: format!("{name}__"),
        ..source(name, &KINDS)
    });
    *world.tool_runner.content.lock().unwrap() = (sources.to_vec(), content());
    world.tool_runner.configure(tools());
    until_true("the gateway knows the sources", async || {
        let list = Reply::to(request_to(
            &world,
            "/mcp/upstream/guides",
            MODERN,
            "tools/list",
            "",
        ))
        .await;
        list.status == 200
    })
    .await;
    world
}

const PROGRAM: &str = "/mcp/upstream/program";

async fn send_request(world: &World, version: &str, method: &str, params: &str) -> Reply {
    Reply::to(request_to(world, PROGRAM, version, method, params)).await
}

/// Returns one member of each entry of a list.
fn each(reply: &Reply, list: &str, member: &str) -> Vec<String> {
    let entries = reply.at(&format!("/result/{list}"));
    let entries = entries.as_array().unwrap_or_else(|| panic!("{reply:?}"));
    let text = |entry: &Value| entry[member].as_str().unwrap().to_owned();
    entries.iter().map(text).collect()
}

#[tokio::test]
async fn lists_hold_that_source_alone_under_its_own_names() {
    let world = start_world().await;
    for version in [MODERN, LEGACY, OLDEST] {
        let tools = send_request(&world, version, "tools/list", "").await;
        assert_eq!(each(&tools, "tools", "name"), ["read", "write"]);
        assert!(tools.text.contains(r#"{"name":"read","#), "{tools:?}");
        let prompts = send_request(&world, version, "prompts/list", "").await;
        assert_eq!(each(&prompts, "prompts", "name"), ["greet"]);
        assert!(prompts.text.contains(r#"{"name":"greet","#) && prompts.text.contains("1.10"));
        let resources = send_request(&world, version, "resources/list", "").await;
        assert_eq!(each(&resources, "resources", "uri"), ["memo:a", "memo:b"]);
        let templates = send_request(&world, version, "resources/templates/list", "").await;
        assert_eq!(
            each(&templates, "resourceTemplates", "uriTemplate"),
            ["memo:{x}"]
        );
        for list in [tools, prompts, resources, templates] {
            assert_eq!(list.at("/result/ttlMs").is_null(), version != MODERN);
            assert_eq!(list.at("/result/resultType").is_null(), version != MODERN);
        }
    }
    let tools = send_request(&world, MODERN, "tools/list", "").await;
    let page = "/result/tools/0/_meta/ui/resourceUri";
    assert_eq!(tools.at(page), "ui://page");
    // The definition of a tool that may write is contradicted only beside the tools of others.
    assert_eq!(tools.at("/result/tools/1/annotations/readOnlyHint"), true);
    assert_eq!(tools.at("/result/tools/1/_meta"), Value::Null);
    let all = Reply::to(world.message(MODERN, "tools/list", "")).await;
    assert_eq!(
        each(&all, "tools", "name"),
        ["reads", "writes", "elsewhere"]
    );
    let marks = ["0", "1", "2"]
        .map(|at| all.at(&format!("/result/tools/{at}/_meta/dev.wardgate~1mayWrite")));
    assert_eq!(marks, [Value::Null, Value::Bool(true), Value::Null]);
}

#[tokio::test]
async fn a_list_may_be_kept_as_long_as_its_shortest_source_says_and_never_longer_than_what_is_ours()
{
    let world = start_world().await;
    for (said, kept) in [
        (None, 5_000),
        (Some(60), 5_000),
        (Some(2), 2_000),
        (Some(0), 0),
    ] {
        let ttl = said.and_then(|seconds| Duration::from_secs(seconds).try_into().ok());
        for source in &mut world.tool_runner.content.lock().unwrap().0 {
            // The time to live of another source must not matter.
            let ttl = if source.name == "program" { ttl } else { None };
            (source.tools_ttl, source.prompts_ttl, source.resources_ttl) = (ttl, ttl, ttl);
        }
        world.tool_runner.configure(tools());
        until_true("the gateway knows it", async || {
            let tools = send_request(&world, MODERN, "tools/list", "").await;
            tools.at("/result/ttlMs") == kept
        })
        .await;
        for method in ["prompts/list", "resources/list", "resources/templates/list"] {
            let list = send_request(&world, MODERN, method, "").await;
            assert_eq!(list.at("/result/ttlMs"), kept, "{method}");
            assert_eq!(list.at("/result/cacheScope"), "private");
        }
        let others = request_to(&world, "/mcp/upstream/guides", MODERN, "prompts/list", "");
        assert_eq!(Reply::to(others).await.at("/result/ttlMs"), 5_000);
    }
}

#[tokio::test]
async fn what_a_request_says_besides_goes_on_as_it_was_written() {
    let world = start_world().await;
    let answers = r#"{"who": {"action":"accept"}}"#;
    let params = format!(r#""name":"read","inputResponses":{answers}"#);
    for version in [MODERN, LEGACY] {
        world
            .tool_runner
            .next([RunBehavior::Give(Box::new(tool_result("", &Value::Null)))]);
        let called = send_request(&world, version, "tools/call", &params).await;
        assert_eq!(called.status, 200, "{called:?}");
        let asked = world.tool_runner.asked.entries().pop().unwrap();
        let besides = asked.interaction.unwrap();
        let meta = String::from_utf8(besides.meta_json.to_vec()).unwrap();
        assert_eq!(
            meta.contains("clientCapabilities"),
            version == MODERN,
            "{meta}"
        );
        let unasked = if version == MODERN { answers } else { "" };
        assert_eq!(besides.unasked_responses_json, unasked, "{version}");
    }
}

#[tokio::test]
async fn a_call_is_the_ordinary_one_and_its_links_are_the_servers_own() {
    let world = start_world().await;
    let content = r#"[{"type":"resource_link","uri":"program+memo:a","name":"a"},{"type":"text","text":"program+memo:a","n":1.10}]"#;
    for version in [MODERN, LEGACY] {
        let mut given = tool_result("", &Value::Null);
        given.content_json = content.to_owned().into();
        world.tool_runner.next([RunBehavior::Give(Box::new(given))]);
        let params = r#""name":"read","arguments":{"n":1.10}"#;
        let called = send_request(&world, version, "tools/call", params).await;
        let own = content.replacen("program+memo:a", "memo:a", 1);
        assert!(called.text.contains(&own), "{called:?}");
        let asked = world.tool_runner.asked.entries().pop().unwrap();
        assert_eq!(
            (asked.tool.as_str(), &*asked.arguments_json),
            ("reads", &br#"{"n":1.10}"#[..])
        );
        let outcome = world.audit.outcomes.entries().pop().unwrap();
        assert_eq!(called.at(CALL_ID), outcome.call.call_id.to_string());
        assert_eq!(outcome.call.tool.unwrap().as_str(), "reads");
        assert_eq!(outcome.call.requested_tool, "read");
    }
    // The tool has no other name here, and there are no tools of other sources.
    for name in [
        "reads",
        "program__read",
        "elsewhere",
        "reads_alias",
        "nothing",
    ] {
        let params = format!(r#""name":"{name}""#);
        let called = send_request(&world, MODERN, "tools/call", &params).await;
        assert_eq!(called.code(), -32602, "{called:?}");
    }
    assert_eq!(world.tool_runner.asked.count(), 2);
}

#[tokio::test]
async fn prompts_and_resources_are_asked_for_and_given_by_their_own_names() {
    let world = start_world().await;
    for version in [MODERN, LEGACY] {
        let messages = r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"program+memo:a","text":"1.10"}}}]}"#;
        let contents = r#"{"contents":[{"uri":"program+memo:a","text":"program+memo:a"}]}"#;
        let gives = [messages, contents].map(|given| Ok(content_response(given)));
        world.tool_runner.gives.lock().unwrap().extend(gives);
        let got = send_request(
            &world,
            version,
            "prompts/get",
            r#""name":"greet","arguments":{"a":"b"}"#,
        )
        .await;
        assert!(
            got.text.contains(r#"{"uri":"memo:a","text":"1.10"}"#),
            "{got:?}"
        );
        let read = send_request(&world, version, "resources/read", r#""uri":"memo:a""#).await;
        assert!(
            read.text
                .contains(r#"{"uri":"memo:a","text":"program+memo:a"}"#),
            "{read:?}"
        );
        let got = world.tool_runner.got.entries();
        let [.., prompt, resource] = &got[..] else {
            panic!("{got:?}")
        };
        assert_eq!(prompt.source, "program");
        assert_eq!(prompt.decided_json, r#"{"name":"greet"}"#);
        assert_eq!(resource.decided_json, r#"{"uri":"memo:a"}"#);
        // A resource of the server that is not listed can be read too.
        send_request(
            &world,
            version,
            "resources/read",
            r#""uri":"memo:unlisted""#,
        )
        .await;
        let got = world.tool_runner.got.entries().pop().unwrap();
        assert_eq!(got.decided_json, r#"{"uri":"memo:unlisted"}"#);
        let reference =
            r#""ref":{"type":"ref/resource","uri":"memo:{x}"},"argument":{"name":"x","value":"a"}"#;
        send_request(&world, version, "completion/complete", reference).await;
        let got = world.tool_runner.got.entries().pop().unwrap();
        assert!(matches!(got.wanted, Some(Wanted::Completion(_))));
    }
    let before = world.tool_runner.got.count();
    for name in ["program__greet", "old__greet"] {
        let params = format!(r#""name":"{name}""#);
        assert_eq!(
            send_request(&world, MODERN, "prompts/get", &params)
                .await
                .code(),
            -32602
        );
    }
    let unknown = [(MODERN, -32602), (LEGACY, -32002)];
    for (version, code) in unknown {
        let read = send_request(&world, version, "resources/read", r#""uri":"no uri""#).await;
        assert_eq!(read.code(), code, "{read:?}");
    }
    assert_eq!(world.tool_runner.got.count(), before);
}

#[tokio::test]
async fn the_gateway_declares_what_the_server_declared() {
    let world = start_world().await;
    for source in &mut world.tool_runner.content.lock().unwrap().0 {
        source.capabilities = Some(pb::ServerCapabilities {
            completions: source.name == "program",
            ..pb::ServerCapabilities::default()
        });
    }
    world.tool_runner.configure(tools());
    let changes = json!({ "listChanged": true });
    let resources = json!({ "subscribe": false, "listChanged": true });
    let own = json!({
        "tools": changes, "prompts": changes, "resources": resources, "completions": {},
    });
    until_true("the gateway knows it", async || {
        let discovered = send_request(&world, MODERN, "server/discover", "").await;
        discovered.at("/result/capabilities") == own
    })
    .await;
    let params = r#""protocolVersion":"2025-06-18","capabilities":{}"#;
    let begun = send_request(&world, LEGACY, "initialize", params).await;
    assert_eq!(begun.at("/result/capabilities"), own);
    // The view of everything declares the capabilities of the gateway.
    let whole = Reply::to(world.message(MODERN, "server/discover", "")).await;
    assert_eq!(whole.at("/result/capabilities/logging"), json!({}));
}

#[tokio::test]
async fn what_a_server_says_in_the_meta_of_a_prompt_or_resource_goes_on() {
    let world = start_world().await;
    for version in [MODERN, LEGACY] {
        for (method, params, given) in [
            ("prompts/get", r#""name":"greet""#, r#"{"messages":[]}"#),
            ("resources/read", r#""uri":"memo:a""#, r#"{"contents":[]}"#),
        ] {
            let given = pb::GetContentResponse {
                meta_json: r#"{"vendor/x":{"n":1.10}}"#.into(),
                ..content_response(given)
            };
            world.tool_runner.gives.lock().unwrap().push_back(Ok(given));
            let got = send_request(&world, version, method, params).await;
            assert!(got.text.contains(r#""vendor/x":{"n":1.10}"#), "{got:?}");
            assert!(got.at(CALL_ID).is_string(), "{got:?}");
        }
    }
}

#[tokio::test]
async fn the_gateway_says_who_it_is_and_what_that_source_has() {
    let world = start_world().await;
    let changes = json!({ "listChanged": true });
    let resources = json!({ "subscribe": true, "listChanged": true });
    let all = json!({
        "tools": changes, "prompts": changes, "resources": resources, "completions": {}, "logging": {},
    });
    let begun = send_request(
        &world,
        LEGACY,
        "initialize",
        r#""protocolVersion":"2025-06-18","capabilities":{}"#,
    )
    .await;
    assert_eq!(begun.at("/result/capabilities"), all);
    assert_eq!(begun.at("/result/protocolVersion"), "2025-06-18");
    assert_eq!(begun.at("/result/serverInfo/name"), "wardgate");
    let discovered = send_request(&world, MODERN, "server/discover", "").await;
    assert_eq!(discovered.at("/result/capabilities"), all);
    // Methods that exist only in the view of everything are unknown here.
    for (version, method) in [
        (LEGACY, "memory/get_or_create"),
        (MODERN, "memory/search"),
        (MODERN, "ping"),
    ] {
        let asked = send_request(&world, version, method, r#""uri":"memo:a""#).await;
        assert_eq!(asked.code(), -32601, "{method}: {asked:?}");
    }
}

#[tokio::test]
async fn a_version_that_header_and_body_name_differently_is_refused() {
    let world = start_world().await;
    let lies = [
        post(&world, PROGRAM, text(MODERN, "tools/list", ""))
            .header("mcp-protocol-version", LEGACY),
        post(&world, PROGRAM, text(LEGACY, "tools/list", ""))
            .header("mcp-protocol-version", MODERN),
        post(&world, PROGRAM, text(MODERN, "tools/list", "")),
    ];
    for lie in lies {
        let refused = Reply::to(lie).await;
        assert_eq!(refused.status, 400, "{refused:?}");
    }
}

#[tokio::test]
async fn without_the_right_to_connect_there_is_no_such_path() {
    let world = start_world().await;
    world.policy.bar(OfferKind::Connect, "program");
    let unknown = Reply::to(request_to(
        &world,
        "/mcp/upstream/nothing",
        MODERN,
        "tools/list",
        "",
    ))
    .await;
    for (version, method) in [(MODERN, "tools/list"), (LEGACY, "initialize")] {
        let refused =
            send_request(&world, version, method, r#""protocolVersion":"2025-11-25""#).await;
        assert_eq!((refused.status, &refused.text), (404, &unknown.text));
    }
    let listening = world
        .http
        .get(world.url(PROGRAM))
        .bearer_auth(&world.token)
        .header("accept", "text/event-stream");
    assert_eq!(Reply::to(listening).await.status, 404);
}

#[tokio::test]
async fn headers_that_repeat_arguments_say_what_the_arguments_say() {
    let world = start_world().await;
    let call = |header: Option<&str>| {
        let params = r#""name":"write","arguments":{"n":"a"}"#;
        let request = request_to(&world, PROGRAM, MODERN, "tools/call", params);
        match header {
            Some(header) => request.header("mcp-param-n", header),
            None => request,
        }
    };
    for (header, status) in [(None, 400), (Some("b"), 400), (Some("a"), 200)] {
        let called = Reply::to(call(header)).await;
        assert_eq!(called.status, status, "{called:?}");
        assert_eq!(called.code(), if status == 400 { -32020 } else { 0 });
    }
    assert_eq!(world.tool_runner.asked.count(), 1);
    let reasons = world.audit.outcomes.reaches(3).await;
    assert_eq!(reasons[0].reason, "header_mismatch");
    // A caller who may not call the tool does not learn its schema.
    world.policy.bar(OfferKind::Tool, "writes");
    // This is longer than the lifetime of a permit.
    world.clock.advance(Duration::from_mins(2));
    let hidden = Reply::to(call(None)).await;
    assert_eq!((hidden.status, hidden.code()), (200, -32602));
    // Clients of older versions do not send such headers.
    let older = send_request(&world, LEGACY, "tools/call", r#""name":"read""#).await;
    assert!(older.is_released());
}

#[tokio::test]
async fn a_session_is_of_its_view_alone_and_ends_there() {
    let world = start_world().await;
    let body = text(LEGACY, "initialize", r#""protocolVersion":"2025-11-25""#);
    let begun = Reply::to(post(&world, PROGRAM, body)).await;
    let session = begun.header("mcp-session-id").to_owned();
    let ping = |path| {
        let request = request_to(&world, path, LEGACY, "ping", "");
        Reply::to(request.header("mcp-session-id", &session))
    };
    let end = || {
        let request = world.http.delete(world.url(PROGRAM));
        let request = request.bearer_auth(&world.token);
        Reply::to(request.header("mcp-session-id", &session))
    };
    for path in ["/mcp", "/mcp/program", "/mcp/upstream/old"] {
        assert_eq!(ping(path).await.status, 404, "{path}");
    }
    assert_eq!(ping(PROGRAM).await.status, 200);
    assert_eq!(end().await.status, 204);
    assert_eq!(ping(PROGRAM).await.status, 404);
}
