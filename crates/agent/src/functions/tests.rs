use serde_json::json;

use super::*;

fn list(tools: Value) -> Vec<ListedTool> {
    serde_json::from_value(tools).unwrap()
}

fn names(tools: &[GatewayTool]) -> Vec<(&str, &str)> {
    let each = tools.iter();
    each.map(|tool| (tool.name.as_str(), tool.function.name.as_str()))
        .collect()
}

#[test]
fn a_tool_becomes_a_function_with_its_defaults() {
    let tools = offerable(&list(json!([{
        "name": "search",
        "title": "Search",
        "description": "Finds records.",
        "inputSchema": { "type": "object", "properties": { "size": { "type": "integer", "default": 5 } } },
        "annotations": { "readOnlyHint": true },
    }])));
    let [tool] = tools.as_slice() else {
        panic!("{tools:?}")
    };
    assert_eq!(
        tool.function,
        Function {
            name: "search".to_owned(),
            description: "Finds records.".to_owned(),
            parameters: json!({ "type": "object", "properties": { "size": { "type": "integer", "default": 5 } } }),
        }
    );
    assert!(tool.read_only && !tool.needs_approval);
    assert_eq!(
        Value::from(read_arguments(&tool.schema, "{}").unwrap()),
        json!({ "size": 5 })
    );
}

#[test]
fn a_tool_that_the_gateway_does_not_trust_to_only_read_may_write() {
    let tool = |hints: Value, meta: Value| {
        let tools = offerable(&list(json!([{
            "name": "t",
            "inputSchema": { "type": "object" },
            "annotations": hints,
            "_meta": meta,
        }])));
        tools[0].read_only
    };
    let hint = json!({ "readOnlyHint": true });
    assert!(tool(hint.clone(), json!({ "x": 1 })));
    assert!(!tool(json!({}), json!({ "x": 1 })));
    assert!(!tool(hint, json!({ "dev.wardgate/mayWrite": true })));
}

#[test]
fn one_tool_that_no_provider_takes_does_not_spoil_the_others() {
    let schema = json!({ "type": "object" });
    let remote = json!({ "properties": { "x": { "$ref": "https://example.com/x" } } });
    let tools = offerable(&list(json!([
        { "name": "b", "inputSchema": schema },
        { "name": "remote", "inputSchema": remote },
        { "name": "no.object", "inputSchema": { "type": "string" } },
        { "name": "not a schema", "inputSchema": { "type": "object", "properties": { "x": { "type": 5 } } } },
        { "name": "b", "inputSchema": schema },
        { "name": "a.dotted", "inputSchema": schema },
    ])));
    let names = names(&tools);
    assert_eq!(names[0], ("b", "b"));
    assert_eq!(names[1].0, "a.dotted");
    assert!(names[1].1.starts_with("a_dotted_"), "{names:?}");
    assert_eq!(names.len(), 2);
}

#[test]
fn what_is_for_apps_alone_never_comes_to_a_model() {
    let tool = |name: &str, meta: Value| json!({ "name": name, "inputSchema": { "type": "object" }, "_meta": meta });
    let tools = offerable(&list(json!([
        tool("app", json!({ "ui": { "visibility": ["app"] } })),
        tool("nobody", json!({ "ui": { "visibility": [] } })),
        tool("both", json!({ "ui": { "visibility": ["model", "app"] } })),
        tool("unsaid", json!({ "ui": {} })),
        tool("asks", json!({ "dev.wardgate/approval": true })),
    ])));
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(names, ["both", "unsaid", "asks"]);
    assert!(tools[2].needs_approval && !tools[0].needs_approval);
}
