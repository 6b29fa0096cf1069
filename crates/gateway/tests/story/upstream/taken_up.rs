//! Streams of requests that are no calls, taken up again: each with the right that the request itself needs.

use wardgate_domain::Status;
use wardgate_proto::common::v1::OfferKind;
use wardgate_proto::toolrunner::v1 as pb;

use super::{answer, carried, get, request, world};
use crate::fakes::relay::{RelayBehavior, event, head, last_event};
use crate::listen::EventStreamClient;
use crate::world::{LEGACY, World};

/// The id under which a client takes up the stream of this request, which is lost before its answer.
async fn lost(world: &World, method: &str, params: &str) -> String {
    let parts = vec![head(200, pb::RelayContent::Events), event("own/1", "")];
    world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
    let mut ear = EventStreamClient::on(request(world, LEGACY, method, params)).await;
    let said = ear.next_event().await.unwrap();
    let id = said.lines().find_map(|line| line.strip_prefix("id: "));
    id.unwrap().to_owned()
}

#[tokio::test]
async fn a_resource_is_read_under_its_own_right_and_on_record() {
    let world = world().await;
    let place = lost(&world, "resources/read", r#""uri":"memo://one""#).await;
    let before = world.audit.outcomes.reaches(1).await.len();
    let read = answer(r#"{"contents":[{"uri":"memo://one","text":"x"}]}"#);
    let parts = vec![
        head(200, pb::RelayContent::Events),
        last_event("own/2", &read),
    ];
    world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
    let mut ear = EventStreamClient::on(get(&world).header("last-event-id", &place)).await;
    assert!(ear.next_event().await.unwrap().contains("memo://one"));
    let asked = carried(&world);
    assert_eq!(asked.kind(), OfferKind::Resources);
    assert_eq!(asked.arguments_json, r#"{"uri":"memo://one"}"#);
    assert_eq!((&*asked.last_event_id, &*asked.governed_id), ("own/1", "7"));
    let outcome = world.audit.outcomes.reaches(before + 1).await.pop();
    let outcome = outcome.unwrap();
    assert_eq!(outcome.call.call_id.to_string(), asked.call_id);
    assert_eq!(outcome.status, Status::Ok);
}

#[tokio::test]
async fn a_list_is_without_what_its_caller_may_not_use() {
    let world = world().await;
    let place = lost(&world, "tools/list", "").await;
    let list = answer(r#"{"tools":[{"name":"never"}]}"#);
    let parts = vec![
        head(200, pb::RelayContent::Events),
        last_event("own/2", &list),
    ];
    world.tool_runner.relays.next([RelayBehavior::Give(parts)]);
    let mut ear = EventStreamClient::on(get(&world).header("last-event-id", &place)).await;
    let told = ear.next_event().await.unwrap();
    assert!(told.contains(r#""tools":[]"#), "{told}");
    assert_eq!(carried(&world).kind(), OfferKind::Connect);
}
