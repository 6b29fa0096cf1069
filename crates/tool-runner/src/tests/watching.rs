//! Tests of watching resources: only under permits, and no longer than the permits are valid.

use std::time::Duration;

use serde_json::json;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};
use wardgate_domain::{Caller, ColumnTier, OfferKind, PermitTerms};
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_testkit::until_true;

use super::harness::{Harness, caller};
use super::upstream_content::{NOTES, World};
use crate::tests::database;

const GUIDES: &str = r#"
sources:
  guides:
    type: content
    resources:
      - { uri: "guide://door", name: door, text: Knock. }
      - { uri: "guide://wall", name: wall, text: Lean. }
      - { uri_template: "guide://room/{room}", name: room, text: "Room {room}." }
"#;

async fn watch(
    harness: &Harness,
    source: &str,
    uris: &[&str],
    terms: Option<&PermitTerms>,
) -> Result<Ear, Status> {
    watch_as(harness, &harness.caller, "", source, uris, terms).await
}

/// Watches resources as the given caller with their token.
pub(super) async fn watch_as(
    harness: &Harness,
    caller: &Caller,
    token: &str,
    source: &str,
    uris: &[&str],
    terms: Option<&PermitTerms>,
) -> Result<Ear, Status> {
    let resource = |uri: &&str| pb::WatchedResource {
        decided_json: json!({ "uri": uri }).to_string().into(),
        permit: terms.map(|terms| (&harness.signer.sign(terms)).into()),
    };
    let request = pb::WatchResourcesRequest {
        caller: Some(caller.into()),
        source: source.to_owned(),
        resources: uris.iter().map(resource).collect(),
        caller_token: token.to_owned(),
    };
    let mut client = harness.client.clone();
    Ok(Ear(client.watch_resources(request).await?.into_inner()))
}

pub(super) struct Ear(Streaming<pb::WatchResourcesResponse>);

impl Ear {
    /// Returns the URIs of the next message, or `None` at the end of the stream.
    pub(super) async fn hears(&mut self) -> Option<Vec<String>> {
        let heard = timeout(Duration::from_mins(1), self.0.message()).await;
        Some(heard.expect("something is said").unwrap()?.uris)
    }

    pub(super) async fn hears_nothing(&mut self) {
        let heard = timeout(Duration::from_millis(300), self.0.message()).await;
        assert!(heard.is_err(), "{heard:?}");
    }
}

async fn guides() -> (Harness, PermitTerms) {
    let harness = Harness::with(&database::sqlite().await, GUIDES, |_| ()).await;
    let terms = harness
        .terms_for(OfferKind::Resources, ColumnTier::Clear)
        .await;
    (harness, terms)
}

#[tokio::test]
async fn a_resource_of_the_file_has_changed_when_what_is_read_there_has() {
    let (harness, terms) = guides().await;
    let uris = [
        "guide://room/7",
        "guide://door",
        "guide://wall",
        "guide://roof",
    ];
    let mut ear = watch(&harness, "guides", &uris, Some(&terms))
        .await
        .unwrap();
    assert_eq!(
        ear.hears().await.unwrap(),
        ["guide://door", "guide://room/7", "guide://wall"],
        "what there is"
    );
    let changed = GUIDES.replace("Knock.", "Ring.").replace("Room", "Hall");
    std::fs::write(&harness.file, changed).unwrap();
    assert_eq!(
        ear.hears().await.unwrap(),
        ["guide://door", "guide://room/7"]
    );
    ear.hears_nothing().await;
}

#[tokio::test]
async fn nothing_is_watched_without_a_permit_for_it() {
    let (harness, terms) = guides().await;
    let door = ["guide://door"];
    let refused = async |terms: Option<&PermitTerms>| {
        let refused = watch(&harness, "guides", &door, terms).await;
        refused.err().expect("it is refused").code()
    };
    assert_eq!(refused(None).await, Code::PermissionDenied);
    let other = PermitTerms {
        caller_digest: caller("somebody else").digest(),
        ..terms.clone()
    };
    let bound = PermitTerms {
        arguments_digest: Some(wardgate_domain::Digest::compute(
            br#"{"uri":"guide://wall"}"#,
        )),
        ..terms.clone()
    };
    let ended = PermitTerms {
        not_before: harness.ambient.now(),
        expires_at: harness.ambient.now(),
        ..terms.clone()
    };
    for terms in [other, bound, ended] {
        assert_eq!(refused(Some(&terms)).await, Code::PermissionDenied);
    }
    let unknown = watch(&harness, "nobody", &door, Some(&terms)).await;
    assert_eq!(unknown.err().unwrap().code(), Code::NotFound);
    let many: Vec<_> = (0..257).map(|n| format!("guide://room/{n}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    let many = watch(&harness, "guides", &many, Some(&terms)).await;
    assert_eq!(many.err().unwrap().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_watch_ends_with_its_permit() {
    let (harness, terms) = guides().await;
    let terms = PermitTerms {
        expires_at: harness.ambient.now().plus(Duration::from_millis(200)),
        ..terms
    };
    let mut ear = watch(&harness, "guides", &["guide://door"], Some(&terms))
        .await
        .unwrap();
    assert_eq!(ear.hears().await.unwrap(), ["guide://door"]);
    assert_eq!(ear.hears().await, None);
}

#[tokio::test]
async fn a_watch_of_a_source_that_is_switched_off_ends() {
    let (harness, terms) = guides().await;
    let mut ear = watch(&harness, "guides", &["guide://door"], Some(&terms))
        .await
        .unwrap();
    assert_eq!(ear.hears().await.unwrap(), ["guide://door"]);
    harness.switch_off("guides").await;
    assert_eq!(ear.hears().await, None);
}

#[tokio::test]
async fn a_server_is_asked_for_what_is_watched_and_its_word_is_passed_on() {
    let world = World::start(NOTES).await;
    world.answers("resources/subscribe", r#""result":{}"#);
    world.answers("resources/unsubscribe", r#""result":{}"#);
    world
        .lists(
            &["n.greet"],
            &["notes+file:///a"],
            &["notes+file:///{name}"],
        )
        .await;
    let terms = world.terms(OfferKind::Resources, ColumnTier::Clear).await;
    let uris = ["file:///a", "file:///b", "file:///not/offered"];
    let mut ear = watch(&world.harness, "notes", &uris, Some(&terms))
        .await
        .unwrap();
    assert_eq!(ear.hears().await.unwrap(), ["file:///a", "file:///b"]);
    let heard = || std::fs::read_to_string(world.dir.join("heard")).unwrap();
    assert!(heard().contains(r#""method":"resources/subscribe","params":{"uri":"file:///b"}"#));
    assert!(!heard().contains("not/offered"));
    world.answers("updated", "file:///b");
    assert_eq!(ear.hears().await.unwrap(), ["file:///b"]);
    world.answers("updated", "file:///not/offered");
    ear.hears_nothing().await;

    // Any resource may have changed while the server was unavailable.
    std::fs::write(world.dir.join("away"), "").unwrap();
    until_true("the server is gone", async || world.is_missed().await).await;
    std::fs::remove_file(world.dir.join("away")).unwrap();
    let mut told = ear.hears().await.unwrap();
    if told.len() == 1 {
        told.extend(ear.hears().await.unwrap());
    }
    told.sort();
    assert_eq!(told, ["file:///a", "file:///b"], "each once");
    ear.hears_nothing().await;
    drop(ear);
    until_true("the server is told", async || {
        heard().contains(r#""method":"resources/unsubscribe","params":{"uri":"file:///b"}"#)
    })
    .await;
}

#[tokio::test]
async fn of_a_server_that_tells_nothing_nothing_is_watched() {
    let world = World::start(NOTES).await;
    world
        .lists(
            &["n.greet"],
            &["notes+file:///a"],
            &["notes+file:///{name}"],
        )
        .await;
    let terms = world.terms(OfferKind::Resources, ColumnTier::Clear).await;
    let mut ear = watch(&world.harness, "notes", &["file:///a"], Some(&terms))
        .await
        .unwrap();
    assert_eq!(ear.hears().await.unwrap(), [""; 0]);
}
