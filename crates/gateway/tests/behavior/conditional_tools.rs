//! Tools that their server offers only to clients with certain capabilities.

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use wardgate_domain::Status;
use wardgate_proto::toolrunner::v1 as pb;

use crate::sessions::{begin_with, within};
use crate::world::{LEGACY, MODERN, Reply, World, definition};
use wardgate_testkit::{listed_tool, until_true};

const REQUIRED: &str = r#"{"elicitation":{"url":{}}}"#;

/// Starts a gateway with a tool that needs a client that can send its user to a URL.
async fn world() -> World {
    let conditional = pb::Tool {
        required_capabilities_json: REQUIRED.into(),
        ..listed_tool("reads_elsewhere", &definition())
    };
    world_with(conditional, &json!({ "elicitation": { "url": {} } })).await
}

/// Starts a gateway with a tool for every client, and `conditional`, which is offered to clients with the capabilities `able`.
async fn world_with(conditional: pb::Tool, able: &Value) -> World {
    let world = World::start().await;
    world
        .tool_runner
        .configure(vec![listed_tool("reads", &definition()), conditional]);
    until_true("the gateway knows the tools", async || {
        list_tools(&world, MODERN, able).await.len() == 2
    })
    .await;
    world
}

/// Creates a request of a client with `capabilities`. An older client declares them in a new session.
async fn request(
    world: &World,
    version: &str,
    capabilities: &Value,
    method: &str,
    mut params: Value,
) -> RequestBuilder {
    let is_modern = version == MODERN;
    if is_modern {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": capabilities,
        });
    }
    let request = world.message(version, method, "");
    let request = match params["name"].as_str() {
        Some(name) if is_modern => request.header("mcp-name", name),
        _ => request,
    };
    let message = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let request = request.body(message.to_string());
    if is_modern {
        return request;
    }
    let session = begin_with(world, version, capabilities).await;
    within(request, &session)
}

async fn list_tools(world: &World, version: &str, capabilities: &Value) -> Vec<String> {
    let list = request(world, version, capabilities, "tools/list", json!({})).await;
    let list = Reply::to(list).await.at("/result/tools");
    let tools = list.as_array().into_iter().flatten();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn call_tool(world: &World, version: &str, capabilities: &Value) -> Reply {
    let params = json!({ "name": "reads_elsewhere" });
    Reply::to(request(world, version, capabilities, "tools/call", params).await).await
}

#[tokio::test]
async fn a_client_is_offered_a_tool_only_if_it_declared_what_the_tool_needs() {
    let world = world().await;
    for version in [MODERN, LEGACY] {
        for unable in [
            json!({}),
            json!({ "elicitation": {} }),
            json!({ "elicitation": { "form": {} }, "sampling": {} }),
        ] {
            let names = list_tools(&world, version, &unable).await;
            assert_eq!(names, ["reads"], "{version} {unable}");
        }
        let able = json!({ "elicitation": { "url": {} }, "roots": {} });
        let names = list_tools(&world, version, &able).await;
        assert_eq!(names, ["reads", "reads_elsewhere"], "{version}");
        let reply = call_tool(&world, version, &able).await;
        assert!(reply.is_released(), "{reply:?}");
    }
}

#[tokio::test]
async fn a_tool_that_one_of_several_capabilities_shows_is_offered_to_clients_with_any_of_them() {
    let able = [json!({ "elicitation": {} }), json!({ "sampling": {} })];
    let conditional = pb::Tool {
        alternative_capabilities_json: able.iter().map(|it| it.to_string().into()).collect(),
        ..listed_tool("reads_elsewhere", &definition())
    };
    let world = world_with(conditional, &able[0]).await;
    for version in [MODERN, LEGACY] {
        for able in &able {
            let names = list_tools(&world, version, able).await;
            assert_eq!(names, ["reads", "reads_elsewhere"], "{version} {able}");
            let reply = call_tool(&world, version, able).await;
            assert!(reply.is_released(), "{reply:?}");
        }
        let names = list_tools(&world, version, &json!({ "roots": {} })).await;
        assert_eq!(names, ["reads"], "{version}");
    }
    let reply = call_tool(&world, MODERN, &json!({ "roots": {} })).await;
    assert_eq!(reply.code(), -32021, "{reply:?}");
    assert_eq!(reply.at("/error/data/requiredCapabilities"), able[0]);
}

#[tokio::test]
async fn a_call_without_the_capabilities_is_refused_as_the_server_would_and_nothing_runs() {
    let world = world().await;
    let unable = json!({ "elicitation": { "form": {} } });
    let reply = call_tool(&world, MODERN, &unable).await;
    assert_eq!((reply.status, reply.code()), (400, -32021), "{reply:?}");
    let required: Value = serde_json::from_str(REQUIRED).unwrap();
    assert_eq!(reply.at("/error/data/requiredCapabilities"), required);
    let reply = call_tool(&world, LEGACY, &unable).await;
    assert_eq!(reply.code(), -32602, "{reply:?}");
    assert_eq!(reply.at("/error/message"), "Unknown tool: reads_elsewhere");
    assert_eq!(world.tool_runner.asked.count(), 0);
    for outcome in world.audit.outcomes.entries() {
        let ended = (outcome.status, outcome.reason.as_str());
        assert_eq!(ended, (Status::Error, "missing_capability"));
        assert_eq!(outcome.call.tool.unwrap().as_str(), "reads_elsewhere");
    }
    assert_eq!(world.audit.outcomes.entries().len(), 2);
}
