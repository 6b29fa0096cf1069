//! Tools, prompts and resources that need input of a modern client, which gets the request in the answer and repeats its own.

use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::{Value, json};
use wardgate_domain::{DenialReason, Status};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::call_tool_response::Event;

use crate::content;
use crate::world::{LEGACY, MODERN, Reply, World};
use wardgate_testkit::{PolicyAnswer, RunBehavior, content_response};

pub(crate) const ASK: &str = r#"{"who":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"x":1.10}}}}"#;

fn waits(requests: &str) -> pb::InputRequired {
    pb::InputRequired {
        input_requests_json: requests.to_owned().into(),
        state: bytes::Bytes::from_static(b"\0the runner's own secret"),
        facts: Some(pb::ResultFacts {
            status: pb::OutcomeStatus::Ok.into(),
            ..pb::ResultFacts::default()
        }),
        connect: None,
    }
}

/// Makes the next call ask for `requests`.
pub(crate) fn asks(world: &World, requests: &str) {
    let tool = world.tool_runner.live();
    let waits = Event::InputRequired(waits(requests));
    tool.unbounded_send(waits).unwrap();
}

/// Returns the body of a request of a client that supports forms. `params` is written without braces.
fn body(method: &str, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{}},"x":1.10}}}}}}}}"#
    )
}

pub(crate) fn call_request(
    world: &World,
    tool: &str,
    arguments: &str,
    more: &str,
) -> RequestBuilder {
    let params = format!(r#""name":"{tool}","arguments":{arguments}{more}"#);
    let request = world.tools_call(MODERN, tool, arguments);
    request.body(body("tools/call", &params))
}

/// Returns the members of a request that continues a call.
pub(crate) fn goes_on(state: &str, responses: &str) -> String {
    format!(r#","requestState":"{state}","inputResponses":{responses}"#)
}

async fn call(world: &World, more: &str) -> Reply {
    Reply::to(call_request(world, "reads", r#"{"n":1.10}"#, more)).await
}

/// Makes a call that asks for input, and returns its state.
async fn start_suspended_call(world: &World) -> String {
    asks(world, ASK);
    state(&call(world, "").await)
}

pub(crate) fn state(reply: &Reply) -> String {
    assert_eq!(
        reply.at("/result/resultType"),
        "input_required",
        "{reply:?}"
    );
    let state = reply.at("/result/requestState");
    state.as_str().unwrap().to_owned()
}

/// Returns whether `reply` is the error for an invalid state.
fn is_unknown(reply: &Reply) -> bool {
    reply.is_unknown("requestState")
}

#[tokio::test]
async fn a_tool_that_waits_asks_by_its_answer_and_goes_on_with_what_is_answered() {
    let world = World::start().await;
    asks(&world, ASK);
    let first = call(&world, "").await;
    assert_eq!(first.header("content-type"), "application/json");
    assert_eq!(
        first.at("/result/inputRequests/who/params/message"),
        "[reads] Who?"
    );
    assert!(first.text.contains(r#""requestedSchema":{"x":1.10}"#));
    assert!(first.at("/result/_meta/dev.wardgate~1receipt").is_object());
    assert!(
        first
            .at("/result/_meta/io.modelcontextprotocol~1serverInfo")
            .is_object()
    );
    let state = state(&first);
    assert!(!first.text.contains("secret"), "{first:?}");

    let responses = r#"{"other":{},"who":{"action":"accept","content":{"n":1.10}}}"#;
    let second = call(&world, &goes_on(&state, responses)).await;
    assert!(second.is_released());
    let ran = world.tool_runner.asked.entries();
    let before = ran[0].interaction.clone().unwrap();
    assert_eq!(
        before.client_capabilities_json,
        r#"{"elicitation":{},"x":1.10}"#
    );
    assert!(before.resumption.is_none());
    let resumption = ran[1].interaction.clone().unwrap().resumption.unwrap();
    assert_eq!(resumption.state, &b"\0the runner's own secret"[..]);
    assert_eq!(
        resumption.input_responses_json,
        r#"{"who":{"action":"accept","content":{"n":1.10}}}"#
    );

    // Each round has its own call id in the record.
    assert_ne!(ran[0].call_id, ran[1].call_id);
    let ended = world.audit.outcomes.entries();
    let told = |at: usize| (ended[at].status, ended[at].reason.as_str());
    assert_eq!(
        [told(0), told(1)],
        [(Status::Ok, "input_required"), (Status::Ok, "")]
    );
    let ids = [&ended[0], &ended[1]].map(|ended| ended.call.call_id.to_string());
    assert_eq!(ids, [&*ran[0].call_id, &*ran[1].call_id]);
    assert_eq!(
        ended[0].call.arguments_digest,
        ended[1].call.arguments_digest
    );
    assert_eq!(world.audit.intents.count(), 0);
}

#[tokio::test]
async fn a_state_goes_on_once_over_all_gateways() {
    let world = World::start().await;
    let twin = world.twin().await;
    let state = start_suspended_call(&world).await;
    let again = goes_on(&state, "{}");
    let (here, there) = tokio::join!(call(&world, &again), call(&twin, &again));
    let unknown = [&here, &there].map(is_unknown);
    assert_eq!(
        unknown.iter().filter(|unknown| **unknown).count(),
        1,
        "{here:?} {there:?}"
    );
    assert!(is_unknown(&call(&world, &again).await));
    assert!(is_unknown(&call(&twin, &again).await));
    let ran = world.tool_runner.asked.count() + twin.tool_runner.asked.count();
    assert_eq!(ran, 2, "the first leg and one that went on");
    // The rejected attempt is recorded.
    let tried = world.audit.outcomes.reaches(3).await;
    let last = tried.last().unwrap();
    assert_eq!(
        (last.status, last.reason.as_str()),
        (Status::InvalidArguments, "unknown_state")
    );
}

#[tokio::test]
async fn a_state_of_another_caller_tool_or_arguments_or_time_is_like_one_that_never_was() {
    let world = World::start().await;
    let state = start_suspended_call(&world).await;
    let ran = world.tool_runner.asked.count();
    let more = goes_on(&state, "{}");
    let other = world.issuer.token("dr.kim", &["Doctor"]);
    let headers = |request: RequestBuilder, token: &str| {
        let mut request = request.build().unwrap();
        let bearer = format!("Bearer {token}").parse().unwrap();
        request.headers_mut().insert("authorization", bearer);
        request
    };
    let right = || call_request(&world, "reads", r#"{"n":1.10}"#, &more);
    let forged = goes_on(&format!("A{state}"), "{}");
    let toolset = {
        let mut request = right().build().unwrap();
        request.url_mut().set_path("/mcp/near");
        request
    };
    for request in [
        headers(right(), &other),
        call_request(&world, "slow", r#"{"n":1.10}"#, &more)
            .build()
            .unwrap(),
        call_request(&world, "reads", r#"{"n":1.1}"#, &more)
            .build()
            .unwrap(),
        call_request(&world, "reads", r#"{"n":1.10}"#, &forged)
            .build()
            .unwrap(),
        call_request(&world, "reads", r#"{"n":1.10}"#, r#","requestState":7"#)
            .build()
            .unwrap(),
        toolset,
    ] {
        let response = world.http.execute(request).await.unwrap();
        let text = response.text().await.unwrap();
        assert!(
            text.contains("unknown `requestState`") && text.contains("-32602"),
            "{text}"
        );
    }
    world.clock.advance(Duration::from_secs(601));
    assert!(is_unknown(&Reply::to(right()).await));
    assert_eq!(world.tool_runner.asked.count(), ran);

    // The rejected attempts did not use the state up.
    let state = start_suspended_call(&world).await;
    let token = world.issuer.token("dr.lee", &["Doctor"]);
    world.clock.advance(Duration::from_secs(599));
    let renewed = headers(
        call_request(&world, "reads", r#"{"n":1.10}"#, &goes_on(&state, "{}")),
        &token,
    );
    let response = world.http.execute(renewed).await.unwrap();
    assert!(response.text().await.unwrap().contains("the secret result"));
}

#[tokio::test]
async fn what_goes_on_is_decided_anew_and_what_is_refused_uses_nothing_up() {
    let world = World::start().await;
    world.policy.says(PolicyAnswer::AllowThese);
    let more = goes_on(&start_suspended_call(&world).await, "{}");
    world.policy.says(PolicyAnswer::Deny {
        reason: DenialReason::NotPermitted,
        visible: true,
    });
    let denied = call(&world, &more).await;
    assert_eq!(denied.at("/result/isError"), true, "{denied:?}");
    assert_eq!(world.tool_runner.asked.count(), 1);
    world.policy.says(PolicyAnswer::AllowThese);
    assert!(call(&world, &more).await.is_released());
}

#[tokio::test]
async fn a_client_is_asked_only_for_what_it_said_it_can_answer() {
    let world = World::start().await;
    let roots = r#"{"a":{"method":"roots/list"}}"#;
    asks(&world, roots);
    let reply = call(&world, "").await;
    assert_eq!((reply.status, reply.code()), (400, -32021), "{reply:?}");
    assert_eq!(
        reply.at("/error/data/requiredCapabilities"),
        json!({ "roots": {} })
    );
    reply.failed_call();
    let ended = world.audit.outcome().await;
    assert_eq!(
        (ended.status, ended.reason.as_str()),
        (Status::Error, "missing_capability")
    );

    asks(&world, r#"{"a":{"method":"ping"}}"#);
    let reply = call(&world, "").await;
    assert_eq!((reply.status, reply.code()), (200, -32603), "{reply:?}");

    // A client of an older version without a session cannot be asked for input.
    asks(&world, ASK);
    let reply = Reply::to(world.tools_call(LEGACY, "reads", "{}")).await;
    assert_eq!(reply.at("/result/isError"), true, "{reply:?}");
    assert_eq!(
        world.audit.outcomes.reaches(3).await[2].status,
        Status::Error
    );
}

#[tokio::test]
async fn a_call_may_ask_eight_times() {
    let world = World::start().await;
    let mut more = String::new();
    for _ in 0..8 {
        asks(&world, ASK);
        more = goes_on(&state(&call(&world, &more).await), "{}");
    }
    asks(&world, ASK);
    let reply = call(&world, &more).await;
    assert_eq!(reply.code(), -32603, "{reply:?}");
    assert_eq!(world.audit.outcomes.entries()[8].reason, "too_many_rounds");
}

#[tokio::test]
async fn what_only_wants_to_be_called_again_says_just_that() {
    let world = World::start().await;
    asks(&world, "{}");
    let reply = call(&world, "").await;
    assert!(reply.at("/result/inputRequests").is_null(), "{reply:?}");
    let again = format!(r#","requestState":"{}""#, state(&reply));
    assert!(call(&world, &again).await.is_released());
    let went_on = world.tool_runner.asked.entries().pop().unwrap();
    let resumption = went_on.interaction.unwrap().resumption.unwrap();
    assert_eq!(resumption.input_responses_json, "{}");
}

#[tokio::test]
async fn answers_that_are_none_are_refused_by_name_and_those_to_nothing_count_for_nothing() {
    let world = World::start().await;
    let state = start_suspended_call(&world).await;
    let reply = call(&world, &goes_on(&state, "[]")).await;
    assert_eq!(reply.code(), -32602, "{reply:?}");
    assert!(reply.text.contains("inputResponses"), "{reply:?}");
    asks(&world, ASK);
    let begun = call(&world, r#","inputResponses":{"name":{}}"#).await;
    assert_eq!(begun.at("/result/resultType"), "input_required");
    let went = world.tool_runner.asked.entries().pop().unwrap();
    assert!(went.interaction.unwrap().resumption.is_none());
    assert!(call(&world, &goes_on(&state, "{}")).await.is_released());
}

#[tokio::test]
async fn the_intent_of_what_may_write_is_on_record_before_each_leg() {
    let world = World::start().await;
    asks(&world, ASK);
    let first = Reply::to(call_request(&world, "writes", "{}", "")).await;
    let more = goes_on(&state(&first), "{}");
    world
        .tool_runner
        .next([RunBehavior::Fail(ErrorReason::Internal)]);
    let second = Reply::to(call_request(&world, "writes", "{}", &more)).await;
    assert_eq!(second.at("/error/data/reason"), "unknown");
    let intents = world.audit.intents.entries();
    assert_eq!(intents.len(), 2);
    assert_ne!(intents[0].call_id, intents[1].call_id);
    // A state that was already used does not even cause an intent record.
    assert!(is_unknown(
        &Reply::to(call_request(&world, "writes", "{}", &more)).await
    ));
    assert_eq!(world.audit.intents.count(), 2);
}

#[tokio::test]
async fn prompts_and_resources_ask_and_go_on_alike() {
    let world = content::world().await;
    let wanted = [
        (
            "prompts/get",
            "greet",
            r#""name":"greet","arguments":{"a":"b"}"#,
        ),
        (
            "resources/read",
            "guide://door/001",
            r#""uri":"guide://door/001""#,
        ),
    ];
    for (method, name, params) in wanted {
        let ask = |more: &str| {
            let request = world.message(MODERN, method, "").header("mcp-name", name);
            Reply::to(request.body(body(method, &format!("{params}{more}"))))
        };
        let given = pb::GetContentResponse {
            result_json: bytes::Bytes::new(),
            input_required: Some(waits(ASK)),
            ..content_response("")
        };
        world.tool_runner.gives.lock().unwrap().push_back(Ok(given));
        let first = ask("").await;
        let message = first.at("/result/inputRequests/who/params/message");
        assert_eq!(message, "[guides] Who?", "{first:?}");
        let more = goes_on(&state(&first), r#"{"who":{"action":"decline"}}"#);
        let second = ask(&more).await;
        assert_eq!(
            second.at("/result/secret").to_string(),
            "[1.10]",
            "{second:?}"
        );
        assert!(is_unknown(&ask(&more).await));
        let got = world.tool_runner.got.entries().pop().unwrap();
        let interaction = got.interaction.unwrap();
        let resumption = interaction.resumption.unwrap();
        assert_eq!(
            resumption.input_responses_json,
            r#"{"who":{"action":"decline"}}"#
        );
        assert_eq!(
            interaction.client_capabilities_json,
            r#"{"elicitation":{},"x":1.10}"#
        );
    }
    let reasons: Vec<_> = world.audit.outcomes.entries();
    let reasons: Vec<&str> = reasons.iter().map(|ended| ended.reason.as_str()).collect();
    assert_eq!(reasons[..3], ["input_required", "", "unknown_state"]);

    // The client declares no capabilities for completions, which never ask for input.
    let completes =
        r#""ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"a","value":""}"#;
    let request = world.message(MODERN, "completion/complete", "");
    let request = request.body(body("completion/complete", completes));
    Reply::to(request).await;
    let got = world.tool_runner.got.entries().pop().unwrap();
    let value: Value = serde_json::from_slice(&got.decided_json).unwrap();
    assert_eq!(value["name"], "own greet");
    assert_eq!(got.interaction.unwrap().client_capabilities_json, "");
}
