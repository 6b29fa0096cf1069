//! The route of a single MCP server: who may use it, and what they see there.

mod access;
mod rights;
mod viewed;

use reqwest::RequestBuilder;
use serde_json::Value;
use wardgate_domain::{Digest, OfferKind, ToolFacts};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::switch_scope::{Everyone, Scope};

use crate::world::{META, MODERN, Reply, World, definition};
use wardgate_testkit::{listed_tool, tool_facts, until_true};

const UP: &str = "/mcp/upstream/up";
const OTHER: &str = "/mcp/upstream/other";
const CALL_ID: &str = "/result/_meta/dev.wardgate~1callId";

const KINDS: [OfferKind; 3] = [OfferKind::Connect, OfferKind::Resources, OfferKind::Prompts];

/// Returns a source with the tools `read` and `write`, which the catalogue names `reads` and `writes`.
fn source(name: &str, kinds: &[OfferKind]) -> pb::Source {
    let facts = |kind: &OfferKind| {
        let facts = ToolFacts {
            kind: *kind,
            definition_digest: Digest::compute(format!("{kind:?} of {name}").as_bytes()),
            tags: [format!("upstream:{name}")].into(),
            ..tool_facts(name)
        };
        (&facts).into()
    };
    let tools = [("read", "reads"), ("write", "writes"), ("slow", "slow")];
    let own = |(own, name): (&str, &str)| (own.to_owned(), name.to_owned());
    pb::Source {
        name: name.to_owned(),
        facts: kinds.iter().map(facts).collect(),
        tools: tools.into_iter().map(own).collect(),
        ..pb::Source::default()
    }
}

/// Starts a gateway with the sources `up` and `other`. `plain` has no route, and `off` is switched off.
async fn world() -> World {
    world_with(serde_json::json!({})).await
}

async fn world_with(settings: Value) -> World {
    let world = World::start_without_memory(settings).await;
    let mut off = source("off", &KINDS);
    let everyone = pb::SwitchScope {
        scope: Some(Scope::Everyone(Everyone {})),
    };
    off.switches = vec![pb::ToolSwitch {
        scope: Some(everyone),
        enabled: false,
    }];
    let sources = vec![
        source("up", &KINDS),
        source("other", &KINDS),
        source("plain", &KINDS[1..]),
        off,
    ];
    world.tool_runner.content.lock().unwrap().0 = sources;
    // The changed catalogue makes the gateway list it again.
    let tools =
        ["reads", "writes", "slow", "elsewhere"].map(|name| listed_tool(name, &definition()));
    world.tool_runner.configure(tools.to_vec());
    until_true("the gateway knows the source", async || {
        let ping = request(&world, "2025-11-25", "ping", "");
        Reply::to(ping).await.status != 404
    })
    .await;
    world
}

/// Creates a POST to the route, without a version.
fn post(world: &World, path: &str, body: impl Into<String>) -> RequestBuilder {
    world
        .http
        .post(world.url(path))
        .bearer_auth(&world.token)
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .body(body.into())
}

/// Returns the request with the id 7. `params` is written without braces.
fn text(version: &str, method: &str, params: &str) -> String {
    let meta = if version == MODERN { META } else { "" };
    let comma = if meta.is_empty() || params.is_empty() {
        ""
    } else {
        ","
    };
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}{comma}{meta}}}}}"#)
}

/// Creates a request to `up`.
fn request(world: &World, version: &str, method: &str, params: &str) -> RequestBuilder {
    request_to(world, UP, version, method, params)
}

fn request_to(
    world: &World,
    path: &str,
    version: &str,
    method: &str,
    params: &str,
) -> RequestBuilder {
    let request = post(world, path, text(version, method, params));
    let request = request.header("mcp-protocol-version", version);
    if version != MODERN {
        return request;
    }
    let request = request.header("mcp-method", method);
    let named: Value = serde_json::from_str(&format!("{{{params}}}")).unwrap();
    let named = match method {
        "tools/call" | "prompts/get" => named["name"].as_str(),
        "resources/read" => named["uri"].as_str(),
        "tasks/get" => named["taskId"].as_str(),
        _ => None,
    };
    match named {
        Some(name) => request.header("mcp-name", name),
        None => request,
    }
}

/// Creates a call of the upstream's own tool `name`.
fn call(world: &World, version: &str, name: &str) -> RequestBuilder {
    let params = format!(r#""name":"{name}","arguments":{{"n":1.10}}"#);
    request(world, version, "tools/call", &params)
}

fn get(world: &World) -> RequestBuilder {
    world
        .http
        .get(world.url(UP))
        .bearer_auth(&world.token)
        .header("accept", "text/event-stream")
        .header("mcp-protocol-version", "2025-11-25")
}

/// Returns the number of calls, prompts and resources that the tool-runner was asked for.
fn count_runs(world: &World) -> usize {
    world.tool_runner.asked.count() + world.tool_runner.got.count()
}
