//! Policy tests, explanations, comparisons and replays outside the service.

use std::path::PathBuf;

use serde_json::{Value, json};
use wardgate_domain::{TimeZone, ToolFacts};

use super::fixture::{Dir, hospital, start, tool};
use super::samples::{caller, caller_with, text};
use crate::PolicySet;
use crate::comparison::{AccessChange, compare};
use crate::context::CallContext;
use crate::history::CallCounts;
use crate::policy_test::{TestFile, TestReport, run_tests, test_files};
use crate::replay::ReplayedCall;
use crate::simulator::{SimulatedAccess, SimulatedCall, Simulator};

const POLICIES: &str = r#"
@id("staff-calls") permit (principal in Role::"Staff", action == Action::"call_tool", resource);
@id("guest-calls-their-own") permit (principal in Role::"Guest", action == Action::"call_tool", resource)
when { context.arguments.hasTag("owner") && context.arguments.getTag("owner") == principal.subject };
@id("staff-reads-unlocked") permit (principal in Role::"Staff", action == Action::"read", resource is Row);
@id("nobody-reads-the-boss") forbid (principal, action == Action::"read", resource is Row)
when { resource has owner && resource.owner == "boss" };
@id("staff-sees") permit (principal in Role::"Staff", action == Action::"show_partial", resource == Class::"none");
"#;

fn simulator(policies: &str) -> Simulator {
    Simulator::new(Dir::with(policies).load().unwrap())
}

fn run(policies: &str, tests: &Value) -> TestReport {
    let file: TestFile = serde_json::from_value(json!({
        "tools": { "t": { "entity": "Row", "classes": ["none", "other"] } },
        "callers": {
            "staff": { "subject": "anna", "roles": ["Staff"] },
            "guest": { "subject": "gil", "roles": ["Guest"] },
        },
        "tests": tests,
    }))
    .unwrap();
    run_tests(
        &simulator(policies),
        &[],
        &[(PathBuf::from("t.yaml"), file)],
    )
}

fn differences(expect: &Value, caller: &str, arguments: &Value) -> Vec<String> {
    let test = json!([{
        "name": "n", "callers": [caller], "tools": ["t"], "arguments": arguments, "expect": expect,
    }]);
    run(POLICIES, &test).results.remove(0).differences
}

#[test]
fn a_test_passes_where_calls_rows_and_columns_are_as_expected() {
    let expect = json!({
        "decision": "allowed", "decided_by": ["staff-calls"],
        "rows": [
            { "row": { "owner": "anna" }, "decision": "released", "decided_by": ["staff-reads-unlocked"] },
            { "row": { "owner": "boss" }, "decision": "withheld", "decided_by": ["nobody-reads-the-boss"] },
        ],
        "columns": { "none": "partial", "other": "dropped" },
    });
    assert_eq!(differences(&expect, "staff", &json!({})), [""; 0]);
    let own = json!({ "decision": "allowed" });
    assert_eq!(
        differences(&own, "guest", &json!({ "owner": "gil" })),
        [""; 0]
    );
    let foreign = json!({ "decision": "refused", "decided_by": [] });
    assert_eq!(
        differences(&foreign, "guest", &json!({ "owner": "anna" })),
        [""; 0]
    );
}

#[test]
fn each_difference_names_what_came_out_and_by_which_policy() {
    for (expect, caller, says) in [
        (
            json!({ "decision": "hidden" }),
            "staff",
            "staff, t: expected hidden, but it is allowed, by staff-calls",
        ),
        (
            json!({ "decision": "allowed" }),
            "guest",
            "guest, t: expected allowed, but it is refused, by no policy",
        ),
        (
            json!({ "decision": "allowed", "decided_by": ["x"] }),
            "staff",
            "staff, t: expected to be decided by x, but it is decided by staff-calls",
        ),
        (
            json!({ "decision": "allowed", "rows": [{ "row": { "owner": "boss" }, "decision": "released" }] }),
            "staff",
            "staff, t, row {\"owner\":\"boss\"}: expected released, but it is withheld, by nobody-reads-the-boss",
        ),
        (
            json!({ "decision": "allowed", "rows": [{ "row": { "owner": 7 }, "decision": "withheld" }] }),
            "staff",
            "staff, t: `owner` of the row has another type than `Row`",
        ),
        (
            json!({ "decision": "allowed", "columns": { "none": "clear" } }),
            "staff",
            "staff, t, class none: expected clear, but it is partial, by staff-sees",
        ),
        (
            json!({ "decision": "allowed", "columns": { "nine": "clear" } }),
            "staff",
            "staff, t: the tool has no column of the class `nine`",
        ),
        (
            json!({ "decision": "allowed" }),
            "eve",
            "`callers` has no `eve`",
        ),
    ] {
        assert_eq!(differences(&expect, caller, &json!({})), [says]);
    }
}

#[test]
fn a_test_that_asks_nothing_fails() {
    let tests = json!([{ "name": "n", "callers": [], "tools": ["t"], "expect": { "decision": "allowed" } }]);
    assert_eq!(run(POLICIES, &tests).failed_count(), 1);
}

#[test]
fn a_policy_that_no_test_reached_is_reported_with_its_line() {
    let tests = json!([{
        "name": "n", "callers": ["staff"], "tools": ["t"],
        "expect": { "decision": "allowed", "columns": { "none": "partial" } },
    }]);
    let report = run(POLICIES, &tests);
    let untested: Vec<_> = report
        .untested
        .iter()
        .map(|(id, location)| (id.as_str(), location.line))
        .collect();
    assert_eq!(
        untested,
        [
            ("guest-calls-their-own", 3),
            ("nobody-reads-the-boss", 6),
            ("staff-reads-unlocked", 5),
        ]
    );
    assert_eq!((report.failed_count(), report.policies), (0, 5));
}

#[test]
fn the_files_of_tests_stand_beside_the_policies_and_below_them() {
    let dir = Dir::with("");
    std::fs::create_dir(dir.path().join("tests")).unwrap();
    for name in ["a.test.yaml", "tests/b.yaml", "other.yaml", "tests/c.txt"] {
        dir.write(name, "");
    }
    let found = test_files(dir.path()).unwrap();
    assert_eq!(
        found,
        ["a.test.yaml", "tests/b.yaml"].map(|name| dir.path().join(name))
    );
}

fn usual_context() -> CallContext {
    CallContext {
        time: start(),
        time_zone: TimeZone::default(),
        client_ip: None,
        counts: CallCounts::new(),
    }
}

fn call(role: &str, arguments: &str) -> SimulatedCall {
    SimulatedCall {
        caller: caller("gil", &[role]),
        tool: tool("t"),
        arguments: arguments.as_bytes().to_vec(),
        context: usual_context(),
    }
}

#[test]
fn an_explanation_tells_which_condition_fails_and_what_it_read() {
    let simulator = simulator(POLICIES);
    let call = call("Guest", r#"{"owner": "anna"}"#);
    let simulation = simulator.call(&call).unwrap();
    assert_eq!(simulation.access, SimulatedAccess::Refused);
    let explained = simulator.explain(&call, &simulation).unwrap();
    let closest = &explained.policies[0];
    assert_eq!(closest.id, "guest-calls-their-own");
    assert_eq!(closest.location.as_ref().unwrap().line, 3);
    let conditions: Vec<_> = closest
        .conditions
        .iter()
        .map(|it| (it.text.as_str(), it.holds))
        .collect();
    assert_eq!(
        conditions,
        [
            ("principal in Role::\"Guest\"", true),
            ("context.arguments.hasTag(\"owner\")", true),
            (
                "context.arguments.getTag(\"owner\") == principal.subject",
                false
            ),
        ]
    );
    assert_eq!(
        explained.facts["arguments.owner"].as_deref(),
        Some("\"anna\"")
    );
    assert_eq!(
        explained.facts["principal.subject"].as_deref(),
        Some("\"gil\"")
    );
    let changes = explained.changes(simulation.access);
    assert!(
        changes[0].starts_with("allowed by guest-calls-their-own, if `context.arguments.getTag"),
        "{changes:?}"
    );
}

#[test]
fn an_explanation_of_an_allowed_call_begins_with_the_policies_that_decided() {
    let simulator = simulator(POLICIES);
    let call = call("Staff", "{}");
    let simulation = simulator.call(&call).unwrap();
    let explained = simulator.explain(&call, &simulation).unwrap();
    assert!(explained.policies[0].decided);
    assert_eq!(explained.policies[0].id, "staff-calls");
    assert_eq!(
        explained.changes(simulation.access)[0],
        "denied, if none of staff-calls applies"
    );
}

fn changes(before: &str, after: &str) -> Vec<(String, String, bool)> {
    let (before, after) = (simulator(before), simulator(after));
    let found = compare(&before, &after, &[tool("t")]);
    assert!(!found.is_cut_short && found.questions > 0);
    let short = |change: AccessChange| (change.roles.join("+"), change.what, change.gains);
    found.changes.into_iter().map(short).collect()
}

#[test]
fn a_comparison_of_equal_policies_finds_nothing() {
    assert_eq!(changes(POLICIES, POLICIES), []);
}

#[test]
fn a_role_is_tried_only_with_the_questions_whose_policies_name_it() {
    let with_auditors = |policies: &str| {
        format!(
            "{policies}\n@id(\"audits\") permit(principal in Role::\"Auditor\", action == Action::\"read_record\", resource);"
        )
    };
    let questions = |policies: &str| {
        let (before, after) = (simulator(policies), simulator(policies));
        compare(&before, &after, &[tool("t")]).questions
    };
    let (few, more) = (questions(POLICIES), questions(&with_auditors(POLICIES)));
    // One of the five operator actions has one more role, and the questions about the tool stay the same.
    assert!(more > few && (more - few) * 5 <= few, "{few} {more}");
    // Who gains what is found nevertheless, also for those who have such a role.
    let changed = POLICIES.replace("show_partial", "show_clear");
    assert_eq!(
        changes(&with_auditors(POLICIES), &with_auditors(&changed)),
        changes(POLICIES, &changed)
    );
    assert_eq!(
        changes(POLICIES, &with_auditors(POLICIES)),
        [(
            "Auditor".to_owned(),
            "reads the audit records of all callers".to_owned(),
            true
        )]
    );
}

#[test]
fn a_comparison_finds_who_gains_and_loses_calls_rows_and_columns() {
    let change = |from: &str, to: &str| changes(POLICIES, &POLICIES.replace(from, to));
    let found = |role: &str, what: &str, gains: bool| (role.to_owned(), what.to_owned(), gains);
    assert_eq!(
        change(
            "&& context.arguments.getTag(\"owner\") == principal.subject",
            ""
        ),
        [found("Guest", "calls t", true)]
    );
    assert_eq!(
        change("== \"boss\"", "== \"chief\""),
        [
            found("Staff", "reads rows of Row by t", false),
            found("Staff", "reads rows of Row by t", true),
        ]
    );
    assert_eq!(
        change("show_partial", "show_clear"),
        [found(
            "Staff",
            "sees none of t clear instead of partial",
            true
        )]
    );
    let lost = change(
        "Role::\"Staff\", action == Action::\"call_tool\"",
        "Role::\"Boss\", action == Action::\"call_tool\"",
    );
    assert!(lost.contains(&found("Staff", "calls t", false)), "{lost:?}");
    assert!(lost.contains(&found("Boss", "calls t", true)), "{lost:?}");
}

/// Returns a simulator whose staff call tools with arguments of declared types.
fn typed_simulator(condition: &str) -> Simulator {
    let dir = Dir::with(&format!(
        "@id(\"staff-calls\") permit (principal in Role::\"Staff\", action == Action::\"call_tool\", resource)\n\
         when {{ {condition} }};"
    ));
    dir.write(
        "a.cedarschema",
        "entity Arguments { limit?: Long, amount?: decimal, codes?: Set<String> };",
    );
    Simulator::new(dir.load().unwrap())
}

#[test]
fn a_comparison_tries_arguments_in_their_declared_types() {
    let limit =
        |limit: &str| format!("context.arguments has limit && context.arguments.limit <= {limit}");
    let amount = |amount: &str| {
        format!(
            "context.arguments has amount && context.arguments.amount.lessThan(decimal(\"{amount}\"))"
        )
    };
    let codes = |codes: &str| {
        format!("context.arguments has codes && [{codes}].containsAll(context.arguments.codes)")
    };
    for (before, after) in [
        (limit("10"), limit("11")),
        (amount("10.0"), amount("10.01")),
        (codes("\"a\""), codes("\"a\", \"b\"")),
    ] {
        let (before, after) = (typed_simulator(&before), typed_simulator(&after));
        let found = compare(&before, &after, &[tool("t")]).changes;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].what.as_str(), found[0].gains), ("calls t", true));
    }
}

#[test]
fn an_explanation_shows_an_argument_in_its_declared_type() {
    let simulator = typed_simulator("context.arguments has limit && context.arguments.limit <= 10");
    let call = call("Staff", r#"{"limit": 11}"#);
    let simulation = simulator.call(&call).unwrap();
    assert_eq!(simulation.access, SimulatedAccess::Refused);
    let explained = simulator.explain(&call, &simulation).unwrap();
    assert_eq!(explained.facts["arguments.limit"].as_deref(), Some("11"));
}

#[test]
fn a_change_of_the_hospital_is_found_without_its_catalogue() {
    let load = || Simulator::new(PolicySet::load(&hospital()).unwrap());
    let dir = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(hospital()).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() && !path.ends_with("nurse.cedar") {
            std::fs::copy(&path, dir.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let nurse = std::fs::read_to_string(hospital().join("nurse.cedar")).unwrap();
    let wider = nurse.replace(" && resource.ward == principal.ward", "");
    assert_ne!(nurse, wider);
    std::fs::write(dir.path().join("nurse.cedar"), wider).unwrap();
    let after = Simulator::new(PolicySet::load(dir.path()).unwrap());
    let found = compare(&load(), &after, &[]);
    assert!(!found.changes.is_empty());
    for change in &found.changes {
        assert!(change.gains, "{change:?}");
        assert_eq!(change.roles, ["Nurse"], "{change:?}");
        assert!(change.what.starts_with("reads rows of "), "{change:?}");
    }
}

#[test]
fn a_comparison_without_a_catalogue_tries_tools_that_may_write() {
    let policy = |condition: &str| {
        let policy = format!(
            r#"@id("p") permit (principal in Role::"Staff", action == Action::"call_tool", resource == Tool::"t") {condition};"#
        );
        simulator(&policy)
    };
    let (reading, all) = (policy("when { resource.read_only }"), policy(""));
    let gained = |before, after| {
        let changes = compare(before, after, &[]).changes.into_iter();
        let changes = changes.map(|it| (it.roles, it.what, it.gains));
        changes.collect::<Vec<_>>()
    };
    let expected = |gains| vec![(vec!["Staff".to_owned()], "calls t".to_owned(), gains)];
    assert_eq!(gained(&reading, &all), expected(true));
    assert_eq!(gained(&all, &reading), expected(false));
    assert_eq!(gained(&all, &all), []);
    let every_tool = |condition: &str| {
        let policy = format!(
            r#"@id("p") permit (principal in Role::"Staff", action == Action::"call_tool", resource) {condition};"#
        );
        simulator(&policy)
    };
    let (reading, all) = (every_tool("when { resource.read_only }"), every_tool(""));
    let every_form = ["a-tool-of-Other", "a-tool-of-Row", "a-tool"].map(|tool| {
        let what = format!("calls {tool}-that-may-write");
        (vec!["Staff".to_owned()], what, true)
    });
    assert_eq!(gained(&reading, &all), every_form);
}

#[test]
fn a_recorded_call_is_decided_anew_only_where_nothing_unknown_matters() {
    let simulator = Simulator::new(PolicySet::load(&hospital()).unwrap());
    let of = |roles: &[&str], tag: &str| {
        let caller = caller_with("s", roles, [("patient_id", text("not recorded"))]);
        let tool = ToolFacts {
            tags: [tag.to_owned()].into(),
            entity: Some("Patient".to_owned()),
            ..tool("t")
        };
        simulator.replay(&caller, &tool).decide(None)
    };
    let allowed = |id: &str| ReplayedCall::Allowed(vec![id.to_owned()]);
    assert_eq!(
        of(&["Doctor"], "clinical"),
        allowed("doctor-calls-clinical-and-staff-tools")
    );
    assert_eq!(of(&["Doctor"], "other"), ReplayedCall::Denied(Vec::new()));
    let forbidden = ReplayedCall::Denied(vec!["auditor-calls-no-tool".to_owned()]);
    assert_eq!(of(&["Auditor", "Doctor"], "clinical"), forbidden);
    assert_eq!(of(&["Patient"], "clinical"), ReplayedCall::Undetermined);
    assert_eq!(of(&["Patient"], "other"), ReplayedCall::Denied(Vec::new()));
}

/// Returns a simulator whose guests may call tools by a permit with the annotation `approval`, if any.
fn guests_call_with(approval: &str) -> Simulator {
    simulator(&format!(
        r#"@id("guest-calls") {approval}
        permit (principal in Role::"Guest", action == Action::"call_tool", resource);"#
    ))
}

#[test]
fn a_test_expects_the_approval_of_a_role_or_of_the_caller() {
    let policies = r#"
@id("staff-calls") @approval("Boss") permit (principal in Role::"Staff", action == Action::"call_tool", resource);
@id("guest-calls") @approval("caller") permit (principal in Role::"Guest", action == Action::"call_tool", resource);
@id("staff-reads") permit (principal in Role::"Staff", action == Action::"read", resource is Row);
"#;
    let differences = |caller: &str, expect: &Value| {
        let test = json!([{ "name": "n", "callers": [caller], "tools": ["t"], "expect": expect }]);
        run(policies, &test).results.remove(0).differences
    };
    let rows = json!([{ "row": { "owner": "anna" }, "decision": "released" }]);
    for (caller, expect) in [
        (
            "staff",
            json!({ "approval": "Boss", "decided_by": ["staff-calls"], "rows": rows }),
        ),
        ("staff", json!({ "decision": "needs_approval" })),
        (
            "guest",
            json!({ "decision": "needs_approval", "approval": "caller" }),
        ),
    ] {
        assert_eq!(differences(caller, &expect), [""; 0], "{expect}");
    }
    for (caller, expect, says) in [
        (
            "staff",
            json!({ "approval": "caller" }),
            "staff, t: expected to require an approval by caller, but it requires one by another user with the role Boss",
        ),
        (
            "guest",
            json!({ "decision": "allowed" }),
            "guest, t: expected allowed, but it needs approval, by guest-calls",
        ),
        ("staff", json!({}), "staff, t: `expect` has no `decision`"),
    ] {
        assert_eq!(differences(caller, &expect), [says]);
    }
}

#[test]
fn a_comparison_finds_who_needs_an_approval_now_and_whose() {
    let changes = |before: &str, after: &str| {
        let found = compare(
            &guests_call_with(before),
            &guests_call_with(after),
            &[tool("t")],
        );
        let changes = found.changes.into_iter();
        let calls = changes.filter(|it| it.roles == ["Guest"]);
        calls.map(|it| (it.what, it.gains)).collect::<Vec<_>>()
    };
    let with_boss = r#"@approval("Boss")"#;
    let expected = |what: &str, gains| (what.to_owned(), gains);
    assert_eq!(
        changes("", with_boss),
        [expected("calls t without an approval", false)]
    );
    assert_eq!(
        changes(with_boss, ""),
        [expected("calls t without an approval", true)]
    );
    assert_eq!(
        changes(with_boss, r#"@approval("caller")"#),
        [
            expected("approves their own calls of t", true),
            expected("has calls of t approved by Boss", false)
        ]
    );
    let found = compare(
        &simulator("@id(\"a\") permit (principal, action == Action::\"read_record\", resource);"),
        &guests_call_with(with_boss),
        &[tool("t")],
    );
    assert!(
        found
            .changes
            .iter()
            .any(|it| it.what == "calls t with an approval" && it.gains),
        "{:?}",
        found.changes
    );
}

#[test]
fn a_recorded_call_and_an_explanation_know_the_third_answer() {
    let simulator = guests_call_with(r#"@approval("Boss")"#);
    let rights = simulator.replay(&caller("gil", &["Guest"]), &tool("t"));
    let replayed = rights.decide(None);
    // The schema of these tests declares attributes of callers, but none of them is required.
    assert_eq!(
        replayed,
        ReplayedCall::NeedsApproval(vec!["guest-calls".to_owned()])
    );
    let call = call("Guest", "{}");
    let simulation = simulator.call(&call).unwrap();
    assert_eq!(simulation.access, SimulatedAccess::NeedsApproval);
    let approvers = simulation.approvers.as_ref().unwrap();
    assert_eq!(approvers.to_string(), "another user with the role Boss");
    let explained = simulator.explain(&call, &simulation).unwrap();
    let changes = explained.changes(simulation.access);
    assert_eq!(changes, ["denied, if none of guest-calls applies"]);
}

#[test]
fn the_role_of_an_approval_is_compared_with_those_that_issuers_give() {
    let simulator = guests_call_with(r#"@approval("Bos")"#);
    let roles = ["Guest", "Boss"].map(str::to_owned);
    let found = simulator.set().lint(&[], &roles);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].problem.contains("names the role `Bos`"));
    // A permit with an approval does not make a permit without one redundant.
    let both = simulator_of_both();
    let found = both.set().lint(&[], &[]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0]
            .problem
            .contains("`narrow-with-approval` never changes a decision"),
        "{found:?}"
    );
}

fn simulator_of_both() -> Simulator {
    simulator(
        r#"
@id("narrow") permit (principal in Role::"Guest", action == Action::"call_tool", resource == Tool::"t");
@id("narrow-with-approval") @approval("Boss")
permit (principal in Role::"Guest", action == Action::"call_tool", resource == Tool::"t");
@id("wide-with-approval") @approval("Boss")
permit (principal in Role::"Guest", action == Action::"call_tool", resource);
"#,
    )
}
