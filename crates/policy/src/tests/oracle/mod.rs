//! Random requests, decided by the engine and by an independent oracle. The policies are those of the hospital example
//! with a supplement, and the oracle is their second implementation in plain Rust ([`rules`]).
//!
//! Compared are: whether the call is allowed, needs an approval, or is denied, with the reason; whether a denied tool is
//! visible; whether it is listed; whether the permit is bound to its arguments; the tier of each column; and, for some
//! permits, random rows.
//!
//! `ORACLE_REQUESTS` sets the number of requests, and `ORACLE_SEED` the seed. `make test` compares a million.

mod requests;
mod rules;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cedar_policy::RestrictedExpression;
use wardgate_domain::{Ambient, CallId, CallReference, Caller, PermitTerms, ToolFacts, Verdict};
use wardgate_testkit::{SeededRandom, number_from_environment};

use self::requests::{CLASSES, SampleCall, SampleCaller, SampleRow, SampleTool};
use self::rules::ExpectedOutcome;
use super::fixture::{Dir, TestPolicy, hospital};
use super::samples::{Row, admits};
use crate::PolicySet;
use crate::history::{CallCounter, CallCounters, CallCounts, CountedPeriod, EarlierCalls};

/// Number of requests, unless the environment variable sets another one. An unoptimised build decides about 5,000 per second.
const REQUESTS: (&str, u64) = ("ORACLE_REQUESTS", 30_000);

/// Seed of the requests, unless the environment variable sets another one.
const SEED: (&str, u64) = ("ORACLE_SEED", 1);

/// Number of parts of the requests, which have different seeds and are compared at the same time.
const PARTS: u64 = 2;

/// Number of consecutive requests of one caller. The first request for each tool takes longer than the others.
const REQUESTS_OF_CALLER: u64 = 150;

/// The counter of the supplement. The names of its tools are those of [`requests`].
const COUNTER: &str = "entity History { @tools(\"export\") @within(\"24h\") exports: Long };";

/// Returns the policies of the hospital example with the supplement.
fn policies() -> PolicySet {
    let dir = Dir::with(include_str!("supplement.cedar"));
    for file in std::fs::read_dir(hospital()).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.extension().is_some_and(|it| it == "cedar") {
            dir.write(name, &std::fs::read_to_string(&path).unwrap());
        }
    }
    let schema = std::fs::read_to_string(hospital().join("hospital.cedarschema")).unwrap();
    let user = "entity User {";
    let patient = "entity Patient {";
    assert!(schema.contains(user) && schema.contains(patient));
    let schema = schema
        .replace(
            user,
            &format!("{user} purpose?: String, emergency_reason?: String,"),
        )
        .replace(patient, &format!("{patient} research_consent?: Bool,"));
    // It replaces the schema that the directory had at first.
    dir.write("s.cedarschema", &schema);
    dir.write(
        "arguments.cedarschema",
        "entity Arguments { limit?: Long };",
    );
    dir.write("history.cedarschema", COUNTER);
    dir.load().unwrap()
}

/// Returns the counters of [`COUNTER`].
fn counters() -> Arc<CallCounters> {
    let exports = CallCounter {
        tools: vec!["export".parse().unwrap()],
        tags: Vec::new(),
        period: CountedPeriod::Duration(Duration::from_hours(24)),
        is_of_conversation: false,
        phi: false,
    };
    Arc::new(CallCounters::from([("exports".to_owned(), exports)]))
}

/// Returns what the authorizer decides, with the terms of the permit if it signs one.
fn decide(
    policy: &TestPolicy,
    caller: &Caller,
    tool: &ToolFacts,
    call: &SampleCall,
) -> (ExpectedOutcome, Option<PermitTerms>) {
    let reference = CallReference {
        call_id: CallId::new(&Ambient::system()),
        has_intent: true,
        conversation: None,
    };
    let earlier = EarlierCalls {
        call: Some(reference),
        counters: Some(counters()),
        counts: Ok(CallCounts::from([("exports".to_owned(), call.exports)])),
    };
    policy.clock.set(call.time.0);
    let (arguments, address) = (call.arguments.as_bytes(), call.address.0);
    let decided = (policy.authorizer).authorize(caller, tool, arguments, address, None, earlier);
    let Ok(decision) = decided else {
        return (ExpectedOutcome::Invalid, None);
    };
    match decision.verdict {
        Verdict::Allow(permit) => {
            let terms = permit.unverified_terms().unwrap();
            let digest = terms.arguments_digest;
            assert!(digest.is_none_or(|digest| digest == call.digest()));
            let is_bound = digest.is_some();
            (ExpectedOutcome::Allowed { is_bound }, Some(terms))
        }
        Verdict::NeedsApproval { approvers, .. } => {
            assert!(!approvers.caller);
            let roles = approvers.roles.into_iter().collect();
            (ExpectedOutcome::NeedsApproval { roles }, None)
        }
        Verdict::Deny { reason, visible } => (ExpectedOutcome::Denied { reason, visible }, None),
        Verdict::NeedsIntent => panic!("the intent is on record"),
    }
}

/// Returns the row as the tool-runner converts it.
fn cedar_row(row: &SampleRow) -> Row {
    let texts = (row.texts.iter())
        .map(|(name, text)| (*name, RestrictedExpression::new_string((*text).to_owned())));
    let truths =
        (row.truths.iter()).map(|(name, truth)| (*name, RestrictedExpression::new_bool(*truth)));
    let columns = texts.chain(truths);
    columns
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Compares the columns and some rows of a permit with the oracle.
fn check_view(
    terms: &PermitTerms,
    caller: &SampleCaller,
    tool: &SampleTool,
    row: Option<&SampleRow>,
) {
    for class in CLASSES {
        let tier = terms.column_tiers.get(&class.parse().unwrap()).copied();
        assert_eq!(tier, rules::tier(caller, class), "{class}: {caller:?}");
    }
    let rule = terms.row_rule.as_ref().unwrap();
    assert_eq!(rule.entity, tool.entity);
    if let Some(row) = row {
        assert_eq!(
            admits(rule, caller.subject, &cedar_row(row)),
            rules::may_read(caller, tool.entity, row),
            "{row:?}: {caller:?}: {rule:?}"
        );
    }
}

/// Returns a word for the kind of an outcome.
fn kind(outcome: &ExpectedOutcome) -> String {
    match outcome {
        ExpectedOutcome::Invalid => "invalid".to_owned(),
        ExpectedOutcome::Allowed { is_bound } => format!("allowed, bound: {is_bound}"),
        ExpectedOutcome::NeedsApproval { .. } => "needs approval".to_owned(),
        ExpectedOutcome::Denied { reason, visible } => {
            format!("{}, visible: {visible}", reason.as_str())
        }
    }
}

/// Every kind of outcome that these policies have. A tool whose policies fail for some arguments only is visible.
const KINDS: [&str; 9] = [
    "allowed, bound: false",
    "allowed, bound: true",
    "forbidden, visible: false",
    "forbidden, visible: true",
    "invalid",
    "needs approval",
    "not_permitted, visible: false",
    "not_permitted, visible: true",
    "policy_error, visible: true",
];

/// The number of requests with each kind of outcome.
type OutcomeCounts = BTreeMap<String, u64>;

/// Compares decisions about random requests with the oracle. Returns the outcomes, and the number of rows that were compared.
fn compare(requests: u64, seed: u64) -> (OutcomeCounts, u64) {
    let mut random = SeededRandom::new(seed);
    let policy = TestPolicy::over(policies());
    let tools = SampleTool::create_all();
    let facts: Vec<ToolFacts> = tools.iter().map(SampleTool::facts).collect();
    let mut kinds = OutcomeCounts::new();
    let mut rows = 0;
    let mut number = 0;
    while number < requests {
        let sample = SampleCaller::random(&mut random);
        let caller = sample.to_caller();
        let first = SampleCall::random(&mut random);
        let (listed, _) = policy.authorizer.visible(&caller, &facts);
        let listed: Vec<String> = listed.iter().map(ToString::to_string).collect();
        let expected = tools
            .iter()
            .filter(|tool| rules::lists(&sample, tool, &first));
        let expected: Vec<&str> = expected.map(|tool| tool.name).collect();
        assert_eq!(listed, expected, "seed {seed}: {sample:?}");
        for _ in 0..REQUESTS_OF_CALLER.min(requests - number) {
            number += 1;
            let at = random.below(tools.len());
            let (tool, facts) = (&tools[at], &facts[at]);
            let call = SampleCall::random(&mut random);
            let (outcome, terms) = decide(&policy, &caller, facts, &call);
            let expected = rules::decide(&sample, tool, &call);
            assert_eq!(
                outcome, expected,
                "seed {seed}, request {number}: {sample:?} {tool:?} {call:?}"
            );
            *kinds.entry(kind(&outcome)).or_default() += 1;
            if let Some(terms) = terms {
                let row = (random.is_one_in(8)).then(|| SampleRow::random(&mut random, &sample));
                rows += u64::from(row.is_some());
                check_view(&terms, &sample, tool, row.as_ref());
            }
        }
    }
    (kinds, rows)
}

#[test]
fn p5_the_engine_decides_random_requests_as_an_independent_oracle_does() {
    let requests = number_from_environment(REQUESTS.0, REQUESTS.1);
    let seed = number_from_environment(SEED.0, SEED.1);
    println!("{requests} requests with seeds from {seed} on");
    let (mut kinds, mut rows) = (OutcomeCounts::new(), 0);
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..PARTS)
            .map(|part| scope.spawn(move || compare(requests.div_ceil(PARTS), seed + part)))
            .collect();
        for part in parts {
            let (of_part, rows_of_part) = part.join().unwrap();
            rows += rows_of_part;
            for (kind, count) in of_part {
                *kinds.entry(kind).or_default() += count;
            }
        }
    });
    let decided: u64 = kinds.values().sum();
    println!("{decided} requests, {rows} rows, 0 mismatches: {kinds:?}");
    let found: Vec<&str> = kinds.keys().map(String::as_str).collect();
    assert_eq!(found, KINDS, "the requests reach every kind of outcome");
}
