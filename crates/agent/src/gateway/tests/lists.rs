//! Tests of tool lists: pages, lists per caller, and caching.

use super::*;
use crate::mcp_tool::ToolHints;

pub(super) fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

pub(super) fn names(list: &ToolList) -> Vec<&str> {
    list.tools.iter().map(|tool| tool.name.as_str()).collect()
}

/// Creates a gateway that lists a tool named after the token, with these cache hints.
pub(super) fn personal(hints: Value) -> ScriptedGateway {
    ScriptedGateway::new(move |seen| {
        let who = seen.header("authorization").replace("Bearer ", "of_");
        let mut result = json!({ "tools": [tool(&who)] });
        result
            .as_object_mut()
            .unwrap()
            .extend(hints.as_object().unwrap().clone());
        seen.result(&result)
    })
}

#[tokio::test]
async fn every_page_is_listed_in_order() {
    let script = ScriptedGateway::new(|seen| {
        let (tools, next) = match seen.body["params"]["cursor"].as_str() {
            None => (json!([tool("a"), tool("b")]), Some("2")),
            Some("2") => (json!([tool("c")]), Some("")),
            // An empty cursor is valid.
            Some(_) => (json!([tool("d")]), None),
        };
        let mut result = json!({ "tools": tools });
        if let Some(next) = next {
            result["nextCursor"] = json!(next);
        }
        seen.result(&result)
    });
    for gateway in script.doors().await {
        let list = gateway.list_tools(&token("t"), None).await.unwrap();
        assert_eq!(names(&list), ["a", "b", "c", "d"]);
    }
}

#[tokio::test]
async fn pages_without_an_end_are_refused() {
    let circle =
        ScriptedGateway::new(|seen| seen.result(&json!({ "tools": [], "nextCursor": "1" })));
    let listed = circle.in_process().list_tools(&token("t"), None).await;
    assert_eq!(listed.unwrap_err(), GatewayError::Unreadable);

    let endless = ScriptedGateway::new(|seen| {
        let next = seen.body["id"].to_string();
        seen.result(&json!({ "tools": [], "nextCursor": next }))
    });
    let listed = endless.in_process().list_tools(&token("t"), None).await;
    assert_eq!(listed.unwrap_err(), GatewayError::TooLarge);
}

#[tokio::test]
async fn what_a_tool_says_of_itself_is_read_and_an_unreadable_tool_left_out() {
    let script = ScriptedGateway::new(|seen| {
        seen.result(&json!({ "tools": [
            {
                "name": "look.up", "title": "Look up", "description": "Finds things.",
                "inputSchema": { "type": "object", "properties": { "q": { "type": "string" } } },
                "annotations": { "readOnlyHint": true, "title": "x" },
                "_meta": { "ui": { "visibility": ["app"] } },
            },
            { "name": 5 },
            tool("plain"),
        ] }))
    });
    let gateway = script.in_process();
    let list = gateway.list_tools(&token("t"), None).await.unwrap();
    assert_eq!(names(&list), ["look.up", "plain"]);
    let tool = &list.tools[0];
    assert_eq!(tool.description.as_deref(), Some("Finds things."));
    assert_eq!(tool.input_schema["properties"]["q"]["type"], "string");
    assert_eq!(tool.annotations.read_only, Some(true));
    assert_eq!(tool.meta["ui"]["visibility"][0], "app");
    assert_eq!(list.tools[1].annotations, ToolHints::default());
}

#[tokio::test]
async fn a_toolset_is_asked_for_by_its_path() {
    let script = personal(json!({}));
    for gateway in script.doors().await {
        gateway
            .list_tools(&token("t"), Some("a/b c"))
            .await
            .unwrap();
    }
    let paths: Vec<_> = script
        .requests()
        .iter()
        .map(|seen| seen.path.clone())
        .collect();
    assert_eq!(paths, ["/mcp/a%2Fb%20c", "/mcp/a%2Fb%20c"]);

    let bare = ScriptedGateway::new(|_| StatusCode::NOT_FOUND.into_response());
    let told = ScriptedGateway::new(|seen| {
        seen.error(
            404,
            -32600,
            "No such path",
            &json!({ "reason": "not_found" }),
        )
    });
    for unknown in [bare, told] {
        let listed = unknown
            .in_process()
            .list_tools(&token("t"), Some("x"))
            .await;
        assert_eq!(listed.unwrap_err(), GatewayError::UnknownToolset);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_kept_as_long_as_the_gateway_says_and_no_longer() {
    let script = personal(json!({ "ttlMs": 5000, "cacheScope": "private" }));
    let gateway = script.in_process();
    for (after, asked) in [(0, 1), (4_999, 1), (1, 2), (4_999, 2), (2, 3)] {
        tokio::time::advance(Duration::from_millis(after)).await;
        gateway.list_tools(&token("t"), None).await.unwrap();
        assert_eq!(script.requests().len(), asked);
    }
    gateway
        .list_tools(&token("t"), Some("other"))
        .await
        .unwrap();
    assert_eq!(
        script.requests().len(),
        4,
        "a toolset has a list of its own"
    );
}

#[tokio::test(start_paused = true)]
async fn the_shortest_page_decides_and_rights_are_asked_again_within_minutes() {
    let script = ScriptedGateway::new(|seen| {
        let next = seen.body["params"]["cursor"].is_null();
        let mut page = json!({ "tools": [], "ttlMs": if next { 3_600_000 } else { 1_000 } });
        if next {
            page["nextCursor"] = json!("2");
        }
        seen.result(&page)
    });
    let gateway = script.in_process();
    gateway.list_tools(&token("t"), None).await.unwrap();
    tokio::time::advance(Duration::from_secs(1)).await;
    gateway.list_tools(&token("t"), None).await.unwrap();
    assert_eq!(script.requests().len(), 4);

    let script = personal(json!({ "ttlMs": u64::MAX }));
    let gateway = script.in_process();
    gateway.list_tools(&token("t"), None).await.unwrap();
    tokio::time::advance(Duration::from_mins(5)).await;
    gateway.list_tools(&token("t"), None).await.unwrap();
    assert_eq!(script.requests().len(), 2);
}

#[tokio::test]
async fn nothing_is_kept_that_may_not_be() {
    for hints in [json!({}), json!({ "ttlMs": 0, "cacheScope": "public" })] {
        let script = personal(hints);
        let gateway = script.in_process();
        for _ in 0..2 {
            gateway.list_tools(&token("t"), None).await.unwrap();
        }
        assert_eq!(script.requests().len(), 2);
    }
}

#[tokio::test]
async fn nobody_gets_the_list_of_another_unless_it_is_everybodys() {
    let private = personal(json!({ "ttlMs": 60_000, "cacheScope": "private" }));
    let gateway = private.in_process();
    for who in ["doctor", "nurse", "doctor"] {
        let list = gateway.list_tools(&token(who), None).await.unwrap();
        assert_eq!(names(&list), [format!("of_{who}")]);
    }
    assert_eq!(private.requests().len(), 2);

    let unsaid = personal(json!({ "ttlMs": 60_000 }));
    let gateway = unsaid.in_process();
    for who in ["doctor", "nurse"] {
        let list = gateway.list_tools(&token(who), None).await.unwrap();
        assert_eq!(names(&list), [format!("of_{who}")]);
    }

    let public = personal(json!({ "ttlMs": 60_000, "cacheScope": "public" }));
    let gateway = public.in_process();
    for who in ["doctor", "nurse"] {
        let list = gateway.list_tools(&token(who), None).await.unwrap();
        assert_eq!(names(&list), ["of_doctor"]);
    }
}

#[tokio::test]
async fn an_error_is_not_kept() {
    let script =
        ScriptedGateway::new(|seen| seen.error(200, -32603, "try again later", &json!({})));
    let gateway = script.in_process();
    for _ in 0..2 {
        let refused = gateway.list_tools(&token("t"), None).await.unwrap_err();
        assert_eq!(refused.to_string(), "try again later");
    }
    assert_eq!(script.requests().len(), 2);
}
