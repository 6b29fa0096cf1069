//! Tests of calls that servers of MCP 2026-07-28 turn into tasks.

use serde_json::{Value, json};
use wardgate_proto::toolrunner::v1 as pb;

use super::{FORM, Says, World, interaction_offering, result};

/// Capabilities of a client that supports tasks and forms.
const TAKES: &str =
    r#"{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{},"x/y":{}}}"#;

const CAPABILITIES: &str = "/params/_meta/io.modelcontextprotocol~1clientCapabilities";

fn task(status: &str) -> Value {
    json!({ "taskId": "t-1", "status": status, "createdAt": "x", "lastUpdatedAt": "y", "ttlMs": null })
}

fn with(mut task: Value, member: &str, value: Value) -> Value {
    task[member] = value;
    task
}

fn task_interaction(task: &pb::Task, step: pb::TaskStep, answers: &str) -> pb::Interaction {
    pb::Interaction {
        resumption: Some(pb::Resumption {
            state: task.state.clone(),
            input_responses_json: answers.to_owned().into(),
            task_step: step.into(),
        }),
        ..interaction_offering(TAKES)
    }
}

impl World {
    /// Makes a call that becomes a task.
    async fn begin_task(&self) -> pb::Task {
        let created = with(task("working"), "resultType", "task".into());
        self.server.says(Says::Result(created));
        let request = self.request("ask", interaction_offering(TAKES)).await;
        self.send(request).await.unwrap().task().await
    }

    async fn poll_task(&self, task: &pb::Task, says: Value) -> pb::Task {
        self.server.says(Says::Result(says));
        let look = task_interaction(task, pb::TaskStep::Get, "");
        let request = self.request("ask", look).await;
        self.send(request).await.unwrap().task().await
    }
}

#[tokio::test]
async fn a_call_may_become_a_task_whose_result_is_that_of_the_call() {
    let world = World::start(true).await;
    let begun = world.begin_task().await;
    let about = String::from_utf8(begun.task_json.to_vec()).unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&about).unwrap(),
        json!({ "status": "working", "createdAt": "x", "lastUpdatedAt": "y", "ttlMs": null })
    );
    let facts = begun.facts.as_ref().unwrap();
    assert_eq!(
        (facts.status(), &*facts.error_kind),
        (pb::OutcomeStatus::Ok, "task")
    );
    let call = world.saw("tools/call", 1).await;
    let told = call.pointer(CAPABILITIES).unwrap();
    assert_eq!(*told, serde_json::from_str::<Value>(TAKES).unwrap());

    let working = world.poll_task(&begun, task("working")).await;
    assert!(working.result.is_none() && working.error_json.is_empty());
    assert_eq!(working.facts.unwrap().error_kind, "task_working");
    assert_eq!(working.state, begun.state);
    let asked = world.saw("tasks/get", 1).await;
    assert_eq!(asked["params"]["taskId"], "t-1");
    assert!(asked.pointer(CAPABILITIES).unwrap()["extensions"].is_object());

    let done = with(task("completed"), "result", result("done"));
    let done = world.poll_task(&begun, done).await;
    let result = done.result.unwrap();
    assert_eq!(done.facts, result.facts);
    assert_eq!(result.facts.as_ref().unwrap().rows, 1);
    assert!(String::from_utf8_lossy(&result.content_json).contains("done"));
}

#[tokio::test]
async fn a_task_that_asks_gets_its_answers_and_one_that_failed_says_why() {
    let world = World::start(true).await;
    let begun = world.begin_task().await;
    let requests = format!(r#"{{"k":{{"method":"elicitation/create","params":{FORM}}}}}"#);
    let requests: Value = serde_json::from_str(&requests).unwrap();
    let asks = with(task("input_required"), "inputRequests", requests.clone());
    let asks = world.poll_task(&begun, asks).await;
    let asked: Value = serde_json::from_slice(&asks.input_requests_json).unwrap();
    assert_eq!(asked, requests);
    assert_eq!(asks.facts.unwrap().error_kind, "task_input_required");

    let answers = r#"{"k":{"action":"accept","content":{"n":1.10}}}"#;
    world
        .server
        .says(Says::Result(json!({ "resultType": "complete" })));
    let update = task_interaction(&begun, pb::TaskStep::Update, answers);
    let request = world.request("ask", update).await;
    let taken = world.send(request).await.unwrap().task().await;
    assert!(taken.task_json.is_empty());
    let told = world.saw("tasks/update", 1).await;
    assert_eq!(told["params"]["taskId"], "t-1");
    assert_eq!(told["params"]["inputResponses"]["k"]["action"], "accept");

    let cancel = task_interaction(&begun, pb::TaskStep::Cancel, "");
    let request = world.request("ask", cancel).await;
    assert!(
        world
            .send(request)
            .await
            .unwrap()
            .task()
            .await
            .task_json
            .is_empty()
    );
    world.saw("tasks/cancel", 1).await;

    let error = json!({ "code": -32022, "message": "m", "data": { "a": 1 } });
    let failed = world
        .poll_task(&begun, with(task("failed"), "error", error))
        .await;
    let error: Value = serde_json::from_slice(&failed.error_json).unwrap();
    assert_eq!(
        error,
        json!({ "code": -32603, "message": "m", "data": { "a": 1 } })
    );
    assert_eq!(failed.facts.unwrap().status(), pb::OutcomeStatus::ToolError);
}

#[tokio::test]
async fn nothing_becomes_a_task_that_was_not_offered() {
    let world = World::start(true).await;
    let created = || Says::Result(with(task("working"), "resultType", "task".into()));
    let plain = world
        .request("ask", interaction_offering(r#"{"elicitation":{}}"#))
        .await;
    let keyed = pb::CallToolRequest {
        idempotency_key: "k".to_owned(),
        ..world.request("ask", interaction_offering(TAKES)).await
    };
    let terms = world.restricted_terms("ask").await;
    let restricted = world.request_under(&terms, interaction_offering(TAKES));
    for (number, request) in (1..).zip([plain, keyed, restricted]) {
        world.server.says(created());
        assert_eq!(
            world.send(request).await.unwrap().fails().await,
            "bad_result"
        );
        let call = world.saw("tools/call", number).await;
        assert!(!call.to_string().contains("tasks"), "{call}");
    }
}

#[tokio::test]
async fn a_task_is_there_for_the_same_call_under_a_permit_that_shows_all_of_it() {
    let mut world = World::start(true).await;
    let begun = world.begin_task().await;
    let look = || task_interaction(&begun, pb::TaskStep::Get, "");
    let terms = world.restricted_terms("ask").await;
    let restricted = world.request_under(&terms, look());
    let mut other_arguments = world.request("ask", look()).await;
    other_arguments.arguments_json = r#"{"a":2}"#.into();
    let mut other_tool = world.request("keep", look()).await;
    other_tool.arguments_json = r"{}".into();
    let as_a_call = world
        .request(
            "ask",
            task_interaction(&begun, pb::TaskStep::Unspecified, ""),
        )
        .await;
    for request in [restricted, other_arguments, other_tool, as_a_call] {
        assert_eq!(
            world.send(request).await.unwrap().fails().await,
            "not_waiting"
        );
    }
    world.harness.caller = crate::tests::harness::caller("another");
    let request = world.request("ask", look()).await;
    assert_eq!(
        world.send(request).await.unwrap().fails().await,
        "not_waiting"
    );
    assert!(world.server.received_messages("tasks/get").is_empty());
}

#[tokio::test]
async fn a_task_that_its_server_forgot_is_none_and_one_it_mixes_up_is_no_answer() {
    let world = World::start(true).await;
    let begun = world.begin_task().await;
    let request = world
        .request("ask", task_interaction(&begun, pb::TaskStep::Get, ""))
        .await;
    let error = json!({ "code": -32602, "message": "unknown task: t-1" });
    world.server.says(Says::Error(error));
    assert_eq!(
        world.send(request.clone()).await.unwrap().fails().await,
        "not_waiting"
    );
    let other = with(task("working"), "taskId", "t-2".into());
    world.server.says(Says::Result(other));
    assert_eq!(
        world.send(request).await.unwrap().fails().await,
        "bad_result"
    );
}
