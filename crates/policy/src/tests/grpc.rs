//! The service as its clients meet it.

use std::time::Duration;

use tonic::{Code, Request};
use wardgate_domain::{
    Ambient, Caller, CallerClaims, Decision, Digest, ReadDecision, Timestamp, Verdict,
};
use wardgate_proto::common::v1 as pb;
use wardgate_proto::policy::v1::policy_service_client::PolicyServiceClient;
use wardgate_proto::policy::v1::{
    AuthorizeRecallRequest, AuthorizeRequest, ConversationFacts, ListVisibleRequest,
    WatchVersionRequest,
};
use wardgate_rpc::Readiness;

use super::fixture::{Dir, signer, tool};
use crate::{Config, service};

const ALLOW: &str =
    "@id(\"a\") permit(principal, action == Action::\"call_tool\", resource == Tool::\"t\");";

fn caller() -> Caller {
    Caller::from_verified(CallerClaims {
        issuer: "https://issuer.example".to_owned(),
        subject: "s".to_owned(),
        tenant: String::new(),
        roles: Vec::new(),
        attributes: [].into(),
        token_id: "t".to_owned(),
        expires_at: Timestamp::from_seconds(i64::from(u32::MAX)),
    })
}

fn asking(name: &str) -> AuthorizeRequest {
    AuthorizeRequest {
        caller: Some((&caller()).into()),
        tool: Some((&tool(name)).into()),
        arguments_json: "{}".into(),
        client_ip: String::new(),
    }
}

#[tokio::test]
async fn decisions_listings_and_versions_agree() {
    let dir = Dir::with(ALLOW);
    let service = service(Config::new(dir.path()), signer(), Ambient::system())
        .await
        .unwrap();
    assert_eq!(*service.readiness.borrow(), Readiness::Ready);
    let mut client = PolicyServiceClient::new(service.server);

    let answer = client.authorize(asking("t")).await.unwrap().into_inner();
    let allowed: Decision = answer.decision.unwrap().try_into().unwrap();
    assert!(matches!(allowed.verdict, Verdict::Allow(_)));
    let answer = client.authorize(asking("u")).await.unwrap().into_inner();
    let denied: Decision = answer.decision.unwrap().try_into().unwrap();
    assert!(matches!(
        denied.verdict,
        Verdict::Deny { visible: false, .. }
    ));

    let tools = ["u", "t"].map(|name| (&tool(name)).into()).to_vec();
    let request = ListVisibleRequest {
        caller: Some((&caller()).into()),
        tools,
    };
    let listed = client.list_visible(request).await.unwrap().into_inner();
    assert_eq!(listed.visible, ["t"]);

    let mut versions = client
        .watch_version(WatchVersionRequest {})
        .await
        .unwrap()
        .into_inner();
    let version = versions.message().await.unwrap().unwrap().policy_hash;
    assert_eq!(version, allowed.policy_hash.to_wire());
    assert_eq!(listed.policy_hash, version);
}

#[tokio::test]
async fn a_changed_directory_is_announced_and_a_bad_one_is_not() {
    let dir = Dir::with(ALLOW);
    let service = service(Config::new(dir.path()), signer(), Ambient::system())
        .await
        .unwrap();
    let mut readiness = service.readiness;
    let mut client = PolicyServiceClient::new(service.server);
    let mut versions = client
        .watch_version(WatchVersionRequest {})
        .await
        .unwrap()
        .into_inner();
    let first = versions.message().await.unwrap().unwrap().policy_hash;

    dir.write("p.cedar", "permit(");
    let outdated = "the changed policies have a fault; the earlier ones are in force";
    let goes_on = readiness.wait_for(|told| *told == Readiness::Outdated(outdated));
    let goes_on = tokio::time::timeout(Duration::from_mins(1), goes_on).await;
    drop(goes_on.expect("it goes on with those in force").unwrap());
    let silent = tokio::time::timeout(Duration::from_millis(300), versions.message()).await;
    assert!(silent.is_err(), "an unusable set is not announced");

    dir.write("p.cedar", "");
    let second = versions.message().await.unwrap().unwrap().policy_hash;
    assert_ne!(first, second);
    let mended = readiness.wait_for(|now| *now == Readiness::Ready);
    assert!(mended.await.is_ok());
    let answer = client.authorize(asking("t")).await.unwrap().into_inner();
    let denied: Decision = answer.decision.unwrap().try_into().unwrap();
    assert!(matches!(denied.verdict, Verdict::Deny { .. }));
    assert_eq!(denied.policy_hash.to_wire(), second);
}

#[tokio::test]
async fn a_bad_message_is_answered_with_the_field_at_fault() {
    let dir = Dir::with(ALLOW);
    let service = service(Config::new(dir.path()), signer(), Ambient::system())
        .await
        .unwrap();
    let mut client = PolicyServiceClient::new(service.server);
    let bend = |bend: fn(&mut pb::Caller, &mut pb::ToolFacts)| {
        let (mut caller, mut tool) = ((&caller()).into(), (&tool("t")).into());
        bend(&mut caller, &mut tool);
        AuthorizeRequest {
            caller: Some(caller),
            tool: Some(tool),
            ..asking("t")
        }
    };
    let without_caller = AuthorizeRequest {
        caller: None,
        ..asking("t")
    };
    let without_tool = AuthorizeRequest {
        tool: None,
        ..asking("t")
    };
    let ended = Some(Timestamp::from_seconds(1).into());
    let mut of_yesterday = asking("t");
    of_yesterday.caller.as_mut().unwrap().expires_at = ended;
    let cases = [
        (without_caller, "caller"),
        (without_tool, "tool"),
        (of_yesterday, "caller.expires_at"),
        (bend(|caller, _| caller.subject.clear()), "caller.subject"),
        (
            bend(|caller, _| caller.expires_at = None),
            "caller.expires_at",
        ),
        (bend(|_, tool| tool.name = "a b".to_owned()), "tool.name"),
        (
            bend(|_, tool| tool.definition_digest.clear()),
            "tool.definition_digest",
        ),
        (
            bend(|_, tool| tool.classes = vec!["a b".to_owned()]),
            "tool.classes",
        ),
    ];
    for (request, field) in cases {
        let status = client.authorize(Request::new(request)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(field), "{status:?}");
    }
}

#[tokio::test]
async fn the_service_does_not_start_on_an_unusable_set() {
    let dir = Dir::with("permit(");
    let error = service(Config::new(dir.path()), signer(), Ambient::system())
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("p.cedar:1:"), "{error}");
    let mut config = Config::new(Dir::with(ALLOW).path());
    config.permit_ttl = Duration::from_hours(1);
    let error = service(config, signer(), Ambient::system())
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("permit_ttl"), "{error}");
}

#[tokio::test]
async fn the_watch_ends_with_the_service() {
    let dir = Dir::with(ALLOW);
    let service = service(Config::new(dir.path()), signer(), Ambient::system())
        .await
        .unwrap();
    let mut client = PolicyServiceClient::new(service.server);
    let mut versions = client
        .watch_version(WatchVersionRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_ne!(
        versions.message().await.unwrap().unwrap().policy_hash,
        Digest::of(b"").to_wire()
    );
    drop(client);
    assert!(versions.message().await.unwrap().is_none());
}

#[tokio::test]
async fn recall_is_answered_and_a_question_without_a_conversation_is_refused() {
    let dir = Dir::with(ALLOW);
    let service = service(Config::new(dir.path()), signer(), Ambient::system())
        .await
        .unwrap();
    let mut client = PolicyServiceClient::new(service.server);
    let mut request = AuthorizeRecallRequest {
        caller: Some((&caller()).into()),
        conversation: Some(ConversationFacts {
            key: "0192d1a0-0000-7000-8000-000000000001".to_owned(),
            owner: "anna".to_owned(),
            tenant: String::new(),
        }),
    };
    let answer = client.authorize_recall(request.clone()).await.unwrap();
    let decision: ReadDecision = answer.into_inner().try_into().unwrap();
    assert!(!decision.allowed);

    request.conversation = None;
    let refused = client.authorize_recall(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("conversation"));
}
