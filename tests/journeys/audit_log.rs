//! Tests of the transparency log: its proofs, exports and verification at the command line, and an independent verifier.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use wardgate_testkit::{System, TestApp, run};
use wardgate_transparency::{decode_bundle, encode_entry, leaf_hash};

use super::people::{doctor, of_patient};
use crate::{REPOSITORY, WARDGATE};

/// Number of calls, and so of records.
const CALLS: usize = 6;

/// Waits until a checkpoint covers `records` records, and returns the key of the log.
pub(super) fn wait_until_covered(system: &impl System, records: usize) -> String {
    let newest = (records - 1).to_string();
    let begun = Instant::now();
    while system.audit(&["proof", "--offline", &newest]).code != Some(0) {
        assert!(begun.elapsed() < Duration::from_secs(30), "no checkpoint");
        std::thread::sleep(Duration::from_millis(100));
    }
    system.audit(&["key"]).success().trim().to_owned()
}

/// Verifies the log at `path` with both verifiers.
fn verify(path: &Path, key: &str) -> Result<(), String> {
    verify_with(path, key, &[])
}

/// Verifies the log at `path` with both verifiers and with a policy or a receipt.
pub(super) fn verify_with(path: &Path, key: &str, options: &[&str]) -> Result<(), String> {
    let path = path.to_str().unwrap();
    let ours = [&["audit", "verify", path, "--key", key], options].concat();
    let ours = run(Path::new(WARDGATE), &ours, &[]);
    let script = format!("{REPOSITORY}/tests/journeys/verify_log.py");
    let theirs = [&[script.as_str(), path, key], options].concat();
    let theirs = run(Path::new("python3"), &theirs, &[]);
    assert_eq!(ours.code, theirs.code, "{}\n{}", ours.stderr, theirs.stderr);
    if ours.code == Some(0) {
        return Ok(());
    }
    assert_eq!(ours.code, Some(1), "{}", ours.stderr);
    Err(ours.stderr)
}

/// Checks that a signed checkpoint covers every record of `system`, with an export and both verifiers.
pub(super) fn every_record_is_proved(system: &impl System) {
    let records = system.records().len();
    let key = wait_until_covered(system, records);
    let files = TempDir::new().unwrap();
    let out = files.path().join("all");
    system
        .audit(&["export", "--offline", "--out", out.to_str().unwrap()])
        .success();
    verify(&out, &key).unwrap();
    let lines = fs::read_to_string(out.join("records.jsonl")).unwrap();
    assert!(lines.lines().count() >= records);
}

/// The demo after some calls whose records are all covered by a checkpoint.
struct CoveredRecord {
    app: TestApp,
    key: String,
    /// The directory of exports and proofs.
    files: TempDir,
}

impl CoveredRecord {
    async fn create() -> Self {
        let app = TestApp::start(WARDGATE);
        for _ in 0..CALLS {
            let token = doctor(&app);
            let arguments = of_patient("NUGWI");
            let call = app.client().call(&token, "get_medical_records", arguments);
            call.await.rows();
        }
        let key = wait_until_covered(&app, CALLS);
        let files = TempDir::new().unwrap();
        Self { app, key, files }
    }

    fn export(&self, name: &str) -> PathBuf {
        let out = self.files.path().join(name);
        self.app
            .audit(&["export", "--offline", "--out", out.to_str().unwrap()])
            .success();
        out
    }

    fn proof(&self, of: &str) -> PathBuf {
        let path = self.files.path().join(format!("{of}.tlog-proof"));
        fs::write(&path, self.app.audit(&["proof", "--offline", of]).success()).unwrap();
        path
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_record_is_proved_and_exported_and_two_verifiers_agree_on_it() {
    let record = CoveredRecord::create().await;
    verify(&record.export("all"), &record.key).unwrap();
    for sequence in 0..CALLS {
        verify(&record.proof(&sequence.to_string()), &record.key).unwrap();
    }
    let records = record.app.records();
    let call_id = records[2]["call_id"].as_str().unwrap();
    assert_eq!(
        fs::read(record.proof(call_id)).unwrap(),
        fs::read(record.proof("2")).unwrap()
    );
    for (of, problem) in [
        ("6", "covers the records below 6"),
        (
            "019a7318-2b40-7000-8000-000000000001",
            "no record of the call",
        ),
    ] {
        let refused = record.app.audit(&["proof", "--offline", of]);
        assert_eq!(refused.code, Some(1));
        assert!(refused.stderr.contains(problem), "{}", refused.stderr);
    }
    let checkpoint = record.app.audit(&["checkpoint", "--offline"]).success();
    let name = record.key.split('+').next().unwrap();
    assert!(
        checkpoint.starts_with(&format!("{name}\n6\n")),
        "{checkpoint}"
    );

    let stranger = CoveredRecord::create().await;
    let refused = verify(&record.files.path().join("all"), &stranger.key).unwrap_err();
    assert!(refused.contains("is not signed by"), "{refused}");
    // After a stop the whole record is covered, and it is read as before.
    let CoveredRecord {
        mut app,
        key,
        files,
    } = record;
    app.restart();
    let record = CoveredRecord { app, key, files };
    let again = record.export("again");
    let kept = record.files.path().join("kept");
    fs::write(&kept, checkpoint).unwrap();
    let since = ["--since", kept.to_str().unwrap()];
    verify_with(&again, &record.key, &since).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_is_changed_in_an_export_or_a_proof_both_verifiers_refuse() {
    let record = CoveredRecord::create().await;
    let refused = |path: &Path, what: &str| {
        assert!(verify(path, &record.key).is_err(), "{what}");
    };
    let all = record.export("all");
    let proof = record.proof("3");
    let bundle = all.join("tile/entries/000.p/6");
    let tile = all.join("tile/0/000.p/6");
    let lines = all.join("records.jsonl");
    for (file, root) in [
        (&proof, &proof),
        (&bundle, &all),
        (&tile, &all),
        (&lines, &all),
        (&all.join("checkpoint"), &all),
    ] {
        let original = fs::read(file).unwrap();
        for part in 0..5 {
            let at = part * (original.len() - 1) / 4;
            let mut changed = original.clone();
            changed[at] ^= 1;
            fs::write(file, &changed).unwrap();
            refused(root, &format!("byte {at} of {}", file.display()));
            fs::write(file, &original[..at]).unwrap();
            refused(root, &format!("{at} bytes of {}", file.display()));
        }
        fs::write(file, &original).unwrap();
    }
    // The files are consistent, but their records are those of an attacker who has no key.
    let original = fs::read(&bundle).unwrap();
    let entries = decode_bundle(&original).unwrap();
    let forge = |forged: &[&[u8]]| {
        let (mut bytes, mut hashes, mut text) = (Vec::new(), Vec::new(), Vec::new());
        for (sequence, entry) in forged.iter().enumerate() {
            encode_entry(entry, &mut bytes).unwrap();
            hashes.extend_from_slice(&leaf_hash(entry));
            text.extend_from_slice(format!("{{\"sequence\":{sequence},\"record\":").as_bytes());
            text.extend_from_slice(entry);
            text.extend_from_slice(b"}\n");
        }
        fs::write(&bundle, bytes).unwrap();
        fs::write(&tile, hashes).unwrap();
        fs::write(&lines, text).unwrap();
    };
    for at in 0..CALLS {
        let next = (at + 1) % CALLS;
        let mut removed = entries.clone();
        removed.remove(at);
        forge(&removed);
        refused(&all, "a record was removed");
        let mut moved = entries.clone();
        moved.swap(at, next);
        forge(&moved);
        refused(&all, "two records changed places");
        let mut doubled = entries.clone();
        doubled[at] = entries[next];
        forge(&doubled);
        refused(&all, "a record stands in another one's place");
    }
    forge(&entries);
    verify(&all, &record.key).unwrap();
}
