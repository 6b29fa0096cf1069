//! Tests of lists with a change stream, which are valid until the gateway reports a change.

use tokio::time::{advance, sleep};
use wardgate_testkit::until_true;

use super::lists::{names, personal, tool};
use super::*;

/// How long the gateway allows its lists to be cached.
const TTL: Duration = Duration::from_secs(5);

/// Creates a gateway that lists the current `tools` and allows caching for `ttl`.
fn create_listing_gateway(tools: &Arc<Mutex<Vec<&'static str>>>, ttl: Duration) -> ScriptedGateway {
    let tools = Arc::clone(tools);
    let ttl = u64::try_from(ttl.as_millis()).unwrap();
    ScriptedGateway::new(move |seen| {
        let tools: Vec<_> = tools.lock().unwrap().iter().map(|it| tool(it)).collect();
        seen.result(&json!({ "tools": tools, "ttlMs": ttl, "cacheScope": "private" }))
    })
}

async fn list(gateway: &GatewayEndpoint, who: &str) -> Vec<String> {
    let list = gateway.list_tools(&token(who), None).await.unwrap();
    names(&list).into_iter().map(str::to_owned).collect()
}

/// Creates a gateway that reports changes of its personal lists.
fn create_reporting_gateway() -> (ScriptedGateway, GatewayEndpoint) {
    let script = personal(json!({ "ttlMs": 5_000 }))
        .with_listener_behaviour(ListenerBehaviour::Acknowledged);
    let gateway = script.in_process();
    (script, gateway)
}

/// Lets all tasks run that are ready, while the clock is paused.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test]
async fn a_list_is_kept_past_its_time_until_a_change_is_told() {
    let tools = Arc::new(Mutex::new(vec!["a", "b"]));
    let at_once = Duration::from_millis(1);
    let script = create_listing_gateway(&tools, at_once)
        .with_listener_behaviour(ListenerBehaviour::Acknowledged);
    for gateway in script.doors().await {
        *tools.lock().unwrap() = vec!["a", "b"];
        until_true("the list is kept past its time", async || {
            assert_eq!(list(&gateway, "t").await, ["a", "b"]);
            let asked = script.requests().len();
            sleep(3 * at_once).await;
            list(&gateway, "t").await;
            script.requests().len() == asked
        })
        .await;
        *tools.lock().unwrap() = vec!["b"];
        assert_eq!(list(&gateway, "t").await, ["a", "b"], "nobody said so yet");
        let asked = script.requests().len();
        script.listeners.notify_list_changed("t");
        until_true("the change is seen", async || {
            list(&gateway, "t").await == ["b"]
        })
        .await;
        list(&gateway, "t").await;
        assert_eq!(
            script.requests().len(),
            asked + 1,
            "and the new list is kept"
        );
        assert_eq!(script.listeners.open_for(), ["t"]);
        drop(gateway);
        until_true("the stream ends with its client", async || {
            script.listeners.open_for().is_empty()
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_asked_for_as_the_protocol_wants_it_and_with_the_callers_own_token() {
    let (script, gateway) = create_reporting_gateway();
    for toolset in [None, Some("a")] {
        gateway.list_tools(&token("t"), toolset).await.unwrap();
    }
    settle().await;
    let [seen] = &script.listeners.requests()[..] else {
        panic!("one stream tells of all toolsets")
    };
    assert_eq!(seen.path, "/mcp");
    for (name, value) in [
        ("authorization", "Bearer t"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ] {
        assert_eq!(seen.header(name), value);
    }
    let wanted = json!({ "toolsListChanged": true });
    assert_eq!(seen.body["params"]["notifications"], wanted);
    assert_eq!(
        seen.body["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"],
        "2026-07-28"
    );
}

#[tokio::test(start_paused = true)]
async fn what_was_listed_before_the_gateway_listened_is_dropped() {
    let tools = Arc::new(Mutex::new(vec!["a"]));
    let script =
        create_listing_gateway(&tools, TTL).with_listener_behaviour(ListenerBehaviour::Later);
    let gateway = script.in_process();
    assert_eq!(list(&gateway, "t").await, ["a"]);
    settle().await;
    *tools.lock().unwrap() = vec!["b"];
    assert_eq!(list(&gateway, "t").await, ["a"], "kept by its time");
    script.listeners.acknowledge("t");
    settle().await;
    assert_eq!(list(&gateway, "t").await, ["b"]);
    advance(2 * TTL).await;
    list(&gateway, "t").await;
    assert_eq!(script.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_change_while_the_list_is_on_its_way_is_not_missed() {
    let changing = Arc::new(Mutex::new(None::<Listeners>));
    let at_answer = Arc::clone(&changing);
    let script = ScriptedGateway::slow(move |seen| {
        let changing = at_answer.lock().unwrap().take();
        Box::pin(async move {
            let name = if changing.is_some() { "old" } else { "new" };
            let result = json!({ "tools": [tool(name)], "ttlMs": 5_000 });
            if let Some(listeners) = changing {
                listeners.notify_list_changed("t");
                settle().await;
            }
            seen.result(&result)
        })
    })
    .with_listener_behaviour(ListenerBehaviour::Acknowledged);
    let gateway = script.in_process();
    list(&gateway, "t").await;
    settle().await;
    *changing.lock().unwrap() = Some(script.listeners.clone());
    assert_eq!(list(&gateway, "t").await, ["old"]);
    assert_eq!(list(&gateway, "t").await, ["new"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_followed_is_asked_for_again_within_minutes() {
    let (script, gateway) = create_reporting_gateway();
    list(&gateway, "t").await;
    settle().await;
    for (after, asked) in [(0, 2), (299, 2), (1, 3)] {
        advance(Duration::from_secs(after)).await;
        list(&gateway, "t").await;
        assert_eq!(script.requests().len(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_stream_ends_the_list_is_dropped_and_kept_by_its_time_again() {
    let (script, gateway) = create_reporting_gateway();
    list(&gateway, "t").await;
    settle().await;
    list(&gateway, "t").await;
    assert_eq!(script.requests().len(), 2);
    script.listeners.end("t");
    settle().await;
    for (after, asked) in [(0, 3), (4, 3), (1, 4)] {
        advance(Duration::from_secs(after)).await;
        list(&gateway, "t").await;
        assert_eq!(script.requests().len(), asked);
    }
    assert_eq!(script.listeners.requests().len(), 1, "not at once again");
    advance(Duration::from_secs(30)).await;
    list(&gateway, "t").await;
    settle().await;
    assert_eq!(script.listeners.open_for(), ["t"]);
}

#[tokio::test(start_paused = true)]
async fn where_there_is_no_stream_lists_are_kept_by_their_time() {
    for how in [
        ListenerBehaviour::Unknown,
        ListenerBehaviour::TooMany,
        ListenerBehaviour::Declined,
        ListenerBehaviour::Later,
    ] {
        let script = personal(json!({ "ttlMs": 5_000 })).with_listener_behaviour(how);
        let gateway = script.in_process();
        for (after, asked) in [(0, 1), (4, 1), (1, 2), (4, 2)] {
            advance(Duration::from_secs(after)).await;
            list(&gateway, "t").await;
            settle().await;
            assert_eq!(script.requests().len(), asked);
        }
        assert_eq!(
            script.listeners.requests().len(),
            1,
            "it is not tried each time"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_without_a_sign_of_life_is_none() {
    let script =
        personal(json!({ "ttlMs": 5_000 })).with_listener_behaviour(ListenerBehaviour::Mute);
    let gateway = script.in_process();
    list(&gateway, "t").await;
    settle().await;
    for (after, asked) in [(0, 2), (44, 2), (2, 3)] {
        sleep(Duration::from_secs(after)).await;
        list(&gateway, "t").await;
        assert_eq!(script.requests().len(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_not_talked_for_minutes_is_not_listened_for() {
    let (script, gateway) = create_reporting_gateway();
    list(&gateway, "t").await;
    for minutes in [4, 4] {
        sleep(Duration::from_mins(minutes)).await;
        list(&gateway, "t").await;
        assert_eq!(script.listeners.open_for(), ["t"]);
    }
    sleep(Duration::from_mins(5)).await;
    settle().await;
    assert!(script.listeners.open_for().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_change_for_one_caller_drops_no_list_of_another() {
    let (script, gateway) = create_reporting_gateway();
    for _ in 0..2 {
        for who in ["doctor", "nurse"] {
            assert_eq!(list(&gateway, who).await, [format!("of_{who}")]);
        }
        settle().await;
    }
    script.listeners.notify_list_changed("doctor");
    advance(2 * TTL).await;
    settle().await;
    for (who, asked) in [("nurse", 4), ("doctor", 5)] {
        list(&gateway, who).await;
        assert_eq!(script.requests().len(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn streams_are_bounded_and_who_was_away_longest_loses_theirs() {
    let (script, gateway) = create_reporting_gateway();
    for caller in 0..256 {
        list(&gateway, &caller.to_string()).await;
        settle().await;
    }
    list(&gateway, "0").await;
    list(&gateway, "one more").await;
    settle().await;
    let open = script.listeners.open_for();
    assert_eq!(open.len(), 256);
    assert!(!open.contains(&"1".to_owned()));
    assert!(open.contains(&"0".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn without_a_list_of_ones_own_to_keep_there_is_no_stream() {
    for hints in [
        json!({ "ttlMs": 0 }),
        json!({ "ttlMs": 5_000, "cacheScope": "public" }),
    ] {
        let script = personal(hints).with_listener_behaviour(ListenerBehaviour::Acknowledged);
        list(&script.in_process(), "t").await;
        settle().await;
        assert!(script.listeners.requests().is_empty());
    }
}
