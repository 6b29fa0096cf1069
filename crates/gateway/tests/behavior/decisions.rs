//! What the policy service receives, and what a caller learns from its answer.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use wardgate_domain::{DenialReason, Digest, Status, UNKNOWN_NAME};
use wardgate_proto::common::v1::{self as pb, ErrorReason};

use crate::world::{LEGACY, MODERN, OLDEST, Reply, World};
use wardgate_testkit::{PolicyAnswer, RunBehavior, caller_of, tool_result};

const HIDDEN: PolicyAnswer = PolicyAnswer::Deny {
    reason: DenialReason::NotPermitted,
    visible: false,
};

#[tokio::test]
async fn policy_and_tool_get_the_arguments_byte_for_byte_as_sent() {
    let world = World::start().await;
    world.policy.says(PolicyAnswer::AllowThese);
    let sent = [
        "{}",
        r#"{ "n" :	1.10 }"#,
        "{\n  \"b\": 1e2,\n  \"a\": -0.0\n}",
        r#"{"path":"a\/b","name":"nai\u0308ve","smile":"\ud83d\ude00","é":"ü"}"#,
        r#"{"big":123456789012345678901234567890,"deep":[[{"x":[ ]}]]}"#,
    ];
    for version in [MODERN, LEGACY, OLDEST] {
        for arguments in sent {
            let reply = Reply::to(world.tools_call(version, "reads", arguments)).await;
            assert!(reply.is_released());
            let decided = world.policy.asked.entries().pop().unwrap();
            assert_eq!(decided.arguments_json, arguments);
            let ran = world.tool_runner.asked.entries().pop().unwrap();
            assert_eq!(ran.arguments_json, arguments);
        }
    }
}

#[tokio::test]
async fn a_result_leaves_byte_for_byte_as_the_tool_runner_gave_it() {
    let world = World::start().await;
    let (content, structured) = (
        r#"[ {"type":"text","text":"1.10 na\u00efve \/"} ]"#,
        r#"{ "n" : 1.10, "big": 123456789012345678901234567890 }"#,
    );
    for version in [MODERN, LEGACY] {
        let mut given = tool_result("", &Value::Null);
        given.content_json = content.into();
        given.structured_content_json = structured.into();
        world.tool_runner.next([RunBehavior::Give(Box::new(given))]);
        let reply = Reply::to(world.tools_call(version, "reads", "{}")).await;
        assert!(
            reply.text.contains(&format!(r#""content":{content},"#)),
            "{reply:?}"
        );
        let whole = format!(r#""structuredContent":{structured},"#);
        assert!(reply.text.contains(&whole), "{reply:?}");
    }
    for outcome in world.audit.outcomes.entries() {
        let digest = Digest::compute(format!("{content}{structured}").as_bytes());
        assert_eq!(outcome.result_digest, Some(digest));
    }
}

#[tokio::test]
async fn a_call_without_arguments_has_none() {
    let world = World::start().await;
    let call = world.message(LEGACY, "tools/call", r#""name":"reads""#);
    assert!(Reply::to(call).await.is_released());
    assert_eq!(world.policy.asked.entries()[0].arguments_json, "{}");
    assert_eq!(world.tool_runner.asked.entries()[0].arguments_json, "{}");
}

#[tokio::test]
async fn policy_and_tool_know_the_caller_and_the_tool_by_its_own_name() {
    let world = World::start().await;
    world.call("reads_alias").await;
    let decided = world.policy.asked.entries().swap_remove(0);
    assert_eq!(decided.client_ip, "127.0.0.1");
    assert_eq!(decided.tool.unwrap().name, "reads");
    let ran = world.tool_runner.asked.entries().swap_remove(0);
    assert_eq!(ran.tool, "reads");
    let of_policy = pb::Caller::from(&caller_of(&decided.caller_token));
    for caller in [of_policy, ran.caller.unwrap()] {
        assert_eq!(caller.subject, "dr.lee");
        assert_eq!(caller.roles, ["Doctor"]);
    }
}

#[tokio::test]
async fn a_call_from_another_address_is_decided_anew_where_the_permit_is_for_one_call() {
    let mut world = World::start().await;
    world.policy.says(PolicyAnswer::AllowThese);
    assert!(world.call("reads").await.is_released());
    let from = reqwest::Client::builder().local_address(std::net::IpAddr::from([127, 0, 0, 2]));
    world.http = from.no_proxy().build().unwrap();
    assert!(world.call("reads").await.is_released());
    let decided = world.policy.asked.entries();
    let addresses: Vec<_> = decided.iter().map(|asked| &*asked.client_ip).collect();
    assert_eq!(addresses, ["127.0.0.1", "127.0.0.2"]);
}

#[tokio::test]
async fn an_invisible_tool_and_an_unknown_one_answer_alike_and_the_record_tells_them_apart() {
    let world = World::start().await;
    world.policy.says(HIDDEN);
    for version in [MODERN, LEGACY, OLDEST] {
        let answer = |reply: Reply, name: &str| {
            assert_eq!(reply.status, 200);
            let mut json: Value = reply.json();
            // These members differ between any two calls.
            let data = json.pointer_mut("/error/data").unwrap();
            for member in data.as_object_mut().unwrap().values_mut() {
                *member = Value::Null;
            }
            let headers: Vec<_> = reply
                .headers
                .keys()
                .filter(|name| *name != "date" && *name != "content-length")
                .cloned()
                .collect();
            (json.to_string().replace(name, "NAME"), headers)
        };
        let unknown = Reply::to(world.tools_call(version, "nonesuch", "{}")).await;
        let hidden = Reply::to(world.tools_call(version, "reads", "{}")).await;
        assert_eq!(hidden.code(), -32602);
        assert_eq!(answer(unknown, "nonesuch"), answer(hidden, "reads"));
    }
    let outcomes = world.audit.outcomes.entries();
    for pair in outcomes.chunks(2) {
        assert_eq!(pair[0].status, Status::UnknownTool);
        assert_eq!(pair[0].call.tool, None);
        assert_eq!(pair[0].call.requested_tool, UNKNOWN_NAME);
        assert_eq!(pair[1].status, Status::Denied);
        assert_eq!(pair[1].reason, "not_permitted");
        assert!(pair[1].call.tool.is_some() && pair[1].call.decision_id.is_some());
    }
    assert_eq!(outcomes.len(), 6);
    assert_eq!(world.tool_runner.asked.count(), 0);
}

#[tokio::test]
async fn a_name_that_is_not_in_the_catalogue_is_not_on_record() {
    let world = World::start().await;
    for typed in ["the record of Mrs Miller", "", "na\u{ef}ve", "MRN58820417"] {
        let reply = Reply::to(world.tools_call(LEGACY, typed, "{}")).await;
        assert_eq!(reply.code(), -32602, "{reply:?}");
        let outcome = world.audit.outcomes.entries().pop().unwrap();
        assert_eq!(outcome.status, Status::UnknownTool);
        assert_eq!(outcome.call.requested_tool, UNKNOWN_NAME);
    }
}

#[tokio::test]
async fn a_visible_denial_is_a_result_with_its_reason_and_the_decisions_id() {
    let world = World::start().await;
    for (reason, said) in [
        (DenialReason::NotPermitted, "not_permitted"),
        (DenialReason::Forbidden, "forbidden"),
        (DenialReason::PolicyError, "policy_error"),
    ] {
        world.policy.says(PolicyAnswer::Deny {
            reason,
            visible: true,
        });
        let reply = world.call("writes").await;
        let outcome = world.audit.outcomes.entries().pop().unwrap();
        let decision = outcome.call.decision_id.unwrap().to_string();
        assert_eq!(reply.at("/result/isError"), true);
        assert_eq!(
            reply.at("/result/_meta/dev.wardgate~1decisionId"),
            json!(decision)
        );
        let text = reply.at("/result/content/0/text");
        let text = text.as_str().unwrap();
        assert!(text.contains(said) && text.contains(&decision), "{text}");
        // The answer has the kind of the reason, but not the policy.
        assert!(!reply.text.contains("writes.rule"), "{reply:?}");
        assert_eq!(outcome.status, Status::Denied);
        assert_eq!(outcome.reason, said);
        assert_eq!(outcome.call.policies, ["writes.rule"]);
        assert_eq!(outcome.call.permit_id, None);
    }
    assert_eq!(world.audit.intents.count(), 0);
    assert_eq!(world.tool_runner.asked.count(), 0);
}

#[tokio::test]
async fn a_list_holds_what_the_caller_may_see() {
    let world = World::start().await;
    world.policy.hide("writes");
    for version in [MODERN, LEGACY, OLDEST] {
        let reply = Reply::to(world.message(version, "tools/list", "")).await;
        let tools = reply.at("/result/tools");
        let names: Vec<&str> = tools
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| tool["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["reads", "slow"]);
        assert!(!reply.text.contains("writes"));
    }
    let asked = world.policy.listed.entries().swap_remove(0);
    assert_eq!(caller_of(&asked.caller_token).subject(), "dr.lee");
    assert_eq!(asked.tools.len(), 3);
}

#[tokio::test]
async fn without_the_policy_nothing_is_listed() {
    let world = World::start().await;
    world
        .policy
        .says(PolicyAnswer::Fail(ErrorReason::Unavailable));
    let reply = Reply::to(world.message(MODERN, "tools/list", "")).await;
    assert_eq!((reply.status, reply.code()), (200, -32603));
    assert!(!reply.text.contains("reads"), "{reply:?}");
}

#[tokio::test]
async fn the_policy_is_asked_about_what_there_is_not_as_about_what_is_hidden() {
    let world = World::start().await;
    world.policy.says(HIDDEN);
    world.call("reads").await;
    assert_eq!(
        (world.policy.asked.count(), world.policy.unknown.count()),
        (1, 0)
    );
    world.call("nonesuch").await;
    // A name that is not in the catalogue is not passed to the policy service.
    assert_eq!(world.policy.unknown.entries(), ["unknown"]);
    world.call("none such").await;
    assert_eq!(world.policy.unknown.entries(), ["unknown", "unknown"]);
    // While the policy service does not decide, both get the same error.
    world
        .policy
        .says(PolicyAnswer::Fail(ErrorReason::Unavailable));
    for tool in ["reads", "nonesuch"] {
        let reply = Reply::to(world.tools_call(MODERN, tool, "{}")).await;
        assert_eq!(
            reply.at("/error/data/reason"),
            "policy_unavailable",
            "{tool}"
        );
    }
}

#[tokio::test]
async fn a_token_that_ends_before_the_decision_is_a_401_and_a_denial_on_record() {
    let world = World::start().await;
    world
        .policy
        .says(PolicyAnswer::Fail(ErrorReason::TokenRefused));
    let reply = Reply::to(world.tools_call(MODERN, "reads", "{}")).await;
    assert_eq!(reply.status, 401);
    assert_eq!(reply.at("/error/data/reason"), "token_refused");
    let challenge = reply.headers["www-authenticate"].to_str().unwrap();
    assert!(
        challenge.contains(r#"error="invalid_token""#),
        "{challenge}"
    );
    let outcome = world.audit.outcome().await;
    assert_eq!(
        (outcome.status, outcome.reason.as_str()),
        (Status::Denied, "token_refused")
    );
    assert_eq!(world.tool_runner.asked.count(), 0);
}

/// Minimum delay of an answer about a name that does not exist.
const STEP: Duration = Duration::from_millis(50);

#[tokio::test]
async fn what_is_hidden_and_what_there_is_not_are_answered_at_the_same_instants() {
    let world = World::start().await;
    world.policy.says(HIDDEN);
    for version in [MODERN, LEGACY, OLDEST] {
        for request in [
            world.tools_call(version, "reads", "{}"),
            world.tools_call(version, "nonesuch", "{}"),
            world.tools_call(version, "none such", "{}"),
        ] {
            let started = Instant::now();
            let reply = Reply::to(request).await;
            assert_eq!(reply.at("/error/data/reason"), "unknown_tool", "{reply:?}");
            assert!(started.elapsed() >= STEP, "{version}: {reply:?}");
        }
    }
    for tool in ["reads", "nonesuch"] {
        let call = |id| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}"}}}}"#
            )
        };
        let batch = format!("[{},{}]", call(1), call(2));
        let started = Instant::now();
        let reply = Reply::to(world.message(OLDEST, "ping", "").body(batch)).await;
        assert_eq!(reply.json().as_array().unwrap().len(), 2);
        assert!(started.elapsed() >= 2 * STEP, "each message by itself");
    }
}

#[tokio::test]
async fn a_decision_that_depends_on_earlier_calls_is_made_once_the_intent_is_on_record() {
    let world = World::start().await;
    for version in [MODERN, LEGACY, OLDEST] {
        world.policy.says(PolicyAnswer::AllowAfterIntent);
        let reply = Reply::to(world.tools_call(version, "reads", "{}")).await;
        assert!(reply.is_released());
        let asked = world.policy.asked.entries();
        let [before, after] = &asked[asked.len() - 2..] else {
            unreachable!()
        };
        let [before, after] = [before, after].map(|it| it.call.clone().unwrap());
        assert_eq!([before.has_intent, after.has_intent], [false, true]);
        let intent = world.audit.intents.entries().pop().unwrap();
        let outcome = world.audit.outcomes.entries().pop().unwrap();
        for call_id in [
            before.call_id,
            after.call_id,
            outcome.call.call_id.to_string(),
        ] {
            assert_eq!(call_id, intent.call_id.to_string());
        }
        assert_eq!(intent.tool, outcome.call.tool);

        world.policy.says(PolicyAnswer::DenyAfterIntent(
            DenialReason::HistoryUnavailable,
        ));
        let reply = Reply::to(world.tools_call(version, "reads", "{}")).await;
        assert!(!reply.is_released());
        let outcome = world.audit.outcomes.entries().pop().unwrap();
        assert_eq!(outcome.status, Status::Denied);
        assert_eq!(outcome.reason, "history_unavailable");
    }
    assert_eq!(world.tool_runner.asked.count(), 3);
    assert_eq!(world.audit.intents.count(), 6);
}

#[tokio::test]
async fn nothing_is_decided_on_earlier_calls_without_the_intent_on_record() {
    let world = World::start().await;
    world.policy.says(PolicyAnswer::AllowAfterIntent);
    world.audit.fails();
    let reply = world.call("reads").await;
    assert!(!reply.is_released(), "{reply:?}");
    assert_eq!(world.policy.asked.count(), 1);
    assert_eq!(world.tool_runner.asked.count(), 0);
}

#[tokio::test]
async fn the_conversation_that_a_client_names_is_part_of_question_and_record_by_its_digest() {
    let world = World::start().await;
    let named = |conversation: &str| {
        let meta =
            format!(r#""_meta":{{"dev.wardgate/conversation":{conversation}}},"name":"reads""#);
        world.message(LEGACY, "tools/call", &meta)
    };
    assert!(Reply::to(named(r#""c-1""#)).await.is_released());
    let digest = Digest::compute(b"c-1");
    let asked = world.policy.asked.entries().pop().unwrap();
    assert_eq!(asked.call.unwrap().conversation_digest, digest.to_wire());
    let outcome = world.audit.outcomes.entries().pop().unwrap();
    assert_eq!(outcome.call.conversation, Some(digest));

    for wrong in [
        r#""""#,
        "1",
        r#""a\nb""#,
        &format!("\"{}\"", "c".repeat(257)),
    ] {
        let reply = Reply::to(named(wrong)).await;
        assert_eq!(reply.code(), -32602, "{wrong}");
    }
    assert!(world.call("reads").await.is_released());
    let outcome = world.audit.outcomes.entries().pop().unwrap();
    assert_eq!(outcome.call.conversation, None);
}
