//! Tests of the witness: it cosigns one history of each log, whatever the log submits and whenever the witness is killed.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking, in its helpers too"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Barrier};

use aws_lc_rs::signature::Ed25519KeyPair;
use axum::body::Body;
use http::{Request, StatusCode};
use tempfile::TempDir;
use tower::ServiceExt;
use wardgate_domain::Ambient;
use wardgate_transparency::{
    Checkpoint, CheckpointSubmission, CompactTree, Hash, Node, Signer, TreeHead, TrustPolicy,
    VerifierKey, consistency_path, leaf_hash,
};
use wardgate_witness::{Error, Refusal, Witness, router};

const ORIGIN: &str = "example.com/audit";

fn key(seed: u8) -> Vec<u8> {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
    pair.to_pkcs8().unwrap().as_ref().to_vec()
}

/// A log whose entries from index `fork` on differ from those of a log without a fork.
struct TestLog {
    signer: Signer,
    leaves: Vec<Hash>,
}

impl TestLog {
    fn new(fork: usize) -> Self {
        Self::with_origin(ORIGIN, 1, fork)
    }

    fn with_origin(origin: &str, seed: u8, fork: usize) -> Self {
        let entry = |index: usize| {
            let history = if index < fork { "" } else { "another " };
            format!("{history}entry {index}")
        };
        Self {
            signer: Signer::from_pkcs8(origin, &key(seed)).unwrap(),
            leaves: (0..300)
                .map(|index| leaf_hash(entry(index).as_bytes()))
                .collect(),
        }
    }

    fn root(&self, from: usize, to: usize) -> Hash {
        let mut tree = CompactTree::default();
        for leaf in &self.leaves[from..to] {
            tree.append(*leaf, |_, _| ());
        }
        tree.head().root
    }

    fn head(&self, size: u64) -> TreeHead {
        let root = self.root(0, usize::try_from(size).unwrap());
        TreeHead { size, root }
    }

    fn node(&self, node: Node) -> Hash {
        let first = usize::try_from(node.index << node.height).unwrap();
        self.root(first, first + (1 << node.height))
    }

    fn submission(&self, old: u64, new: u64) -> CheckpointSubmission {
        let checkpoint = Checkpoint {
            origin: self.signer.verifier_key().name().to_owned(),
            head: self.head(new),
        };
        let path = if old <= new {
            consistency_path(old, new, |node| {
                Ok::<_, wardgate_transparency::Error>(self.node(node))
            })
            .unwrap()
        } else {
            Vec::new()
        };
        CheckpointSubmission {
            old_size: old,
            path,
            checkpoint: self.signer.sign(&checkpoint.to_string()).unwrap(),
        }
    }

    fn submit(&self, witness: &Witness, old: u64, new: u64) -> Result<(), Refusal> {
        let submission = self.submission(old, new);
        let cosignature = witness.cosign(&submission.to_string())?;
        let mut note = submission.checkpoint;
        note.add(cosignature);
        witness.verifier_key().verify(&note).unwrap();
        Ok(())
    }
}

fn open(directory: &Path) -> Result<Witness, Error> {
    let log = TestLog::new(usize::MAX);
    let keys = vec![log.signer.verifier_key().clone()];
    let ambient = Ambient::system();
    Witness::open("witness.example/w1", &key(2), keys, directory, ambient)
}

#[test]
fn a9_a_checkpoint_is_cosigned_that_continues_the_one_that_was_seen() {
    let directory = TempDir::new().unwrap();
    let witness = open(directory.path()).unwrap();
    let log = TestLog::new(usize::MAX);
    let steps = [0, 0, 1, 1, 2, 3, 8, 8, 100, 256, 257, 300];
    let mut seen = 0;
    for size in steps {
        log.submit(&witness, seen, size).unwrap();
        seen = size;
    }
}

#[test]
fn a9_a_fork_an_older_tree_and_a_tree_without_proof_are_refused() {
    let directory = TempDir::new().unwrap();
    let witness = open(directory.path()).unwrap();
    let (log, fork) = (TestLog::new(usize::MAX), TestLog::new(150));
    log.submit(&witness, 0, 200).unwrap();
    // Refused are: the same size with another root, another history, an older checkpoint, and an old size that is not the last
    // one.
    assert_eq!(fork.submit(&witness, 200, 200), Err(Refusal::Conflict(200)));
    for size in 201..=300 {
        let refused = fork.submit(&witness, 200, size).unwrap_err();
        assert!(matches!(refused, Refusal::Inconsistent(_)), "{refused:?}");
    }
    for old in [0, 1, 100, 199] {
        assert_eq!(log.submit(&witness, old, 199), Err(Refusal::Conflict(200)));
        assert_eq!(log.submit(&witness, old, 300), Err(Refusal::Conflict(200)));
    }
    let mut without = log.submission(200, 300);
    without.path.clear();
    let refused = witness.cosign(&without.to_string()).unwrap_err();
    assert!(matches!(refused, Refusal::Inconsistent(_)), "{refused:?}");
    // The refused submissions have not changed the state of the witness.
    log.submit(&witness, 200, 300).unwrap();
}

#[test]
fn a9_of_two_histories_that_are_submitted_at_once_one_is_cosigned() {
    let logs = [TestLog::new(usize::MAX), TestLog::new(150)];
    let submissions = logs
        .each_ref()
        .map(|log| log.submission(100, 200).to_string());
    for round in 0..20 {
        let directory = TempDir::new().unwrap();
        let witness = open(directory.path()).unwrap();
        logs[0].submit(&witness, 0, 100).unwrap();
        let start = Barrier::new(submissions.len());
        let cosigned = std::thread::scope(|threads| {
            let (witness, start) = (&witness, &start);
            let running = submissions.each_ref().map(|submission| {
                threads.spawn(move || {
                    start.wait();
                    witness.cosign(submission).is_ok()
                })
            });
            running.map(|thread| thread.join().unwrap())
        });
        let count = cosigned.iter().filter(|cosigned| **cosigned).count();
        assert_eq!(count, 1, "round {round}: {cosigned:?}");
    }
}

#[test]
fn a9_what_a_witness_saw_outlives_it_and_damage_to_it_is_not_taken_for_a_new_log() {
    let directory = TempDir::new().unwrap();
    let (log, fork) = (TestLog::new(usize::MAX), TestLog::new(150));
    log.submit(&open(directory.path()).unwrap(), 0, 200)
        .unwrap();
    let witness = open(directory.path()).unwrap();
    assert_eq!(fork.submit(&witness, 0, 180), Err(Refusal::Conflict(200)));
    let in_use = open(directory.path()).unwrap_err();
    assert!(matches!(in_use, Error::InUse(_)), "{in_use}");
    drop(witness);
    let mut files = fs::read_dir(directory.path()).unwrap();
    let file = files.find_map(|file| {
        let path = file.unwrap().path();
        path.extension()
            .is_some_and(|it| it == "checkpoint")
            .then_some(path)
    });
    let file = file.unwrap();
    let whole = fs::read(&file).unwrap();
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        for damaged in [changed, whole[..at].to_vec()] {
            // The file is verified by the cosignature of the witness, not by the signature of the log, which may be damaged.
            fs::write(&file, &damaged).unwrap();
            if let Ok(opened) = open(directory.path()) {
                assert_eq!(fork.submit(&opened, 0, 180), Err(Refusal::Conflict(200)));
            }
        }
    }
    fs::write(&file, &whole).unwrap();
    log.submit(&open(directory.path()).unwrap(), 200, 201)
        .unwrap();
}

#[test]
fn a9_nothing_is_cosigned_that_cannot_be_stored() {
    let parent = TempDir::new().unwrap();
    let directory = parent.path().join("seen");
    let witness = open(&directory).unwrap();
    let log = TestLog::new(usize::MAX);
    log.submit(&witness, 0, 10).unwrap();
    // A directory takes the place of the new file, because even root cannot write to it.
    let mut files = fs::read_dir(&directory).unwrap();
    let file = files.find_map(|file| {
        let path = file.unwrap().path();
        path.extension()
            .is_some_and(|it| it == "checkpoint")
            .then_some(path)
    });
    let obstacle = file.unwrap().with_extension("new");
    fs::create_dir(&obstacle).unwrap();
    assert_eq!(log.submit(&witness, 10, 20), Err(Refusal::NotStored));
    assert_eq!(log.submit(&witness, 20, 30), Err(Refusal::Conflict(10)));
    fs::remove_dir(&obstacle).unwrap();
    log.submit(&witness, 10, 20).unwrap();
    let mode = fs::metadata(&directory).unwrap().permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
}

#[test]
fn what_cannot_be_a_witness_is_said_at_the_start() {
    let directory = TempDir::new().unwrap();
    let start = |name: &str, key: &[u8], keys: Vec<VerifierKey>| {
        Witness::open(name, key, keys, directory.path(), Ambient::system()).unwrap_err()
    };
    let log = TestLog::new(0).signer.verifier_key().clone();
    let no_log = start("w", &key(2), Vec::new());
    assert!(matches!(no_log, Error::NoLog), "{no_log}");
    let unfit = start("a witness", &key(2), vec![log.clone()]);
    assert!(matches!(unfit, Error::Key(_)), "{unfit}");
    let unfit = start("w", b"no key", vec![log]);
    assert!(matches!(unfit, Error::Key(_)), "{unfit}");
    let witness = open(directory.path()).unwrap().verifier_key().clone();
    let unfit = start("w", &key(2), vec![witness]);
    assert!(matches!(unfit, Error::NotALog(_)), "{unfit}");
}

#[tokio::test]
async fn every_refusal_has_the_status_of_the_specification() {
    let directory = TempDir::new().unwrap();
    let witness = Arc::new(open(directory.path()).unwrap());
    let (log, fork) = (TestLog::new(usize::MAX), TestLog::new(3));
    let stranger = TestLog::with_origin("example.com/other", 1, usize::MAX);
    let forged = TestLog::with_origin(ORIGIN, 9, usize::MAX);
    let mut extended = log.submission(5, 6).to_string();
    extended.push('x');
    let many = format!(
        "old 5\n{}\n{}",
        "AAAA\n".repeat(64),
        log.submission(5, 6).checkpoint
    );
    for (body, status, said) in [
        (
            log.submission(0, 5).to_string(),
            200,
            "\u{2014} witness.example/w1 ",
        ),
        (
            log.submission(5, 5).to_string(),
            200,
            "\u{2014} witness.example/w1 ",
        ),
        (String::new(), 400, "not a submission"),
        (extended, 400, "not a signed note"),
        (many, 400, "not a submission"),
        (log.submission(7, 6).to_string(), 400, "does not begin with"),
        (forged.submission(5, 6).to_string(), 403, "is not signed by"),
        (
            stranger.submission(0, 5).to_string(),
            404,
            "is not configured",
        ),
        (log.submission(4, 6).to_string(), 409, "5\n"),
        (fork.submission(5, 5).to_string(), 409, "5\n"),
        (
            fork.submission(5, 6).to_string(),
            422,
            "does not begin with",
        ),
        ("x".repeat(80 * 1_024), 413, "larger than"),
    ] {
        let request = Request::post("/add-checkpoint").body(Body::from(body.clone()));
        let response = router(&witness).oneshot(request.unwrap()).await.unwrap();
        let kind = response.headers().get("content-type").cloned();
        assert_eq!(response.status().as_u16(), status, "{body}");
        if response.status() == StatusCode::CONFLICT {
            assert_eq!(kind.unwrap(), "text/x.tlog.size");
        }
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20)
            .await
            .unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        assert!(text.contains(said), "{status}: {text}");
    }
    let get = Request::get("/add-checkpoint").body(Body::empty()).unwrap();
    let response = router(&witness).oneshot(get).await.unwrap();
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
}

/// The cosignature of the witness satisfies the policy of a verifier.
#[test]
fn a_quorum_is_reached_by_its_cosignature_and_by_no_other() {
    let directory = TempDir::new().unwrap();
    let witness = open(directory.path()).unwrap();
    let log = TestLog::new(usize::MAX);
    let submission = log.submission(0, 5);
    let cosignature = witness.cosign(&submission.to_string()).unwrap();
    let policy = format!(
        "log {}\nwitness own {}\nquorum own\n",
        log.signer.verifier_key(),
        witness.verifier_key()
    );
    let policy: TrustPolicy = policy.parse().unwrap();
    let mut note = submission.checkpoint;
    let missing = policy.verify(&note).unwrap_err();
    assert_eq!(
        missing,
        wardgate_transparency::Error::Quorum("own".to_owned())
    );
    note.add(cosignature);
    assert_eq!(policy.verify(&note).unwrap().head, log.head(5));
}
