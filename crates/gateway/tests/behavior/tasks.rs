//! Calls that become tasks of their servers, and the requests about those tasks.

use std::time::Duration;

use reqwest::RequestBuilder;
use serde_json::json;
use wardgate_domain::{DenialReason, Status};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::call_tool_response::Event;

use crate::listen::SUBSCRIPTION;
use crate::world::{LEGACY, MODERN, Reply, World, definition};
use wardgate_testkit::{EventStreamClient, PolicyAnswer, listed_tool, tool_result, until_true};

const ABOUT: &str = r#"{"status":"working","ttlMs":null, "x":1.10}"#;
const ASK: &str =
    r#"{"who":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{}}}}"#;

/// Starts a gateway whose tools may become tasks. The toolset `near` has them too.
async fn world() -> World {
    let world = World::start_without_memory(json!({})).await;
    configure(&world).await;
    world
}

async fn configure(world: &World) {
    let tools = ["reads", "writes"].map(|name| pb::Tool {
        may_be_task: true,
        toolsets: vec!["near".to_owned()],
        ..listed_tool(name, &definition())
    });
    world.tool_runner.configure(tools.to_vec());
    until_true("the gateway knows of tasks", async || {
        let told = Reply::to(world.message(MODERN, "server/discover", "")).await;
        told.at("/result/capabilities/extensions") == json!({ "io.modelcontextprotocol/tasks": {} })
    })
    .await;
}

fn task(about: &str, kind: &str) -> pb::Task {
    pb::Task {
        state: bytes::Bytes::from_static(b"\0the runner's own secret"),
        task_json: about.to_owned().into(),
        facts: Some(pb::ResultFacts {
            status: pb::OutcomeStatus::Ok.into(),
            error_kind: kind.to_owned(),
            ..pb::ResultFacts::default()
        }),
        ..pb::Task::default()
    }
}

/// Makes the next call become `task`.
fn gives(world: &World, task: pb::Task) {
    let runs = world.tool_runner.live();
    runs.unbounded_send(Event::Task(task)).unwrap();
}

/// Makes the next request about a task fail.
fn fails(world: &World, kind: &str) {
    let mut failed = tool_result("why it failed", &serde_json::Value::Null);
    failed.is_error = true;
    let facts = failed.facts.as_mut().unwrap();
    facts.status = pb::OutcomeStatus::ToolError.into();
    kind.clone_into(&mut facts.error_kind);
    let runs = world.tool_runner.live();
    runs.unbounded_send(Event::Result(failed)).unwrap();
}

/// Returns the body of a request of a client that supports tasks and forms. `params` is written without braces.
fn body(method: &str, params: &str) -> String {
    let able = r#"{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
    format!(
        r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{able}}}}}}}"#
    )
}

fn call_request(world: &World, tool: &str, arguments: &str) -> RequestBuilder {
    let params = format!(r#""name":"{tool}","arguments":{arguments}"#);
    let request = world.tools_call(MODERN, tool, arguments);
    request.body(body("tools/call", &params))
}

fn task_request(world: &World, token: &str, method: &str, id: &str, more: &str) -> RequestBuilder {
    let request = world.message_of(token, MODERN, method, "");
    let request = request.header("mcp-name", id);
    request.body(body(method, &format!(r#""taskId":"{id}"{more}"#)))
}

async fn send_request(world: &World, method: &str, id: &str, more: &str) -> Reply {
    Reply::to(task_request(world, &world.token, method, id, more)).await
}

/// Makes a call that becomes a task, and returns the id that its client receives.
async fn begin_task(world: &World, tool: &str, arguments: &str) -> String {
    gives(world, task(ABOUT, "task"));
    id_of(&Reply::to(call_request(world, tool, arguments)).await)
}

fn id_of(reply: &Reply) -> String {
    assert_eq!(reply.at("/result/resultType"), "task", "{reply:?}");
    reply.at("/result/taskId").as_str().unwrap().to_owned()
}

/// Returns whether `reply` is the error for an unknown task.
fn is_unknown(reply: &Reply) -> bool {
    reply.is_unknown("taskId")
}

#[tokio::test]
async fn a_task_is_handed_out_sealed_and_any_gateway_looks_after_it() {
    let world = world().await;
    gives(&world, task(ABOUT, "task"));
    let begun = Reply::to(call_request(&world, "reads", r#"{"n":1.10}"#)).await;
    let id = id_of(&begun);
    assert!(begun.text.contains(r#""x":1.10"#) && !begun.text.contains("secret"));
    assert_eq!(
        begun.at("/result/ttlMs"),
        86_400_000,
        "as long as its id is good"
    );
    assert!(begun.at("/result/_meta/dev.wardgate~1receipt").is_object());
    let ended = world.audit.outcome().await;
    assert_eq!((ended.status, &*ended.reason), (Status::Ok, "task"));

    let twin = world.twin().await;
    configure(&twin).await;
    gives(&twin, task(ABOUT, "task_working"));
    let looked = send_request(&twin, "tasks/get", &id, "").await;
    assert_eq!(looked.at("/result/resultType"), "complete", "{looked:?}");
    assert_eq!(looked.at("/result/taskId"), id.as_str());
    let asked = twin.tool_runner.asked.entries().pop().unwrap();
    assert_eq!(asked.arguments_json, r#"{"n":1.10}"#);
    let resumption = asked.interaction.unwrap().resumption.unwrap();
    assert_eq!(resumption.state, &b"\0the runner's own secret"[..]);
    assert_eq!(resumption.task_step(), pb::TaskStep::Get);

    let done = pb::Task {
        result: Some(tool_result("the secret result", &json!({ "rows": [1.10] }))),
        facts: tool_result("", &json!({})).facts,
        ..task(r#"{"status":"completed"}"#, "")
    };
    gives(&twin, done);
    let done = send_request(&twin, "tasks/get", &id, "").await;
    assert_eq!(
        done.at("/result/result/content/0/text"),
        "the secret result"
    );
    assert_eq!(done.at("/result/result/isError"), false);
    assert!(
        done.text.contains(r#""structuredContent":{"rows":[1.1]}"#),
        "{done:?}"
    );
    assert!(done.at("/result/_meta/dev.wardgate~1receipt").is_object());
    let looks = twin.audit.outcomes.reaches(2).await;
    let told = |at: usize| (&*looks[at].call.method, looks[at].reason.as_str());
    assert_eq!(
        [told(0), told(1)],
        [("tasks/get", "task_working"), ("tasks/get", "")]
    );
    assert_eq!((looks[1].rows, looks[1].phi), (2, true));
    assert_eq!(looks[1].call.arguments_digest, ended.call.arguments_digest);
    assert_eq!(looks[1].call.tool.as_ref().unwrap().as_str(), "reads");
}

#[tokio::test]
async fn a_task_of_another_caller_or_path_or_of_long_ago_is_like_one_that_never_was() {
    let world = world().await;
    let id = begin_task(&world, "reads", "{}").await;
    let ran = world.tool_runner.asked.count();
    let other = world.issuer.token("dr.kim", &["Doctor"]);
    let elsewhere = |path: &str| {
        let mut request = task_request(&world, &world.token, "tasks/get", &id, "")
            .build()
            .unwrap();
        request.url_mut().set_path(path);
        request
    };
    let forged = format!("A{id}");
    for request in [
        task_request(&world, &other, "tasks/get", &id, "")
            .build()
            .unwrap(),
        task_request(&world, &world.token, "tasks/get", &forged, "")
            .build()
            .unwrap(),
        task_request(&world, &world.token, "tasks/cancel", "t-1", "")
            .build()
            .unwrap(),
        elsewhere("/mcp/near"),
    ] {
        let response = world.http.execute(request).await.unwrap();
        let text = response.text().await.unwrap();
        assert!(
            text.contains("unknown `taskId`") && text.contains("-32602"),
            "{text}"
        );
    }
    assert_eq!(world.tool_runner.asked.count(), ran);
    // The tool-runner reports `not_waiting` if the server no longer knows the task, or if the definition of its tool changed.
    fails(&world, "not_waiting");
    assert!(is_unknown(
        &send_request(&world, "tasks/get", &id, "").await
    ));
    world
        .clock
        .advance(Duration::from_hours(24) + Duration::from_secs(1));
    let renewed = world.issuer.token("dr.lee", &["Doctor"]);
    assert!(is_unknown(
        &Reply::to(task_request(&world, &renewed, "tasks/get", &id, "")).await
    ));
    assert_eq!(world.tool_runner.asked.count(), ran + 1);
}

#[tokio::test]
async fn whoever_may_no_longer_make_the_call_has_no_such_task() {
    let world = world().await;
    world.policy.says(PolicyAnswer::AllowThese);
    let id = begin_task(&world, "reads", r#"{"n":2}"#).await;
    let ran = world.tool_runner.asked.count();
    for visible in [true, false] {
        world.policy.says(PolicyAnswer::Deny {
            reason: DenialReason::NotPermitted,
            visible,
        });
        for (method, more) in [
            ("tasks/get", ""),
            ("tasks/update", r#","inputResponses":{}"#),
            ("tasks/cancel", ""),
        ] {
            assert!(
                is_unknown(&send_request(&world, method, &id, more).await),
                "{method}"
            );
        }
    }
    assert_eq!(world.tool_runner.asked.count(), ran);
    let ended = world.audit.outcomes.entries().pop().unwrap();
    assert_eq!(
        (ended.status, &*ended.call.method),
        (Status::Denied, "tasks/cancel")
    );

    // The policy denies only these arguments.
    world.policy.says(PolicyAnswer::AllowThese);
    world.policy.forbid(r#""n":2"#);
    assert!(is_unknown(
        &send_request(&world, "tasks/get", &id, "").await
    ));
    let other = begin_task(&world, "reads", r#"{"n":3}"#).await;
    gives(&world, task(ABOUT, "task_working"));
    assert_eq!(
        send_request(&world, "tasks/get", &other, "").await.code(),
        0
    );
    world
        .tool_runner
        .configure(vec![listed_tool("others", &definition())]);
    until_true("its tool is gone", async || {
        send_request(&world, "tasks/get", &other, "").await.code() == -32602
    })
    .await;
}

#[tokio::test]
async fn no_result_leaves_before_its_record_and_nothing_that_may_write_begins_without() {
    let world = world().await;
    let id = begin_task(&world, "writes", "{}").await;
    assert_eq!(world.audit.intents.count(), 1);
    gives(&world, task(ABOUT, "task_working"));
    send_request(&world, "tasks/get", &id, "").await;
    assert_eq!(world.audit.intents.count(), 1, "to look changes nothing");
    gives(&world, task("", ""));
    let taken = send_request(
        &world,
        "tasks/update",
        &id,
        r#","inputResponses":{"k":{"a":1.10}}"#,
    )
    .await;
    assert_eq!(taken.at("/result/resultType"), "complete", "{taken:?}");
    assert!(taken.at("/result/taskId").is_null());
    let intents = world.audit.intents.entries();
    assert_eq!((intents.len(), &*intents[1].method), (2, "tasks/update"));
    let asked = world.tool_runner.asked.entries().pop().unwrap();
    let resumption = asked.interaction.unwrap().resumption.unwrap();
    assert_eq!(resumption.input_responses_json, r#"{"k":{"a":1.10}}"#);
    assert_eq!(resumption.task_step(), pb::TaskStep::Update);

    let ran = world.tool_runner.asked.count();
    world.audit.fails_after(Duration::ZERO);
    let cancelled = send_request(&world, "tasks/cancel", &id, "").await;
    assert_eq!(cancelled.at("/error/data/reason"), "not_durable");
    assert_eq!(world.tool_runner.asked.count(), ran);
    gives(&world, task(ABOUT, "task_working"));
    let looked = send_request(&world, "tasks/get", &id, "").await;
    assert_eq!(looked.at("/error/data/reason"), "not_durable");
    assert!(!looked.text.contains("1.10"), "{looked:?}");
    gives(&world, task(ABOUT, "task"));
    let begun = Reply::to(call_request(&world, "reads", "{}")).await;
    assert!(begun.at("/result/taskId").is_null(), "{begun:?}");
    assert_eq!(world.tool_runner.asked.count(), ran + 2);
}

#[tokio::test]
async fn tasks_are_for_clients_that_declare_them_where_there_are_any() {
    let world = world().await;
    let id = begin_task(&world, "reads", "{}").await;
    for (method, more) in [
        ("tasks/get", ""),
        ("tasks/update", r#","inputResponses":{}"#),
        ("tasks/cancel", ""),
    ] {
        let params = format!(r#""taskId":"{id}"{more}"#);
        let request = world.message(MODERN, method, &params);
        let reply = Reply::to(request.header("mcp-name", id.as_str())).await;
        assert_eq!((reply.status, reply.code()), (400, -32021), "{reply:?}");
        let needed = json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } });
        assert_eq!(reply.at("/error/data/requiredCapabilities"), needed);

        let older = Reply::to(world.message(LEGACY, method, &params)).await;
        assert_eq!(older.code(), -32601, "{older:?}");
    }
    let answered = send_request(&world, "tasks/update", &id, r#","inputResponses":[]"#).await;
    assert!(answered.text.contains("inputResponses"), "{answered:?}");
    for removed in ["tasks/list", "tasks/result"] {
        let reply = send_request(&world, removed, &id, "").await;
        assert_eq!((reply.status, reply.code()), (404, -32601), "{reply:?}");
    }
    // A tool whose calls always become tasks, called by a client that supports none.
    fails(&world, "needs_tasks");
    let reply = world.call("reads").await;
    assert_eq!((reply.status, reply.code()), (400, -32021), "{reply:?}");
    fails(&world, "needs_tasks");
    let reply = Reply::to(call_request(&world, "reads", "{}")).await;
    assert_eq!(reply.at("/result/isError"), true, "{reply:?}");

    let initialize = r#""protocolVersion":"2025-11-25","capabilities":{}"#;
    let initialized = Reply::to(world.message(LEGACY, "initialize", initialize)).await;
    let told = initialized.at("/result/capabilities");
    assert!(
        told["tasks"].is_null() && told["extensions"].is_null(),
        "{told}"
    );

    let none = World::start_without_memory(json!({})).await;
    let told = Reply::to(none.message(MODERN, "server/discover", "")).await;
    assert!(
        told.at("/result/capabilities/extensions").is_null(),
        "{told:?}"
    );
    let reply = send_request(&none, "tasks/get", "t-1", "").await;
    assert_eq!((reply.status, reply.code()), (404, -32601), "{reply:?}");
}

#[tokio::test]
async fn a_task_asks_under_the_name_of_who_asks_and_only_what_its_client_can_answer() {
    let world = world().await;
    let id = begin_task(&world, "reads", "{}").await;
    let asks = |requests: &str| pb::Task {
        input_requests_json: requests.to_owned().into(),
        ..task(r#"{"status":"input_required"}"#, "task_input_required")
    };
    gives(&world, asks(ASK));
    let asked = send_request(&world, "tasks/get", &id, "").await;
    let message = asked.at("/result/inputRequests/who/params/message");
    assert_eq!(message, "[reads] Who?", "{asked:?}");
    gives(&world, asks(r#"{"a":{"method":"roots/list"}}"#));
    let asked = send_request(&world, "tasks/get", &id, "").await;
    assert_eq!(asked.code(), -32021, "{asked:?}");
    let failed = pb::Task {
        error_json: r#"{"code":-32603,"message":"broke"}"#.into(),
        ..task(r#"{"status":"failed"}"#, "task_failed")
    };
    gives(&world, failed);
    let failed = send_request(&world, "tasks/get", &id, "").await;
    assert_eq!(failed.at("/result/error/message"), "broke", "{failed:?}");
    fails(&world, "source_unavailable");
    let away = send_request(&world, "tasks/get", &id, "").await;
    assert_eq!(away.at("/error/message"), "why it failed", "{away:?}");
}

#[tokio::test]
async fn long_arguments_are_kept_for_the_task_for_an_hour_and_no_gateway_reads_them_raw() {
    let world = world().await;
    let long = format!(r#"{{"n":1.10,"a":"{}"}}"#, "canary ".repeat(200));
    gives(&world, task(ABOUT, "task"));
    let begun = Reply::to(call_request(&world, "reads", &long)).await;
    assert_eq!(begun.at("/result/ttlMs"), 3_600_000);
    let id = id_of(&begun);
    assert!(id.len() < 1_000);
    let stored = world.read_store();
    assert!(!stored.windows(6).any(|part| part == b"canary"));
    gives(&world, task(ABOUT, "task_working"));
    assert_eq!(send_request(&world, "tasks/get", &id, "").await.code(), 0);
    let asked = world.tool_runner.asked.entries().pop().unwrap();
    assert_eq!(asked.arguments_json, long.as_bytes());
    world.clock.advance(Duration::from_secs(3_601));
    let token = world.issuer.token("dr.lee", &["Doctor"]);
    assert!(is_unknown(
        &Reply::to(task_request(&world, &token, "tasks/get", &id, "")).await
    ));
}

fn listen_request(world: &World, notifications: &str) -> RequestBuilder {
    let request = world.message(MODERN, "subscriptions/listen", "");
    let params = format!(r#""notifications":{{{notifications}}}"#);
    request.body(body("subscriptions/listen", &params))
}

#[tokio::test]
async fn whoever_listens_to_a_task_is_told_once_how_it_stands_and_each_time_on_record() {
    let world = world().await;
    let id = begin_task(&world, "reads", r#"{"n":1.10}"#).await;
    let working = r#"{"status":"working","pollIntervalMs":1, "a\"b":1.10}"#;
    for _ in 0..2 {
        gives(&world, task(working, "task_working"));
    }
    let done = pb::Task {
        result: Some(tool_result("the result", &json!({}))),
        facts: tool_result("", &json!({})).facts,
        ..task(r#"{"status":"completed"}"#, "")
    };
    gives(&world, done);
    let wanted = format!(r#""taskIds":["{id}","nobody's","A{id}"]"#);
    let mut ear = EventStreamClient::open(listen_request(&world, &wanted)).await;
    let acknowledged = ear.next_message().await.unwrap();
    let taken = &acknowledged["params"]["notifications"];
    assert_eq!(taken, &json!({ "taskIds": [id] }));

    let told = ear.next_message().await.unwrap();
    assert_eq!(told["method"], "notifications/tasks");
    let params = &told["params"];
    assert_eq!(
        (&params["taskId"], &params["status"]),
        (&json!(id), &json!("working"))
    );
    assert_eq!(params["_meta"][SUBSCRIPTION], 7);
    assert!(
        params["_meta"]["dev.wardgate/receipt"].is_object(),
        "{told}"
    );
    assert!(params["resultType"].is_null(), "{told}");
    assert_eq!(params["a\"b"], 1.10);

    // The status was unchanged at the second poll, and completed at the third.
    let told = ear.next_message().await.unwrap();
    assert_eq!(told["params"]["status"], "completed");
    assert_eq!(told["params"]["result"]["content"][0]["text"], "the result");
    let looks = world.audit.outcomes.reaches(4).await;
    let told = looks.iter().map(|look| (&*look.call.method, &*look.reason));
    let told: Vec<_> = told.collect();
    let working = ("tasks/get", "task_working");
    assert_eq!(told[1..], [working, working, ("tasks/get", "")]);
}

#[tokio::test]
async fn whoever_may_no_longer_make_the_call_hears_no_more_of_its_task() {
    let world = world().await;
    world.policy.says(PolicyAnswer::AllowThese);
    let id = begin_task(&world, "reads", "{}").await;
    let working = r#"{"status":"working","pollIntervalMs":1}"#;
    gives(&world, task(working, "task_working"));
    let wanted = format!(r#""toolsListChanged":true,"taskIds":["{id}"]"#);
    let mut ear = EventStreamClient::open(listen_request(&world, &wanted)).await;
    ear.next_message().await.unwrap();
    let told = ear.next_message().await.unwrap();
    assert_eq!(told["params"]["status"], "working", "{told}");
    let ran = world.tool_runner.asked.count();
    world.policy.says(PolicyAnswer::Deny {
        reason: DenialReason::NotPermitted,
        visible: true,
    });
    let ended = world.audit.outcomes.reaches(3).await.pop().unwrap();
    assert_eq!(ended.status, Status::Denied);
    // If the caller is allowed again, this stream does not resume the task.
    world.policy.says(PolicyAnswer::AllowThese);
    configure_others(&world);
    let told = ear.next_message().await.unwrap();
    assert_eq!(told["method"], "notifications/tools/list_changed");
    assert_eq!(world.tool_runner.asked.count(), ran);
}

/// Adds a tool to the catalogue.
fn configure_others(world: &World) {
    let tools = ["reads", "writes", "others"].map(|name| listed_tool(name, &definition()));
    world.tool_runner.configure(tools.to_vec());
}

#[tokio::test]
async fn tasks_are_listened_to_by_clients_that_declare_them_and_not_by_the_hundred() {
    let world = world().await;
    let params = r#""notifications":{"taskIds":["t"]}"#;
    let undeclared = Reply::to(world.message(MODERN, "subscriptions/listen", params)).await;
    assert_eq!((undeclared.status, undeclared.code()), (400, -32021));
    let many = vec!["t"; 33];
    let many = Reply::to(listen_request(
        &world,
        &format!(r#""taskIds":{}"#, json!(many)),
    ))
    .await;
    assert_eq!(many.code(), -32602, "{many:?}");
    assert!(many.text.contains("32 ids"), "{many:?}");
}
