//! A candidate policy set is evaluated beside the policies in force, and its decisions change no answer.

use std::sync::Arc;
use std::time::Duration;

use tonic::Code;
use wardgate_domain::{
    Ambient, CallId, CallReference, CallerClaims, DecisionChange, ShadowReport, ToolFacts, Verdict,
};
use wardgate_proto::policy::v1::policy_service_client::PolicyServiceClient;
use wardgate_proto::policy::v1::{AuthorizeRequest, ListShadowFlipsRequest};
use wardgate_rpc::Peer;
use wardgate_testkit::{FakeAudit, permit_signer, until};

use super::fixture::{Dir, TestPolicy, start, tool};
use super::issuer::Issuer;
use super::samples::{caller, token_end};
use crate::config::ShadowConfig;
use crate::history::CallHistory;
use crate::reload::{DirectoryState, reload_candidate};
use crate::shadow::ShadowEvaluator;
use crate::{Config, PolicySet, service};

const CALL: &str = "@id(\"call\") permit(principal, action == Action::\"call_tool\", resource);";
const ROWS: &str = "@id(\"rows\") permit(principal, action == Action::\"read\", resource is Row);";
const COLUMNS: &str =
    "@id(\"columns\") permit(principal, action == Action::\"show_clear\", resource);";

fn set(policies: &str) -> PolicySet {
    Dir::with(policies).load().unwrap()
}

/// Policies in force with a candidate.
struct ShadowedPolicy {
    policy: TestPolicy,
    shadow: Arc<ShadowEvaluator>,
}

impl ShadowedPolicy {
    fn with(in_force: &str, candidate: &str) -> Self {
        let shadow = ShadowEvaluator::new(CallHistory::default());
        shadow.replace(Some(set(candidate)), String::new());
        let mut policy = TestPolicy::with(in_force);
        policy.authorizer = policy.authorizer.with_shadow(Some(Arc::clone(&shadow)));
        Self { policy, shadow }
    }

    fn report(&self) -> ShadowReport {
        self.shadow.report(None)
    }

    /// Returns the report after `calls` calls were compared.
    async fn report_of(&self, calls: u64) -> ShadowReport {
        until("the calls are compared", async || {
            let report = self.report();
            (report.equal + count(&report) >= calls).then_some(report)
        })
        .await
    }
}

fn count(report: &ShadowReport) -> u64 {
    report.flips.iter().map(|flip| flip.count).sum()
}

#[tokio::test]
async fn each_difference_is_listed_by_its_kind_and_no_answer_is_another() {
    let approvable = CALL.replace("permit", "@approval(\"Manager\") permit");
    let by_caller = CALL.replace("permit", "@approval(\"caller\") permit");
    let by_argument = CALL.replace(
        "resource)",
        "resource) when { context.arguments.hasTag(\"a\") }",
    );
    let some_rows = ROWS.replace("Row)", "Row) when { resource has open && resource.open }");
    let masked = COLUMNS.replace("show_clear", "show_partial");
    let nothing = "";
    let renamed = ROWS.replace("rows", "lines");
    let all = [CALL, ROWS, COLUMNS].concat();
    let cases: &[(&str, &str, &[DecisionChange])] = &[
        (CALL, CALL, &[]),
        (CALL, nothing, &[DecisionChange::AllowedToDenied]),
        (CALL, &approvable, &[DecisionChange::AllowedToNeedsApproval]),
        (nothing, CALL, &[DecisionChange::DeniedToAllowed]),
        (
            nothing,
            &approvable,
            &[DecisionChange::DeniedToNeedsApproval],
        ),
        (&approvable, CALL, &[DecisionChange::NeedsApprovalToAllowed]),
        (
            &approvable,
            nothing,
            &[DecisionChange::NeedsApprovalToDenied],
        ),
        (&approvable, &by_caller, &[DecisionChange::Approvers]),
        (&by_argument, nothing, &[DecisionChange::Visibility]),
        (
            &all,
            &[CALL, &some_rows, COLUMNS].concat(),
            &[DecisionChange::RowRule],
        ),
        (
            &all,
            &[CALL, ROWS, &masked].concat(),
            &[DecisionChange::ColumnTiers],
        ),
        (
            &all,
            &[CALL, &masked].concat(),
            &[DecisionChange::RowRule, DecisionChange::ColumnTiers],
        ),
        (&all, &[CALL, &renamed, COLUMNS].concat(), &[]),
    ];
    for (in_force, candidate, expected) in cases {
        let shadowed = ShadowedPolicy::with(in_force, candidate);
        let (caller, tool) = (caller("s", &[]), tool("t"));
        let alone = TestPolicy::with(in_force).authorize(&caller, &tool, "{}");
        let beside = shadowed.policy.authorize(&caller, &tool, "{}");
        let kind = |verdict: &Verdict| match verdict {
            Verdict::Allow(_) => "allowed".to_owned(),
            Verdict::NeedsApproval { approvers, .. } => approvers.to_string(),
            Verdict::NeedsIntent => "needs an intent".to_owned(),
            Verdict::Deny { reason, visible } => format!("{reason:?} {visible}"),
        };
        assert_eq!(kind(&alone.verdict), kind(&beside.verdict));
        assert_eq!(
            (&alone.policies, alone.policy_hash),
            (&beside.policies, beside.policy_hash)
        );

        let report = shadowed.report_of(expected.len().max(1) as u64).await;
        let mut found: Vec<_> = report.flips.iter().map(|flip| flip.change).collect();
        found.sort_unstable();
        assert_eq!(found, *expected, "{in_force} -> {candidate}");
        assert_eq!(report.policy_hash, Some(beside.policy_hash));
        assert_eq!(report.candidate_hash, Some(set(candidate).hash()));
        assert_eq!(report.equal, u64::from(expected.is_empty()));
    }
}

#[tokio::test]
async fn a_difference_has_the_caller_the_policies_and_how_often_and_no_argument() {
    let shadowed = ShadowedPolicy::with(CALL, "");
    let arguments = "{\"secret\":\"NUGWI\"}";
    for subject in ["anna", "anna", "bert"] {
        shadowed
            .policy
            .authorize(&caller(subject, &[]), &tool("t"), arguments);
    }
    let report = shadowed.report_of(3).await;
    assert!(!format!("{report:?}").contains("NUGWI"));
    let flips: Vec<_> = report
        .flips
        .iter()
        .map(|flip| (&*flip.subject, &*flip.tool, &*flip.action, flip.count))
        .collect();
    assert_eq!(
        flips,
        [("anna", "t", "call_tool", 2), ("bert", "t", "call_tool", 1)]
    );
    let flip = &report.flips[0];
    assert_eq!(
        (&*flip.decided.access, &*flip.decided.policies),
        ("allowed", &["call".to_owned()][..])
    );
    assert_eq!(
        (&*flip.candidate.access, &*flip.candidate.reason),
        ("hidden", "not_permitted")
    );
    assert!(shadowed.shadow.report(Some("elsewhere")).flips.is_empty());
}

// The single thread of the test makes every call before the comparison can begin.
#[tokio::test]
async fn what_does_not_fit_is_counted_and_never_waited_for() {
    let shadowed = ShadowedPolicy::with(CALL, "");
    let (caller, tool) = (caller("s", &[]), tool("t"));
    for _ in 0..300 {
        shadowed.policy.permit(&caller, &tool, "{}");
    }
    assert_eq!(shadowed.report().skipped, 300 - 256);
    let long = format!("{{\"a\":\"{}\"}}", "x".repeat(64 * 1024));
    shadowed.policy.permit(&caller, &tool, &long);
    assert_eq!(shadowed.report().skipped, 300 - 256 + 1);
}

#[tokio::test]
async fn the_newest_thousand_differences_are_kept() {
    let shadowed = ShadowedPolicy::with(CALL, "");
    for number in 0..1_001_u64 {
        shadowed.policy.clock.advance(Duration::from_secs(1));
        let caller = caller(&format!("s{number}"), &[]);
        shadowed.policy.permit(&caller, &tool("t"), "{}");
        if number % 200 == 199 {
            shadowed.report_of(number + 1).await;
        }
    }
    let whole = until("the last is compared", async || {
        let report = shadowed.report();
        (report.flips.first()?.subject == "s1000").then_some(report)
    })
    .await;
    assert_eq!(whole.flips.len(), 1_000);
    assert_eq!(whole.flips.last().unwrap().subject, "s1");
}

#[tokio::test]
async fn the_list_begins_anew_with_another_candidate_and_one_that_cannot_be_used_is_none() {
    let dir = Dir::with("");
    let shadowed = ShadowedPolicy::with(CALL, CALL);
    let mut state = DirectoryState::Unread;
    reload_candidate(&shadowed.shadow, &mut state, dir.path());
    let (caller, tool) = (caller("s", &[]), tool("t"));
    shadowed.policy.permit(&caller, &tool, "{}");
    assert_eq!(count(&shadowed.report_of(1).await), 1);
    reload_candidate(&shadowed.shadow, &mut state, dir.path());
    assert_eq!(count(&shadowed.report()), 1, "nothing changed");

    dir.write("p.cedar", "permit(");
    reload_candidate(&shadowed.shadow, &mut state, dir.path());
    let report = shadowed.report();
    assert!(report.flips.is_empty() && report.candidate_hash.is_none());
    assert!(report.fault.contains("p.cedar:1:"), "{}", report.fault);
    shadowed.policy.permit(&caller, &tool, "{}");

    dir.write("p.cedar", CALL);
    reload_candidate(&shadowed.shadow, &mut state, dir.path());
    shadowed.policy.permit(&caller, &tool, "{}");
    let report = shadowed.report_of(1).await;
    assert_eq!((report.equal, report.flips.len()), (1, 0));
    assert_eq!(report.fault, "");
}

#[tokio::test]
async fn what_changes_is_compared_with_the_policies_that_are_in_force_then() {
    let shadowed = ShadowedPolicy::with(CALL, "");
    let (caller, tool) = (caller("s", &[]), tool("t"));
    shadowed.policy.permit(&caller, &tool, "{}");
    assert_eq!(count(&shadowed.report_of(1).await), 1);
    shadowed.policy.authorizer.put_in_force(set(""));
    shadowed.policy.denial(&caller, &tool, "{}");
    let report = until("the new policies are compared", async || {
        Some(shadowed.report()).filter(|it| it.equal == 1)
    })
    .await;
    assert!(report.flips.is_empty());
    assert_eq!(report.policy_hash, report.candidate_hash);
}

#[tokio::test]
async fn only_whoever_may_read_the_record_reads_the_list() {
    let policies = [
        CALL,
        "@id(\"record\") permit(principal in Role::\"Auditor\", action == Action::\"read_record\", resource);",
    ]
    .concat();
    let (dir, candidate, issuer) = (Dir::with(&policies), Dir::with(""), Issuer::new());
    let mut config = Config::new(dir.path(), issuer.auth_config());
    config.shadow = Some(ShadowConfig {
        policies: Some(candidate.path().to_owned()),
        bundle: None,
    });
    let service = service(
        config,
        permit_signer(),
        CallHistory::default(),
        Ambient::system(),
    )
    .await
    .unwrap();
    let client = PolicyServiceClient::new(service.server);
    let list = |token: String| ListShadowFlipsRequest {
        operator_token: token,
    };
    let auditor = issuer.token(&caller("a", &["Auditor"]), token_end());
    let doctor = issuer.token(&caller("s", &["Doctor"]), token_end());
    let report = async || {
        let mut client = client.clone();
        let listed = client.list_shadow_flips(list(auditor.clone())).await;
        ShadowReport::try_from(listed.unwrap().into_inner()).unwrap()
    };
    // The candidate is in use from the first call on.
    assert!(report().await.candidate_hash.is_some());
    let facts: ToolFacts = tool("t");
    let asked = AuthorizeRequest {
        caller_token: doctor.clone(),
        tool: Some((&facts).into()),
        arguments_json: "{}".into(),
        ..AuthorizeRequest::default()
    };
    client.clone().authorize(asked).await.unwrap();
    let flips = until("the call is compared", async || {
        Some(report().await.flips).filter(|flips| !flips.is_empty())
    })
    .await;
    assert_eq!(flips[0].subject, "s");

    for (token, code, answer) in [
        (doctor, Code::PermissionDenied, "no policy permits `s`"),
        (String::new(), Code::Unauthenticated, "cannot be verified"),
    ] {
        let mut client = client.clone();
        let refused = client.list_shadow_flips(list(token)).await.unwrap_err();
        assert_eq!(refused.code(), code);
        assert!(refused.message().contains(answer), "{refused:?}");
    }
}

#[tokio::test]
async fn an_operator_of_a_tenant_reads_of_its_callers_alone() {
    let shadowed = ShadowedPolicy::with(CALL, "");
    for tenant in ["north", "south"] {
        let claims = CallerClaims {
            tenant: tenant.to_owned(),
            ..wardgate_testkit::claims("s", &[])
        };
        let caller = wardgate_domain::Caller::from_verified(claims);
        shadowed.policy.permit(&caller, &tool("t"), "{}");
    }
    shadowed.report_of(2).await;
    let north = shadowed.shadow.report(Some("north")).flips;
    assert_eq!(north.len(), 1);
    assert_eq!(north[0].tenant, "north");
}

#[tokio::test]
async fn a_candidate_that_looks_at_earlier_calls_counts_those_before_the_decision() {
    let audit = FakeAudit::new(Peer::Policy);
    audit.counts(Some(vec![3]));
    let history = CallHistory::default();
    history.connect(audit.client());
    let shadow = ShadowEvaluator::new(history);
    let dir = Dir::with(
        "@id(\"call\") permit(principal, action == Action::\"call_tool\", resource)
         when { context.history.calls < 3 };",
    );
    let counters = "entity History { @tools(\"t\") @within(\"24h\") calls: Long };";
    dir.write("h.cedarschema", counters);
    shadow.replace(Some(dir.load().unwrap()), String::new());
    let mut policy = TestPolicy::with(CALL);
    policy.authorizer = policy.authorizer.with_shadow(Some(Arc::clone(&shadow)));
    let shadowed = ShadowedPolicy { policy, shadow };
    let caller = caller("s", &[]);
    let decide = async || {
        let call = CallReference {
            call_id: CallId::new(&Ambient::system()),
            has_intent: false,
            conversation: None,
        };
        let authorizer = &shadowed.policy.authorizer;
        let earlier = authorizer
            .count_calls(&caller, &tool("t"), Some(call))
            .await;
        let decided = authorizer.authorize(&caller, &tool("t"), b"{}", "", None, earlier);
        assert!(matches!(decided.unwrap().verdict, Verdict::Allow(_)));
    };
    decide().await;
    let report = shadowed.report_of(1).await;
    assert_eq!(report.flips[0].change, DecisionChange::AllowedToDenied);
    let asked = audit.counted.entries().swap_remove(0);
    assert!(asked.call_id.is_empty());
    assert_eq!(asked.until, Some(start().into()));
    // A call is not compared if earlier calls cannot be counted.
    audit.counts(None);
    decide().await;
    let report = until("the call is passed over", async || {
        let report = shadowed.report();
        (report.skipped == 1).then_some(report)
    });
    assert_eq!(count(&report.await), 1);
}
