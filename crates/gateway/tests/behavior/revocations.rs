//! Tokens, subjects and sign-ins that operators revoke.

use serde_json::{Value, json};
use wardgate_domain::AdminChange;
use wardgate_domain::OperatorAction;
use wardgate_testkit::{AppendBehavior, EventStreamClient, until};

use crate::listen::get;
use crate::world::{ISSUER, MODERN, Reply, World};

fn operator(world: &World) -> String {
    world
        .policy
        .lets_operate(OperatorAction::RevokeAccess, "security.elm");
    world.issuer.token("security.elm", &[])
}

async fn method(world: &World, token: &str, method: &str, params: &Value) -> Reply {
    let params = params.to_string();
    let params = params.trim_start_matches('{').trim_end_matches('}');
    Reply::to(world.message_of(token, MODERN, method, params)).await
}

async fn revoke(world: &World, params: &Value) {
    let added = method(world, &operator(world), "revocations/add", params).await;
    assert_eq!((added.status, added.code()), (200, 0), "{added:?}");
}

async fn lift(world: &World, params: &Value) {
    let removed = method(world, &operator(world), "revocations/remove", params).await;
    assert_eq!((removed.status, removed.code()), (200, 0), "{removed:?}");
}

/// Returns the status of a `tools/list` request, and the challenge if it was refused.
async fn list_tools(world: &World, token: &str) -> (u16, String) {
    let reply = Reply::to(world.message_of(token, MODERN, "tools/list", "")).await;
    let challenge = if reply.status == 200 {
        String::new()
    } else {
        reply.header("www-authenticate").to_owned()
    };
    (reply.status, challenge)
}

#[tokio::test]
async fn what_one_gateway_revokes_is_refused_by_all_three_that_share_a_store() {
    let world = World::start().await;
    let twins = [world.twin().await, world.twin().await];
    let token = world
        .issuer
        .token_saying(&json!({ "jti": "t-1", "sid": "s-1" }));
    let other = world
        .issuer
        .token_saying(&json!({ "sub": "dr.ruiz", "jti": "t-2" }));
    for (kind, name) in [("token", "t-1"), ("subject", "dr.lee"), ("session", "s-1")] {
        let target = json!({ "kind": kind, "name": name, "issuer": ISSUER });
        revoke(&world, &target).await;
        let (status, challenge) = list_tools(&world, &token).await;
        assert_eq!(status, 401, "{kind}");
        assert!(
            challenge.contains(r#"error="invalid_token""#),
            "{challenge}"
        );
        assert!(challenge.contains("the token was revoked"), "{challenge}");
        for twin in &twins {
            until("the revocation is in force", async || {
                (list_tools(twin, &token).await.0 == 401).then_some(())
            })
            .await;
            assert_eq!(list_tools(twin, &other).await.0, 200);
        }
        lift(&world, &target).await;
        for gateway in [&world, &twins[0], &twins[1]] {
            until("the token is accepted again", async || {
                (list_tools(gateway, &token).await.0 == 200).then_some(())
            })
            .await;
        }
    }
}

#[tokio::test]
async fn an_open_stream_ends_when_its_caller_is_revoked() {
    let world = World::start().await;
    let mut stream = EventStreamClient::open(get(&world, "/mcp", None)).await;
    revoke(&world, &json!({ "kind": "subject", "name": "dr.lee" })).await;
    assert_eq!(stream.next_message().await, None);
}

#[tokio::test]
async fn only_an_operator_whom_the_policy_permits_revokes_and_every_attempt_is_on_record() {
    let world = World::start().await;
    let target = json!({ "kind": "subject", "name": "dr.ruiz", "reason": "lost laptop" });
    for (name, params) in [
        ("revocations/add", target.clone()),
        (
            "revocations/remove",
            json!({ "kind": "subject", "name": "dr.ruiz" }),
        ),
        ("revocations/list", json!({})),
    ] {
        let refused = method(&world, &world.token, name, &params).await;
        assert_eq!(refused.at("/error/data/reason"), "denied", "{refused:?}");
    }
    revoke(&world, &target).await;
    let listed = method(&world, &operator(&world), "revocations/list", &json!({})).await;
    let listed = listed.at("/result/revocations");
    assert_eq!(listed[0]["kind"], "subject");
    assert_eq!(listed[0]["name"], "dr.ruiz");
    assert_eq!(listed[0]["issuer"], Value::Null);
    assert_eq!(listed[0]["reason"], "lost laptop");
    assert_eq!(listed[0]["revokedBy"], "security.elm");
    lift(&world, &json!({ "kind": "subject", "name": "dr.ruiz" })).await;
    let nothing = json!({ "kind": "subject", "name": "dr.ruiz" });
    let nothing = method(&world, &operator(&world), "revocations/remove", &nothing).await;
    assert_eq!(nothing.at("/error/data/reason"), "invalid_params");

    let changes = world.audit.changes.entries().into_iter();
    let changes = changes.map(|change| {
        let AdminChange {
            actor,
            action,
            target,
            failed,
            operator,
            ..
        } = change;
        let is_allowed = operator.unwrap().decision.allowed;
        assert!(!target.contains("laptop"));
        (actor, action, failed || !is_allowed)
    });
    let by = |subject: &str, action: &str, failed| (subject.to_owned(), action.to_owned(), failed);
    assert_eq!(
        changes.collect::<Vec<_>>(),
        [
            by("dr.lee", "subject.revoke", true),
            by("dr.lee", "subject.restore", true),
            by("security.elm", "subject.revoke", false),
            by("security.elm", "subject.restore", false),
            by("security.elm", "subject.restore", false),
            by("security.elm", "subject.restore", true),
        ]
    );
}

#[tokio::test]
async fn a_revocation_that_cannot_be_recorded_is_not_made() {
    let world = World::start().await;
    world
        .audit
        .next([AppendBehavior::Fail, AppendBehavior::Fail]);
    let target = json!({ "kind": "subject", "name": "dr.lee" });
    let refused = method(&world, &operator(&world), "revocations/add", &target).await;
    assert_eq!(
        refused.at("/error/data/reason"),
        "not_durable",
        "{refused:?}"
    );
    assert_eq!(list_tools(&world, &world.token).await.0, 200);
}

#[tokio::test]
async fn what_cannot_be_revoked_is_named() {
    let world = World::start().await;
    for (params, named) in [
        (json!({ "name": "a" }), "kind"),
        (
            json!({ "kind": "role", "name": "a" }),
            "token, subject, session",
        ),
        (json!({ "kind": "token" }), "name"),
        (json!({ "kind": "token", "name": "" }), "name"),
        (json!({ "kind": "token", "name": "a\u{1b}b" }), "name"),
        (
            json!({ "kind": "token", "name": "a", "until": 1 }),
            "the supported fields are kind",
        ),
    ] {
        let refused = method(&world, &operator(&world), "revocations/add", &params).await;
        assert_eq!(refused.code(), -32602, "{refused:?}");
        let message = refused.at("/error/message");
        assert!(message.as_str().unwrap().contains(named), "{message}");
    }
    assert!(world.audit.changes.entries().is_empty());
}
