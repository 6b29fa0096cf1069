//! Tests of retention and legal holds: operators apply them, each action is recorded, and proofs remain valid.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::TryStreamExt;
use tempfile::TempDir;
use wardgate_audit::{
    CallingProcesses, CheckpointKind, Config, ExportSettings, LogKey, RecordReader, VerifiedLog,
    Verifier,
};
use wardgate_domain::{Ambient, OperatorAction, Record, Status};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::Peer;
use wardgate_rpc::client::{
    AuditFilter, CallCountQuery, CallSelection, DataSubjectFilter, HoldScope, OperatorAuditClient,
};
use wardgate_store::DatabaseSettings;
use wardgate_testkit::{FakePolicy, TestClock, unverified_token};
use wardgate_transparency::{Checkpoint, TrustPolicy, VerifierKey, leaf_hash};

use crate::details::outcome_about;
use crate::exports::{Receiver, webhook};

use crate::support::{
    TestService, TestStore, intact, json, log_key, on_both_stores, outcome, refusals, subject,
};

on_both_stores! {
    a12_what_is_older_is_removed_in_whole_bundles_and_every_proof_goes_on
    a12_what_is_young_held_or_not_exported_is_kept
    a12_only_who_may_manage_the_record_removes_holds_and_erases_and_that_is_on_record
    a12_records_that_were_changed_are_not_removed
    a12_a_clock_that_is_far_ahead_removes_nothing
    a12_an_operator_of_a_tenant_lifts_no_hold_that_another_operator_set_on_it
    a12_what_the_store_refuses_of_a_hold_leaves_it_ready
    calls_are_not_counted_where_records_of_the_time_were_removed
}

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
const ORIGIN: &str = "example.com/audit";

/// Starts the service with a policy that permits `ada` to read and manage the audit log, and `auditor.lee` to read it.
pub(crate) async fn start(
    store: &TestStore,
    days: u32,
    exports: Vec<ExportSettings>,
) -> TestService {
    start_at(store, days, exports, Ambient::system()).await
}

/// Starts the service as [`start`] does, with the clock of `ambient`.
async fn start_at(
    store: &TestStore,
    days: u32,
    exports: Vec<ExportSettings>,
    ambient: Ambient,
) -> TestService {
    let policy: Arc<FakePolicy> = FakePolicy::new(Ambient::system());
    policy.lets_operate(OperatorAction::ReadRecord, "auditor.lee");
    for scope in [OperatorAction::ReadRecord, OperatorAction::ManageRecord] {
        policy.lets_operate(scope, "ada");
    }
    let config = Config {
        log_origin: Some(ORIGIN.to_owned()),
        retention_days: days,
        exports,
        ..Config::for_store(&store.url)
    };
    let policy = policy.client(Peer::Audit);
    let callers = CallingProcesses::OtherProcesses;
    TestService::start_as(config, callers, Some(policy), ambient).await
}

pub(crate) fn ada(service: &TestService) -> OperatorAuditClient {
    service.operator(&unverified_token("ada", ""))
}

/// Appends calls of November 2025.
pub(crate) async fn append(service: &TestService, count: usize) {
    for _ in 0..count {
        let record = outcome(&subject(), Status::Ok);
        service.audit.append(&record, false).await.unwrap();
    }
}

/// Appends a call of the present time.
pub(crate) async fn append_young(service: &TestService) {
    let record = Record {
        time: Ambient::system().now(),
        ..outcome(&subject(), Status::Ok)
    };
    service.audit.append(&record, false).await.unwrap();
}

pub(crate) async fn apply(operator: &OperatorAuditClient) -> u64 {
    let steps = operator.apply_retention().await.unwrap();
    let steps: Vec<_> = steps.try_collect().await.unwrap();
    steps.last().unwrap().minimum_index
}

pub(crate) async fn reader(store: &TestStore) -> RecordReader {
    RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap()
}

async fn calls_are_not_counted_where_records_of_the_time_were_removed(store: &TestStore) {
    let files = TempDir::new().unwrap();
    let service = start(store, 30, Vec::new()).await;
    append(&service, 300).await;
    append_young(&service).await;
    save_checkpoint(store, 301, files.path()).await;
    service.closer.close().await;
    let service = start(store, 30, Vec::new()).await;
    let count = async |days: u64| {
        let since = Ambient::system()
            .now()
            .minus(Duration::from_hours(24 * days));
        let tools = vec!["get_medical_records".parse().unwrap()];
        let query = CallCountQuery {
            subject: subject().subject,
            call_id: None,
            selections: vec![CallSelection {
                tools,
                tags: Vec::new(),
                since,
                conversation: None,
                phi: false,
            }],
            until: None,
        };
        service.policy.count_calls(query, LIMIT).await
    };
    let since_november = 10_000;
    assert_eq!(count(since_november).await.unwrap(), [301]);
    assert_eq!(apply(&ada(&service)).await, 256);
    let removed = count(since_november).await.unwrap_err();
    assert!(removed.to_string().contains("retention"), "{removed}");
    assert_eq!(count(1).await.unwrap(), [1]);
}

/// Waits until the newest checkpoint covers `size` records, and writes the checkpoint to a file.
pub(crate) async fn save_checkpoint(store: &TestStore, size: u64, files: &Path) -> PathBuf {
    let begun = Instant::now();
    loop {
        let note = reader(store).await.checkpoint(CheckpointKind::Signed).await;
        if let Ok(note) = note
            && note.text().parse::<Checkpoint>().unwrap().head.size >= size
        {
            let path = files.join(format!("checkpoint-{size}"));
            std::fs::write(&path, note.to_string()).unwrap();
            return path;
        }
        assert!(begun.elapsed() < LIMIT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn key() -> VerifierKey {
    LogKey::from_pkcs8(&log_key(1))
        .unwrap()
        .verifier_key(ORIGIN)
        .unwrap()
}

async fn export(store: &TestStore, directory: &Path) {
    let kind = CheckpointKind::Signed;
    let exported = reader(store).await.export(directory, kind, |_, _| ()).await;
    exported.unwrap();
}

fn verify(directory: &Path, since: Option<&PathBuf>) -> Result<VerifiedLog, String> {
    let verifier = Verifier {
        policy: TrustPolicy::of_log(key()),
        since: since.cloned(),
        receipt: None,
    };
    let verified = verifier.verify(directory, |_, _| ());
    verified.map_err(|error| error.to_string())
}

async fn a12_what_is_older_is_removed_in_whole_bundles_and_every_proof_goes_on(store: &TestStore) {
    let files = TempDir::new().unwrap();
    let [before, after, later] = ["before", "after", "later"].map(|name| files.path().join(name));
    let service = start(store, 30, Vec::new()).await;
    append(&service, 100).await;
    let early = save_checkpoint(store, 100, files.path()).await;
    append(&service, 600).await;
    append_young(&service).await;
    let kept = save_checkpoint(store, 701, files.path()).await;
    export(store, &before).await;
    service.closer.close().await;

    let service = start(store, 30, Vec::new()).await;
    let status = ada(&service).retention(LIMIT).await.unwrap();
    assert_eq!((status.minimum_index, status.removable_below), (0, 512));
    assert_eq!(
        (status.retention_days, status.kept_by.as_str()),
        (30, "newest")
    );
    assert_eq!(apply(&ada(&service)).await, 512);
    // The kept records are read as before, and no record counts as missing.
    let records = store.records().await;
    assert_eq!(records[0].sequence, 512);
    assert_eq!(records.len(), 701 - 512 + 2);
    let some = AuditFilter {
        tool: Some("get_medical_records".to_owned()),
        ..AuditFilter::default()
    };
    let found = store.read_records(some).await;
    let found: Vec<_> = found.into_iter().map(intact).collect();
    assert_eq!(found.len(), 701 - 512);
    let actions: Vec<_> = records[189..]
        .iter()
        .map(|record| json(record)["action"].clone())
        .collect();
    assert_eq!(actions, ["audit.retention", "audit.prune"]);
    assert_eq!(json(&records[190])["target"], "below=512");
    // Kept records can be proved, and removed ones cannot.
    save_checkpoint(store, 703, files.path()).await;
    let policy = TrustPolicy::of_log(key());
    for sequence in [512, 600, 702] {
        let proof = reader(store)
            .await
            .prove(sequence, CheckpointKind::Signed)
            .await
            .unwrap();
        let leaf = leaf_hash(proof.extra.as_deref().unwrap());
        proof.verify(&leaf, &policy).unwrap();
    }
    let gone = reader(store).await.prove(10, CheckpointKind::Signed).await;
    let gone = gone.unwrap_err().to_string();
    assert!(gone.contains("removed by retention"), "{gone}");
    // An export of the kept records is consistent with every earlier checkpoint, and earlier exports remain valid.
    export(store, &after).await;
    for since in [&early, &kept] {
        assert_eq!(verify(&after, Some(since)).unwrap().minimum_index, 512);
    }
    assert_eq!(verify(&before, Some(&early)).unwrap().minimum_index, 0);
    // An export that lacks more than retention removed is refused.
    let bundle = after
        .join("tile/entries/002.p")
        .read_dir()
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    std::fs::remove_file(bundle.path()).unwrap();
    assert!(verify(&after, None).is_err());
    // An export that lacks its beginning, without a record of its removal, is refused.
    std::fs::remove_file(before.join("tile/entries/000")).unwrap();
    let lines = std::fs::read_to_string(before.join("records.jsonl")).unwrap();
    let rest: String = lines.split_inclusive('\n').skip(256).collect();
    std::fs::write(before.join("records.jsonl"), rest).unwrap();
    let unexplained = verify(&before, None).unwrap_err();
    assert!(
        unexplained.contains("the records below 256 are missing"),
        "{unexplained}"
    );
    // Another process continues the tree, and removes no more.
    service.closer.close().await;
    let service = start(store, 30, Vec::new()).await;
    append(&service, 3).await;
    save_checkpoint(store, 706, files.path()).await;
    assert_eq!(apply(&ada(&service)).await, 512);
    service.closer.close().await;
    export(store, &later).await;
    assert_eq!(verify(&later, Some(&kept)).unwrap().minimum_index, 512);
    // A new export begins with the first kept record.
    let receiver = Receiver::default();
    let tool = webhook(&receiver.serve().await, "");
    let service = start(store, 30, vec![tool]).await;
    receiver.has(706 - 512).await;
    assert_eq!(receiver.sequences()[..2], [512, 513]);
    service.closer.close().await;
    // The trigger refuses any other deletion.
    assert!(
        store
            .execute("DELETE FROM record WHERE sequence = 512")
            .await
            .is_err()
    );
}

async fn a12_what_is_young_held_or_not_exported_is_kept(store: &TestStore) {
    let service = start(store, 30, Vec::new()).await;
    append(&service, 256).await;
    let north = outcome_about(&[("NUGWI", 1)]);
    service.audit.append(&north, false).await.unwrap();
    append(&service, 599).await;
    append_young(&service).await;
    let files = TempDir::new().unwrap();
    save_checkpoint(store, 857, files.path()).await;
    service.closer.close().await;

    // Six years is the default.
    let service = start(store, 2_192, Vec::new()).await;
    let status = ada(&service).retention(LIMIT).await.unwrap();
    assert_eq!(
        (status.removable_below, status.kept_by.as_str()),
        (0, "age")
    );
    assert_eq!(apply(&ada(&service)).await, 0);
    service.closer.close().await;

    // This security tool has received nothing.
    let away = r#"{"name":"soc","webhook":{"url":"http://127.0.0.1:9/","private_addresses":true}}"#;
    let service = start(store, 30, vec![serde_json::from_str(away).unwrap()]).await;
    let status = ada(&service).retention(LIMIT).await.unwrap();
    assert_eq!(
        (status.removable_below, status.kept_by.as_str()),
        (0, "export:soc")
    );
    assert_eq!(apply(&ada(&service)).await, 0);
    service.closer.close().await;

    let service = start(store, 30, Vec::new()).await;
    let operator = ada(&service);
    let nugwi = DataSubjectFilter {
        tenant: "north".to_owned(),
        key: "NUGWI".to_owned(),
    };
    for (name, scope, below) in [
        ("all", HoldScope::Whole, 0),
        ("north", HoldScope::Tenant("north".to_owned()), 0),
        ("south", HoldScope::Tenant("south".to_owned()), 768),
        ("nugwi", HoldScope::DataSubject(nugwi), 256),
    ] {
        operator.set_hold(name, scope.clone(), LIMIT).await.unwrap();
        let twice = operator.set_hold(name, scope, LIMIT).await.unwrap_err();
        assert!(twice.to_string().contains("already"), "{twice}");
        let status = operator.retention(LIMIT).await.unwrap();
        assert_eq!(status.removable_below, below, "{name}");
        assert_eq!(status.holds.len(), 1);
        assert_eq!(
            (
                status.holds[0].name.as_str(),
                status.holds[0].set_by.as_str()
            ),
            (name, "ada")
        );
        if below < 768 {
            assert_eq!(status.kept_by, format!("hold:{name}"));
        }
        if below == 256 {
            assert_eq!(apply(&operator).await, 256);
        }
        operator.lift_hold(name, LIMIT).await.unwrap();
    }
    let nothing = operator.lift_hold("nugwi", LIMIT).await.unwrap_err();
    assert!(nothing.to_string().contains("does not exist"), "{nothing}");
    assert_eq!(apply(&operator).await, 768);
    service.closer.close().await;
}

async fn a12_only_who_may_manage_the_record_removes_holds_and_erases_and_that_is_on_record(
    store: &TestStore,
) {
    let service = start(store, 30, Vec::new()).await;
    append(&service, 1).await;
    let subject = || DataSubjectFilter {
        tenant: "north".to_owned(),
        key: "NUGWI".to_owned(),
    };
    // The permission to read is not sufficient.
    let auditor = service.operator(&unverified_token("auditor.lee", ""));
    auditor.retention(LIMIT).await.unwrap();
    let refused = [
        auditor.apply_retention().await.err(),
        auditor.set_hold("all", HoldScope::Whole, LIMIT).await.err(),
        auditor.lift_hold("all", LIMIT).await.err(),
        auditor.erase(subject(), LIMIT).await.err(),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap().reason(), ErrorReason::Denied);
    }
    let records = store.records().await;
    let denied = records[2..].iter().map(json);
    let denied: Vec<_> = denied
        .map(|record| (record["action"].clone(), record["status"].clone()))
        .collect();
    let expected = [
        "audit.prune",
        "audit.hold",
        "audit.lift_hold",
        "audit.erase",
    ];
    assert_eq!(
        denied,
        expected.map(|action| (action.into(), "denied".into()))
    );
    // An operator who manages the records of one tenant can set and lift holds in that tenant, but remove nothing.
    let northern = service.operator(&unverified_token("ada", "north"));
    assert_eq!(
        northern.apply_retention().await.err().unwrap().reason(),
        ErrorReason::Denied
    );
    northern
        .set_hold("north", HoldScope::Whole, LIMIT)
        .await
        .unwrap();
    let holds = ada(&service).retention(LIMIT).await.unwrap().holds;
    assert_eq!(holds[0].tenant.as_deref(), Some("north"));
    let southern = service.operator(&unverified_token("ada", "south"));
    assert!(southern.lift_hold("north", LIMIT).await.is_err());
    northern.lift_hold("north", LIMIT).await.unwrap();
    let last = json(store.records().await.last().unwrap());
    assert_eq!(last["action"], "audit.lift_hold");
    assert_eq!(last["caller"]["tenant"], "north");
    assert_eq!(last["target"], "north");
    service.closer.close().await;
}

async fn a12_records_that_were_changed_are_not_removed(store: &TestStore) {
    let service = start(store, 30, Vec::new()).await;
    append(&service, 300).await;
    for count in [1, 2] {
        let record = refusals(count);
        service.audit.append(&record, false).await.unwrap();
    }
    append(&service, 300).await;
    append_young(&service).await;
    let files = TempDir::new().unwrap();
    save_checkpoint(store, 603, files.path()).await;
    service.closer.close().await;
    // The bytes and the hash of the record match each other, but not the tree.
    let permit = if store.is_sqlite() {
        "DROP TRIGGER record_is_not_changed"
    } else {
        "ALTER TABLE record DISABLE TRIGGER USER"
    };
    let change = "UPDATE record SET (leaf_hash, canonical) =
        (SELECT leaf_hash, canonical FROM record WHERE sequence = 301) WHERE sequence = 300";
    let changed = store.execute(&format!("{permit}; {change}")).await;
    changed.unwrap();
    if !store.is_sqlite() {
        let permitted = store.execute("ALTER TABLE record ENABLE TRIGGER USER");
        permitted.await.unwrap();
    }

    let service = start(store, 30, Vec::new()).await;
    let operator = ada(&service);
    let status = operator.retention(LIMIT).await.unwrap();
    assert_eq!(
        (status.removable_below, status.kept_by.as_str()),
        (256, "damaged_records")
    );
    assert_eq!(apply(&operator).await, 256);
    assert_eq!(store.records().await[0].sequence, 256);
    service.closer.close().await;
}

async fn a12_a_clock_that_is_far_ahead_removes_nothing(store: &TestStore) {
    let now = Ambient::system().now();
    let service = start(store, 30, Vec::new()).await;
    for _ in 0..300 {
        append_young(&service).await;
    }
    let files = TempDir::new().unwrap();
    save_checkpoint(store, 300, files.path()).await;
    service.closer.close().await;
    let ahead = TestClock::at(now.as_seconds() + 3_000 * 86_400);
    let service = start_at(store, 30, Vec::new(), ahead.ambient()).await;
    let operator = ada(&service);
    // The access of an operator is recorded with the time of the same clock, and therefore does not confirm that time.
    for _ in 0..2 {
        let status = operator.retention(LIMIT).await.unwrap();
        // A database server has its own clock.
        let expected = if store.is_sqlite() { "clock" } else { "age" };
        assert_eq!(
            (status.removable_below, status.kept_by.as_str()),
            (0, expected)
        );
        assert_eq!(apply(&operator).await, 0);
    }
    service.closer.close().await;
}

async fn a12_an_operator_of_a_tenant_lifts_no_hold_that_another_operator_set_on_it(
    store: &TestStore,
) {
    let service = start(store, 30, Vec::new()).await;
    let northern = service.operator(&unverified_token("ada", "north"));
    let operator = ada(&service);
    let scope = || HoldScope::Tenant("north".to_owned());
    operator.set_hold("court", scope(), LIMIT).await.unwrap();
    northern.set_hold("own", scope(), LIMIT).await.unwrap();
    let refused = northern.lift_hold("court", LIMIT).await.unwrap_err();
    assert!(refused.to_string().contains("does not exist"), "{refused}");
    let holds = operator.retention(LIMIT).await.unwrap().holds;
    let names: Vec<_> = holds.iter().map(|hold| hold.name.as_str()).collect();
    assert_eq!(names, ["court", "own"]);
    // An operator without a tenant can lift both.
    for name in names {
        operator.lift_hold(name, LIMIT).await.unwrap();
    }
    service.closer.close().await;
}

async fn a12_what_the_store_refuses_of_a_hold_leaves_it_ready(store: &TestStore) {
    let mut service = start(store, 30, Vec::new()).await;
    service.readiness.mark_unchanged();
    let operator = ada(&service);
    for tenant in ["north\0", "north\n", &"n".repeat(513)] {
        let scope = HoldScope::Tenant(tenant.to_owned());
        let refused = operator.set_hold("all", scope, LIMIT).await.unwrap_err();
        assert_eq!(refused.reason(), ErrorReason::InvalidMessage);
        let subject = DataSubjectFilter {
            tenant: tenant.to_owned(),
            key: "NUGWI".to_owned(),
        };
        let refused = operator.erase(subject, LIMIT).await.unwrap_err();
        assert_eq!(refused.reason(), ErrorReason::InvalidMessage);
    }
    let rename = "ALTER TABLE legal_hold RENAME TO gone";
    store.execute(rename).await.unwrap();
    let refused = operator.set_hold("all", HoldScope::Whole, LIMIT).await;
    assert_eq!(refused.unwrap_err().reason(), ErrorReason::Internal);
    assert!(!service.readiness.has_changed().unwrap());
    append(&service, 1).await;
    service.closer.close().await;
}
