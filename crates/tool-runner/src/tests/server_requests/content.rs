//! Tests of prompts and resources of servers that ask the client for input first.

use serde_json::{Value, json};
use wardgate_domain::{ColumnTier, OfferKind, PermitTerms, ToolFacts};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::get_content_request::{Prompt, Resource, Wanted};

use super::{ALL, FORM, Says, World, interaction_offering, interaction_resuming};

async fn terms(world: &World, kind: OfferKind) -> PermitTerms {
    let sources = world.harness.tools().await.sources;
    let facts = sources.into_iter().flat_map(|source| source.facts);
    let mut facts = facts.map(|facts| ToolFacts::try_from(facts).unwrap());
    let facts = facts.find(|facts| facts.kind == kind).unwrap();
    let mut terms = world.harness.terms("ask").await;
    terms.tool = facts.name;
    terms.definition_digest = facts.definition_digest;
    terms.column_tiers = facts
        .classes
        .into_iter()
        .map(|class| (class, ColumnTier::Clear))
        .collect();
    terms
}

async fn get(
    world: &World,
    terms: &PermitTerms,
    kind: OfferKind,
    interaction: pb::Interaction,
) -> pb::GetContentResponse {
    let (decided, wanted) = match kind {
        OfferKind::Prompts => (json!({ "name": "p" }), Wanted::Prompt(Prompt::default())),
        _ => (json!({ "uri": "memo://a" }), Wanted::Resource(Resource {})),
    };
    let call = world.harness.request("ask", b"{}", None);
    let request = pb::GetContentRequest {
        call_id: call.call_id,
        caller: call.caller,
        source: "up".to_owned(),
        permit: Some((&world.harness.signer.sign(terms)).into()),
        decided_json: decided.to_string().into(),
        wanted: Some(wanted),
        interaction: Some(interaction),
        caller_token: String::new(),
    };
    let mut client = world.harness.client.clone();
    let getting = async move { client.get_content(request).await.unwrap().into_inner() };
    // The request runs only while it is polled.
    tokio::spawn(getting).await.unwrap()
}

fn gives(kind: OfferKind) -> (&'static str, Value) {
    match kind {
        OfferKind::Prompts => ("prompts/get", json!({ "messages": [] })),
        _ => ("resources/read", json!({ "contents": [] })),
    }
}

#[tokio::test]
async fn a_modern_server_may_ask_before_it_gives_a_prompt_or_a_resource() {
    let world = World::start(true).await;
    for kind in [OfferKind::Prompts, OfferKind::Resources] {
        let (method, given) = gives(kind);
        let terms = terms(&world, kind).await;
        let requests = json!({ "r": { "method": "roots/list" } });
        world.server.says(Says::Result(json!({
            "resultType": "input_required", "inputRequests": requests, "requestState": "s",
        })));
        let answer = get(&world, &terms, kind, interaction_offering(ALL)).await;
        assert_eq!(answer.facts.unwrap().status(), pb::OutcomeStatus::Ok);
        let waits = answer.input_required.unwrap();
        assert!(waits.facts.is_some());
        assert_eq!(waits.input_requests_json, requests.to_string());
        world.server.says(Says::Result(given.clone()));
        let answers = json!({ "r": { "roots": [] } });
        let answer = get(&world, &terms, kind, interaction_resuming(&waits, &answers)).await;
        assert_eq!(answer.result_json, given.to_string());
        let retry = &world.saw(method, 2).await["params"];
        assert_eq!(
            (&retry["inputResponses"], &retry["requestState"]),
            (&answers, &json!("s"))
        );
    }
}

#[tokio::test]
async fn a_legacy_server_may_ask_too_and_goes_on_once() {
    let world = World::start(false).await;
    for kind in [OfferKind::Prompts, OfferKind::Resources] {
        let (method, given) = gives(kind);
        let terms = terms(&world, kind).await;
        let said = world.server.says_events();
        let begun = get(&world, &terms, kind, interaction_offering(ALL));
        let asked = async {
            let asked = world.saw(method, 1).await;
            said.send_request("q", "elicitation/create", FORM);
            asked
        };
        let (answer, asked) = tokio::join!(begun, asked);
        let waits = answer.input_required.unwrap();
        let answers = json!({ "1": { "action": "accept", "content": {} } });
        let id = asked["id"].clone();
        said.message(&json!({ "jsonrpc": "2.0", "id": id, "result": given }));
        let answer = get(&world, &terms, kind, interaction_resuming(&waits, &answers)).await;
        assert_eq!(answer.result_json, given.to_string(), "{}", answer.error);
        let again = get(&world, &terms, kind, interaction_resuming(&waits, &answers)).await;
        assert_eq!(again.facts.unwrap().error_kind, "not_waiting");
    }
}

#[tokio::test]
async fn where_the_permit_restricts_nobody_is_asked_for_a_prompt() {
    let world = World::start(true).await;
    let mut terms = terms(&world, OfferKind::Prompts).await;
    for tier in terms.column_tiers.values_mut() {
        *tier = ColumnTier::Partial;
    }
    let asking = json!({ "resultType": "input_required", "requestState": "s" });
    world.server.says(Says::Result(asking));
    let answer = get(
        &world,
        &terms,
        OfferKind::Prompts,
        interaction_offering(ALL),
    )
    .await;
    assert_eq!(answer.facts.unwrap().error_kind, "input_required");
    let told = &world.saw("prompts/get", 1).await["params"]["_meta"];
    assert_eq!(
        told["io.modelcontextprotocol/clientCapabilities"],
        json!({})
    );
}

#[tokio::test]
async fn what_a_caller_may_see_all_of_goes_on_byte_for_byte() {
    let world = World::start(true).await;
    let prompt = r#"{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"\ud800\u0000","n":1.10}}],"x-new":12345678901234567890123}"#;
    let resource = r#"{"contents":[{"uri":"memo://a","text":"\ud800","_meta":{"ui":{"n":1E400}}}],"x-new":1.0}"#;
    for (kind, said, shown) in [
        (OfferKind::Prompts, prompt, prompt.to_owned()),
        (
            OfferKind::Resources,
            resource,
            resource.replace("memo:", "up+memo:"),
        ),
    ] {
        let terms = terms(&world, kind).await;
        let of_server = r#"{"resultType":"complete","ttlMs":9,"cacheScope":"public","_meta":{},"#;
        world
            .server
            .says(Says::Text(said.replacen('{', of_server, 1)));
        let answer = get(&world, &terms, kind, interaction_offering(ALL)).await;
        assert_eq!(answer.result_json, shown);
        let twice = said.replacen('{', r#"{"x-new":1,"#, 1);
        world.server.says(Says::Text(twice));
        let answer = get(&world, &terms, kind, interaction_offering(ALL)).await;
        assert_eq!(answer.facts.unwrap().error_kind, "bad_result");
    }
}

#[tokio::test]
async fn the_meta_of_a_prompt_or_resource_goes_on_where_the_permit_restricts_nothing() {
    for is_modern in [true, false] {
        let world = World::start(is_modern).await;
        for kind in [OfferKind::Prompts, OfferKind::Resources] {
            let mut terms = terms(&world, kind).await;
            let (_, given) = gives(kind);
            let given = given.to_string();
            let given = given.trim_end_matches('}');
            let meta = r#"{"dev.wardgate/receipt":1,"io.modelcontextprotocol/serverInfo":{},"x/y":{"n":1.10}}"#;
            let said = format!(r#"{given},"_meta":{meta}}}"#);
            world.server.says(Says::Text(said.clone()));
            let answer = get(&world, &terms, kind, interaction_offering(ALL)).await;
            assert_eq!(answer.meta_json, r#"{"x/y":{"n":1.10}}"#);
            for tier in terms.column_tiers.values_mut() {
                *tier = ColumnTier::Partial;
            }
            world.server.says(Says::Text(said));
            let answer = get(&world, &terms, kind, interaction_offering(ALL)).await;
            assert!(answer.meta_json.is_empty() && answer.error.is_empty());
        }
    }
}

#[tokio::test]
async fn a_json_rpc_error_goes_on_with_its_code_and_data_to_those_who_may_see_all() {
    let error = json!({ "code": -32001, "message": "Ann is away", "data": { "until": 1.5 } });
    for is_modern in [true, false] {
        let world = World::start(is_modern).await;
        for kind in [OfferKind::Prompts, OfferKind::Resources] {
            let mut terms = terms(&world, kind).await;
            world.server.says(Says::Error(error.clone()));
            let answer = get(&world, &terms, kind, interaction_offering(ALL)).await;
            let reported: Value = serde_json::from_slice(&answer.error_json).unwrap();
            assert_eq!(reported, error);
            assert_eq!(answer.facts.unwrap().error_kind, "tool_error");

            for tier in terms.column_tiers.values_mut() {
                *tier = ColumnTier::Partial;
            }
            world.server.says(Says::Error(error.clone()));
            let answer = get(&world, &terms, kind, interaction_offering(ALL)).await;
            assert!(answer.error_json.is_empty());
            assert_eq!(answer.error, "The source reported an error.");
        }
    }
}
