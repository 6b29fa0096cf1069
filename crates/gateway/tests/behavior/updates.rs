//! Clients that are notified of changed resources of sources.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use wardgate_domain::OfferKind;

use crate::content::offer;
use crate::listen::{get, subscribe};
use crate::memory::{create_request, create_request_as};
use crate::sessions::begin;
use wardgate_testkit::{EventStreamClient, until_true};

use crate::subscriptions::{of_subscription, updated_notification};
use crate::world::{LEGACY, OLDEST, Reply, World};

const BEGIN: &str = "resources/subscribe";
const END: &str = "resources/unsubscribe";
const DOOR: &str = "guide://door/000";
const OTHER: &str = "guide://door/001";
/// A resource whose changes its source does not report.
const QUIET: &str = "guide://room/7";

async fn world() -> World {
    let world = World::start_without_memory(json!({})).await;
    offer(&world, 3).await;
    world
}

impl World {
    /// Makes the source report a change of the resource at `uri`.
    fn touch(&self, uri: &str) {
        let own = format!("own {uri}");
        // There may be no receiver.
        let _ = self.tool_runner.touched.send(Some(own));
    }
}

async fn listens(world: &World, uris: &[&str]) -> (EventStreamClient, Value) {
    let notifications = json!({ "resourceSubscriptions": uris });
    let mut ear = EventStreamClient::open(subscribe(
        world,
        &format!(r#""notifications":{notifications}"#),
    ))
    .await;
    let acknowledged = ear.next_message().await.unwrap();
    (ear, acknowledged["params"]["notifications"].clone())
}

/// Time longer than the minimum interval between two notifications about one resource.
const A_WHILE: Duration = Duration::from_millis(1_500);

async fn hears_nothing(ear: &mut EventStreamClient) {
    let heard = timeout(A_WHILE, ear.next_message()).await;
    assert!(heard.is_err(), "{heard:?}");
}

/// Sends an older client's request, in `session` unless that is empty.
async fn older(world: &World, method: &str, session: &str, uri: &str) -> Reply {
    let mut request = create_request(world, LEGACY, method, &json!({ "uri": uri }));
    if !session.is_empty() {
        request = request.header("mcp-session-id", session);
    }
    Reply::to(request).await
}

#[tokio::test]
async fn a_modern_client_hears_of_the_resources_that_it_named_and_that_are_watched() {
    let world = world().await;
    let uris = [DOOR, QUIET, "guide://nobody's", "file:///etc/passwd"];
    let (mut ear, accepted) = listens(&world, &uris).await;
    assert_eq!(accepted, json!({ "resourceSubscriptions": [DOOR] }));
    world.touch(OTHER);
    world.touch(DOOR);
    world.touch(DOOR);
    assert_eq!(
        ear.next_message().await,
        Some(of_subscription(updated_notification(DOOR)))
    );
    world.touch(DOOR);
    assert_eq!(
        ear.next_message().await,
        Some(of_subscription(updated_notification(DOOR)))
    );
    assert!(world.audit.attempts.count() == 0, "nothing was released");
}

#[tokio::test]
async fn what_the_caller_may_not_read_is_not_watched() {
    let world = world().await;
    world.policy.forbid("door/000");
    let (_ear, accepted) = listens(&world, &[DOOR, OTHER]).await;
    assert_eq!(accepted, json!({ "resourceSubscriptions": [OTHER] }));
    let asked = world.tool_runner.watched.entries();
    let asked: Vec<_> = asked.iter().flat_map(|asked| &asked.resources).collect();
    assert!(!asked.is_empty());
    for resource in asked {
        assert_eq!(
            resource.decided_json,
            json!({ "uri": format!("own {OTHER}") }).to_string()
        );
    }
}

#[tokio::test]
async fn whoever_may_no_longer_read_a_resource_hears_no_more_of_it() {
    let world = world().await;
    let (mut ear, _) = listens(&world, &[DOOR, OTHER]).await;
    world.policy.forbid("door/000");
    world.policy.change(b"other policies");
    world
        .tool_runner
        .watched
        .until(|asked| asked.last().is_some_and(|last| last.resources.len() == 1))
        .await;
    // The notifications of the earlier watch end with it.
    until_true("nothing is heard of the door", async || {
        world.touch(DOOR);
        world.touch(OTHER);
        let is_over =
            ear.next_message().await == Some(of_subscription(updated_notification(OTHER)));
        while timeout(A_WHILE, ear.next_message()).await.is_ok() {}
        is_over
    })
    .await;
    world.touch(DOOR);
    hears_nothing(&mut ear).await;
}

#[tokio::test]
async fn what_is_watched_is_decided_anew_before_its_permits_end_and_nothing_is_lost_meanwhile() {
    let world = world().await;
    world.policy.permits_last(Duration::from_secs(2));
    let (mut ear, _) = listens(&world, &[DOOR]).await;
    let before = world.policy.asked.count();
    for _ in 0..4 {
        world.touch(DOOR);
        assert_eq!(
            ear.next_message().await,
            Some(of_subscription(updated_notification(DOOR)))
        );
    }
    assert!(world.policy.asked.count() > before, "it was decided anew");
    world.policy.bar(OfferKind::Resources, "guides");
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.touch(DOOR);
    hears_nothing(&mut ear).await;
}

#[tokio::test]
async fn a_watch_that_broke_off_is_made_again_and_what_it_was_about_counts_as_changed() {
    let world = world().await;
    let (mut ear, _) = listens(&world, &[DOOR]).await;
    world.tool_runner.touched.send(None).unwrap();
    assert_eq!(
        ear.next_message().await,
        Some(of_subscription(updated_notification(DOOR)))
    );
    hears_nothing(&mut ear).await;
    world.touch(DOOR);
    assert_eq!(
        ear.next_message().await,
        Some(of_subscription(updated_notification(DOOR)))
    );
}

#[tokio::test]
async fn an_older_client_subscribes_by_requests_of_their_own() {
    let world = world().await;
    for version in [LEGACY, OLDEST] {
        let mut ear = EventStreamClient::open(get(&world, "/mcp", Some(version))).await;
        let reply = older(&world, BEGIN, "", DOOR).await;
        assert_eq!(
            (reply.status, reply.at("/result")),
            (200, json!({})),
            "{reply:?}"
        );
        // After the answer, changes are reported.
        world.touch(DOOR);
        assert_eq!(
            ear.next_message().await,
            Some(updated_notification(DOOR)),
            "{version}"
        );
        let mut later = EventStreamClient::open(get(&world, "/mcp", Some(version))).await;
        // It is not known when the later stream begins to report changes.
        let heard = loop {
            world.touch(DOOR);
            if let Ok(heard) = timeout(Duration::from_millis(500), later.next_message()).await {
                break heard;
            }
        };
        assert_eq!(heard, Some(updated_notification(DOOR)), "{version}");
        assert_eq!(
            ear.next_message().await,
            Some(updated_notification(DOOR)),
            "{version}"
        );
        while let Ok(heard) = timeout(A_WHILE, ear.next_message()).await {
            assert_eq!(heard, Some(updated_notification(DOOR)), "{version}");
        }
        assert_eq!(older(&world, END, "", DOOR).await.at("/result"), json!({}));
        world.touch(DOOR);
        hears_nothing(&mut ear).await;
    }
}

#[tokio::test]
async fn subscriptions_are_those_of_one_session_of_one_caller() {
    let world = world().await;
    let in_session = |id: &str| get(&world, "/mcp", Some(LEGACY)).header("mcp-session-id", id);
    let (first, second) = (begin(&world, LEGACY).await, begin(&world, LEGACY).await);
    let mut one = EventStreamClient::open(in_session(&first)).await;
    let mut two = EventStreamClient::open(in_session(&second)).await;
    let mut none = EventStreamClient::open(get(&world, "/mcp", Some(LEGACY))).await;
    let mallory = world.issuer.token("mallory", &["Doctor"]);
    let theirs = create_request_as(&world, &mallory, LEGACY, BEGIN, &json!({ "uri": DOOR }));
    assert_eq!(Reply::to(theirs).await.at("/result"), json!({}));
    assert_eq!(
        older(&world, BEGIN, &second, OTHER).await.at("/result"),
        json!({})
    );
    world.touch(DOOR);
    world.touch(OTHER);
    assert_eq!(two.next_message().await, Some(updated_notification(OTHER)));
    hears_nothing(&mut one).await;
    hears_nothing(&mut none).await;
}

#[tokio::test]
async fn what_cannot_be_subscribed_to_is_refused() {
    let world = world().await;
    for uri in [
        "guide://nobody's",
        "file:///etc/passwd",
        "memory://conversation/a",
    ] {
        assert_eq!(older(&world, BEGIN, "", uri).await.code(), -32002, "{uri}");
    }
    world.policy.forbid("door/001");
    assert_eq!(older(&world, BEGIN, "", OTHER).await.code(), -32002);
    let quiet = older(&world, BEGIN, "", QUIET).await;
    assert_eq!(quiet.code(), -32602, "{quiet:?}");
}

#[tokio::test]
async fn nobody_hears_of_a_resource_without_the_scopes_of_its_source() {
    let scopes = json!({ "tags": { "upstream:guides": ["guides"] } });
    let mut world = World::start_without_memory(json!({ "scopes": scopes })).await;
    offer(&world, 3).await;
    let (_ear, accepted) = listens(&world, &[DOOR, OTHER]).await;
    assert!(!accepted.to_string().contains("guide:"), "{accepted}");
    let refused = older(&world, BEGIN, "", DOOR).await;
    assert_eq!(
        (refused.status, refused.at("/error/data/reason")),
        (403, json!("insufficient_scope")),
        "{refused:?}"
    );
    let lacking = std::mem::replace(
        &mut world.token,
        world.issuer.token_saying(&json!({ "scope": "guides" })),
    );
    let (mut ear, accepted) = listens(&world, &[DOOR]).await;
    assert_eq!(accepted, json!({ "resourceSubscriptions": [DOOR] }));
    assert_eq!(older(&world, BEGIN, "", DOOR).await.code(), 0);
    // A stream of the same caller, with a token that lacks the scopes.
    world.token = lacking;
    let mut older = EventStreamClient::open(get(&world, "/mcp", None)).await;
    world.touch(DOOR);
    assert_eq!(
        ear.next_message().await,
        Some(of_subscription(updated_notification(DOOR)))
    );
    hears_nothing(&mut older).await;
}
