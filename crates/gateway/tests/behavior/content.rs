//! Prompts and resources of sources: the lists, the results, and the records.

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use wardgate_domain::{DenialReason, Digest, OfferKind, Status, ToolFacts};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::get_content_request::Wanted;

use crate::memory::{create, create_request};
use crate::world::{LEGACY, MODERN, OLDEST, Reply, World, definition};
use wardgate_testkit::{
    AppendBehavior, EventStreamClient, PolicyAnswer, content_response, listed_tool, tool_facts,
    until_true,
};

fn facts(kind: OfferKind) -> ToolFacts {
    ToolFacts {
        kind,
        definition_digest: Digest::compute(format!("{kind:?}").as_bytes()),
        tags: ["upstream:guides".to_owned()].into(),
        ..tool_facts("guides")
    }
}

fn entry(name: &str, definition: &str) -> pb::ContentEntry {
    pb::ContentEntry {
        source: "guides".to_owned(),
        name: name.to_owned(),
        own_name: format!("own {name}"),
        definition_json: definition.to_owned().into(),
    }
}

/// Offers two prompts, `doors` resources and a template.
pub(crate) async fn offer(world: &World, doors: usize) {
    let kinds = [OfferKind::Prompts, OfferKind::Resources];
    let source = pb::Source {
        name: "guides".to_owned(),
        facts: kinds.map(|kind| (&facts(kind)).into()).to_vec(),
        ..pb::Source::default()
    };
    let door = |number| {
        let definition = format!(r#"{{"title":"A door","name":"door","size":{number}.0}}"#);
        entry(&format!("guide://door/{number:03}"), &definition)
    };
    let listed = pb::ListContentResponse {
        sources: vec![pb::ContentSource {
            name: "guides".to_owned(),
            prompts: true,
            resources: true,
            toolsets: vec!["near".to_owned()],
            is_missing: true,
            ..pb::ContentSource::default()
        }],
        prompts: vec![
            entry("greet", r#"{"title":"Greet"}"#),
            entry("leave", r#"{"arguments":[]}"#),
        ],
        resources: (0..doors).map(door).collect(),
        resource_templates: vec![entry("guide://room/{room}", r#"{"name":"room"}"#)],
        ..pb::ListContentResponse::default()
    };
    *world.tool_runner.content.lock().unwrap() = (vec![source], listed);
    let tools = ["reads", "extra"].map(|name| listed_tool(name, &definition()));
    world.tool_runner.configure(tools.to_vec());
    until_true("the gateway knows the new catalogue", async || {
        let discovered = Reply::to(world.message(MODERN, "server/discover", "")).await;
        !discovered.at("/result/capabilities/prompts").is_null()
    })
    .await;
}

pub(crate) async fn world() -> World {
    let world = World::start_without_memory(json!({})).await;
    offer(&world, 2).await;
    world
}

fn with_name(request: RequestBuilder, version: &str, name: &str) -> RequestBuilder {
    if version == MODERN {
        request.header("mcp-name", name)
    } else {
        request
    }
}

async fn read_resource(world: &World, version: &str, uri: &str) -> Reply {
    let request = create_request(world, version, "resources/read", &json!({ "uri": uri }));
    Reply::to(with_name(request, version, uri)).await
}

async fn get(world: &World, version: &str, name: &str, arguments: Value) -> Reply {
    let params = json!({ "name": name, "arguments": arguments });
    let request = create_request(world, version, "prompts/get", &params);
    Reply::to(with_name(request, version, name)).await
}

/// Returns the names in one list.
fn names(reply: &Reply, list: &str) -> Vec<String> {
    let entries = reply.at(&format!("/result/{list}"));
    let entries = entries.as_array().unwrap_or_else(|| panic!("{reply:?}"));
    let name = |entry: &Value| {
        let members = ["uri", "uriTemplate", "name"].map(|member| entry[member].as_str());
        members.into_iter().flatten().next().unwrap().to_owned()
    };
    entries.iter().map(name).collect()
}

#[tokio::test]
async fn what_sources_offer_is_announced_and_listed_in_every_version() {
    let world = world().await;
    let initialized = world.message(LEGACY, "initialize", r#""protocolVersion":"2025-11-25""#);
    let changes = json!({ "listChanged": true });
    let resources = json!({ "subscribe": true, "listChanged": true });
    assert_eq!(
        Reply::to(initialized).await.at("/result/capabilities"),
        json!({ "tools": changes, "prompts": changes, "resources": resources, "completions": {}, "logging": {} })
    );
    for version in [MODERN, LEGACY, OLDEST] {
        let prompts = Reply::to(create_request(&world, version, "prompts/list", &json!({}))).await;
        assert_eq!(names(&prompts, "prompts"), ["greet", "leave"]);
        let has_title = !prompts.at("/result/prompts/0/title").is_null();
        assert_eq!(has_title, version != OLDEST);
        let resources = Reply::to(create_request(
            &world,
            version,
            "resources/list",
            &json!({}),
        ))
        .await;
        assert_eq!(
            names(&resources, "resources"),
            ["guide://door/000", "guide://door/001"]
        );
        assert!(resources.text.contains(r#""size":1.0"#), "as it is written");
        let method = "resources/templates/list";
        let templates = Reply::to(create_request(&world, version, method, &json!({}))).await;
        assert_eq!(
            names(&templates, "resourceTemplates"),
            ["guide://room/{room}"]
        );
        for reply in [prompts, resources, templates] {
            let (ttl, scope) = (reply.at("/result/ttlMs"), reply.at("/result/cacheScope"));
            assert_eq!(ttl.is_u64() && scope == "private", version == MODERN);
            let missing = reply.at("/result/_meta/dev.wardgate~1missingUpstreams");
            assert_eq!(missing, json!(["guides"]));
        }
    }
}

#[tokio::test]
async fn without_any_there_are_no_such_methods() {
    let world = World::start_without_memory(json!({})).await;
    for method in [
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "completion/complete",
    ] {
        let params = json!({ "name": "a", "uri": "a" });
        let request = create_request(&world, MODERN, method, &params).header("mcp-name", "a");
        let reply = Reply::to(request).await;
        assert_eq!((reply.status, reply.code()), (404, -32601), "{method}");
    }
}

#[tokio::test]
async fn a_list_shows_what_the_policy_allows_and_toolsets_what_is_theirs() {
    let world = world().await;
    let resources = async |path: &str| {
        let request = create_request(&world, LEGACY, "resources/list", &json!({}))
            .build()
            .unwrap();
        let mut request = request;
        *request.url_mut() = world.url(path).parse().unwrap();
        let response = world.http.execute(request).await.unwrap();
        let reply: Value = serde_json::from_str(&response.text().await.unwrap()).unwrap();
        reply["result"]["resources"].as_array().unwrap().len()
    };
    assert_eq!(resources("/mcp").await, 2);
    assert_eq!(resources("/mcp/near").await, 2);
    assert_eq!(resources("/mcp/far").await, 0);
    // A decision that holds for every URI is requested once, or twice if both requests start before the first answer.
    assert!(world.policy.asked.count() <= 2);
    world.policy.forbid("door/001");
    world.policy.says(PolicyAnswer::AllowThese);
    world.policy.change(b"others");
    until_true("the gateway knows the policies", async || {
        resources("/mcp").await == 1
    })
    .await;
    world.policy.hide("guides");
    assert_eq!(resources("/mcp").await, 0);
}

#[tokio::test]
async fn a_long_list_has_pages_and_conversations_come_last() {
    let world = World::start().await;
    offer(&world, 150).await;
    for id in ["one", "two", "three"] {
        create(&world, id).await;
    }
    let mut params = json!({});
    let mut pages = Vec::new();
    loop {
        let reply = Reply::to(create_request(&world, LEGACY, "resources/list", &params)).await;
        pages.push(names(&reply, "resources"));
        match reply.at("/result/nextCursor") {
            Value::Null => break,
            next => params = json!({ "cursor": next }),
        }
    }
    let sizes: Vec<_> = pages.iter().map(Vec::len).collect();
    assert_eq!(sizes.iter().sum::<usize>(), 153);
    assert_eq!(sizes[0], 100);
    let all: Vec<_> = pages.concat();
    assert_eq!(all[149], "guide://door/149");
    assert!(all[150].starts_with("memory://conversation/"));
    let templates = create_request(&world, LEGACY, "resources/templates/list", &json!({}));
    assert_eq!(
        names(&Reply::to(templates).await, "resourceTemplates").len(),
        2
    );
    let conversation = read_resource(&world, MODERN, "memory://conversation/one").await;
    assert_eq!(conversation.code(), 0, "{conversation:?}");
    for cursor in [json!("?"), json!(""), json!(7), json!("eyJhIjoxfQ")] {
        for list in ["resources/list", "prompts/list", "resources/templates/list"] {
            let request = create_request(&world, LEGACY, list, &json!({ "cursor": cursor }));
            assert_eq!(Reply::to(request).await.code(), -32602, "{list} {cursor}");
        }
    }
}

#[tokio::test]
async fn a_resource_is_given_as_its_source_knows_it() {
    let world = world().await;
    for (number, version) in [MODERN, LEGACY, OLDEST].into_iter().enumerate() {
        let given = r#"{"contents":[{"uri":"guide://door/001","text":"x","n":1.10}]}"#;
        world
            .tool_runner
            .gives
            .lock()
            .unwrap()
            .push_back(Ok(content_response(given)));
        let reply = read_resource(&world, version, "guide://door/001").await;
        assert!(reply.text.contains(r#""n":1.10"#), "{reply:?}");
        assert_eq!(
            reply.at("/result/cacheScope") == "private",
            version == MODERN
        );
        assert!(
            reply
                .at("/result/_meta/dev.wardgate~1receipt/leafHash")
                .is_string()
        );
        let got = world.tool_runner.got.entries().pop().unwrap();
        assert_eq!(got.decided_json, r#"{"uri":"own guide://door/001"}"#);
        assert!(matches!(got.wanted, Some(Wanted::Resource(_))));
        let outcome = world
            .audit
            .outcomes
            .reaches(number + 1)
            .await
            .pop()
            .unwrap();
        assert_eq!(outcome.call.method, "resources/read");
        assert_eq!(outcome.call.tool.unwrap().as_str(), "guides");
        assert_eq!(*outcome.call.tags.unwrap(), ["upstream:guides"]);
        assert_eq!(outcome.call.requested_tool, "", "a URI can hold anything");
        assert_eq!(outcome.call.protocol, version);
        assert!(outcome.call.permit_id.is_some());
        assert_eq!(
            (outcome.status, outcome.rows, outcome.phi),
            (Status::Ok, 2, true)
        );
        assert_eq!(outcome.fields_redacted, 3);
        assert_eq!(
            outcome.result_digest,
            Some(Digest::compute(given.as_bytes()))
        );
    }
    read_resource(&world, MODERN, "guide://room/7").await;
    let got = world.tool_runner.got.entries().pop().unwrap();
    assert_eq!(got.decided_json, r#"{"uri":"guide://room/7"}"#);
}

#[tokio::test]
async fn a_prompt_and_a_completion_are_given_too() {
    let world = world().await;
    let reply = get(&world, MODERN, "greet", json!({ "who": "Ann" })).await;
    assert!(reply.text.contains(r#""secret":[1.10]"#), "{reply:?}");
    let got = world.tool_runner.got.entries().pop().unwrap();
    assert_eq!(got.decided_json, r#"{"name":"own greet"}"#);
    let Some(Wanted::Prompt(prompt)) = got.wanted else {
        panic!("{got:?}")
    };
    assert_eq!(prompt.arguments_json, r#"{"who":"Ann"}"#);
    let outcome = world.audit.outcome().await;
    assert_eq!(outcome.call.requested_tool, "greet");
    assert_eq!(outcome.call.method, "prompts/get");
    for reference in [
        json!({ "type": "ref/prompt", "name": "greet" }),
        json!({ "type": "ref/resource", "uri": "guide://room/{room}" }),
    ] {
        let params = json!({ "ref": reference, "argument": { "name": "a", "value": "b" } });
        let reply = Reply::to(create_request(
            &world,
            LEGACY,
            "completion/complete",
            &params,
        ))
        .await;
        assert_eq!(reply.code(), 0, "{reply:?}");
        let got = world.tool_runner.got.entries().pop().unwrap();
        assert!(matches!(got.wanted, Some(Wanted::Completion(_))));
    }
}

#[tokio::test]
async fn what_a_caller_may_not_have_is_answered_like_what_there_is_not() {
    let world = world().await;
    world.policy.forbid("door/001");
    world.policy.forbid("leave");
    for (version, code) in [(MODERN, -32602), (LEGACY, -32002)] {
        let mut told = Vec::new();
        for (uri, status) in [
            ("guide://door/001", Status::Denied),
            ("guide://nothing", Status::UnknownTool),
        ] {
            let reply = read_resource(&world, version, uri).await;
            let outcome = world.audit.outcomes.entries().pop().unwrap();
            assert_eq!(outcome.status, status);
            let data = reply.at("/error/data");
            assert_eq!(data["reason"], "unknown_resource");
            told.push((reply.code(), reply.at("/error/message")));
        }
        assert_eq!(told[0], told[1]);
        assert_eq!(told[0].0, code);
        for name in ["leave", "arrive"] {
            let reply = get(&world, version, name, json!({})).await;
            assert_eq!(reply.code(), -32602);
            assert_eq!(
                reply.at("/error/message"),
                format!("Unknown prompt: {name}")
            );
        }
    }
    assert_eq!(world.tool_runner.got.count(), 0, "nothing was got");
    let mut denied = world.audit.outcomes.entries();
    denied.retain(|outcome| outcome.status == Status::Denied);
    assert_eq!(denied[0].reason, DenialReason::Forbidden.as_str());
}

#[tokio::test]
async fn a_failure_is_an_error_in_words_that_name_what_to_mend() {
    let world = world().await;
    let failed = |status: pb::OutcomeStatus, kind: &str, words: &str| {
        let mut given = content_response("");
        given.error = words.to_owned();
        given.facts = Some(pb::ResultFacts {
            status: status.into(),
            error_kind: kind.to_owned(),
            ..pb::ResultFacts::default()
        });
        Ok(given)
    };
    let invalid = pb::OutcomeStatus::InvalidArguments;
    for (given, code, message) in [
        (
            failed(invalid, "invalid_arguments", "`who` is required"),
            -32602,
            "`who` is required",
        ),
        (
            failed(invalid, "unknown", "none"),
            -32602,
            "Unknown prompt: greet",
        ),
        (
            failed(
                pb::OutcomeStatus::ToolError,
                "source_unavailable",
                "It is away.",
            ),
            -32603,
            "It is away.",
        ),
        (
            Err(ErrorReason::UnknownTool),
            -32602,
            "Unknown prompt: greet",
        ),
        (
            Err(ErrorReason::Unavailable),
            -32603,
            "The content could not be read. Try again later.",
        ),
    ] {
        world.tool_runner.gives.lock().unwrap().push_back(given);
        let reply = get(&world, MODERN, "greet", json!({})).await;
        assert_eq!((reply.status, reply.code()), (200, code), "{reply:?}");
        assert_eq!(reply.at("/error/message"), message);
        assert!(!reply.failed_call().is_empty());
    }
    let unfit = get(&world, MODERN, "greet", json!({ "who": 7 })).await;
    assert_eq!(unfit.code(), -32602);
    let reasons: Vec<_> = world.audit.outcomes.entries();
    let reasons: Vec<_> = reasons.iter().map(|it| it.reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "invalid_arguments",
            "unknown",
            "source_unavailable",
            "unknown",
            "tool_runner_unavailable"
        ]
    );
}

#[tokio::test]
async fn a_json_rpc_error_of_a_source_is_one_for_the_client_too() {
    let world = world().await;
    for version in [MODERN, LEGACY, OLDEST] {
        let mut given = content_response("");
        given.error_json = r#"{"code":-32001,"message":"away","data":{"until":1.50}}"#.into();
        world.tool_runner.gives.lock().unwrap().push_back(Ok(given));
        let reply = get(&world, version, "greet", json!({})).await;
        assert_eq!((reply.status, reply.code()), (200, -32001), "{reply:?}");
        assert_eq!(reply.at("/error/message"), "away");
        assert!(reply.text.contains(r#""until":1.50}"#), "{reply:?}");
        assert!(!reply.failed_call().is_empty());
    }
}

#[tokio::test]
async fn a_permit_of_an_earlier_definition_is_asked_for_anew() {
    let world = world().await;
    assert_eq!(
        read_resource(&world, MODERN, "guide://door/000")
            .await
            .code(),
        0
    );
    assert_eq!(world.policy.asked.count(), 1);
    world
        .tool_runner
        .gives
        .lock()
        .unwrap()
        .push_back(Err(ErrorReason::PermitRefused));
    assert_eq!(
        read_resource(&world, MODERN, "guide://door/000")
            .await
            .code(),
        0
    );
    assert_eq!(world.policy.asked.count(), 2);
}

#[tokio::test]
async fn without_a_durable_record_nothing_is_given() {
    let world = world().await;
    world
        .audit
        .next([AppendBehavior::Fail, AppendBehavior::Fail]);
    let reply = read_resource(&world, MODERN, "guide://door/000").await;
    assert_eq!(reply.at("/error/data/reason"), "not_durable", "{reply:?}");
    assert!(!reply.text.contains("secret"));
}

#[tokio::test]
async fn who_listens_hears_of_the_lists_that_there_are() {
    let world = world().await;
    let wanted = json!({ "promptsListChanged": true, "resourcesListChanged": true });
    let params = format!(r#""notifications":{wanted}"#);
    let mut ear = EventStreamClient::open(crate::listen::subscribe(&world, &params)).await;
    let acknowledged = ear.next_message().await.unwrap();
    assert_eq!(acknowledged["params"]["notifications"], wanted);
    world.policy.change(b"others");
    for list in ["prompts", "resources"] {
        let told = tokio::time::timeout(wardgate_testkit::PATIENCE, ear.next_message()).await;
        let told = told.unwrap().unwrap();
        assert_eq!(told["method"], format!("notifications/{list}/list_changed"));
    }
}

#[tokio::test]
async fn a_prompt_or_resource_needs_the_scopes_of_its_source() {
    let scopes = json!({ "tags": { "upstream:guides": ["guides"] } });
    let mut world = World::start_without_memory(json!({ "scopes": scopes })).await;
    offer(&world, 2).await;
    let wanted = [
        ("prompts/get", r#""name":"greet""#, "greet"),
        (
            "resources/read",
            r#""uri":"guide://door/000""#,
            "guide://door/000",
        ),
    ];
    for (method, params, name) in wanted {
        for version in [MODERN, LEGACY] {
            let asked = || {
                world
                    .message(version, method, params)
                    .header("mcp-name", name)
            };
            let refused = Reply::to(asked()).await;
            assert_eq!(refused.status, 403, "{method}: {refused:?}");
            let challenge = refused.header("www-authenticate");
            assert!(challenge.contains(r#"scope="guides""#), "{challenge}");
            assert_eq!(refused.at("/error/data/reason"), "insufficient_scope");
        }
    }
    assert_eq!(world.tool_runner.got.count(), 0);
    world.token = world.issuer.token_saying(&json!({ "scope": "guides" }));
    let (method, params, name) = wanted[0];
    let asked = world
        .message(MODERN, method, params)
        .header("mcp-name", name);
    assert_eq!(Reply::to(asked).await.status, 200);
    assert_eq!(world.tool_runner.got.count(), 1);
}

#[tokio::test]
async fn only_a_source_that_exchanges_it_gets_the_callers_token() {
    let world = world().await;
    read_resource(&world, MODERN, "guide://door/001").await;
    get(&world, LEGACY, "greet", json!({})).await;
    let got = world.tool_runner.got.reaches(2).await;
    assert!(got.iter().all(|got| got.caller_token.is_empty()));
    world.tool_runner.content.lock().unwrap().0[0].needs_caller_token = true;
    world
        .tool_runner
        .configure(vec![listed_tool("reads", &definition())]);
    until_true("the gateway knows what the source needs", async || {
        get(&world, LEGACY, "greet", json!({})).await;
        let got = world.tool_runner.got.entries().pop().unwrap();
        got.caller_token == world.token
    })
    .await;
    read_resource(&world, MODERN, "guide://door/001").await;
    let got = world.tool_runner.got.entries().pop().unwrap();
    assert_eq!(got.caller_token, world.token);
}
