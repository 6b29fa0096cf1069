//! What clients of each version receive in place of newer features.

use serde_json::{Value, json};
use wardgate_proto::toolrunner::v1 as pb;

use crate::content;
use crate::sse::Client;
use crate::world::{LEGACY, MODERN, OLDEST, Reply, World};
use wardgate_testkit::{RunBehavior, content_response, listed_tool, tool_result, until_true};

const FIRST: &str = "2024-11-05";

const EVERY: [&str; 5] = [FIRST, OLDEST, "2025-06-18", LEGACY, MODERN];

/// Returns the result of a request by a client of `version`.
async fn fetch_result(world: &World, version: &str, method: &str, params: Value) -> Value {
    if version == FIRST {
        let mut client = Client::connect(world, FIRST).await;
        return client.send_request(world, method, &params).await["result"].take();
    }
    let name = params["name"].as_str().map(str::to_owned);
    let members = params.to_string();
    let members = members.trim_matches(['{', '}']);
    let mut request = world.message(version, method, members);
    if let Some(name) = name.filter(|_| version == MODERN) {
        request = request.header("mcp-name", name);
    }
    Reply::to(request).await.at("/result")
}

fn members(object: &Value) -> Vec<&str> {
    let object = object.as_object().unwrap();
    object.keys().map(String::as_str).collect()
}

#[tokio::test]
async fn a_tool_is_listed_with_what_the_version_knows() {
    let world = World::start().await;
    let full = listed_tool(
        "full",
        &json!({
            "_meta": {}, "annotations": {}, "description": "d", "execution": {},
            "icons": [], "inputSchema": { "type": "object" }, "outputSchema": { "type": "array" },
            "title": "t",
        }),
    );
    world.tool_runner.configure(vec![full]);
    let list = |version| fetch_result(&world, version, "tools/list", json!({}));
    until_true("the gateway knows the tool", async || {
        list(MODERN).await["tools"][0]["name"] == "full"
    })
    .await;
    let plain = ["description", "inputSchema", "name"];
    let with = |more: &[&'static str]| {
        let mut all = [&plain[..], more].concat();
        all.sort_unstable();
        all
    };
    let titled = ["_meta", "annotations", "title"];
    let expected = [
        with(&[]),
        with(&["annotations"]),
        with(&titled),
        with(&[&titled[..], &["icons"]].concat()),
        with(&[&titled[..], &["icons", "outputSchema"]].concat()),
    ];
    for (version, expected) in EVERY.into_iter().zip(expected) {
        let listed = list(version).await;
        let mut members = members(&listed["tools"][0]);
        members.sort_unstable();
        assert_eq!(members, expected, "{version}");
    }
}

#[tokio::test]
async fn a_result_holds_what_the_version_knows_and_says_the_rest_in_words() {
    let world = World::start().await;
    let given = || {
        let contents = json!([
            { "type": "audio", "data": "AAAA", "mimeType": "audio/wav" },
            { "type": "resource_link", "name": "plan", "uri": "ward://plan", "icons": [] },
        ]);
        pb::ToolResult {
            content_json: contents.to_string().into(),
            ..tool_result("", &json!([1]))
        }
    };
    let expected = [
        ["text", "text"].as_slice(),
        &["audio", "text"],
        &["audio", "resource_link", "text"],
        &["audio", "resource_link", "text"],
        &["audio", "resource_link"],
    ];
    for (version, expected) in EVERY.into_iter().zip(expected) {
        world
            .tool_runner
            .next([RunBehavior::Give(Box::new(given()))]);
        let called = fetch_result(&world, version, "tools/call", json!({ "name": "reads" })).await;
        let contents = called["content"].as_array().unwrap();
        let kinds = contents.iter().map(|block| block["type"].as_str().unwrap());
        assert_eq!(kinds.collect::<Vec<_>>(), expected, "{version}");
        let is_modern = version == MODERN;
        assert_eq!(
            called.get("structuredContent").is_some(),
            is_modern,
            "{version}"
        );
        assert_eq!(called.get("resultType").is_some(), is_modern, "{version}");
        let has_icons = called.to_string().contains("icons");
        assert_eq!(has_icons, is_modern || version == LEGACY, "{version}");
    }
}

#[tokio::test]
async fn a_prompt_holds_what_the_version_knows() {
    let world = content::world().await;
    let link = r#"{"messages":[{"role":"user","content":{"type":"resource_link","name":"plan","uri":"ward://plan"}}]}"#;
    for version in EVERY {
        let given = Ok(content_response(link));
        world.tool_runner.gives.lock().unwrap().push_back(given);
        let got = fetch_result(&world, version, "prompts/get", json!({ "name": "greet" })).await;
        let kind = if [FIRST, OLDEST].contains(&version) {
            "text"
        } else {
            "resource_link"
        };
        assert_eq!(got["messages"][0]["content"]["type"], kind, "{version}");
    }
}
