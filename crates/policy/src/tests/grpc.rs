//! The gRPC service as its clients see it.

use std::time::Duration;

use tonic::{Code, Request};
use wardgate_domain::{
    Ambient, ApprovalDecision, ApprovalId, ApproverRefusal, CallToApprove, Decision, Digest,
    ReadDecision, Timestamp, Verdict,
};
use wardgate_proto::common::v1 as pb;
use wardgate_proto::policy::v1::policy_service_client::PolicyServiceClient;
use wardgate_proto::policy::v1::policy_service_server::{PolicyService, PolicyServiceServer};
use wardgate_proto::policy::v1::{
    ApproveRequest, AuthorizeOperatorRequest, AuthorizeRecallRequest, AuthorizeRequest,
    ConversationFacts, IdentifyRequest, ListVisibleRequest, OperatorAction, WatchVersionRequest,
};
use wardgate_rpc::client::LocalPolicy;
use wardgate_rpc::{Readiness, Service};
use wardgate_testkit::permit_signer;

use super::fixture::{Dir, tool};
use super::issuer::Issuer;
use super::samples::{caller, token_end};
use crate::history::CallHistory;
use crate::{Config, Error, service};

const ALLOW: &str =
    "@id(\"a\") permit(principal, action == Action::\"call_tool\", resource == Tool::\"t\");";

/// Starts the service without an audit service that counts earlier calls.
async fn start(
    config: Config,
) -> Result<Service<PolicyServiceServer<impl PolicyService>, LocalPolicy>, Error> {
    let history = CallHistory::default();
    service(config, permit_signer(), history, Ambient::system()).await
}

/// A policy directory and a token issuer.
struct Deployment {
    dir: Dir,
    issuer: Issuer,
}

impl Deployment {
    fn with(policies: &str) -> Self {
        Self {
            dir: Dir::with(policies),
            issuer: Issuer::new(),
        }
    }

    fn config(&self) -> Config {
        Config::new(self.dir.path(), self.issuer.auth_config())
    }

    /// Returns a valid token.
    fn token(&self) -> String {
        self.issuer.token(&caller("s", &[]), token_end())
    }

    /// Returns the request to approve the call that [`Self::authorize_request`] asks about.
    fn approve_request(&self) -> ApproveRequest {
        let call = CallToApprove {
            id: ApprovalId::new(&Ambient::system()),
            caller: caller("s", &[]),
            tool: tool("t"),
            arguments: "{}".into(),
            client_ip: String::new(),
        };
        ApproveRequest {
            call: Some((&call).into()),
            approver_token: self.issuer.token(&caller("m", &["Manager"]), token_end()),
            refuse: false,
        }
    }

    fn authorize_request(&self, name: &str) -> AuthorizeRequest {
        AuthorizeRequest {
            caller_token: self.token(),
            tool: Some((&tool(name)).into()),
            arguments_json: "{}".into(),
            ..AuthorizeRequest::default()
        }
    }
}

#[tokio::test]
async fn decisions_listings_and_versions_agree() {
    let deployment = Deployment::with(ALLOW);
    let service = start(deployment.config()).await.unwrap();
    assert_eq!(*service.readiness.borrow(), Readiness::Ready);
    let mut client = PolicyServiceClient::new(service.server);

    let answer = client
        .authorize(deployment.authorize_request("t"))
        .await
        .unwrap()
        .into_inner();
    let allowed: Decision = answer.decision.unwrap().try_into().unwrap();
    assert!(matches!(allowed.verdict, Verdict::Allow(_)));
    let answer = client
        .authorize(deployment.authorize_request("u"))
        .await
        .unwrap()
        .into_inner();
    let denied: Decision = answer.decision.unwrap().try_into().unwrap();
    assert!(matches!(
        denied.verdict,
        Verdict::Deny { visible: false, .. }
    ));

    let tools = ["u", "t"].map(|name| (&tool(name)).into()).to_vec();
    let request = ListVisibleRequest {
        caller_token: deployment.token(),
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
async fn an_approver_approves_by_their_own_token_and_the_call_is_allowed_with_what_they_gave() {
    let approvable = ALLOW.replace("permit(", "@approval(\"Manager\") permit(");
    let deployment = Deployment::with(&approvable);
    let service = start(deployment.config()).await.unwrap();
    let mut client = PolicyServiceClient::new(service.server);
    let answer = client
        .authorize(deployment.authorize_request("t"))
        .await
        .unwrap();
    let waiting: Decision = answer.into_inner().decision.unwrap().try_into().unwrap();
    assert!(matches!(waiting.verdict, Verdict::NeedsApproval { .. }));

    let own = ApproveRequest {
        approver_token: deployment.token(),
        ..deployment.approve_request()
    };
    let own = client.approve(own).await.unwrap().into_inner();
    let own = ApprovalDecision::try_from(own).unwrap();
    assert_eq!(own.outcome.unwrap_err(), ApproverRefusal::NoApprover);

    let approved = client.approve(deployment.approve_request()).await.unwrap();
    let approved = approved.into_inner();
    let repeated = AuthorizeRequest {
        approval: approved.approval,
        ..deployment.authorize_request("t")
    };
    let answer = client.authorize(repeated.clone()).await.unwrap();
    let allowed: Decision = answer.into_inner().decision.unwrap().try_into().unwrap();
    assert!(matches!(allowed.verdict, Verdict::Allow(_)) && allowed.approval.is_some());
    let changed = AuthorizeRequest {
        arguments_json: "{\"a\":1}".into(),
        ..repeated
    };
    let answer = client.authorize(changed).await.unwrap();
    let other: Decision = answer.into_inner().decision.unwrap().try_into().unwrap();
    assert!(matches!(other.verdict, Verdict::NeedsApproval { .. }));

    let missing = ApproveRequest {
        call: None,
        ..deployment.approve_request()
    };
    let status = client.approve(missing).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_changed_directory_is_announced_and_a_bad_one_is_not() {
    let deployment = Deployment::with(ALLOW);
    let service = start(deployment.config()).await.unwrap();
    let mut readiness = service.readiness;
    let mut client = PolicyServiceClient::new(service.server);
    let mut versions = client
        .watch_version(WatchVersionRequest {})
        .await
        .unwrap()
        .into_inner();
    let first = versions.message().await.unwrap().unwrap().policy_hash;

    deployment.dir.write("p.cedar", "permit(");
    let outdated = "the changed policies have an error; the previous ones stay in force";
    let goes_on = readiness.wait_for(|told| *told == Readiness::Outdated(outdated));
    let goes_on = tokio::time::timeout(Duration::from_mins(1), goes_on).await;
    drop(goes_on.expect("it goes on with those in force").unwrap());
    let silent = tokio::time::timeout(Duration::from_millis(300), versions.message()).await;
    assert!(silent.is_err(), "an unusable set is not announced");

    deployment.dir.write("p.cedar", "");
    let second = versions.message().await.unwrap().unwrap().policy_hash;
    assert_ne!(first, second);
    let mended = readiness.wait_for(|now| *now == Readiness::Ready);
    assert!(mended.await.is_ok());
    let answer = client
        .authorize(deployment.authorize_request("t"))
        .await
        .unwrap()
        .into_inner();
    let denied: Decision = answer.decision.unwrap().try_into().unwrap();
    assert!(matches!(denied.verdict, Verdict::Deny { .. }));
    assert_eq!(denied.policy_hash.to_wire(), second);
}

#[tokio::test]
async fn a_bad_message_is_answered_with_the_field_at_fault() {
    let deployment = Deployment::with(ALLOW);
    let service = start(deployment.config()).await.unwrap();
    let mut client = PolicyServiceClient::new(service.server);
    let bend = |bend: fn(&mut pb::ToolFacts)| {
        let mut tool = (&tool("t")).into();
        bend(&mut tool);
        AuthorizeRequest {
            tool: Some(tool),
            ..deployment.authorize_request("t")
        }
    };
    let without_tool = AuthorizeRequest {
        tool: None,
        ..deployment.authorize_request("t")
    };
    let cases = [
        (without_tool, "tool"),
        (bend(|tool| tool.name = "a b".to_owned()), "tool.name"),
        (
            bend(|tool| tool.definition_digest.clear()),
            "tool.definition_digest",
        ),
        (
            bend(|tool| tool.classes = vec!["a b".to_owned()]),
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
    let deployment = Deployment::with("permit(");
    let error = start(deployment.config()).await.err().unwrap();
    assert!(error.to_string().contains("p.cedar:1:"), "{error}");
    let deployment = Deployment::with(ALLOW);
    let mut config = deployment.config();
    config.permit_ttl = Duration::from_hours(1);
    let error = start(config).await.err().unwrap();
    assert!(error.to_string().contains("permit_ttl"), "{error}");
}

#[tokio::test]
async fn the_watch_ends_with_the_service() {
    let deployment = Deployment::with(ALLOW);
    let service = start(deployment.config()).await.unwrap();
    drop(service.local);
    let mut client = PolicyServiceClient::new(service.server);
    let mut versions = client
        .watch_version(WatchVersionRequest {})
        .await
        .unwrap()
        .into_inner();
    assert_ne!(
        versions.message().await.unwrap().unwrap().policy_hash,
        Digest::compute(b"").to_wire()
    );
    drop(client);
    assert!(versions.message().await.unwrap().is_none());
}

#[tokio::test]
async fn recall_is_answered_and_a_question_without_a_conversation_is_refused() {
    let deployment = Deployment::with(ALLOW);
    let service = start(deployment.config()).await.unwrap();
    let mut client = PolicyServiceClient::new(service.server);
    let mut request = AuthorizeRecallRequest {
        caller_token: deployment.token(),
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

#[tokio::test]
async fn nothing_is_decided_for_a_caller_whose_token_does_not_verify() {
    let deployment = Deployment::with(ALLOW);
    let service = start(deployment.config()).await.unwrap();
    let mut client = PolicyServiceClient::new(service.server);
    let good = deployment.token();
    let other = deployment.issuer.token(&caller("other", &[]), token_end());
    let (claims, _) = good.rsplit_once('.').unwrap();
    let (_, signature) = other.rsplit_once('.').unwrap();
    let altered = format!("{claims}.{signature}");
    let ended = Timestamp::from_seconds(1);
    for (token, problem) in [
        (String::new(), "well-formed"),
        (altered, "signature"),
        (
            Issuer::new().token(&caller("s", &[]), token_end()),
            "signature",
        ),
        (deployment.issuer.token(&caller("s", &[]), ended), "expired"),
    ] {
        let authorize = AuthorizeRequest {
            caller_token: token.clone(),
            ..deployment.authorize_request("t")
        };
        let list = ListVisibleRequest {
            caller_token: token.clone(),
            ..ListVisibleRequest::default()
        };
        let recall = AuthorizeRecallRequest {
            caller_token: token.clone(),
            ..AuthorizeRecallRequest::default()
        };
        let record = AuthorizeOperatorRequest {
            caller_token: token.clone(),
            action: OperatorAction::ReadRecord.into(),
        };
        let approve = ApproveRequest {
            approver_token: token.clone(),
            ..deployment.approve_request()
        };
        let identify = IdentifyRequest {
            caller_token: token,
        };
        let refusals = [
            client.approve(approve).await.err().unwrap(),
            client.authorize(authorize).await.err().unwrap(),
            client.list_visible(list).await.err().unwrap(),
            client.authorize_recall(recall).await.err().unwrap(),
            client.authorize_operator(record).await.err().unwrap(),
            client.identify(identify).await.err().unwrap(),
        ];
        for refused in refusals {
            assert_eq!(refused.code(), Code::Unauthenticated, "{refused:?}");
            assert!(refused.message().contains(problem), "{refused:?}");
        }
    }
    let identify = IdentifyRequest { caller_token: good };
    let known = client.identify(identify).await.unwrap().into_inner();
    assert_eq!(known.caller.unwrap().subject, "s");
}

#[tokio::test]
async fn a_service_without_an_issuer_does_not_start() {
    let dir = Dir::with(ALLOW);
    let config: Config =
        serde_json::from_value(serde_json::json!({ "policies": dir.path() })).unwrap();
    let started = start(config).await;
    let error = started.err().unwrap().to_string();
    assert_eq!(
        error,
        "policy.auth.issuers is empty; add at least one token issuer, or set auth.api_keys to a file"
    );
}

#[tokio::test]
async fn what_was_looked_up_decides_and_no_permit_outlives_it() {
    let nurses = ALLOW.replace("permit(principal", "permit(principal in Role::\"Nurse\"");
    let deployment = Deployment::with(&nurses);
    let table = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(table.path(), "people: [{ subject: s, roles: [Nurse] }]").unwrap();
    let lookup = serde_json::json!({ "table_file": table.path(), "ttl": 7, "unlisted": "refuse" });
    let config = Config {
        caller_lookup: Some(serde_json::from_value(lookup).unwrap()),
        ..deployment.config()
    };
    let service = start(config).await;
    let mut client = PolicyServiceClient::new(service.unwrap().server);

    let asked = Ambient::system().now();
    let answer = client
        .authorize(deployment.authorize_request("t"))
        .await
        .unwrap();
    let decision: Decision = answer.into_inner().decision.unwrap().try_into().unwrap();
    let Verdict::Allow(permit) = decision.verdict else {
        panic!("{decision:?}")
    };
    let ends = permit.unverified_terms().unwrap().expires_at;
    assert!(ends.since(asked) <= Duration::from_secs(8), "{ends:?}");

    let request = IdentifyRequest {
        caller_token: deployment.token(),
    };
    let known = client.identify(request).await.unwrap().into_inner();
    let known = known.caller.unwrap();
    assert_eq!(known.roles, ["Nurse"]);
    assert!(known.rights_expire_at.is_some());

    let stranger = deployment
        .issuer
        .token(&caller("x", &["Nurse"]), token_end());
    let request = IdentifyRequest {
        caller_token: stranger,
    };
    let refused = client.identify(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);

    let mut versions = client
        .watch_version(WatchVersionRequest {})
        .await
        .unwrap()
        .into_inner();
    let version = versions.message().await.unwrap().unwrap();
    assert!(version.looks_up_callers);
}
