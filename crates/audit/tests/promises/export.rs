//! Tests of exports and proofs: they are verified without the store, and every change is detected.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use wardgate_audit::{CheckpointKind, RecordReader, VerificationError, Verifier};
use wardgate_domain::Status;
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{
    Checkpoint, Signer, TrustPolicy, VerifierKey, decode_bundle, encode_entry,
};

use crate::support::{TestStore, log_key, on_both_stores, outcome, refusals, subject};

on_both_stores! {
    a10_an_export_and_each_proof_verify_offline
}

const ORIGIN_OF_OTHERS: &str = "example.com/other";

fn key_of(name: &str, seed: u8) -> VerifierKey {
    let signer = Signer::from_pkcs8(name, &log_key(seed)).unwrap();
    signer.verifier_key().clone()
}

/// Returns a verifier that trusts one key and has no older checkpoint or receipt.
fn verifier(key: &VerifierKey) -> Verifier {
    Verifier {
        policy: TrustPolicy::of_log(key.clone()),
        since: None,
        receipt: None,
    }
}

pub(super) fn verify(path: &Path, key: &VerifierKey) -> Result<Checkpoint, VerificationError> {
    let verified = verifier(key).verify(path, |_, _| ())?;
    Ok(verified.checkpoint)
}

/// The exported records of a store, and the key that verifies them.
struct ExportedRecord {
    directory: TempDir,
    key: VerifierKey,
}

impl ExportedRecord {
    async fn create(store: &TestStore, records: u64) -> Self {
        Self::more(store, records, records).await
    }

    /// Appends `added` records to a store, which then has `records` records, and exports them.
    async fn more(store: &TestStore, added: u64, records: u64) -> Self {
        let service = store.service().await;
        for _ in 0..added {
            let record = outcome(&subject(), Status::Ok);
            service.audit.append(&record, false).await.unwrap();
        }
        service.closer.close().await;
        let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
            .await
            .unwrap();
        let directory = TempDir::new().unwrap();
        let mut told = 0;
        let kind = CheckpointKind::Signed;
        let exported = reader.export(directory.path(), kind, |done, of| {
            assert_eq!(of, records);
            told = done;
        });
        let Checkpoint { origin, head } = exported.await.unwrap();
        assert_eq!((head.size, told), (records, records));
        let key = key_of(&origin, 1);
        Self { directory, key }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    fn verify(&self) -> Result<Checkpoint, VerificationError> {
        verify(self.path(), &self.key)
    }

    /// Returns every file with its contents.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut files = Vec::new();
        let mut pending = vec![self.path().to_owned()];
        while let Some(path) = pending.pop() {
            if path.is_dir() {
                pending.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
            } else {
                let contents = fs::read(&path).unwrap();
                files.push((path, contents));
            }
        }
        files
    }
}

async fn a10_an_export_and_each_proof_verify_offline(store: &TestStore) {
    let exported = ExportedRecord::create(store, 260).await;
    assert_eq!(exported.verify().unwrap().head.size, 260);
    let lines = fs::read_to_string(exported.path().join("records.jsonl")).unwrap();
    for (line, record) in lines.lines().zip(store.records().await) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["sequence"], record.sequence);
        assert_eq!(line["record"], crate::support::json(&record));
    }
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let proof = exported.path().join("one.tlog-proof");
    for sequence in [0, 255, 256, 259] {
        let proved = reader
            .prove(sequence, CheckpointKind::Signed)
            .await
            .unwrap();
        fs::write(&proof, proved.to_string()).unwrap();
        verify(&proof, &exported.key).unwrap();
    }
    for other in [key_of(exported.key.name(), 2), key_of(ORIGIN_OF_OTHERS, 1)] {
        for path in [exported.path(), &proof] {
            let refused = verify(path, &other).unwrap_err();
            assert!(
                matches!(refused, VerificationError::Log { .. }),
                "{refused}"
            );
        }
    }
    let taken = reader.export(exported.path(), CheckpointKind::Signed, |_, _| ());
    let taken = taken.await.unwrap_err();
    assert!(taken.to_string().contains("not empty"), "{taken}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_bit_of_an_export_can_be_changed_and_no_file_cut_off_or_removed() {
    let exported = ExportedRecord::create(&TestStore::sqlite(), 3).await;
    for (path, contents) in exported.files() {
        for at in 0..contents.len() {
            let mut changed = contents.clone();
            changed[at] ^= 1 << (at % 8);
            fs::write(&path, &changed).unwrap();
            assert!(
                exported.verify().is_err(),
                "byte {at} of {}",
                path.display()
            );
        }
        for length in 0..contents.len() {
            fs::write(&path, &contents[..length]).unwrap();
            assert!(
                exported.verify().is_err(),
                "{length} bytes of {}",
                path.display()
            );
        }
        fs::write(&path, [contents.as_slice(), b"\n"].concat()).unwrap();
        assert!(exported.verify().is_err(), "more of {}", path.display());
        fs::remove_file(&path).unwrap();
        assert!(exported.verify().is_err(), "no {}", path.display());
        fs::write(&path, &contents).unwrap();
    }
    exported.verify().unwrap();
}

/// An attacker who changes records can make tiles, bundles and lines consistent, but cannot sign a checkpoint.
#[tokio::test(flavor = "multi_thread")]
async fn no_record_can_be_removed_moved_doubled_or_replaced() {
    let store = TestStore::sqlite();
    let exported = ExportedRecord::create(&store, 20).await;
    let bundle = exported.path().join("tile/entries/000.p/20");
    let tile = exported.path().join("tile/0/000.p/20");
    let original = fs::read(&bundle).unwrap();
    let entries = decode_bundle(&original).unwrap();
    let forge = |forged: &[&[u8]]| {
        let (mut bytes, mut hashes, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        for (sequence, entry) in forged.iter().enumerate() {
            encode_entry(entry, &mut bytes).unwrap();
            hashes.extend_from_slice(&wardgate_transparency::leaf_hash(entry));
            lines.extend_from_slice(format!("{{\"sequence\":{sequence},\"record\":").as_bytes());
            lines.extend_from_slice(entry);
            lines.extend_from_slice(b"}\n");
        }
        fs::write(&bundle, bytes).unwrap();
        fs::write(&tile, hashes).unwrap();
        fs::write(exported.path().join("records.jsonl"), lines).unwrap();
        exported.verify()
    };
    for at in 0..20 {
        let mut removed = entries.clone();
        removed.remove(at);
        assert!(forge(&removed).is_err());
        let mut moved = entries.clone();
        moved.swap(at, (at + 1) % 20);
        assert!(matches!(forge(&moved), Err(VerificationError::Root)));
        let mut doubled = entries.clone();
        doubled[at] = entries[(at + 1) % 20];
        assert!(matches!(forge(&doubled), Err(VerificationError::Root)));
        let mut added = entries.clone();
        added.insert(at, b"{}");
        assert!(forge(&added).is_err());
    }
    forge(&entries).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_was_kept_shows_another_history_and_an_older_record() {
    let store = TestStore::sqlite();
    let (earlier, later) = (
        ExportedRecord::create(&store, 3).await,
        ExportedRecord::more(&store, 4, 7).await,
    );
    let since = |export: &ExportedRecord, kept: &ExportedRecord| {
        let verifier = Verifier {
            since: Some(kept.path().join("checkpoint")),
            ..verifier(&export.key)
        };
        verifier.verify(export.path(), |_, _| ())
    };
    since(&later, &earlier).unwrap();
    since(&later, &later).unwrap();
    let other = ExportedRecord::create(&TestStore::sqlite(), 3).await;
    for refused in [
        since(&earlier, &later),
        since(&later, &other),
        since(&other, &earlier),
    ] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, VerificationError::OtherHistory(_)),
            "{refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receipt_proves_the_record_of_its_call_and_of_no_other() {
    let store = TestStore::sqlite();
    let exported = ExportedRecord::create(&store, 3).await;
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let answer = exported.path().join("answer.json");
    let save = |call_id: &serde_json::Value, hash: &wardgate_domain::Digest| {
        let receipt = serde_json::json!({
            "dev.wardgate/callId": call_id,
            "dev.wardgate/receipt": { "leafHash": hash.to_string() },
        });
        let result = serde_json::json!({ "id": 1, "result": { "_meta": receipt } });
        fs::write(&answer, result.to_string()).unwrap();
    };
    let verifier = Verifier {
        receipt: Some(answer.clone()),
        ..verifier(&exported.key)
    };
    let proof = exported.path().join("one.tlog-proof");
    let records = store.records().await;
    for (record, other) in records.iter().zip(records.iter().cycle().skip(1)) {
        let proved = reader.prove(record.sequence, CheckpointKind::Signed);
        fs::write(&proof, proved.await.unwrap().to_string()).unwrap();
        let (own, others) = (crate::support::json(record), crate::support::json(other));
        let verify = |path: &Path| verifier.verify(path, |_, _| ());
        save(&own["call_id"], &record.leaf_hash);
        verify(&proof).unwrap();
        verify(exported.path()).unwrap();
        // First the receipt of another call, then receipts that combine the id of one call with the hash of another.
        save(&others["call_id"], &other.leaf_hash);
        let refused = verify(&proof).unwrap_err();
        assert!(
            matches!(refused, VerificationError::OtherRecord { .. }),
            "{refused}"
        );
        for (call_id, hash) in [
            (&own["call_id"], other.leaf_hash),
            (&others["call_id"], record.leaf_hash),
        ] {
            save(call_id, &hash);
            for path in [proof.as_path(), exported.path()] {
                let refused = verify(path).unwrap_err();
                assert!(
                    matches!(refused, VerificationError::OtherRecord { .. }),
                    "{refused}"
                );
            }
        }
        fs::write(&answer, "{}").unwrap();
        let refused = verify(&proof).unwrap_err();
        assert!(
            matches!(refused, VerificationError::NoReceipt { .. }),
            "{refused}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_record_is_exported_and_verified_too() {
    let store = TestStore::sqlite();
    let exported = ExportedRecord::create(&store, 0).await;
    assert_eq!(exported.verify().unwrap().head.size, 0);
    // The old checkpoint of a log that has grown is still valid for the records that it covers.
    let service = store.service().await;
    service.audit.append(&refusals(1), false).await.unwrap();
    service.closer.close().await;
    assert_eq!(exported.verify().unwrap().head.size, 0);
}
