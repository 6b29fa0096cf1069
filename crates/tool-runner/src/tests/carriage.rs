//! Whose messages can be carried to a server is told as soon as the server has shown it.

use std::time::Duration;

use tokio::time::timeout;
use wardgate_proto::toolrunner::v1 as pb;

use super::database::Database;
use super::harness::{Harness, eventually};
use wardgate_mcp_client::testing::http::fixture;
use wardgate_mcp_client::testing::program;

/// A service whose one source nobody asks for anything yet: its one tool is written by hand.
async fn harness(source: &str) -> Harness {
    let yaml = format!(
        "sources:
  up: {source}
tools:
  - {{ name: echo, description: Echo., input_schema: {{ type: object }}, execute: {{ type: mcp, source: up, tool: echo }} }}
"
    );
    Harness::with(&Database::sqlite().await, &yaml, |_| ()).await
}

fn carriage(list: &pb::ListToolsResponse) -> pb::Carriage {
    list.sources[0].carriage()
}

#[tokio::test]
async fn what_a_server_speaks_is_told_once_it_is_known_and_changes_the_catalogue() {
    for (era, spoken) in [
        ("legacy", pb::Carriage::Legacy),
        ("both", pb::Carriage::All),
        // Whether it takes `initialize` is asked when a legacy client is there.
        ("modern", pb::Carriage::All),
    ] {
        let (_, url) = fixture(era, false).await;
        let source = format!("{{ type: mcp, url: '{url}', private: [127.0.0.0/8] }}");
        let harness = harness(&source).await;
        let before = harness.tools().await;
        assert_eq!(carriage(&before), pb::Carriage::All, "{era}");
        let mut client = harness.client.clone();
        let watched = client.watch_catalogue(pb::WatchCatalogueRequest {}).await;
        let mut watched = watched.unwrap().into_inner();
        let first = watched.message().await.unwrap().unwrap();
        assert_eq!(first.catalogue_version, before.catalogue_version);
        harness.call("echo", "{}").await;
        let next = timeout(Duration::from_mins(1), watched.message()).await;
        let next = next.expect("a change is told").unwrap().unwrap();
        let after = harness.tools().await;
        assert_eq!(next.catalogue_version, after.catalogue_version);
        assert_ne!(after.catalogue_version, before.catalogue_version);
        assert_eq!(carriage(&after), spoken, "{era}");
        let declared = after.sources[0].capabilities.unwrap();
        assert!(
            declared.resource_subscriptions && !declared.logging,
            "{era}"
        );
        assert!(before.sources[0].capabilities.is_none(), "{era}");
        // Which no list that a caller sees depends on.
        assert_eq!(after.shown_version, before.shown_version, "{era}");
    }
}

#[tokio::test]
async fn a_server_without_a_url_can_be_carried_to_by_nobody() {
    let harness = harness(&program::source("rmcp-modern")).await;
    harness.call("echo", "{}").await;
    eventually("it stays so", async || {
        carriage(&harness.tools().await) == pb::Carriage::Unspecified
    })
    .await;
}
