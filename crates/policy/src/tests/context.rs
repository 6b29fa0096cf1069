//! The time and the client's address as policies see them, and the lifetime of decisions that depend on them.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use wardgate_domain::{
    ColumnTier, DenialReason, PermitTerms, TimeZone, Timestamp, ToolFacts, Verdict,
};

use super::fixture::{Dir, TestPolicy, tool};
use super::samples::{admits, caller, row};
use crate::comparison::compare;
use crate::context::{CallContext, parse_client_ip, parse_time};
use crate::history::{CallCounts, EarlierCalls};
use crate::policy_test::{TestFile, run_tests};
use crate::replay::ReplayedCall;
use crate::simulator::{SimulatedAccess, SimulatedCall, Simulator};

const CALLS_IN: &str =
    r#"@id("calls") permit(principal, action == Action::"call_tool", resource) when "#;

const OFFICE_HOURS: &str =
    "{ context.local.weekday <= 5 && context.local.minute >= 420 && context.local.minute < 1140 };";

const WARD_NETWORK: &str =
    r#"{ context has client_ip && context.client_ip.isInRange(ip("10.20.0.0/16")) };"#;

fn calls_in(condition: &str) -> TestPolicy {
    TestPolicy::with(&format!("{CALLS_IN}{condition}"))
}

impl TestPolicy {
    /// Returns the terms of the permit for a call from `client_ip`, or `None` if the call is denied.
    fn permit_from(&self, client_ip: &str, tool: &ToolFacts) -> Option<PermitTerms> {
        let (caller, arguments) = (caller("s", &["R"]), b"{}");
        let decision = self.authorizer.authorize(
            &caller,
            tool,
            arguments,
            client_ip,
            None,
            EarlierCalls::without_call(),
        );
        match decision.unwrap().verdict {
            Verdict::Allow(permit) => Some(permit.unverified_terms().unwrap()),
            _ => None,
        }
    }
}

fn context(time: &str, zone: &str, client_ip: &str) -> CallContext {
    let time_zone: TimeZone = zone.parse().unwrap();
    CallContext {
        time: parse_time(time, &time_zone).unwrap(),
        time_zone,
        client_ip: parse_client_ip(client_ip).unwrap(),
        counts: CallCounts::new(),
    }
}

fn simulator(policies: &str) -> Simulator {
    Simulator::new(Dir::with(policies).load().unwrap())
}

fn call(context: CallContext) -> SimulatedCall {
    SimulatedCall {
        caller: caller("s", &["R"]),
        tool: tool("t"),
        arguments: b"{}".to_vec(),
        context,
    }
}

#[test]
fn a_decision_sees_the_clock_of_the_service_in_the_time_zone_of_the_policies() {
    // In Berlin, the time is nine o'clock on a Friday.
    let test_policy = calls_in(OFFICE_HOURS);
    let is_allowed = || test_policy.permit_from("", &tool("t")).is_some();
    assert!(is_allowed());
    test_policy
        .clock
        .advance(Duration::from_secs(10 * 3_600 - 1));
    assert!(is_allowed());
    test_policy.clock.advance(Duration::from_secs(1));
    assert!(!is_allowed());
}

#[test]
fn a_permit_that_depends_on_time_or_address_is_for_one_call() {
    for condition in [
        OFFICE_HOURS,
        WARD_NETWORK,
        "{ context.time > datetime(\"2026-01-01\") };",
    ] {
        let permit = calls_in(condition).permit_from("10.20.1.1", &tool("t"));
        assert!(permit.unwrap().arguments_digest.is_some(), "{condition}");
    }
    let settled = format!("{CALLS_IN}{OFFICE_HOURS}").replace("calls", "sometimes");
    let always = r#"@id("always") permit(principal, action == Action::"call_tool", resource);"#;
    let permit = TestPolicy::with(&(settled + always)).permit_from("", &tool("t"));
    assert_eq!(permit.unwrap().arguments_digest, None);
}

#[test]
fn an_address_is_in_a_network_however_it_is_written_and_an_unknown_one_in_none() {
    let test_policy = calls_in(WARD_NETWORK);
    let is_allowed = |address: &str| test_policy.permit_from(address, &tool("t")).is_some();
    assert!(is_allowed("10.20.255.255") && is_allowed("::ffff:10.20.0.0"));
    for other in ["10.21.0.0", "2001:db8::1", "::10.20.0.0", ""] {
        assert!(!is_allowed(other), "{other}");
    }
    let caller = caller("s", &[]);
    for bad in ["10.20.0.0/16", "10.20.1.1:443", "ward"] {
        let refused = (test_policy.authorizer).authorize(
            &caller,
            &tool("t"),
            b"{}",
            bad,
            None,
            EarlierCalls::without_call(),
        );
        assert_eq!(refused.unwrap_err().name(), "client_ip", "{bad}");
    }
}

#[test]
fn an_address_that_may_be_absent_is_not_compared_without_a_test() {
    let policy = format!(r#"{CALLS_IN}{{ context.client_ip.isInRange(ip("10.0.0.0/8")) }};"#);
    let found = Dir::with(&policy).load().unwrap_err().to_string();
    assert!(
        found.contains("write `context has client_ip && context.client_ip …`"),
        "{found}"
    );
}

#[test]
fn rows_and_columns_are_decided_in_the_context_of_the_call_and_then_for_it_alone() {
    let test_policy = TestPolicy::with(&format!(
        r#"@id("calls") permit(principal, action == Action::"call_tool", resource);
        @id("reads") permit(principal, action == Action::"read", resource is Row)
        when {{ context.local.weekday == 5 && context.time < datetime("2027-01-15T09:00:00Z") }}
        when {{ resource has owner && resource.owner == principal.subject }};
        @id("clear") permit(principal, action == Action::"show_clear", resource) when {WARD_NETWORK}
        @id("else") permit(principal, action == Action::"show_pseudonym", resource);"#
    ));
    let own = row([("owner", "s")]);
    let seen = |address| {
        let permit = test_policy.permit_from(address, &tool("t")).unwrap();
        assert!(permit.arguments_digest.is_some());
        let admits = admits(&permit.row_rule.unwrap(), "s", &own);
        (admits, permit.column_tiers[&"none".parse().unwrap()])
    };
    assert_eq!(seen("10.20.1.1"), (true, ColumnTier::Clear));
    assert_eq!(seen("192.0.2.1"), (true, ColumnTier::Pseudonym));
    test_policy.clock.advance(Duration::from_hours(1));
    assert_eq!(seen("10.20.1.1"), (false, ColumnTier::Clear));
    // If they do not affect the rows and columns of a tool, its permit is valid for every call.
    let bare = ToolFacts {
        entity: None,
        classes: Vec::new(),
        ..tool("bare")
    };
    let permit = test_policy.permit_from("10.20.1.1", &bare).unwrap();
    assert_eq!(permit.arguments_digest, None);
}

#[test]
fn a_tool_is_listed_at_all_times_and_for_every_address_where_it_can_be_called_at_some() {
    let test_policy = calls_in("{ context.local.weekday > 5 };");
    let (caller, tool) = (caller("s", &[]), tool("t"));
    assert!(test_policy.permit_from("", &tool).is_none());
    let (listed, _) = test_policy
        .authorizer
        .visible(&caller, std::slice::from_ref(&tool));
    assert_eq!(listed, [tool.name]);
}

#[test]
fn local_times_have_summer_time_and_one_that_comes_twice_is_refused() {
    let zone: TimeZone = "Europe/Berlin".parse().unwrap();
    let utc = |time: &str| parse_time(time, &zone).map(|it| it.to_string());
    assert_eq!(
        utc("2026-01-07T12:00").unwrap(),
        "2026-01-07T11:00:00.000000Z"
    );
    assert_eq!(
        utc("2026-07-08T12:00").unwrap(),
        "2026-07-08T10:00:00.000000Z"
    );
    assert_eq!(
        utc("2026-07-08T12:00:00-04:00").unwrap(),
        "2026-07-08T16:00:00.000000Z"
    );
    // Clocks go back at three o'clock, and forward at two.
    for bad in [
        "2026-10-25T02:30",
        "2026-03-29T02:30",
        "2026-07-08T12:00-04:00",
        "12:00",
        "",
    ] {
        assert!(utc(bad).is_err(), "{bad}");
    }
    for (time, date) in [
        ("2026-07-07T22:30:00Z", "2026-07-08"),
        ("2026-07-07T21:30:00Z", "2026-07-07"),
    ] {
        let in_date = simulator(&format!(
            "{CALLS_IN}{{ context.local.date == \"{date}\" }};"
        ));
        let decided = in_date
            .call(&call(context(time, "Europe/Berlin", "")))
            .unwrap();
        assert_eq!(decided.access, SimulatedAccess::Allowed, "{time}");
    }
}

#[test]
fn a_test_states_time_and_address_and_otherwise_it_is_a_wednesdays_noon() {
    let policies = format!("{CALLS_IN}{OFFICE_HOURS}");
    let differences = |zone: Value, more: Value| {
        let mut test = json!({
            "name": "n", "callers": ["s"], "tools": ["t"], "expect": { "decision": "allowed" },
        });
        test.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let file: TestFile = serde_json::from_value(json!({
            "time_zone": zone, "tools": { "t": {} }, "callers": { "s": { "subject": "s" } }, "tests": [test],
        }))
        .unwrap();
        let files = [(PathBuf::from("t.yaml"), file)];
        let mut report = run_tests(&simulator(&policies), &[], &files);
        report.results.remove(0).differences.join("")
    };
    assert_eq!(differences(Value::Null, json!({})), "");
    let early = json!({ "time": "2026-01-07T06:00:00Z" });
    assert_eq!(differences("Europe/Berlin".into(), early.clone()), "");
    assert!(differences(Value::Null, early).contains("it is refused"));
    for (zone, more, says) in [
        (
            json!("Europe/Wien"),
            json!({}),
            "`Europe/Wien` is not a time zone",
        ),
        (
            json!("UTC"),
            json!({ "time": "noon" }),
            "`noon` is not a time",
        ),
        (
            json!("UTC"),
            json!({ "client_ip": "10.0.0.0/8" }),
            "is not an IP address",
        ),
        (
            json!("UTC"),
            json!({ "action": "read_record", "time": "2026-01-07T06:00" }),
            "only decisions about tools",
        ),
    ] {
        let found = differences(zone, more);
        assert!(found.contains(says), "{found}");
    }
}

#[test]
fn a_recorded_call_is_decided_anew_at_its_own_time_from_its_own_address() {
    let simulator = simulator(&format!(
        r#"{CALLS_IN}{OFFICE_HOURS}
        @id("far") forbid(principal, action == Action::"call_tool", resource) unless {WARD_NETWORK}
        @id("deep") forbid(principal, action == Action::"call_tool", resource == Tool::"u")
        when {{ context.arguments.hasTag("path") }};"#
    ));
    let caller = caller("s", &["R"]);
    let replay = |name, time, address| {
        let context = context(time, "Europe/Berlin", address);
        let rights = simulator.replay(&caller, &tool(name));
        assert!(rights.depends_on_context());
        rights.decide(Some(&context))
    };
    let day = "2026-07-08T05:00:00Z";
    assert_eq!(
        replay("t", day, "10.20.1.1"),
        ReplayedCall::Allowed(vec!["calls".to_owned()])
    );
    assert_eq!(
        replay("t", "2026-07-08T04:59:59Z", "10.20.1.1"),
        ReplayedCall::Denied(Vec::new())
    );
    assert_eq!(
        replay("t", day, ""),
        ReplayedCall::Denied(vec!["far".to_owned()])
    );
    assert_eq!(replay("u", day, "10.20.1.1"), ReplayedCall::Undetermined);
    let unknown = simulator.replay(&caller, &tool("t")).decide(None);
    assert_eq!(unknown, ReplayedCall::Undetermined);
}

#[test]
fn a_recorded_call_of_somebody_who_may_call_at_no_time_is_denied_whenever_it_was() {
    let of_staff = CALLS_IN.replace("principal,", "principal in Role::\"Staff\",");
    let simulator = simulator(&format!("{of_staff}{OFFICE_HOURS}"));
    let rights = |role| simulator.replay(&caller("s", &[role]), &tool("t"));
    assert!(rights("Staff").depends_on_context());
    assert!(!rights("Guest").depends_on_context());
    assert_eq!(
        rights("Guest").decide(None),
        ReplayedCall::Denied(Vec::new())
    );
}

#[test]
fn an_explanation_tells_time_and_address() {
    let simulator = simulator(
        &format!("{CALLS_IN}{OFFICE_HOURS}").replace("420 &&", "420 && context has client_ip &&"),
    );
    let call = call(context("2026-01-07T06:59", "UTC", "10.20.1.1"));
    let simulation = simulator.call(&call).unwrap();
    let explained = simulator.explain(&call, &simulation).unwrap();
    let facts: Vec<_> = explained
        .facts
        .iter()
        .map(|(name, value)| format!("{name} = {}", value.as_deref().unwrap_or("absent")))
        .collect();
    assert!(
        facts
            .iter()
            .any(|it| it.starts_with("context.client_ip = ") && it.contains("10.20.1.1")),
        "{facts:?}"
    );
    assert!(
        facts
            .iter()
            .any(|it| it.starts_with("context.local = ") && it.contains("419")),
        "{facts:?}"
    );
    let changes = explained.changes(simulation.access);
    assert!(changes[0].contains("context.local.minute"), "{changes:?}");
}

#[test]
fn a_comparison_finds_another_hour_day_network_or_instant() {
    let difference = |before: &str, after: &str| {
        let [before, after] = [before, after].map(|it| simulator(&format!("{CALLS_IN}{it}")));
        let found = compare(&before, &after, &[tool("t")]);
        found
            .changes
            .into_iter()
            .map(|it| it.example)
            .collect::<Vec<_>>()
            .join("; ")
    };
    let later = OFFICE_HOURS.replace("1140", "1200");
    assert!(
        difference(OFFICE_HOURS, &later).contains("T19:"),
        "{}",
        difference(OFFICE_HOURS, &later)
    );
    let longer = OFFICE_HOURS.replace("<= 5", "<= 6");
    assert!(difference(OFFICE_HOURS, &longer).contains("2026-01-10T"));
    let wider = WARD_NETWORK.replace("/16", "/15");
    assert!(difference(WARD_NETWORK, &wider).contains("client_ip 10.21."));
    let instant = "{ context.time < datetime(\"2026-03-02T07:00:00Z\") };";
    assert!(difference(instant, &instant.replace('<', "<=")).contains("2026-03-02T07:00:00"));
    let morning = "{ context.time.toTime() < duration(\"9h\") };";
    assert!(difference(morning, &morning.replace("9h", "9h30m")).contains("T09:"));
    let never = OFFICE_HOURS.replace("1140", "9223372036854775807");
    assert!(difference(OFFICE_HOURS, &never).contains("T19:"));
    assert_eq!(difference(OFFICE_HOURS, OFFICE_HOURS), "");
}

#[test]
fn a_time_beyond_the_calendar_is_a_fault_and_no_time() {
    let context = CallContext {
        time: Timestamp::from_micros(i64::MAX),
        time_zone: TimeZone::default(),
        client_ip: None,
        counts: CallCounts::new(),
    };
    let decided = simulator(&format!("{CALLS_IN}{OFFICE_HOURS}"))
        .call(&call(context))
        .unwrap();
    assert_eq!(
        decided.reason.map(DenialReason::as_str),
        Some("policy_error")
    );
}
