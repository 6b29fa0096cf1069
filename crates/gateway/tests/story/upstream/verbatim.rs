//! Every byte stays, besides the call's id and receipt; nothing leaves before it is on record.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::oneshot;
use wardgate_domain::{Digest, Status};
use wardgate_proto::common::v1::OfferKind;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_rpc::Readiness;

use super::{CALL_ID, UP, answer, call, carried, count, post, request, text, world};
use crate::fakes::relay::{RelayBehavior, governed, nothing, ungoverned};
use crate::fakes::{AppendBehavior, PolicyAnswer};
use crate::world::{LEGACY, META, MODERN, OLDEST, Reply};

/// What a careful gateway would like to write otherwise.
const ODD: &str = r#"{ "id":7,"result":{"z":1.10,"content":[ {"type":"hologram","\u0061":1e2} ],"a":null},"more":[],"jsonrpc":"2.0"}"#;

#[tokio::test]
async fn an_answer_gets_its_call_and_receipt_and_every_other_byte_stays() {
    let world = world().await;
    for (number, version) in [MODERN, LEGACY, OLDEST].into_iter().enumerate() {
        world
            .tool_runner
            .relays
            .next([RelayBehavior::Give(governed(200, ODD))]);
        let reply = Reply::to(call(&world, version, "read")).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("content-type"), "application/json");
        let meta = reply.text.split_once(r#""_meta":{"#).unwrap().1;
        let meta = &meta[..meta.find("}}").unwrap() + 2];
        let added = format!(r#","_meta":{{{meta}"#);
        assert_eq!(reply.text.replace(&added, ""), ODD);

        let asked = carried(&world);
        assert_eq!(reply.at(CALL_ID), json!(asked.call_id));
        let intent = world.audit.intents.reaches(number + 1).await.pop().unwrap();
        assert_eq!(intent.call_id.to_string(), asked.call_id);
        let outcome = world
            .audit
            .outcomes
            .reaches(number + 1)
            .await
            .pop()
            .unwrap();
        assert_eq!(outcome.call.call_id.to_string(), asked.call_id);
        assert_eq!(outcome.call.tool.unwrap().as_str(), "reads");
        assert_eq!(outcome.call.requested_tool, "read");
        assert_eq!(outcome.call.protocol, version);
        assert!(outcome.call.permit_id.is_some());
        let counts = (outcome.rows, outcome.rows_withheld, outcome.fields_redacted);
        assert_eq!((outcome.status, counts), (Status::Ok, (2, 1, 3)));
        assert!(outcome.phi);
        assert_eq!(outcome.result_digest, Some(Digest::of(ODD.as_bytes())));
    }
}

#[tokio::test]
async fn a_request_is_carried_byte_for_byte_with_none_of_its_headers_but_those_of_arguments() {
    let world = world().await;
    let body = format!(
        r#"{{ "method":"tools\/call","x":[1.10],"id":"a\u0062","params":{{"arguments": {{ "n" : 1.10 }} ,"name":"re\u0061d","later":{{}},{META}}},"jsonrpc":"2.0"}}"#
    );
    let request = post(&world, UP, body.clone())
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", "tools/call")
        .header("mcp-name", "=?base64?cmVhZA==?=")
        .header("Mcp-Param-Region", "=?base64?WsO8cmljaA==?=")
        .header("mcp-param-b", "2")
        .header("cookie", "a=b")
        .header("mcp-session-id", "theirs")
        .header("x-api-key", "k")
        .header("last-event-id", "9");
    assert_eq!(Reply::to(request).await.status, 200);
    let asked = carried(&world);
    assert_eq!(asked.message, body);
    assert_eq!(asked.arguments_json, "", "they are the message's own");
    assert_eq!(asked.kind(), OfferKind::Tool);
    assert_eq!((&*asked.tool, &*asked.source), ("reads", "up"));
    assert_eq!(asked.protocol_version, MODERN);
    assert_eq!((&*asked.session, &*asked.last_event_id), ("", ""));
    let mut headers: Vec<_> = asked
        .headers
        .iter()
        .map(|it| (&*it.name, &*it.value))
        .collect();
    headers.sort_unstable();
    let region = ("mcp-param-region", "=?base64?WsO8cmljaA==?=");
    assert_eq!(headers, [("mcp-param-b", "2"), region]);
    // What the fake's policy and record saw is what the upstream sees.
    let decided = world.policy.asked.all().pop().unwrap();
    assert_eq!(decided.arguments_json, r#"{ "n" : 1.10 }"#);
}

#[tokio::test]
async fn what_needs_only_the_route_is_carried_without_a_record() {
    let world = world().await;
    for (version, method) in [
        (LEGACY, "ping"),
        (MODERN, "server/discover"),
        (LEGACY, "logging/setLevel"),
    ] {
        let odd = answer(r#"{"a":1.10,"_meta":{"k":1}}"#);
        world
            .tool_runner
            .relays
            .next([RelayBehavior::Give(ungoverned(200, &odd))]);
        let reply = Reply::to(request(&world, version, method, "")).await;
        assert_eq!(reply.text, odd, "{method}");
        assert_eq!(carried(&world).message, text(version, method, ""));
        assert_eq!(carried(&world).kind(), OfferKind::Connect);
    }
    let notice = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let response = r#"{"jsonrpc":"2.0","id":"s-1","result":{"action":"accept"}}"#;
    for message in [notice, response] {
        let reply = Reply::to(post(&world, UP, message)).await;
        assert_eq!((reply.status, &*reply.text), (202, ""));
        assert_eq!(carried(&world).message, message);
    }
    assert_eq!(world.audit.attempts.count(), 0);
}

#[tokio::test]
async fn errors_and_statuses_are_the_upstreams_own() {
    let world = world().await;
    let error = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32021,"message":"no","data":{"requiredCapabilities":{}}}}"#;
    for status in [200, 400, 404, 500] {
        let given = [governed(status, error), ungoverned(status, error)];
        world
            .tool_runner
            .relays
            .next(given.map(RelayBehavior::Give));
        let called = Reply::to(call(&world, MODERN, "read")).await;
        let asked = Reply::to(request(&world, LEGACY, "ping", "")).await;
        for reply in [called, asked] {
            assert_eq!((u32::from(reply.status), &*reply.text), (status, error));
        }
    }
    for status in [404, 405, 429] {
        world
            .tool_runner
            .relays
            .next([RelayBehavior::Give(nothing(status))]);
        let reply = Reply::to(call(&world, MODERN, "read")).await;
        assert_eq!((u32::from(reply.status), &*reply.text), (status, ""));
    }
    // A client would take these for its own token's.
    for status in [401, 403] {
        world
            .tool_runner
            .relays
            .next([RelayBehavior::Give(nothing(status))]);
        let reply = Reply::to(call(&world, MODERN, "read")).await;
        assert_eq!(reply.status, 502);
    }
    assert_eq!(world.audit.outcomes.reaches(9).await.len(), 9);
}

#[tokio::test]
async fn what_mcp_does_not_know_is_on_record_by_its_method_before_and_after() {
    let world = world().await;
    for (method, recorded) in [
        ("vendor/whatever", "vendor/whatever"),
        ("Jane Doe", "(not a method name)"),
    ] {
        let before = world.audit.outcomes.count();
        let odd = answer(r#"{"a":1.10}"#);
        world
            .tool_runner
            .relays
            .next([RelayBehavior::Give(governed(200, &odd))]);
        let reply = Reply::to(request(&world, LEGACY, method, "")).await;
        assert!(reply.at(CALL_ID).is_string(), "{reply:?}");
        assert_eq!(carried(&world).message, text(LEGACY, method, ""));
        assert_eq!(carried(&world).kind(), OfferKind::Connect);
        let outcome = world.audit.outcomes.reaches(before + 1).await.pop();
        let intent = world.audit.intents.all().pop().unwrap();
        let outcome = outcome.unwrap();
        assert_eq!(
            (&*intent.method, &*outcome.call.method),
            (recorded, recorded)
        );
        let source = outcome.call.tool.unwrap();
        assert_eq!((outcome.status, source.as_str()), (Status::Ok, "up"));
    }
    // Without a record it is not even asked for.
    world
        .audit
        .next([AppendBehavior::Fail, AppendBehavior::Fail]);
    let before = count(&world);
    let reply = Reply::to(request(&world, MODERN, "vendor/whatever", "")).await;
    assert_eq!(reply.code(), -32603);
    assert_eq!(count(&world), before);
}

#[tokio::test]
async fn when_to_come_back_is_for_the_client_to_know() {
    let world = world().await;
    let busy = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32000,"message":"busy"}}"#;
    for (status, mut parts) in [(429, nothing(429)), (503, governed(503, busy))] {
        if let pb::relay_response::Part::Head(head) = &mut parts[0] {
            head.retry_after = "17".to_owned();
        }
        world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
        let reply = Reply::to(call(&world, MODERN, "read")).await;
        assert_eq!((reply.status, reply.header("retry-after")), (status, "17"));
    }
    // The platform's own limits are told in the same way.
    let limited = pb::RelayFailure {
        text: "too often".to_owned(),
        facts: Some(pb::ResultFacts {
            status: pb::OutcomeStatus::ToolError.into(),
            error_kind: "rate_limited".to_owned(),
            retry_after: Some(std::time::Duration::from_millis(1_500).try_into().unwrap()),
            ..pb::ResultFacts::default()
        }),
        ..pb::RelayFailure::default()
    };
    let parts = vec![pb::relay_response::Part::Failure(limited)];
    world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
    let reply = Reply::to(call(&world, MODERN, "read")).await;
    assert_eq!((reply.status, reply.header("retry-after")), (429, "2"));
}

#[tokio::test]
async fn a_call_or_a_receipt_that_an_upstream_made_up_is_no_ones() {
    let world = world().await;
    let made_up = r#"{"_meta":{"dev.wardgate/receipt":{"sequence":1},"own":1.10,"dev.wardgate/callId":"c"},"content":[]}"#;
    for version in [MODERN, LEGACY] {
        let given = governed(200, &answer(made_up));
        world.tool_runner.relays.next([RelayBehavior::Give(given)]);
        let reply = Reply::to(call(&world, version, "read")).await;
        assert_eq!(
            reply.text.matches("dev.wardgate/callId").count(),
            1,
            "{reply:?}"
        );
        assert_eq!(reply.text.matches("dev.wardgate/receipt").count(), 1);
        assert_eq!(reply.at(CALL_ID), json!(carried(&world).call_id));
        assert!(reply.text.contains(r#""own":1.10"#));
    }
}

#[tokio::test]
async fn nothing_is_carried_before_the_intent_and_released_before_the_outcome_is_on_record() {
    let world = world().await;
    let (release_intent, intent) = oneshot::channel();
    let (release_outcome, outcome) = oneshot::channel();
    world
        .audit
        .next([AppendBehavior::Hold(intent), AppendBehavior::Hold(outcome)]);
    let carried = count(&world);
    let waiting = tokio::spawn(Reply::to(call(&world, MODERN, "read")));
    world.audit.attempts.reaches(1).await;
    assert_eq!(count(&world), carried, "carried without an intent");
    release_intent.send(()).unwrap();
    world.tool_runner.relays.asked.reaches(carried + 1).await;
    world.audit.attempts.reaches(2).await;
    assert!(!waiting.is_finished(), "released without an outcome");
    release_outcome.send(()).unwrap();
    assert_eq!(waiting.await.unwrap().status, 200);
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_released_and_the_client_hears_it_in_time() {
    let world = world().await;
    let secret = answer(r#"{"content":[],"secret":1}"#);
    let uri = r#""uri":"memo://one""#;
    for version in [MODERN, LEGACY] {
        for appends in [
            vec![AppendBehavior::Fail, AppendBehavior::Fail],
            vec![AppendBehavior::Hang],
        ] {
            world
                .tool_runner
                .relays
                .next([RelayBehavior::Give(governed(200, &secret))]);
            world.audit.next([AppendBehavior::Keep]);
            world.audit.next(appends);
            let began = Instant::now();
            let reply = Reply::to(call(&world, version, "write")).await;
            assert!(
                began.elapsed() < Duration::from_secs(10),
                "{:?}",
                began.elapsed()
            );
            assert_eq!(
                (reply.status, reply.code(), reply.at("/id")),
                (200, -32603, json!(7))
            );
            assert_eq!(reply.failed_call(), carried(&world).call_id);
            assert!(!reply.text.contains("secret"), "{reply:?}");
            assert!(reply.text.contains("may have run"), "{reply:?}");
        }
        world
            .tool_runner
            .relays
            .next([RelayBehavior::Give(governed(200, &secret))]);
        world
            .audit
            .next([AppendBehavior::Fail, AppendBehavior::Fail]);
        let reply = Reply::to(request(&world, version, "resources/read", uri)).await;
        assert_eq!(reply.code(), -32603);
        assert!(!reply.text.contains("secret"), "{reply:?}");
    }
}

#[tokio::test]
async fn without_an_intent_on_record_nothing_is_carried() {
    let world = world().await;
    let before = count(&world);
    world
        .audit
        .next([AppendBehavior::Fail, AppendBehavior::Fail]);
    let reply = Reply::to(call(&world, MODERN, "write")).await;
    assert_eq!((reply.code(), reply.at("/id")), (-32603, json!(7)));
    assert!(reply.text.contains("nothing is released"), "{reply:?}");
    // While the record is known to be away, nothing of what belongs on it is even begun.
    let away = Readiness::NotReady("as ordered".to_owned());
    world.audit.readiness.send_replace(away);
    let decided = world.policy.asked.count();
    for asked in [
        call(&world, LEGACY, "write"),
        request(&world, LEGACY, "resources/read", r#""uri":"memo://one""#),
        request(&world, LEGACY, "prompts/get", r#""name":"greet""#),
    ] {
        assert_eq!(Reply::to(asked).await.code(), -32603);
    }
    assert_eq!(count(&world), before);
    // The route's own right is kept from before.
    assert_eq!(world.policy.asked.count(), decided);
    // What is not on record goes on.
    let reply = Reply::to(request(&world, LEGACY, "ping", "")).await;
    assert_eq!(reply.code(), 0);
}

#[tokio::test]
async fn resources_prompts_and_completions_are_carried_and_recorded_too() {
    let world = world().await;
    world.policy.says(PolicyAnswer::AllowThese);
    let uri = r#"{"uri":"memo://one"}"#;
    let name = r#"{"name":"greet"}"#;
    let completes = |of: &str| format!(r#""ref":{of},"argument":{{"name":"n","value":"v"}}"#);
    let resource = completes(r#"{"type":"ref/resource","uri":"memo://one"}"#);
    let prompt = completes(r#"{"type":"ref/prompt","name":"greet"}"#);
    let mut expected = 0;
    for version in [MODERN, LEGACY] {
        for (method, params, kind, decided) in [
            (
                "resources/read",
                r#""uri":"memo://one""#,
                OfferKind::Resources,
                uri,
            ),
            (
                "prompts/get",
                r#""name":"greet","arguments":{"a":"b"}"#,
                OfferKind::Prompts,
                name,
            ),
            ("completion/complete", &resource, OfferKind::Resources, uri),
            ("completion/complete", &prompt, OfferKind::Prompts, name),
        ] {
            let given = answer(r#"{"contents":[1.10]}"#);
            world
                .tool_runner
                .relays
                .next([RelayBehavior::Give(governed(200, &given))]);
            let reply = Reply::to(request(&world, version, method, params)).await;
            assert!(reply.text.contains(r#""contents":[1.10]"#), "{reply:?}");
            let asked = carried(&world);
            assert_eq!(reply.at(CALL_ID), json!(asked.call_id));
            assert_eq!((asked.kind(), &*asked.tool), (kind, ""));
            assert_eq!(asked.arguments_json, decided);
            expected += 1;
            let outcome = world.audit.outcomes.reaches(expected).await.pop().unwrap();
            assert_eq!(outcome.call.call_id.to_string(), asked.call_id);
            assert_eq!(outcome.call.method, method);
            assert_eq!(outcome.call.tool.unwrap().as_str(), "up");
            // A URI can hold anything.
            let named = if kind == OfferKind::Prompts {
                "greet"
            } else {
                ""
            };
            assert_eq!(outcome.call.requested_tool, named);
            assert_eq!((outcome.status, outcome.phi), (Status::Ok, true));
        }
    }
}
