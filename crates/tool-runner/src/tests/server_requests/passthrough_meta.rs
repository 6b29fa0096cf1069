//! Tests of the further members that a request carries.

use serde_json::json;
use wardgate_proto::toolrunner::v1 as pb;

use super::{ALL, World, interaction_offering};

const META: &str = r#"{"progressToken":"theirs","a.example/x":{"n":1.10},"dev.wardgate/idempotencyKey":"k","io.modelcontextprotocol/clientCapabilities":{"roots":{}}}"#;

fn interaction_with_meta() -> pb::Interaction {
    pb::Interaction {
        meta_json: META.into(),
        unasked_responses_json: r#"{"who":{"action":"accept"},"other":{}}"#.into(),
        ..interaction_offering(ALL)
    }
}

#[tokio::test]
async fn a_server_gets_what_is_not_of_the_hop_and_a_modern_one_answers_that_nobody_asked_for() {
    for is_modern in [true, false] {
        let world = World::start(is_modern).await;
        world.server.says_text("done");
        let request = world.request("ask", interaction_with_meta()).await;
        assert_eq!(world.send(request).await.unwrap().text().await, "done");
        let params = world.saw("tools/call", 1).await["params"].take();
        let meta = &params["_meta"];
        assert_eq!(meta["a.example/x"].to_string(), r#"{"n":1.10}"#);
        assert!(meta["progressToken"].is_u64(), "{meta}");
        assert!(meta["dev.wardgate/idempotencyKey"].is_null(), "{meta}");
        let capabilities = &meta["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(capabilities.is_object(), is_modern);
        assert!(capabilities["roots"].is_object() == is_modern, "{meta}");
        let answers = json!({ "who": { "action": "accept" }, "other": {} });
        let expected = if is_modern { answers } else { json!(null) };
        assert_eq!(params["inputResponses"], expected);
        assert!(params["requestState"].is_null());
    }
}

#[tokio::test]
async fn where_the_permit_restricts_it_gets_neither() {
    let world = World::start(true).await;
    let terms = world.restricted_terms("ask").await;
    world.server.says_text("done");
    let request = world.request_under(&terms, interaction_with_meta());
    assert!(!world.send(request).await.unwrap().ends().await.0.is_error);
    let params = world.saw("tools/call", 1).await["params"].take();
    assert!(params["_meta"]["a.example/x"].is_null(), "{params}");
    assert!(params["inputResponses"].is_null(), "{params}");
}

#[tokio::test]
async fn what_cannot_be_answers_is_as_if_it_was_not_there() {
    let world = World::start(true).await;
    world.server.says_text("done");
    let unfit = pb::Interaction {
        unasked_responses_json: r#"{"who":12345}"#.into(),
        ..interaction_offering(ALL)
    };
    let request = world.request("ask", unfit).await;
    assert_eq!(world.send(request).await.unwrap().text().await, "done");
    let params = world.saw("tools/call", 1).await["params"].take();
    assert!(params["inputResponses"].is_null(), "{params}");
}
