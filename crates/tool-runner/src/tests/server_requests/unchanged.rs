//! Tests that a caller who may see everything receives a result as the server wrote it.

use serde_json::json;

use super::{ALL, Says, World, interaction_offering};

const CONTENT: &str = r#"[ {"type":"text","text":"\u0000 \ud800","big":12345678901234567890123,"n":1.10},{"type":"hologram"}]"#;

fn structured_content() -> String {
    let (open, close) = ("[".repeat(500), "]".repeat(500));
    format!(r#"{{"deep":{open}{close},"huge":1E400,"z":0.10,"a":1}}"#)
}

fn result() -> String {
    let meta = r#"{"fastmcp":{"wrap_result":true},"dev.wardgate/receipt":"forged","openai/outputTemplate":"ui://x","io.modelcontextprotocol/serverInfo":{"name":"s"},"n":1.0}"#;
    let structured = structured_content();
    format!(
        r#"{{"resultType":"complete","x-new":{{"b":1.10}},"content":{CONTENT},"structuredContent":{structured},"_meta":{meta},"isError":false}}"#
    )
}

#[tokio::test]
async fn a_result_goes_on_byte_for_byte_in_both_eras() {
    for is_modern in [true, false] {
        let world = World::start(is_modern).await;
        world.server.says(Says::Text(result()));
        let answer = world.begin().await.ends().await;
        assert_eq!(answer.0.content_json, CONTENT);
        assert_eq!(answer.0.structured_content_json, structured_content());
        assert_eq!(answer.0.other_members_json, r#"{"x-new":{"b":1.10}}"#);
        assert_eq!(
            answer.0.meta_json,
            r#"{"fastmcp":{"wrap_result":true},"openai/outputTemplate":"ui://x","n":1.0}"#
        );
        let facts = answer.facts();
        assert_eq!((facts.rows, facts.fields_redacted), (1, 0));
    }
}

#[tokio::test]
async fn a_member_given_twice_refuses_the_result_however_deep_it_is() {
    let world = World::start(true).await;
    for twice in [
        r#"{"content":[],"structuredContent":{"a":[{"b":1,"\u0062":2}]}}"#,
        r#"{"content":[],"content":[]}"#,
        r#"{"content":[],"x":1,"x":2}"#,
    ] {
        world.server.says(Says::Text(twice.to_owned()));
        assert_eq!(world.begin().await.fails().await, "bad_result", "{twice}");
    }
}

#[tokio::test]
async fn where_the_permit_restricts_nothing_but_governed_columns_is_released() {
    let world = World::start(true).await;
    let terms = world.restricted_terms("ask").await;
    let said = r#"{"content":[{"type":"text","text":"Ann"}],"x-new":1,"_meta":{"secret":"Ann"}}"#;
    world.server.says(Says::Text(said.to_owned()));
    let request = world.request_under(&terms, interaction_offering(ALL));
    let answer = world.send(request).await.unwrap().ends().await;
    assert!(answer.0.other_members_json.is_empty() && answer.0.meta_json.is_empty());
    assert_ne!(answer.0.content_json, r#"[{"type":"text","text":"Ann"}]"#);
}

#[tokio::test]
async fn a_json_rpc_error_goes_on_with_its_code_and_data_as_far_as_the_permit_shows_it() {
    let error = json!({ "code": -32001, "message": "Ann is away", "data": { "until": 1.5 } });
    for is_modern in [true, false] {
        let world = World::start(is_modern).await;
        world.server.says(Says::Error(error.clone()));
        let answer = world.begin().await.ends().await;
        let told: serde_json::Value = serde_json::from_slice(&answer.0.error_json).unwrap();
        assert_eq!(told, error);
        assert!(answer.0.is_error);

        let terms = world.restricted_terms("ask").await;
        world.server.says(Says::Error(error.clone()));
        let request = world.request_under(&terms, interaction_offering(ALL));
        let answer = world.send(request).await.unwrap().ends().await;
        let told: serde_json::Value = serde_json::from_slice(&answer.0.error_json).unwrap();
        assert_eq!(
            (&told["code"], &told["data"]),
            (&json!(-32001), &json!(null))
        );
        assert!(!told["message"].to_string().contains("Ann"), "{told}");
    }
}
