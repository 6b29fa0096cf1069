//! Tests of the transparency log: it contains every record, and never has two histories.

use std::time::{Duration, Instant};

use futures::future::join_all;
use wardgate_audit::{CallingProcesses, CheckpointKind, Config, Error, RecordReader};
use wardgate_domain::{Ambient, Digest, Status};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{
    Checkpoint, CompactTree, Signer, TreeHead, TrustPolicy, VerifierKey, leaf_hash,
    verify_inclusion,
};

use crate::support::{
    TestService, TestStore, intent, keys, log_key, on_both_stores, outcome, refusals, subject,
};

on_both_stores! {
    a7_every_record_is_proved_by_a_checkpoint_signed_within_a_second
    a7_the_last_checkpoint_is_signed_when_the_service_ends
    a_store_without_a_tree_gets_the_same_tree
    a7_the_tree_of_a_large_store_is_built_while_it_takes_records
    a8_services_on_one_store_sign_one_history
    a8_no_checkpoint_is_signed_of_another_history
    a_log_keeps_its_name_and_another_one_is_refused
}

/// Returns the key of the log of `store`. The name of the log is in its checkpoint.
async fn key_of(store: &TestStore) -> VerifierKey {
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let note = reader.checkpoint(CheckpointKind::Signed).await.unwrap();
    let name = note.text().lines().next().unwrap().to_owned();
    let signer = Signer::from_pkcs8(&name, &log_key(1)).unwrap();
    signer.verifier_key().clone()
}

/// Returns the newest checkpoint after verifying it.
pub(crate) async fn checkpoint(store: &TestStore) -> TreeHead {
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let note = reader.checkpoint(CheckpointKind::Signed).await.unwrap();
    Checkpoint::verify(&note, &key_of(store).await)
        .unwrap()
        .head
}

/// Computes the tree of the records in `store`.
async fn tree(store: &TestStore) -> TreeHead {
    let mut tree = CompactTree::default();
    for record in store.records().await {
        tree.append(leaf_hash(&record.record), |_, _| ());
    }
    tree.head()
}

/// Number of records of which one must be covered in time.
const TRIES: u64 = 10;

/// Appends records to a store of `size` records until a checkpoint covers one in time: within a second, and twice the time that
/// the store needed for the record, because the tree and its checkpoint need that time too. A busy machine delays some
/// records, but a publisher that waited longer than a second would delay all. Returns the number of records in the store.
async fn cover_one_in_time(service: &TestService, store: &TestStore, size: u64) -> u64 {
    let mut late = Vec::new();
    for size in size + 1..=size + TRIES {
        let begun = Instant::now();
        service.audit.append(&refusals(size), false).await.unwrap();
        let limit = Duration::from_secs(1) + begun.elapsed() * 2;
        let waited = wait_for_checkpoint(store, size).await;
        if waited <= limit {
            return size;
        }
        late.push((waited, limit));
    }
    panic!("no record was covered in time: {late:?}");
}

/// Waits until a checkpoint covers `size` records.
pub(crate) async fn wait_for_checkpoint(store: &TestStore, size: u64) -> Duration {
    let begun = Instant::now();
    while checkpoint(store).await.size < size {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "no checkpoint of {size}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    begun.elapsed()
}

async fn append(service: &TestService, count: usize) {
    let appends = (0..count).map(|_| async {
        let record = outcome(&subject(), Status::Ok);
        service.audit.append(&record, false).await.unwrap()
    });
    join_all(appends).await;
}

async fn a7_every_record_is_proved_by_a_checkpoint_signed_within_a_second(store: &TestStore) {
    let service = store.service().await;
    assert_eq!(checkpoint(store).await, CompactTree::default().head());
    let receipt = service.audit.append(&refusals(1), false).await.unwrap();
    wait_for_checkpoint(store, 1).await;
    let size = cover_one_in_time(&service, store, 1).await;
    append(&service, usize::try_from(300 - size).unwrap()).await;
    wait_for_checkpoint(store, 300).await;
    assert_eq!(checkpoint(store).await, tree(store).await);

    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let policy = TrustPolicy::of_log(key_of(store).await);
    for record in store.records().await {
        let proof = reader
            .prove(record.sequence, CheckpointKind::Signed)
            .await
            .unwrap();
        assert_eq!(proof.extra.as_deref(), Some(record.record.as_ref()));
        let leaf = record.leaf_hash.as_bytes();
        assert_eq!(proof.verify(leaf, &policy).unwrap().head.size, 300);
        assert_eq!(proof.index, record.sequence);
    }
    // Over gRPC, the answers are the same for peers that may read the audit log.
    let limit = Duration::from_secs(60);
    let over_grpc = service.console.checkpoint(limit).await.unwrap();
    assert_eq!(
        over_grpc,
        reader.checkpoint(CheckpointKind::Signed).await.unwrap()
    );
    let over_grpc = service.console.proof(299, limit).await.unwrap();
    assert_eq!(
        over_grpc,
        reader.prove(299, CheckpointKind::Signed).await.unwrap()
    );
    let beyond = service.console.proof(300, limit).await.unwrap_err();
    assert_eq!(beyond.reason(), ErrorReason::InvalidMessage);
    for refused in [
        service.audit.checkpoint(limit).await.err(),
        service.audit.proof(0, limit).await.err(),
    ] {
        assert_eq!(refused.unwrap().reason(), ErrorReason::PeerRefused);
    }
    // The proof is of the hash in the receipt.
    let proof = reader.prove(0, CheckpointKind::Signed).await.unwrap();
    let head = proof
        .verify(receipt.leaf_hash().as_bytes(), &policy)
        .unwrap()
        .head;
    verify_inclusion(receipt.leaf_hash().as_bytes(), 0, &proof.path, &head).unwrap();
    let beyond = reader.prove(300, CheckpointKind::Signed).await.unwrap_err();
    assert!(
        matches!(
            beyond,
            Error::NotCovered {
                sequence: 300,
                size: 300
            }
        ),
        "{beyond}"
    );
}

async fn a7_the_last_checkpoint_is_signed_when_the_service_ends(store: &TestStore) {
    let service = store.service().await;
    append(&service, 20).await;
    service.closer.close().await;
    assert_eq!(checkpoint(store).await, tree(store).await);
}

async fn a_store_without_a_tree_gets_the_same_tree(store: &TestStore) {
    let service = store.service().await;
    append(&service, 700).await;
    service.closer.close().await;
    let before = checkpoint(store).await;
    // The store is as an earlier release left it.
    let none = Digest::compute(b"");
    let root = if store.url.starts_with("sqlite") {
        format!("x'{none}'")
    } else {
        format!("'\\x{none}'")
    };
    store.execute("DELETE FROM tile_root").await.unwrap();
    let forget = format!("UPDATE tree SET size = 0, root = {root}, checkpoint = NULL");
    store.execute(&forget).await.unwrap();
    let service = store.service().await;
    assert_eq!(checkpoint(store).await, before);
    append(&service, 1).await;
    wait_for_checkpoint(store, 701).await;
    assert_eq!(checkpoint(store).await, tree(store).await);
}

/// Checks a store with more records than the start adds to the tree before the service is ready.
async fn a7_the_tree_of_a_large_store_is_built_while_it_takes_records(store: &TestStore) {
    const RECORDS: u64 = 30_000;
    store.service().await.closer.close().await;
    let leaf = leaf_hash(b"{}");
    let hash = Digest::from_bytes(leaf);
    let fill = if store.url.starts_with("sqlite") {
        format!(
            "INSERT INTO record (sequence, leaf_hash, canonical, event, time)
             WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {RECORDS})
             SELECT i, x'{hash}', x'7b7d', 'refusals', i FROM n"
        )
    } else {
        format!(
            "INSERT INTO record (sequence, leaf_hash, canonical, event, time)
             SELECT i, '\\x{hash}', '\\x7b7d', 'refusals', i FROM generate_series(0, {RECORDS} - 1) AS i;
             UPDATE head SET size = {RECORDS}"
        )
    };
    store.execute(&fill).await.unwrap();
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let before = reader.checkpoint(CheckpointKind::Signed).await.unwrap();
    let service = store.service().await;
    // The service accepts records while the tree is not built yet, during the first half second. The new record will be in the
    // same tree.
    let still = reader.checkpoint(CheckpointKind::Signed).await.unwrap();
    assert_eq!(still, before);
    let receipt = service.audit.append(&refusals(1), false).await.unwrap();
    assert_eq!(receipt.sequence(), RECORDS);
    wait_for_checkpoint(store, RECORDS + 1).await;
    let mut tree = CompactTree::default();
    (0..RECORDS).for_each(|_| tree.append(leaf, |_, _| ()));
    tree.append(*receipt.leaf_hash().as_bytes(), |_, _| ());
    assert_eq!(checkpoint(store).await, tree.head());
    service.closer.close().await;
}

async fn a8_services_on_one_store_sign_one_history(store: &TestStore) {
    let (one, other) = (store.service().await, store.service().await);
    for _ in 0..3 {
        tokio::join!(append(&one, 150), append(&other, 150));
        let size = store.records().await.len() as u64;
        wait_for_checkpoint(store, size).await;
        assert_eq!(checkpoint(store).await, tree(store).await);
    }
}

async fn a8_no_checkpoint_is_signed_of_another_history(store: &TestStore) {
    let service = store.service().await;
    append(&service, 5).await;
    service.closer.close().await;
    let before = checkpoint(store).await;
    // The owner of the tables can drop the trigger.
    let unlock = if store.url.starts_with("sqlite") {
        "DROP TRIGGER record_is_not_changed"
    } else {
        "DROP TRIGGER record_is_not_changed ON record"
    };
    store.execute(unlock).await.unwrap();
    let changed = Digest::compute(b"another record");
    let (changed, root) = if store.url.starts_with("sqlite") {
        (
            format!("x'{changed}'"),
            format!("x'{}'", Digest::compute(b"")),
        )
    } else {
        (
            format!("'\\x{changed}'"),
            format!("'\\x{}'", Digest::compute(b"")),
        )
    };
    let change = format!("UPDATE record SET leaf_hash = {changed} WHERE sequence = 2");
    store.execute(&change).await.unwrap();
    for forget in ["", "size"] {
        if forget == "size" {
            // The tree is reset, as if it had to be built again.
            store
                .execute(&format!("UPDATE tree SET size = 0, root = {root}"))
                .await
                .unwrap();
        }
        let service = store.service().await;
        let record = intent(&subject());
        service.audit.append(&record, false).await.unwrap();
        service.closer.close().await;
        assert_eq!(
            checkpoint(store).await,
            before,
            "the record goes on, unsigned"
        );
    }
}

async fn a_log_keeps_its_name_and_another_one_is_refused(store: &TestStore) {
    let start = async |origin: Option<&str>| {
        let config = Config {
            log_origin: origin.map(str::to_owned),
            ..Config::for_store(&store.url)
        };
        let callers = CallingProcesses::OtherProcesses;
        let started =
            wardgate_audit::service(config, keys(), callers, None, Ambient::system()).await;
        match started {
            Ok((_, closer)) => {
                closer.close().await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    };
    start(Some("example.com/audit")).await.unwrap();
    start(None).await.unwrap();
    assert_eq!(key_of(store).await.name(), "example.com/audit");
    checkpoint(store).await;
    let refused = start(Some("example.com/other")).await.unwrap_err();
    assert!(matches!(refused, Error::OtherLog { .. }), "{refused}");
    let unfit = start(Some("a name")).await.unwrap_err();
    assert!(matches!(unfit, Error::Log(_)), "{unfit}");
}
