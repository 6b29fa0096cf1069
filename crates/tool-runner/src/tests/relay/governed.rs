//! What a permit that restricts lets through.

use serde_json::{Value, json};
use wardgate_domain::{ColumnTier, OfferKind, PermitTerms};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;

use super::{
    META, World, body, call_message, event, events, failure, head, json_answer, request, status,
    terms,
};

const CLASSES: &str =
    ", classes: { content: phi.text, structuredContent: phi.name, error: ops.error }";

/// Terms for that, under which content leaves in no form and structured content in part.
async fn restricted(world: &World, kind: OfferKind, arguments: &str) -> PermitTerms {
    let mut terms = terms(&world.harness, kind, "up__read", arguments).await;
    let tiers = [
        ("phi.text", ColumnTier::Dropped),
        ("phi.name", ColumnTier::Partial),
        ("ops.error", ColumnTier::Dropped),
    ];
    for (class, tier) in tiers {
        terms.column_tiers.insert(class.parse().unwrap(), tier);
    }
    terms
}

async fn call(world: &World) -> pb::RelayRequest {
    let terms = restricted(world, OfferKind::Tool, "{}").await;
    let kind = OfferKind::Tool;
    request(&world.harness, kind, &terms, "{}", &call_message("{}"))
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap()
}

#[tokio::test]
async fn a_result_is_redacted_and_loses_what_nobody_governs() {
    let world = World::with(CLASSES, |_| ()).await;
    world.says(json_answer(
        200,
        r#"{"jsonrpc":"2.0","id":7,"vendor":"secret","result":{"resultType":"complete","content":[{"type":"text","text":"secret"}],"structuredContent":{"patient":"Jane Doe"},"isError":false,"_meta":{"a":"secret"}}}"#,
    ));
    let parts = world.all(call(&world).await).await;
    let body = body(&parts[1]);
    assert_eq!(
        json(&body.message),
        json!({ "jsonrpc": "2.0", "id": 7, "result": {
            "resultType": "complete",
            "content": [{ "type": "text", "text": "The content is withheld." }],
            "structuredContent": { "patient": "J••• D•••" },
            "isError": false,
        }})
    );
    let facts = body.result.as_ref().unwrap();
    assert_eq!(facts.status(), pb::OutcomeStatus::Ok);
    assert_eq!((facts.fields_redacted, facts.phi), (2, true));
}

#[tokio::test]
async fn before_a_restricted_result_only_numbers_pass_and_the_server_is_not_left_waiting() {
    let world = World::with(CLASSES, |_| ()).await;
    world.says(events(&format!(
        "{}{}{}{}{}{}{}{}",
        "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"data\":\"secret\"}}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"p-1\",\"progress\":1,\"total\":2.50,\"message\":\"secret\"}}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"secret\",\"progress\":1}}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":\"p-1\",\"progress\":\"secret\"}}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"id\":\"s-1\",\"method\":\"elicitation/create\",\"params\":{\"message\":\"secret\"}}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{\"content\":\"secret\"}}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"secret\"}]}}\n\n",
        "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"secret\"}]}}\n\n",
    )));
    world.says(status(202));
    let parts = world.all(call(&world).await).await;
    let said: Vec<_> = parts[1..]
        .iter()
        .map(|part| std::str::from_utf8(&event(part).message).unwrap())
        .collect();
    assert_eq!(
        said,
        [
            "",
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p-1","progress":1,"total":2.50}}"#,
            r#"{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"The content is withheld."}],"isError":false}}"#,
        ]
    );
    let declined = json(&world.seen()[1].body);
    assert_eq!(declined["id"], "s-1");
    assert_eq!(declined["error"]["code"], -32601);
}

#[tokio::test]
async fn a_result_that_is_none_yet_passes_only_where_all_is_clear() {
    let world = World::with(CLASSES, |_| ()).await;
    let asks = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"input_required","requestState":"secret"}}"#;
    let task = r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"task","taskId":"secret"}}"#;
    for (answer, kind) in [(asks, "input_required"), (task, "bad_result")] {
        world.says(json_answer(200, answer));
        let parts = world.all(call(&world).await).await;
        let (text, facts) = failure(&parts);
        assert_eq!(
            (facts.error_kind.as_str(), parts.len()),
            (kind, 1),
            "{text}"
        );

        world.says(json_answer(200, answer));
        let clear = super::call(&world.harness, "{}").await;
        let parts = world.all(clear).await;
        assert_eq!(body(&parts[1]).message, answer);
        assert!(body(&parts[1]).result.as_ref().unwrap().phi);
    }
}

#[tokio::test]
async fn an_error_keeps_its_code_and_its_words_go_by_their_class() {
    let world = World::with(CLASSES, |_| ()).await;
    let error =
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32602,"message":"secret","data":"secret"}}"#;
    for (tier, text) in [
        (
            ColumnTier::Dropped,
            "the server reported an error, which is withheld",
        ),
        (ColumnTier::Clear, "secret"),
    ] {
        let mut terms = restricted(&world, OfferKind::Tool, "{}").await;
        terms
            .column_tiers
            .insert("ops.error".parse().unwrap(), tier);
        let message = call_message("{}");
        let asks = request(&world.harness, OfferKind::Tool, &terms, "{}", &message);
        world.says(json_answer(400, error));
        let parts = world.all(asks).await;
        assert_eq!(head(&parts[0]).status, 400);
        let told = json(&body(&parts[1]).message);
        assert_eq!(told["error"]["code"], -32602);
        assert_eq!(told["error"]["message"], text);
        let has_data = told["error"].get("data").is_some();
        assert_eq!(has_data, tier == ColumnTier::Clear);
        let facts = body(&parts[1]).result.as_ref().unwrap();
        assert_eq!(facts.status(), pb::OutcomeStatus::ToolError);
    }
}

#[tokio::test]
async fn resources_and_prompts_are_governed_by_their_contents() {
    let world = World::with(CLASSES, |_| ()).await;
    let uri = r#"{"uri":"memo://one"}"#;
    let name = r#"{"name":"greet"}"#;
    for (kind, method, arguments, answer) in [
        (
            OfferKind::Resources,
            "resources/read",
            uri,
            r#"{"contents":[{"uri":"memo://one","text":"secret"}],"ttlMs":5}"#,
        ),
        (
            OfferKind::Prompts,
            "prompts/get",
            name,
            r#"{"description":"secret","messages":[{"role":"user","content":{"type":"text","text":"secret"}}]}"#,
        ),
    ] {
        let params = arguments.replace('}', &format!(",{META}}}"));
        let message =
            format!(r#"{{"jsonrpc":"2.0","id":"a","method":"{method}","params":{params}}}"#);
        let answer = format!(r#"{{"jsonrpc":"2.0","id":"a","result":{answer}}}"#);
        let ask = |terms| request(&world.harness, kind, &terms, arguments, &message);

        let clear = terms(&world.harness, kind, "", arguments).await;
        world.says(json_answer(200, &answer));
        let parts = world.all(ask(clear)).await;
        assert_eq!(body(&parts[1]).message, answer, "{method}");

        let mut partly = restricted(&world, kind, arguments).await;
        world.says(json_answer(200, &answer));
        let parts = world.all(ask(partly.clone())).await;
        assert_eq!(failure(&parts).1.error_kind, "withheld", "{method}");

        let class = "phi.text".parse().unwrap();
        partly.column_tiers.insert(class, ColumnTier::Clear);
        world.says(json_answer(200, &answer));
        let parts = world.all(ask(partly)).await;
        let released = json(&body(&parts[1]).message);
        let members: Vec<_> = released["result"].as_object().unwrap().keys().collect();
        assert_eq!(members.len(), 1, "{released}");
    }
    // Nothing is said, so nothing is withheld.
    let terms = restricted(&world, OfferKind::Resources, uri).await;
    let message =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{uri}}}"#);
    world.says(json_answer(200, r#"{"jsonrpc":"2.0","id":1,"result":{}}"#));
    let asks = request(&world.harness, OfferKind::Resources, &terms, uri, &message);
    let parts = world.all(asks).await;
    assert_eq!(json(&body(&parts[1]).message)["result"], json!({}));
}

#[tokio::test]
async fn a_stream_that_is_taken_up_again_is_governed_too() {
    let world = World::with(CLASSES, |_| ()).await;
    let text = "data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"secret\"}]}}\n\n";
    for governed_id in ["7", ""] {
        let mut resumes = call(&world).await;
        resumes.method = pb::RelayMethod::Get.into();
        resumes.last_event_id = "e-1".to_owned();
        resumes.arguments_json = "{}".into();
        resumes.governed_id = governed_id.to_owned();
        world.says(events(text));
        let parts = world.all(resumes).await;
        for part in &parts {
            if let Part::Event(event) = part {
                let message = std::str::from_utf8(&event.message).unwrap();
                assert!(!message.contains("secret"), "{message}");
            }
        }
    }
}

#[tokio::test]
async fn whoever_may_not_see_results_hears_no_words_of_them_while_listening() {
    let world = World::with(CLASSES, |_| ()).await;
    let terms = restricted(&world, OfferKind::Connect, "{}").await;
    let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
    let listed = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"read"}]}}"#;
    let lists = request(&world.harness, OfferKind::Connect, &terms, "{}", list);
    world.says(json_answer(200, listed));
    let parts = world.all(lists.clone()).await;
    assert_eq!(body(&parts[1]).message, listed, "a list is no result");

    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"secret"}}"#;
    let asks = r#"{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage","params":{"messages":["secret"]}}"#;
    let roots = r#"{"jsonrpc":"2.0","id":2,"method":"roots/list"}"#;
    let said = format!("data: {log}\n\ndata: {asks}\n\ndata: {roots}\n\ndata: {changed}\n\n");
    let get = pb::RelayRequest {
        method: pb::RelayMethod::Get.into(),
        ..lists
    };
    world.says(events(&said));
    world.says(status(202));
    let parts = world.all(get).await;
    let heard: Vec<_> = parts[1..]
        .iter()
        .map(|part| std::str::from_utf8(&event(part).message).unwrap())
        .collect();
    assert_eq!(heard, [roots, changed]);

    let task = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/list"}"#;
    let asks = request(&world.harness, OfferKind::Connect, &terms, "{}", task);
    let refused = world.relay(asks).await.err().unwrap();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied);
}

#[tokio::test]
async fn what_needs_no_words_passes_a_restricted_stream_with_none() {
    let world = World::with(CLASSES, |_| ()).await;
    let mut listens = super::connect(&world.harness, "").await;
    listens.method = pb::RelayMethod::Get.into();
    let terms = restricted(&world, OfferKind::Connect, "{}").await;
    listens.permit = Some((&world.harness.signer.sign(&terms)).into());
    let cases = [
        (
            r#"{"jsonrpc":"2.0","id":"s-1","method":"ping","params":{"a":"secret"},"x":"secret"}"#,
            r#"{"jsonrpc":"2.0","id":"s-1","method":"ping"}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7,"a":"secret"}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"memo://one","title":"secret"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"memo://one"}}"#,
        ),
        (
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"promptsListChanged":"secret","resourceSubscriptions":["memo://one"],"x":"secret"}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["memo://one"]}}}"#,
        ),
    ];
    let said = cases.iter().fold(String::new(), |all, (said, _)| {
        all + "data: " + said + "\n\n"
    });
    world.says(events(&said));
    let parts = world.all(listens).await;
    let told: Vec<_> = parts[1..].iter().map(|part| &event(part).message).collect();
    let expected: Vec<_> = cases.iter().map(|(_, told)| *told).collect();
    assert_eq!(told, expected);
}
