//! Tests of the judgement of each tool that an upstream offers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use wardgate_domain::Timestamp;

use super::support::{definition, tool, with};
use crate::pins::{Grade, JudgedTool, Names, PinJudgement, Pins, UpstreamOffer};

fn tool_with_name(name: &str) -> Value {
    with("/name", json!(name))
}

fn create_pins(source: &str, tools: &[Value]) -> Pins {
    let mut pins = Pins::default();
    for tool in tools {
        pins.approve(
            source,
            definition(tool),
            "alice",
            Timestamp::from_seconds(0),
        );
    }
    pins
}

fn judge(pins: &Pins, source: &str, tools: &[Value], names: &mut Names) -> Vec<JudgedTool> {
    let texts: Vec<String> = tools.iter().map(Value::to_string).collect();
    let definitions: Vec<&str> = texts.iter().map(String::as_str).collect();
    pins.judge(
        UpstreamOffer {
            source,
            prefix: "",
            only: None,
            definitions: &definitions,
        },
        names,
    )
}

fn states(judged: &[JudgedTool]) -> Vec<(&str, &str)> {
    judged
        .iter()
        .map(|tool| (tool.name.as_str(), tool.judged.as_str()))
        .collect()
}

#[test]
fn each_tool_is_judged_by_itself() {
    let pins = create_pins(
        "shop",
        &[
            tool_with_name("kept"),
            tool_with_name("changed"),
            tool_with_name("lost"),
        ],
    );
    let mut changed = tool_with_name("changed");
    changed["annotations"]["readOnlyHint"] = json!(false);
    let offered = [
        tool_with_name("kept"),
        changed,
        tool_with_name("brand_new"),
        tool_with_name("twice"),
        tool_with_name("twice"),
        json!({ "name": "odd" }),
    ];
    let judged = judge(&pins, "shop", &offered, &mut Names::default());
    assert_eq!(
        states(&judged),
        [
            ("brand_new", "new"),
            ("changed", "drifted"),
            ("kept", "approved"),
            ("lost", "gone"),
            ("odd", "refused"),
            ("twice", "refused"),
        ]
    );
    assert_eq!(judged[0].judged.grade(), Some(Grade::Wider));
    assert_eq!(judged[1].judged.grade(), Some(Grade::Wider));
    assert!(
        judged[4]
            .to_string()
            .contains("its definition has no inputSchema object")
    );
}

#[test]
fn suspicion_holds_at_first_sight_too() {
    let poisoned = with("/description", json!("Adds numbers.\u{200b} And so on."));
    let judged = judge(&Pins::default(), "shop", &[poisoned], &mut Names::default());
    let PinJudgement::New { findings } = &judged[0].judged else {
        panic!("{judged:?}");
    };
    assert_eq!(findings[0].pointer, "/description");
    assert_eq!(judged[0].judged.grade(), Some(Grade::Suspicious));
}

#[test]
fn a_pin_of_one_source_says_nothing_of_another() {
    let pins = create_pins("shop", &[tool()]);
    let judged = judge(&pins, "other", &[tool()], &mut Names::default());
    assert_eq!(judged[0].judged.as_str(), "new");
}

#[test]
fn tools_that_the_configuration_does_not_name_are_not_looked_at() {
    let pins = create_pins("shop", &[tool_with_name("lost"), tool_with_name("wanted")]);
    let only = BTreeSet::from(["wanted".to_owned()]);
    let texts = [
        tool_with_name("wanted").to_string(),
        tool_with_name("other").to_string(),
    ];
    let offer = UpstreamOffer {
        source: "shop",
        prefix: "",
        only: Some(&only),
        definitions: &[&texts[0], &texts[1]],
    };
    let judged = pins.judge(offer, &mut Names::default());
    assert_eq!(states(&judged), [("wanted", "approved")]);
}

#[test]
fn a_new_tool_cannot_take_the_name_of_an_approved_one_whatever_the_order() {
    let pins = create_pins("second", &[tool_with_name("read_file")]);
    let mut names = Names::of_configured(["search"]);
    pins.claim("first", "", &mut names);
    pins.claim("second", "", &mut names);
    let first = judge(
        &pins,
        "first",
        &[tool_with_name("readFile"), tool_with_name("SEARCH")],
        &mut names,
    );
    assert_eq!(
        states(&first),
        [("SEARCH", "refused"), ("readFile", "refused")]
    );
    let second = judge(&pins, "second", &[tool_with_name("read_file")], &mut names);
    assert_eq!(states(&second), [("read_file", "approved")]);
}

#[test]
fn of_two_new_tools_that_look_alike_the_source_listed_first_wins() {
    let pins = Pins::default();
    let mut names = Names::default();
    let first = judge(&pins, "first", &[tool_with_name("go_on")], &mut names);
    let second = judge(&pins, "second", &[tool_with_name("g0-on")], &mut names);
    assert_eq!(states(&first), [("go_on", "new")]);
    assert_eq!(
        second[0].to_string(),
        "-          refused   g0-on: its name `g0-on` can be confused with `go_on` of source `first`\n"
    );
}

#[test]
fn an_approval_replaces_and_a_forgotten_tool_is_new_again() {
    let mut pins = create_pins("shop", &[tool()]);
    let changed = with("/title", json!("Other"));
    pins.approve(
        "shop",
        definition(&changed),
        "bob",
        Timestamp::from_seconds(1),
    );
    let judged = judge(
        &pins,
        "shop",
        std::slice::from_ref(&changed),
        &mut Names::default(),
    );
    assert_eq!(judged[0].judged, PinJudgement::Approved);
    pins.forget("shop", "find_orders");
    assert!(!pins.knows("shop"));
    let judged = judge(&pins, "shop", &[changed], &mut Names::default());
    assert_eq!(judged[0].judged.as_str(), "new");
}

#[test]
fn p9_a_tool_that_tools_yaml_calls_is_judged_by_the_pin_of_the_tool_of_its_server() {
    let approved = ["kept", "changed", "lost"].map(tool_with_name);
    let pins = create_pins("shop", &approved);
    let mut changed = tool_with_name("changed");
    changed["title"] = json!("Other");
    let offered = [
        tool_with_name("kept"),
        changed,
        tool_with_name("brand_new"),
        tool_with_name("twice"),
        tool_with_name("twice"),
        json!({ "name": "odd" }),
        tool_with_name("unused"),
    ];
    let texts: Vec<String> = offered.iter().map(Value::to_string).collect();
    let definitions: Vec<&str> = texts.iter().map(String::as_str).collect();
    let names = [
        "kept",
        "changed",
        "lost",
        "brand_new",
        "twice",
        "odd",
        "unknown",
    ];
    let called = names.map(|name| (format!("own_{name}"), name.to_owned()));
    let judged = pins.judge_called("shop", &BTreeMap::from(called), &definitions);
    assert_eq!(
        states(&judged),
        [
            ("brand_new", "new"),
            ("changed", "drifted"),
            ("kept", "approved"),
            ("lost", "gone"),
            ("odd", "refused"),
            ("twice", "refused"),
            ("unknown", "refused"),
        ]
    );
    assert_eq!(
        judged[0].to_string(),
        "wider      new       own_brand_new (calls `brand_new`)\n"
    );
    let pending: Vec<_> = judged.iter().filter(|tool| tool.is_pending()).collect();
    assert_eq!(pending, [&judged[0], &judged[1]]);
}
