//! A test that the tools offered to a model are those that its person may call.

use std::time::{Duration, Instant};

use wardgate_testkit::{System, TestApp, run, until};

use super::super::people::{nurse, tool_manager};
use super::{Piece, Provider, collect_events, finish, offered_tools, person_message, start};
use crate::WARDGATE;

const SHIFTS: &str = "get_shifts";

/// Time for which the gateway lets a client cache a list if the client receives no notifications.
const KEPT_UNHEARD: Duration = Duration::from_secs(5);

/// Returns the number of `tools/list` requests to the gateway.
async fn lists(app: &TestApp) -> u64 {
    let metrics = app.metrics().await;
    let mut counted = metrics
        .lines()
        .filter(|line| line.contains("mcp_requests_total") && line.contains(r#""tools/list""#));
    let count = counted.next().and_then(|line| line.rsplit(' ').next());
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn a_tool_that_is_switched_off_is_gone_from_the_next_turn_though_its_list_was_kept() {
    let provider = Provider::start().await;
    provider.plays(vec![vec![Piece::Text("Hello.")]]);
    let app = start(&provider);
    let token = nurse(&app);
    let mut turns = 0;
    // Returns the tools that the model is offered in a new turn.
    let mut offer = async || {
        turns += 1;
        let mut message = person_message("Hello?");
        message.conversation = format!("visit-{turns}");
        let events = collect_events(&app, &token, &message).await;
        assert_eq!(finish(&events), "stop");
        offered_tools(&provider)
    };

    let mut asked = (0, Instant::now());
    until("a list is kept for longer than unheard", async || {
        assert!(offer().await.iter().any(|tool| tool == SHIFTS));
        let lists = lists(&app).await;
        if lists != asked.0 {
            asked = (lists, Instant::now());
        }
        (asked.1.elapsed() > KEPT_UNHEARD + Duration::from_secs(1)).then_some(())
    })
    .await;

    // Only the notification can end the use of the cached list here, because it would be valid for minutes.
    let dir = app.data_dir().display().to_string();
    let off = ["tools", "disable", SHIFTS, "--data-dir", &dir];
    let ada = tool_manager(&app);
    run(WARDGATE.as_ref(), &off, &[("WARDGATE_TOKEN", &ada)]).success();
    until("the tool is no longer offered", async || {
        let tools = offer().await;
        tools.iter().all(|tool| tool != SHIFTS).then_some(())
    })
    .await;
    assert_eq!(lists(&app).await, asked.0 + 1, "asked once, at the word");
}
