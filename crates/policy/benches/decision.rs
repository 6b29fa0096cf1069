//! Benchmarks of decisions with 10 and with 1,000 policies: the first decision for a caller and a tool, and later ones,
//! with decisions that depend on the arguments, on counts of earlier calls, or on neither. Signing a permit and
//! counting calls are not included.

#![allow(
    clippy::unwrap_used,
    reason = "a benchmark fails by panicking, with the reason"
)]

use std::fmt::Write;
use std::hint::black_box;

use criterion::{BatchSize, Criterion};
use wardgate_domain::{TimeZone, Timestamp, ToolFacts};
use wardgate_policy::{
    CallContext, CallCounts, CallerSample, PolicySet, SimulatedCall, Simulator, sample_caller,
};
use wardgate_testkit::tool_facts;

const SCHEMA: &str = include_str!("../src/tests/small.cedarschema");

const COUNTER: &str = "entity History { @tools(\"t\") @within(\"24h\") calls: Long };";

const COUNTING: &str = r#"@id("counting")
permit(principal in Role::"R0", action == Action::"call_tool", resource in Tag::"counted")
when { context.history.calls < 3 };"#;

/// Returns policies for ten roles in turn, with five kinds of rules each: calls, calls by argument, rows, and two column tiers.
fn simulator(policies: usize) -> Simulator {
    let mut text = String::new();
    for index in 0..policies {
        let role = format!("principal in Role::\"R{}\"", index / 5 % 10);
        let rest = match index % 5 {
            0 => "action == Action::\"call_tool\", resource in Tag::\"free\");".to_owned(),
            1 => format!(
                "action == Action::\"call_tool\", resource in Tag::\"bound\") when {{ \
                 context.arguments.hasTag(\"a\") && context.arguments.getTag(\"a\") == \"v{index}\" }};"
            ),
            2 => format!(
                "action == Action::\"read\", resource is Row) when {{ resource has owner && \
                 resource.owner == \"o{index}\" }};"
            ),
            3 => format!("action == Action::\"show_clear\", resource == Class::\"c{index}\");"),
            _ => "action == Action::\"show_partial\", resource in Class::\"phi\");".to_owned(),
        };
        writeln!(text, "@id(\"p{index}\") permit({role}, {rest}").unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("s.cedarschema"), SCHEMA).unwrap();
    std::fs::write(dir.path().join("h.cedarschema"), COUNTER).unwrap();
    text.push_str(COUNTING);
    std::fs::write(dir.path().join("p.cedar"), text).unwrap();
    Simulator::new(PolicySet::load(dir.path()).unwrap())
}

fn call(subject: &str, tag: &str) -> SimulatedCall {
    let sample = CallerSample {
        subject: subject.to_owned(),
        roles: vec!["R0".to_owned()],
        tenant: String::new(),
        attributes: serde_json::Map::new(),
    };
    SimulatedCall {
        caller: sample_caller(&sample).unwrap(),
        tool: ToolFacts {
            tags: [tag.to_owned()].into(),
            classes: ["phi.name", "phi.date", "none"]
                .map(|class| class.parse().unwrap())
                .into(),
            ..tool_facts("t")
        },
        arguments: br#"{"a": "v1", "b": 7}"#.to_vec(),
        context: CallContext {
            time: Timestamp::from_seconds(1_800_000_000),
            time_zone: TimeZone::default(),
            client_ip: None,
            counts: CallCounts::new(),
        },
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    measure_decisions(&mut criterion);
    criterion.final_summary();
}

fn measure_decisions(criterion: &mut Criterion) {
    for policies in [10, 1_000] {
        let simulator = simulator(policies);
        let mut group = criterion.benchmark_group(format!("{policies} policies"));
        let mut number = 0;
        group.bench_function("the first of a caller", |bencher| {
            bencher.iter_batched(
                || {
                    number += 1;
                    call(&format!("caller {number}"), "free")
                },
                |call| black_box(simulator.call(&call).unwrap()),
                BatchSize::SmallInput,
            );
        });
        let free = call("anna", "free");
        group.bench_function("whatever the arguments", |bencher| {
            bencher.iter(|| black_box(simulator.call(&free).unwrap()));
        });
        let bound = call("anna", "bound");
        group.bench_function("by the arguments", |bencher| {
            bencher.iter(|| black_box(simulator.call(&bound).unwrap()));
        });
        let counted = call("anna", "counted");
        group.bench_function("by earlier calls", |bencher| {
            bencher.iter(|| black_box(simulator.call(&counted).unwrap()));
        });
        group.finish();
    }
}
