//! Tests of which texts are the same definition.

use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Map, Value, json};
use wardgate_json::Json;
use wardgate_mcp_client::{BadDefinition, CanonicalDefinition};

use super::support::{definition, tool, with};
use crate::pins::display::pretty;
use crate::pins::{Names, PinJudgement, Pins, UpstreamOffer};

#[test]
fn what_readers_could_take_for_different_things_is_no_definition() {
    for bad in [
        r#"{"name":"a","name":"b","inputSchema":{}}"#,
        r#"{"name":"a","inputSchema":{"x":{"y":1,"\u0079":2}}}"#,
        r#"{"name":"\ud800","inputSchema":{}}"#,
        r#"{"name":"a","inputSchema":{}} x"#,
        &format!(
            r#"{{"name":"a","inputSchema":{{"x":{}1{}}}}}"#,
            "[".repeat(70),
            "]".repeat(70)
        ),
    ] {
        let error = CanonicalDefinition::parse_tool(bad).unwrap_err();
        assert!(matches!(error, BadDefinition::NotJson(_)), "{bad}: {error}");
    }
    for bad in [
        r#"{"inputSchema":{}}"#,
        r#"{"name":1,"inputSchema":{}}"#,
        r#"{"name":"a"}"#,
        "[]",
        "7",
    ] {
        let error = CanonicalDefinition::parse_tool(bad).unwrap_err();
        assert!(matches!(error, BadDefinition::Lacks(_)), "{bad}: {error}");
    }
    let large = json!({ "name": "a", "inputSchema": {}, "description": "x".repeat(300_000) });
    let error = CanonicalDefinition::parse_tool(&large.to_string()).unwrap_err();
    assert!(matches!(error, BadDefinition::TooLarge(_)), "{error}");
}

#[test]
fn a_definition_goes_on_as_it_came_but_for_its_name() {
    let text = r#"{ "b" : 1, "inputSchema":{"z":1.0, "a":[ ]}, "name":"x", "a":"\u00e9" }"#;
    assert_eq!(
        CanonicalDefinition::parse_tool(text)
            .unwrap()
            .without_name(),
        r#"{"b":1,"inputSchema":{"z":1.0,"a":[]},"a":"é"}"#
    );
}

#[test]
fn a_change_of_any_member_is_another_definition() {
    let mut pins = Pins::default();
    pins.approve(
        "shop",
        definition(&tool()),
        "alice",
        wardgate_domain::Timestamp::from_seconds(0),
    );
    let members = tool().as_object().unwrap().clone();
    for name in members
        .keys()
        .filter(|name| *name != "name")
        .map(String::as_str)
        .chain(["execution"])
    {
        let mut changed = members.clone();
        match changed.get_mut(name) {
            Some(Value::String(text)) => text.push('.'),
            Some(Value::Array(items)) => items.clear(),
            Some(Value::Object(inner)) => drop(inner.insert("x-new".to_owned(), json!(1))),
            _ => drop(changed.insert(name.to_owned(), json!({ "taskSupport": "optional" }))),
        }
        let text = Value::Object(changed).to_string();
        let judged = pins.judge(
            UpstreamOffer {
                source: "shop",
                prefix: "",
                only: None,
                definitions: &[&text],
            },
            &mut Names::default(),
        );
        assert!(
            matches!(judged[0].judged, PinJudgement::Drifted { .. }),
            "{name}: {judged:?}"
        );
    }
}

/// JSON values as upstreams send them.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[ -~é\u{200b}\u{1f600}\n]{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z€/~\"]{0,4}", inner, 0..4)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Writes `value` with other white space and its members in another order.
fn rewritten(value: &Value, seed: u64) -> String {
    let space = ["", " ", "\n  ", "\t"][usize::try_from(seed % 4).unwrap()];
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            if !members.is_empty() {
                let by = usize::try_from(seed).unwrap() % members.len();
                members.rotate_left(by);
                members.reverse();
            }
            let members: Vec<_> = members
                .into_iter()
                .map(|(name, value)| {
                    format!(
                        "{space}{}{space}:{}",
                        Value::from(name.as_str()),
                        rewritten(value, seed / 3)
                    )
                })
                .collect();
            format!("{{{}{space}}}", members.join(","))
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(|item| rewritten(item, seed / 3)).collect();
            format!("[{space}{}{space}]", items.join(&format!("{space},")))
        }
        scalar => format!("{space}{scalar}{space}"),
    }
}

/// Replaces one value at a random place inside `value`.
fn mutate(value: &mut Value, at: Index, with: &Value) {
    let size = match value {
        Value::Object(members) => members.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    if size == 0 || at.index(3) == 0 {
        *value = with.clone();
        return;
    }
    match value {
        Value::Object(members) => {
            mutate(members.values_mut().nth(at.index(size)).unwrap(), at, with);
        }
        Value::Array(items) => mutate(&mut items[at.index(size)], at, with),
        _ => unreachable!(),
    }
}

fn tool_with(extra: &Value) -> Value {
    with("/_meta", json!({ "extra": extra }))
}

proptest! {
    #[test]
    fn the_digest_minds_neither_the_order_of_members_nor_white_space(extra in any_json(), seed in 0_u64..1_000_000) {
        let tool = tool_with(&extra);
        let again = CanonicalDefinition::parse_tool(&rewritten(&tool, seed)).unwrap();
        prop_assert_eq!(definition(&tool).digest(), again.digest());
    }

    #[test]
    fn the_digest_minds_everything_else(extra in any_json(), other in any_json(), at in any::<Index>()) {
        let mut changed = extra.clone();
        mutate(&mut changed, at, &other);
        let same = extra == changed;
        let digests = [&extra, &changed].map(|extra| definition(&tool_with(extra)).digest());
        prop_assert_eq!(digests[0] == digests[1], same);
    }

    #[test]
    fn the_order_of_a_list_counts(a in any_json(), b in any_json()) {
        prop_assume!(a != b);
        let (there, back) = (json!([a, b]), json!([b, a]));
        prop_assert_ne!(definition(&tool_with(&there)).digest(), definition(&tool_with(&back)).digest());
    }

    #[test]
    fn the_form_for_people_is_the_same_value_and_shows_every_character(extra in any_json()) {
        let json = Json::parse(&tool_with(&extra).to_string()).unwrap();
        let pretty = pretty(&json, "    ");
        prop_assert_eq!(Json::parse(&pretty).unwrap(), json);
        let hidden = pretty.contains('\u{200b}');
        prop_assert!(!hidden);
    }

    #[test]
    fn nothing_an_upstream_sends_is_a_panic(text in "\\PC{0,64}", members in any_json()) {
        let _ = CanonicalDefinition::parse_tool(&text);
        let mut tool = Map::new();
        tool.insert("name".to_owned(), text.into());
        tool.insert("inputSchema".to_owned(), json!({ "properties": members, "items": members, "anyOf": [members] }));
        let (tool, text) = (Value::Object(tool.clone()), Value::Object(tool).to_string());
        let mut pins = Pins::default();
        let judge = |pins: &Pins, text: &str| {
            let definitions = [text];
            pins.judge(
                UpstreamOffer { source: "s", prefix: "p_", only: None, definitions: &definitions },
                &mut Names::default(),
            )
        };
        judge(&pins, &text);
        let mut before = tool;
        before["inputSchema"] = json!({ "properties": { "a": {} }, "items": true, "anyOf": [7] });
        if let Ok(before) = CanonicalDefinition::parse_tool(&before.to_string()) {
            pins.approve("s", before, "x", wardgate_domain::Timestamp::from_seconds(0));
        }
        for tool in judge(&pins, &text) {
            let _ = tool.to_string();
        }
    }
}
