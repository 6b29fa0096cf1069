//! Tests of the catalogue: listing, watching and reloading.

use std::path::Path;
use std::time::Duration;

use wardgate_domain::Ambient;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_redact::PseudonymKey;
use wardgate_rpc::Peer;
use wardgate_rpc::Readiness;
use wardgate_testkit::{FakeAudit, until_true};

use super::harness::{Harness, tools};
use crate::tests::database;
use crate::{Config, Error, Links, SealingKey, service};
use wardgate_catalogue::FileText;
use wardgate_catalogue::Files;

/// Replaces a file atomically, as an editor or Kubernetes would.
fn replace(file: &Path, text: &str) {
    let beside = file.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, file).unwrap();
}

#[tokio::test]
async fn the_list_shows_each_tool_as_configured() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let list = harness.tools().await;
    let names: Vec<_> = list
        .tools
        .iter()
        .map(|tool| &tool.facts.as_ref().unwrap().name)
        .collect();
    assert_eq!(names[..3], ["governed_rows", "plain_rows", "echo"]);
    let governed = &list.tools[0];
    assert_eq!(governed.aliases, ["rows_by_rule"]);
    assert_eq!(governed.time_limit.unwrap().seconds, 30);
    let facts = governed.facts.as_ref().unwrap();
    assert_eq!(facts.entity, "Record");
    assert!(facts.read_only);
    assert_eq!(
        facts.classes,
        [
            "admin.id",
            "admin.level",
            "id.patient",
            "phi.text",
            "place.ward",
            "unclassified"
        ]
    );
    assert!(!list.tools[4].facts.as_ref().unwrap().read_only);
}

#[tokio::test]
async fn a_changed_file_is_in_force_at_once_and_a_faulty_one_never() {
    let database = database::sqlite().await;
    let harness = Harness::start(&database).await;
    let mut client = harness.client.clone();
    let watching = client
        .watch_catalogue(pb::WatchCatalogueRequest {})
        .await
        .unwrap();
    let mut versions = watching.into_inner();
    let first = versions.message().await.unwrap().unwrap().catalogue_version;
    assert_eq!(first, harness.tools().await.catalogue_version);
    let old = harness.terms("plain_rows").await;
    harness.call_with(&old, "{}").await.unwrap().rows();

    replace(
        &harness.file,
        &tools().replace("Rows that nothing governs.", "Rows, all of them."),
    );
    let second = versions.message().await.unwrap().unwrap().catalogue_version;
    assert_ne!(first, second);
    assert_eq!(second, harness.tools().await.catalogue_version);
    let drifted = harness.call_with(&old, "{}").await.unwrap_err();
    assert_eq!(
        wardgate_rpc::reason_of(&drifted),
        ErrorReason::PermitRefused,
        "a changed tool is a new tool"
    );
    harness.call("plain_rows", "{}").await.rows();

    replace(
        &harness.file,
        &tools().replace("type: sql\n", "type: shell\n"),
    );
    replace(&harness.file, "tools: [");
    std::fs::remove_file(&harness.file).unwrap();
    replace(&harness.file, tools());
    let third = versions.message().await.unwrap().unwrap().catalogue_version;
    assert_eq!(third, first, "the faulty ones between were never in force");
}

#[tokio::test]
async fn a_faulty_file_leaves_the_old_catalogue_in_force() {
    let database = database::sqlite().await;
    // Only this test triggers a reload.
    let harness = Harness::with(&database, tools(), |config| {
        config.reload_interval = Duration::from_hours(1);
    })
    .await;
    let readiness = harness.runner.readiness();
    let version = harness.tools().await.catalogue_version;
    let text = |text: &str| FileText {
        path: harness.file.clone(),
        text: text.to_owned(),
    };
    let mut seen = Files {
        attached: Vec::new(),
        texts: vec![text(tools())],
        lock: String::new(),
    };
    for changed in ["tools: [", "tools: []\nextra: 1", "\u{0}"] {
        replace(&harness.file, changed);
        assert!(!harness.runner.reload(&mut seen).await);
        assert_eq!(seen.texts, [text(changed)], "it was looked at");
        let outdated = "the changed catalogue has an error; the previous one stays in force";
        assert_eq!(*readiness.borrow(), Readiness::Outdated(outdated));
        let call = harness.call("plain_rows", "{}").await;
        assert_eq!(call.column("id").len(), 7);
        assert_eq!(harness.tools().await.catalogue_version, version);
    }
    replace(&harness.file, tools());
    assert!(harness.runner.reload(&mut seen).await);
    assert_eq!(*readiness.borrow(), Readiness::Ready);
}

#[tokio::test]
async fn a_changed_source_is_read_at_once() {
    let (database, other) = (database::sqlite().await, database::sqlite().await);
    other.execute("DELETE FROM records WHERE id > 2").await;
    let harness = Harness::start(&database).await;
    assert_eq!(harness.call("plain_rows", "{}").await.column("id").len(), 7);
    replace(&harness.file, &tools().replace("${URL}", &other.url()));
    until_true("the other database is read", || async {
        harness.call("plain_rows", "{}").await.column("id").len() == 2
    })
    .await;
}

#[tokio::test]
async fn a_changed_secret_of_a_source_is_taken_up_without_a_restart() {
    let (database, other) = (database::sqlite().await, database::sqlite().await);
    other.execute("DELETE FROM records WHERE id > 2").await;
    let secrets = tempfile::tempdir().unwrap();
    let secret = secrets.path().join("url");
    std::fs::write(&secret, database.url()).unwrap();
    let reference = format!("${{file:{}}}", secret.display());
    let harness = Harness::with(&database, &tools().replace("${URL}", &reference), |_| {}).await;
    assert_eq!(harness.call("plain_rows", "{}").await.column("id").len(), 7);
    // The text has another length, so the change is detected regardless of the file system's clock.
    std::fs::write(&secret, format!("{}\n", other.url())).unwrap();
    until_true("the other database is read", || async {
        harness.call("plain_rows", "{}").await.column("id").len() == 2
    })
    .await;
}

#[tokio::test]
async fn a_faulty_catalogue_does_not_start_and_a_good_one_is_ready() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        catalogue: dir.path().join("tools.yaml"),
        store: format!("sqlite:{}", dir.path().join("store.sqlite").display()),
        ..Config::default()
    };
    let begin = |config: Config| {
        let verifier = wardgate_domain::PermitVerifier::new([]);
        service(
            config,
            verifier,
            PseudonymKey::new([7; 32]),
            SealingKey::derive(&[7; 32]),
            Links {
                audit: FakeAudit::new(Peer::ToolRunner).client(),
                record_executions: false,
                policy: None,
                memory: None,
                replicas: None,
            },
            Ambient::system(),
        )
    };
    std::fs::write(&config.catalogue, "sources: {}\ntools:\n  - nmae: x\n").unwrap();
    let Err(Error::Catalogue(faults)) = begin(config.clone()).await else {
        panic!("it started");
    };
    assert!(faults.iter().any(|fault| fault.line == 3), "{faults:?}");
    std::fs::write(&config.catalogue, "tools: []\n").unwrap();
    let (service, _closing) = begin(config).await.unwrap();
    assert_eq!(*service.readiness.borrow(), Readiness::Ready);
}
