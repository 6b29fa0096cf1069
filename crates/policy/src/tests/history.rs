//! The counters of earlier calls that policies read, and the decision if the counts are not known.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use wardgate_domain::{
    Ambient, CallId, CallReference, DenialReason, Digest, TimeZone, Timestamp, ToolFacts, Verdict,
};
use wardgate_proto::audit::v1::CountCallsRequest;
use wardgate_rpc::Peer;
use wardgate_testkit::FakeAudit;

use super::fixture::{Dir, TestPolicy, start, tool};
use super::samples::caller;
use crate::PolicySet;
use crate::comparison::compare;
use crate::context::CallContext;
use crate::history::CallHistory;
use crate::policy_test::{TestFile, run_tests};
use crate::replay::ReplayedCall;
use crate::simulator::{SimulatedAccess, SimulatedCall, Simulator};

const COUNTERS: &str = r#"entity History {
    @tools("export, export_all") @within("24h")
    exports: Long,
    @of("conversation") @released("phi") @within("12h")
    patient_rows: Long,
};"#;

const POLICIES: &str = r#"
@id("exports") permit(principal, action == Action::"call_tool", resource == Tool::"export")
when { context.history.exports < 3 };
@id("mails") permit(principal, action == Action::"call_tool", resource == Tool::"mail");
@id("no-mail-after-patients") forbid(principal, action == Action::"call_tool", resource == Tool::"mail")
when { context.history.patient_rows > 0 };
@id("lists") permit(principal, action == Action::"call_tool", resource == Tool::"list");
"#;

fn set(policies: &str) -> PolicySet {
    set_with(policies, COUNTERS)
}

fn set_with(policies: &str, counters: &str) -> PolicySet {
    let dir = Dir::with(policies);
    dir.write("history.cedarschema", counters);
    dir.load().unwrap()
}

/// Counters by tag and by calendar day.
const DAILY_COUNTERS: &str = r#"entity History {
    @tags("export, bulk") @within("day")
    exports: Long,
    @tags("export") @within("day") @time_zone("Asia/Tokyo")
    exports_in_tokyo: Long,
};"#;

const DAILY_POLICIES: &str = r#"
@id("tools") permit(principal, action == Action::"call_tool", resource);
@id("three-exports-a-day") forbid(principal, action == Action::"call_tool", resource == Tool::"export")
when { context.history.exports >= 3 || context.history.exports_in_tokyo >= 3 };
"#;

/// Policies with a fake audit service that counts calls.
struct CountingPolicy {
    policy: TestPolicy,
    audit: Arc<FakeAudit>,
    history: CallHistory,
}

impl CountingPolicy {
    fn new() -> Self {
        Self::over(set(POLICIES))
    }

    fn over(set: PolicySet) -> Self {
        let audit = FakeAudit::new(Peer::Policy);
        let history = CallHistory::default();
        history.connect(audit.client());
        let mut policy = TestPolicy::over(set);
        policy.authorizer = policy.authorizer.with_history(history.clone());
        Self {
            policy,
            audit,
            history,
        }
    }

    async fn decide(&self, tool: &ToolFacts, call: Option<CallReference>) -> Verdict {
        let (authorizer, caller) = (&self.policy.authorizer, caller("s", &[]));
        let earlier = authorizer.count_calls(&caller, tool, call).await;
        let decided = authorizer.authorize(&caller, tool, b"{}", "", None, earlier);
        decided.unwrap().verdict
    }

    fn requests(&self) -> Vec<CountCallsRequest> {
        self.audit.counted.entries()
    }
}

fn call(has_intent: bool) -> CallReference {
    CallReference {
        call_id: CallId::new(&Ambient::system()),
        has_intent,
        conversation: Some(Digest::compute(b"c")),
    }
}

fn is_allowed(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Allow(_))
}

fn reason(verdict: &Verdict) -> Option<DenialReason> {
    match verdict {
        Verdict::Deny {
            reason,
            visible: true,
        } => Some(*reason),
        _ => None,
    }
}

#[tokio::test]
async fn a_call_whose_policies_look_at_earlier_ones_is_decided_once_its_intent_is_on_record() {
    let counting = CountingPolicy::new();
    counting.audit.counts(Some(vec![2]));
    let export = tool("export");
    let verdict = counting.decide(&export, Some(call(false))).await;
    assert!(matches!(verdict, Verdict::NeedsIntent));
    assert!(counting.requests().is_empty());

    let begun = call(true);
    let verdict = counting.decide(&export, Some(begun)).await;
    let Verdict::Allow(permit) = &verdict else {
        panic!("{verdict:?}")
    };
    let terms = permit.unverified_terms().unwrap();
    assert!(terms.arguments_digest.is_some(), "it is for one call");
    let asked = counting.requests().swap_remove(0);
    assert_eq!(asked.subject, "s");
    assert_eq!(asked.call_id, begun.call_id.to_string());
    assert_eq!(asked.selections.len(), 1, "no other counter is read");
    assert_eq!(asked.selections[0].tools, ["export", "export_all"]);
    let day = Duration::from_hours(24);
    assert_eq!(asked.selections[0].since, Some(start().minus(day).into()));

    counting.audit.counts(Some(vec![3]));
    let verdict = counting.decide(&export, Some(call(true))).await;
    assert_eq!(reason(&verdict), Some(DenialReason::NotPermitted));
}

#[tokio::test]
async fn a_call_whose_policies_do_not_look_at_earlier_ones_costs_nothing() {
    let counting = CountingPolicy::new();
    let verdict = counting.decide(&tool("list"), Some(call(false))).await;
    assert!(is_allowed(&verdict));
    assert!(counting.requests().is_empty());
}

#[tokio::test]
async fn a_counter_of_a_conversation_counts_the_calls_of_that_conversation() {
    let counting = CountingPolicy::new();
    counting.audit.counts(Some(vec![0]));
    let mail = tool("mail");
    assert!(is_allowed(&counting.decide(&mail, Some(call(true))).await));
    let asked = &counting.requests()[0].selections[0];
    assert_eq!(asked.conversation_digest, Digest::compute(b"c").to_wire());
    assert!(asked.phi && asked.tools.is_empty());

    counting.audit.counts(Some(vec![1]));
    let verdict = counting.decide(&mail, Some(call(true))).await;
    assert_eq!(reason(&verdict), Some(DenialReason::Forbidden));

    let unknown = CallReference {
        conversation: None,
        ..call(true)
    };
    let verdict = counting.decide(&mail, Some(unknown)).await;
    assert_eq!(reason(&verdict), Some(DenialReason::HistoryUnavailable));
}

#[tokio::test]
async fn a_counter_of_the_day_counts_the_calls_of_tools_with_a_tag_from_local_midnight_on() {
    let counting = CountingPolicy::over(set_with(DAILY_POLICIES, DAILY_COUNTERS));
    counting.audit.counts(Some(vec![2, 2]));
    let export = tool("export");
    assert!(is_allowed(
        &counting.decide(&export, Some(call(true))).await
    ));
    let asked = counting.requests().swap_remove(0).selections;
    assert_eq!(asked[0].tags, ["export", "bulk"]);
    assert_eq!(asked[1].tags, ["export"]);
    assert!(asked.iter().all(|it| it.tools.is_empty()));
    // The decision is at 8:00 in UTC, which is 9:00 in Berlin, the time zone of the service, and 17:00 in Tokyo.
    let midnights: [Timestamp; 2] = ["2027-01-15T00:00:00+01:00", "2027-01-15T00:00:00+09:00"]
        .map(|midnight| midnight.parse().unwrap());
    for (asked, midnight) in asked.iter().zip(midnights) {
        assert_eq!(asked.since, Some(midnight.into()));
    }

    counting.audit.counts(Some(vec![3, 0]));
    let verdict = counting.decide(&export, Some(call(true))).await;
    assert_eq!(reason(&verdict), Some(DenialReason::Forbidden));

    // The next day begins for decisions five seconds late, because the clock of a gateway may be behind.
    let midnight: Timestamp = "2027-01-16T00:00:00+01:00".parse().unwrap();
    let evening = midnight.since(start()) + Duration::from_secs(4);
    counting.policy.clock.advance(evening);
    counting.decide(&export, Some(call(true))).await;
    counting.policy.clock.advance(Duration::from_secs(1));
    counting.decide(&export, Some(call(true))).await;
    let asked = counting.requests().split_off(2).into_iter();
    let since = asked.map(|mut it| {
        let since = it.selections.swap_remove(0).since;
        Timestamp::try_from(since.unwrap()).unwrap()
    });
    assert_eq!(since.collect::<Vec<_>>(), [midnights[0], midnight]);
}

#[tokio::test]
async fn a_count_by_tag_of_a_service_that_ignores_tags_is_not_used() {
    let counting = CountingPolicy::over(set_with(DAILY_POLICIES, DAILY_COUNTERS));
    counting.audit.counts(Some(vec![0, 0]));
    counting.audit.ignores_tags();
    let verdict = counting.decide(&tool("export"), Some(call(true))).await;
    assert_eq!(reason(&verdict), Some(DenialReason::HistoryUnavailable));
}

#[test]
fn a_counted_tag_or_tool_that_the_catalogue_does_not_contain_is_reported() {
    let set = set_with(DAILY_POLICIES, DAILY_COUNTERS);
    let exporter = ToolFacts {
        tags: ["export".to_owned()].into(),
        ..tool("export")
    };
    let found = set.lint(&[exporter], &[]);
    let problems: Vec<_> = found.iter().map(|it| &*it.problem).collect();
    assert_eq!(
        problems,
        ["policy `three-exports-a-day` names the tag `bulk`, which does not exist"]
    );
}

#[tokio::test]
async fn what_is_not_known_is_denied() {
    let counting = CountingPolicy::new();
    let verdict = counting.decide(&tool("export"), Some(call(true))).await;
    assert_eq!(reason(&verdict), Some(DenialReason::HistoryUnavailable));
    assert_eq!(counting.requests().len(), 1);

    counting.audit.counts(Some(vec![0]));
    counting.history.disconnect();
    let verdict = counting.decide(&tool("export"), Some(call(true))).await;
    assert_eq!(reason(&verdict), Some(DenialReason::HistoryUnavailable));
}

#[tokio::test]
async fn counts_for_earlier_policies_are_used_only_if_the_counters_are_defined_alike() {
    let by_tag = COUNTERS.replace("@tools(\"export, export_all\")", "@tags(\"export\")");
    let by_day = COUNTERS.replace("@within(\"24h\")", "@within(\"day\")");
    assert!(by_tag != COUNTERS && by_day != COUNTERS);
    let of_patients = POLICIES.replace("history.exports < 3", "history.patient_rows < 3");
    let stricter = POLICIES.replace("history.exports < 3", "history.exports < 2");
    for (policies, counters, is_used) in [
        (POLICIES, &*by_tag, false),
        (POLICIES, &*by_day, false),
        (&*of_patients, COUNTERS, false),
        (&*stricter, COUNTERS, true),
    ] {
        let counting = CountingPolicy::new();
        counting.audit.counts(Some(vec![0]));
        let (authorizer, caller) = (&counting.policy.authorizer, caller("s", &[]));
        let export = tool("export");
        let earlier = authorizer.count_calls(&caller, &export, Some(call(true)));
        let earlier = earlier.await;
        authorizer.put_in_force(set_with(policies, counters));
        let decided = authorizer.authorize(&caller, &export, b"{}", "", None, earlier);
        let verdict = decided.unwrap().verdict;
        let expected = (!is_used).then_some(DenialReason::HistoryUnavailable);
        assert_eq!(reason(&verdict), expected, "{policies} {counters}");
        // The next call is counted by the new definition.
        let verdict = counting.decide(&export, Some(call(true))).await;
        assert!(is_allowed(&verdict), "{policies} {counters}");
    }
}

#[tokio::test]
async fn what_lets_a_stored_result_be_seen_lets_nothing_run() {
    let counting = CountingPolicy::new();
    let Verdict::Allow(permit) = counting.decide(&tool("export"), None).await else {
        panic!("denied")
    };
    assert!(permit.unverified_terms().unwrap().expires_at < start());
    assert!(counting.requests().is_empty());
    let Verdict::Allow(permit) = counting.decide(&tool("list"), None).await else {
        panic!("denied")
    };
    assert!(permit.unverified_terms().unwrap().expires_at > start());
}

#[test]
fn counters_are_checked_when_they_are_loaded() {
    let refused = |policies: &str, counters: &str| {
        let dir = Dir::with(policies);
        dir.write("history.cedarschema", counters);
        dir.load().unwrap_err().to_string()
    };
    let unknown = refused(
        &POLICIES.replace("history.exports", "history.imports"),
        COUNTERS,
    );
    assert!(
        unknown.contains("imports") && unknown.contains("p.cedar:"),
        "{unknown}"
    );
    for (counters, told) in [
        ("entity History;", "not contain 1 to 8 counters"),
        (
            "entity History { @tools(\"t\") @tags(\"x\") @within(\"day\") a: Long };",
            "write `@tools` or `@tags`, not both, or declare two counters",
        ),
        (
            "entity History { @within(\"day\") @time_zone(\"CEST\") a: Long };",
            "write a name of the IANA database: `@time_zone(\"Europe/Berlin\")`",
        ),
        (
            "entity History { exports: Long };",
            "history.cedarschema:1:1: `exports` of `entity History` does not specify its time window",
        ),
        (
            "entity History { @within(\"1h\") exports: String };",
            "is not a `Long`",
        ),
        (
            "entity History { @within(\"1h\") exports?: Long };",
            "is optional",
        ),
        (
            "entity History { @within(\"1h\") a: Long }; entity History { @within(\"1h\") b: Long };",
            "",
        ),
    ] {
        let found = refused("", counters);
        assert!(found.contains(told), "{counters}: {found}");
    }
    let elsewhere = r#"@id("r") permit(principal, action == Action::"read", resource is Row)
        when { context.history.exports < 3 };"#;
    assert!(refused(elsewhere, COUNTERS).contains("history"));
}

fn simulated_call(tool: &ToolFacts, counts: &[(&str, u64)]) -> SimulatedCall {
    let counts = counts
        .iter()
        .map(|(name, count)| (name.to_string(), *count));
    SimulatedCall {
        caller: caller("s", &[]),
        tool: tool.clone(),
        arguments: b"{}".to_vec(),
        context: CallContext {
            time: start(),
            time_zone: TimeZone::default(),
            client_ip: None,
            counts: counts.collect(),
        },
    }
}

#[test]
fn an_explanation_tells_what_the_counters_said() {
    let simulator = Simulator::new(set(POLICIES));
    for (count, expected) in [(2, SimulatedAccess::Allowed), (3, SimulatedAccess::Refused)] {
        let call = simulated_call(&tool("export"), &[("exports", count)]);
        let simulation = simulator.call(&call).unwrap();
        assert_eq!(simulation.access, expected);
        let explained = simulator.explain(&call, &simulation).unwrap();
        let told = explained.facts["context.history.exports"].clone();
        assert_eq!(told, Some(count.to_string()));
    }
}

#[test]
fn a_table_test_states_the_counts() {
    let simulator = Simulator::new(set(POLICIES));
    let test = |history: serde_json::Value, decision: &str| {
        let file = json!({
            "tools": { "export": {} },
            "callers": { "s": { "subject": "s" } },
            "tests": [{
                "name": "n", "callers": ["s"], "tools": ["export"], "history": history,
                "expect": { "decision": decision },
            }],
        });
        let file: TestFile = serde_json::from_value(file).unwrap();
        let report = run_tests(&simulator, &[], &[("t.yaml".into(), file)]);
        report.results[0].differences.join("; ")
    };
    assert_eq!(test(json!({}), "allowed"), "");
    assert_eq!(test(json!({ "exports": 2 }), "allowed"), "");
    assert_eq!(test(json!({ "exports": 3 }), "refused"), "");
    let unknown = test(json!({ "imports": 3 }), "refused");
    assert!(
        unknown.contains("`entity History` does not declare `imports`"),
        "{unknown}"
    );
}

#[test]
fn a_comparison_finds_who_may_call_more_often() {
    let simulator = |policies: &str| Simulator::new(set(policies));
    let (before, after) = (
        simulator(POLICIES),
        simulator(&POLICIES.replace("exports < 3", "exports < 4")),
    );
    let found = compare(&before, &after, &[tool("export")]);
    let gains: Vec<_> = found
        .changes
        .iter()
        .map(|it| (&*it.what, it.gains))
        .collect();
    assert_eq!(gains, [("calls export", true)]);
    assert!(
        found.changes[0].example.contains("history exports=3"),
        "{:?}",
        found.changes
    );
}

#[test]
fn a_recorded_call_is_undetermined_where_earlier_calls_decide_it() {
    let simulator = Simulator::new(set(POLICIES));
    let replayed = |name: &str| {
        let tool = tool(name);
        let call = simulated_call(&tool, &[]);
        let rights = simulator.replay(&call.caller, &tool);
        rights.decide(Some(&call.context))
    };
    assert_eq!(replayed("export"), ReplayedCall::Undetermined);
    assert_eq!(replayed("mail"), ReplayedCall::Undetermined);
    assert_eq!(
        replayed("list"),
        ReplayedCall::Allowed(vec!["lists".to_owned()])
    );
}
