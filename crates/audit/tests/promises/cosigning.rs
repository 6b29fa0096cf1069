//! Tests of cosigning: a quorum of witnesses cosigns only one history, and nothing waits for witnesses.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::net::TcpListener;
use wardgate_audit::{
    CallingProcesses, CheckpointKind, Config, Error, LogCloser, RecordReader, Verifier,
    WitnessSettings,
};
use wardgate_domain::{Ambient, Status};
use wardgate_rpc::client::AuditClient;
use wardgate_rpc::{Peer, link};
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{Checkpoint, Signer, TrustPolicy, VerifierKey};
use wardgate_witness::Witness;

use crate::support::{TestStore, keys, log_key, on_both_stores, outcome, subject};

on_both_stores! {
    a9_the_quorum_of_witnesses_cosigns_the_newest_checkpoint
    a9_a_fork_shown_to_the_witness_is_never_cosigned
}

const ORIGIN: &str = "example.com/audit";

fn log_vkey() -> VerifierKey {
    let signer = Signer::from_pkcs8(ORIGIN, &log_key(1)).unwrap();
    signer.verifier_key().clone()
}

/// Witnesses with their own directories, and the policy that trusts them.
pub(crate) struct TestWitnesses {
    files: TempDir,
    lines: String,
    ambient: Ambient,
}

impl TestWitnesses {
    fn new() -> Self {
        Self::with(Ambient::system())
    }

    /// Creates witnesses, and a service, with the clock of `ambient`.
    pub(crate) fn with(ambient: Ambient) -> Self {
        Self {
            files: TempDir::new().unwrap(),
            lines: format!("log {}\n", log_vkey()),
            ambient,
        }
    }

    /// Starts the witness `name`, with the key of `seed`.
    pub(crate) async fn start(&mut self, name: &str, seed: u8) {
        let witness = Witness::open(
            &format!("witness.example/{name}"),
            &log_key(seed),
            vec![log_vkey()],
            &self.files.path().join(name),
            self.ambient.clone(),
        );
        let witness = Arc::new(witness.unwrap());
        let address = wardgate_testkit::serve(wardgate_witness::router(&witness)).await;
        self.add(name, witness.verifier_key(), address);
    }

    fn add(&mut self, name: &str, key: &VerifierKey, address: SocketAddr) {
        self.lines += &format!("witness {name} {key} http://{address}/\n");
    }

    /// Writes a policy file with these witnesses and `quorum`, and returns its path.
    pub(crate) fn policy(&self, quorum: &str) -> PathBuf {
        let path = self.files.path().join("policy");
        fs::write(&path, format!("{}{quorum}\n", self.lines)).unwrap();
        path
    }

    /// Starts the service on `store`, which submits its checkpoints to the witnesses.
    pub(crate) async fn service(
        &self,
        store: &TestStore,
        quorum: &str,
    ) -> (AuditClient, LogCloser) {
        let config = Config {
            log_origin: Some(ORIGIN.to_owned()),
            witnesses: Some(WitnessSettings {
                policy_file: self.policy(quorum),
                private_addresses: true,
            }),
            ..Config::for_store(&store.url)
        };
        let callers = CallingProcesses::OtherProcesses;
        let service = wardgate_audit::service(config, keys(), callers, None, self.ambient.clone());
        let (service, closer) = service.await.unwrap();
        let audit = link::local(service, Peer::Gateway).link;
        (AuditClient::new(audit, Duration::from_mins(1)), closer)
    }
}

pub(crate) async fn append(audit: &AuditClient, count: usize) {
    for _ in 0..count {
        let record = outcome(&subject(), Status::Ok);
        audit.append(&record, false).await.unwrap();
    }
}

async fn size_of(store: &TestStore, kind: CheckpointKind) -> Option<u64> {
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let note = reader.checkpoint(kind).await.ok()?;
    Some(note.text().parse::<Checkpoint>().unwrap().head.size)
}

/// Waits until the newest checkpoint of `kind` covers `size` records.
pub(crate) async fn reaches(store: &TestStore, kind: CheckpointKind, size: u64) {
    let begun = Instant::now();
    while size_of(store, kind).await != Some(size) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{kind:?} {size}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Verifies an export of the newest checkpoint of `kind` with the policy.
pub(crate) async fn verify(
    store: &TestStore,
    policy: &str,
    kind: CheckpointKind,
) -> Result<u64, String> {
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let out = TempDir::new().unwrap();
    let exported = reader.export(out.path(), kind, |_, _| ()).await;
    exported.map_err(|error| error.to_string())?;
    let verifier = Verifier {
        policy: policy.parse::<TrustPolicy>().unwrap(),
        since: None,
        receipt: None,
    };
    let verified = verifier.verify(out.path(), |_, _| ());
    verified
        .map(|verified| verified.checkpoint.head.size)
        .map_err(|error| error.to_string())
}

async fn a9_the_quorum_of_witnesses_cosigns_the_newest_checkpoint(store: &TestStore) {
    let mut witnesses = TestWitnesses::new();
    witnesses.start("one", 11).await;
    witnesses.start("two", 12).await;
    let quorum = "group both all one two\nquorum both";
    let (audit, closer) = witnesses.service(store, quorum).await;
    append(&audit, 3).await;
    reaches(store, CheckpointKind::Cosigned, 3).await;
    append(&audit, 300).await;
    reaches(store, CheckpointKind::Cosigned, 303).await;
    let policy = fs::read_to_string(witnesses.policy(quorum)).unwrap();
    assert_eq!(
        verify(store, &policy, CheckpointKind::Cosigned).await,
        Ok(303)
    );
    // Neither the log's own signature nor two of three witnesses are a quorum.
    let refused = verify(store, &policy, CheckpointKind::Signed)
        .await
        .unwrap_err();
    assert!(
        refused.contains("not cosigned by the quorum both"),
        "{refused}"
    );
    let third = Witness::open(
        "witness.example/three",
        &log_key(13),
        vec![log_vkey()],
        &witnesses.files.path().join("three"),
        Ambient::system(),
    );
    let third = third.unwrap();
    let strict = format!(
        "{}witness three {}\ngroup all all one two three\nquorum all\n",
        witnesses.lines,
        third.verifier_key()
    );
    let refused = verify(store, &strict, CheckpointKind::Cosigned)
        .await
        .unwrap_err();
    assert!(
        refused.contains("not cosigned by the quorum all"),
        "{refused}"
    );
    // A new process does not know what the witnesses saw, and learns it from them.
    append(&audit, 1).await;
    closer.close().await;
    assert_eq!(size_of(store, CheckpointKind::Cosigned).await, Some(304));
    let (audit, closer) = witnesses.service(store, quorum).await;
    append(&audit, 5).await;
    reaches(store, CheckpointKind::Cosigned, 309).await;
    closer.close().await;
}

async fn a9_a_fork_shown_to_the_witness_is_never_cosigned(store: &TestStore) {
    let mut witnesses = TestWitnesses::new();
    witnesses.start("one", 11).await;
    let (audit, closer) = witnesses.service(store, "quorum one").await;
    append(&audit, 5).await;
    reaches(store, CheckpointKind::Cosigned, 5).await;
    closer.close().await;
    // A log with the same name and key has another history, which is first shorter, then as long, and then longer.
    let fork = TestStore::sqlite();
    let (audit, closer) = witnesses.service(&fork, "quorum one").await;
    for size in 1..=9 {
        append(&audit, 1).await;
        reaches(&fork, CheckpointKind::Signed, size).await;
    }
    closer.close().await;
    assert_eq!(size_of(&fork, CheckpointKind::Cosigned).await, None);
    let reader = RecordReader::open(&fork.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let refused = reader
        .checkpoint(CheckpointKind::Cosigned)
        .await
        .unwrap_err();
    assert!(matches!(refused, Error::NotCosigned), "{refused}");
    // The original log can continue.
    let (audit, closer) = witnesses.service(store, "quorum one").await;
    append(&audit, 1).await;
    reaches(store, CheckpointKind::Cosigned, 6).await;
    closer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a9_appends_and_checkpoints_wait_for_no_witness() {
    let store = TestStore::sqlite();
    let mut witnesses = TestWitnesses::new();
    witnesses.start("one", 11).await;
    // This witness accepts connections and never responds.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let key = Witness::open(
        "witness.example/silent",
        &log_key(12),
        vec![log_vkey()],
        &witnesses.files.path().join("silent"),
        Ambient::system(),
    );
    let key = key.unwrap().verifier_key().clone();
    witnesses.add("silent", &key, silent.local_addr().unwrap());
    let both = "group both all one silent\nquorum both";
    let (audit, closer) = witnesses.service(&store, both).await;
    for size in 1..=3 {
        append(&audit, 1).await;
        reaches(&store, CheckpointKind::Signed, size).await;
    }
    assert_eq!(size_of(&store, CheckpointKind::Cosigned).await, None);
    closer.close().await;
    // If one of both witnesses is sufficient, the silent one delays nothing.
    let any = "group both any one silent\nquorum both";
    let (audit, closer) = witnesses.service(&store, any).await;
    append(&audit, 1).await;
    reaches(&store, CheckpointKind::Cosigned, 4).await;
    closer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_cannot_be_used_ends_the_start() {
    let store = TestStore::sqlite();
    let files = TempDir::new().unwrap();
    let policy_file = files.path().join("policy");
    let other = Signer::from_pkcs8("example.com/other", &log_key(1)).unwrap();
    let others = format!("log {}\nquorum none\n", other.verifier_key());
    for (policy, problem) in [
        (None, "No such file"),
        (
            Some("quorum some\n"),
            "line 1: it uses a name that no earlier line defines",
        ),
        (
            Some(others.as_str()),
            "does not trust the log example.com/audit",
        ),
    ] {
        if let Some(policy) = policy {
            fs::write(&policy_file, policy).unwrap();
        }
        let config = Config {
            log_origin: Some(ORIGIN.to_owned()),
            witnesses: Some(WitnessSettings {
                policy_file: policy_file.clone(),
                private_addresses: true,
            }),
            ..Config::for_store(&store.url)
        };
        let callers = CallingProcesses::OtherProcesses;
        let service = wardgate_audit::service(config, keys(), callers, None, Ambient::system());
        let refused = service.await.err().unwrap().to_string();
        assert!(
            refused.starts_with("audit.witnesses.policy_file: "),
            "{refused}"
        );
        assert!(refused.contains(problem), "{refused}");
    }
}
