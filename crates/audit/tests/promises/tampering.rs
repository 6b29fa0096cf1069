//! Tests with a log of a thousand entries: the verifier in Rust and one in Python detect every change.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use wardgate_audit::Verifier;
use wardgate_transparency::{
    Checkpoint, CheckpointSubmission, CompactTree, Cosigner, Hash, SignedNote, Signer, TileSet,
    TlogProof, TrustPolicy, consistency_path, encode_entry, inclusion_path, leaf_hash,
    tiles_of_size,
};

use crate::support::log_key;

const ENTRIES: u64 = 1_000;

/// Sizes of older logs whose checkpoints were kept.
const OLDER: [u64; 9] = [0, 1, 2, 255, 256, 257, 512, 700, 999];

/// The entry that replaces another one in a fork.
const REPLACED: &[u8] = b"{\"n\":\"another record\"}";

/// Interval between the forks that are tested, and between the changes that the verifier in Python is tested with, unless an
/// environment variable sets another one. `make test-chaos` tests all.
const STEP: usize = 97;

fn step() -> usize {
    let step = std::env::var("FORGERY_STEP");
    step.map_or(STEP, |step| step.parse().expect("a number"))
}

fn signer() -> Signer {
    Signer::from_pkcs8("example.com/audit", &log_key(1)).unwrap()
}

fn entries() -> Vec<Vec<u8>> {
    (0..ENTRIES)
        .map(|index| format!("{{\"n\":{index}}}").into_bytes())
        .collect()
}

/// Returns the tree over `entries`, and the hashes of each level of tiles.
fn levels(entries: &[Vec<u8>]) -> (CompactTree, Vec<Vec<Hash>>) {
    let mut tree = CompactTree::default();
    let mut levels = vec![Vec::new()];
    for entry in entries {
        let leaf = leaf_hash(entry);
        levels[0].push(leaf);
        tree.append(leaf, |node, root| {
            if node.height % 8 == 0 {
                let level = usize::from(node.height / 8);
                levels.resize_with(levels.len().max(level + 1), Vec::new);
                levels[level].push(*root);
            }
        });
    }
    (tree, levels)
}

fn range(range: &std::ops::Range<u64>) -> std::ops::Range<usize> {
    usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()
}

/// Writes consistent files of `entries` beside the checkpoint that is already in the directory.
fn write_files(directory: &Path, entries: &[Vec<u8>]) {
    let (tree, levels) = levels(entries);
    let write = |path: String, bytes: &[u8]| {
        let path = directory.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    for id in tiles_of_size(tree.size()) {
        let hashes = &levels[usize::from(id.level())][range(&id.range())];
        write(id.path(), hashes.as_flattened());
        if id.level() == 0 {
            let mut bundle = Vec::new();
            for entry in &entries[range(&id.range())] {
                encode_entry(entry, &mut bundle).unwrap();
            }
            write(id.bundle_path(), &bundle);
        }
    }
    let mut lines = Vec::new();
    for (sequence, entry) in entries.iter().enumerate() {
        lines.extend_from_slice(format!("{{\"sequence\":{sequence},\"record\":").as_bytes());
        lines.extend_from_slice(entry);
        lines.extend_from_slice(b"}\n");
    }
    write("records.jsonl".to_owned(), &lines);
}

/// Returns the signed checkpoint of `entries`.
fn sign(entries: &[Vec<u8>]) -> SignedNote {
    let checkpoint = Checkpoint {
        origin: "example.com/audit".to_owned(),
        head: levels(entries).0.head(),
    };
    signer().sign(&checkpoint.to_string()).unwrap()
}

/// Returns `entries` with one entry replaced.
fn fork_entries(entries: &[Vec<u8>], at: usize) -> Vec<Vec<u8>> {
    let mut forked = entries.to_vec();
    forked[at] = REPLACED.to_vec();
    forked
}

/// Writes an export of `entries` with their checkpoint.
fn write_export(directory: &Path, entries: &[Vec<u8>]) {
    write_files(directory, entries);
    fs::write(directory.join("checkpoint"), sign(entries).to_string()).unwrap();
}

/// Creates an export of [`ENTRIES`] entries.
fn export() -> TempDir {
    let directory = TempDir::new().unwrap();
    write_export(directory.path(), &entries());
    directory
}

/// Returns the tiles of the tree over `entries`.
fn tiles(entries: &[Vec<u8>]) -> TileSet {
    let (tree, levels) = levels(entries);
    let mut tiles = TileSet::default();
    for id in tiles_of_size(tree.size()) {
        let hashes = &levels[usize::from(id.level())][range(&id.range())];
        tiles.insert(id, hashes.as_flattened()).unwrap();
    }
    tiles
}

/// Returns a proof of each of `entries`.
fn proofs(entries: &[Vec<u8>]) -> Vec<TlogProof> {
    let (tiles, checkpoint) = (tiles(entries), sign(entries));
    let size = entries.len() as u64;
    (0..)
        .zip(entries)
        .map(|(index, entry)| TlogProof {
            extra: Some(entry.clone()),
            index,
            path: inclusion_path(index, size, |node| tiles.node(node)).unwrap(),
            checkpoint: checkpoint.clone(),
        })
        .collect()
}

fn is_accepted(path: &Path) -> bool {
    is_accepted_since(path, None)
}

/// Returns whether an export is accepted, given an older checkpoint in a file.
fn is_accepted_since(path: &Path, since: Option<PathBuf>) -> bool {
    let verifier = Verifier {
        policy: TrustPolicy::of_log(signer().verifier_key().clone()),
        since,
        receipt: None,
    };
    verifier.verify(path, |_, _| ()).is_ok()
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let (mut files, mut pending) = (Vec::new(), vec![directory.to_owned()]);
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Changes a bit of every byte of every file, limited to the share of this `turn`.
fn flip_bytes(turn: u64, turns: u64) {
    let export = export();
    let mut seen = 0;
    for path in files(export.path()) {
        let original = fs::read(&path).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        for (at, byte) in (0..).zip(&original) {
            seen += 1;
            if seen % turns != turn {
                continue;
            }
            file.write_all_at(&[byte ^ (1 << (at % 8))], at).unwrap();
            assert!(
                !is_accepted(export.path()),
                "byte {at} of {}",
                path.display()
            );
            file.write_all_at(&[*byte], at).unwrap();
        }
    }
    assert!(seen > 70 * ENTRIES, "{seen} bytes");
    assert!(is_accepted(export.path()));
}

#[test]
fn a10_every_byte_of_an_export_of_a_thousand_entries_counts() {
    std::thread::scope(|threads| {
        for turn in 0..2 {
            threads.spawn(move || flip_bytes(turn, 2));
        }
    });
}

#[test]
fn a10_every_entry_of_a_thousand_counts_where_it_is() {
    let export = export();
    let entries = entries();
    let refuse = |forged: &[Vec<u8>], what: &str, at: usize| {
        write_files(export.path(), forged);
        assert!(!is_accepted(export.path()), "{what} {at}");
    };
    for at in 0..entries.len() {
        let next = (at + 1) % entries.len();
        let mut dropped = entries.clone();
        dropped.remove(at);
        // An entry is added at the end too, so that the number stays the same.
        refuse(&dropped, "dropped", at);
        dropped.push(b"{\"n\":1000}".to_vec());
        refuse(&dropped, "dropped and one added", at);
        let mut swapped = entries.clone();
        swapped.swap(at, next);
        refuse(&swapped, "swapped", at);
        let mut doubled = entries.clone();
        doubled.insert(at, entries[at].clone());
        refuse(&doubled, "doubled", at);
        let mut replaced = entries.clone();
        replaced[next] = entries[at].clone();
        refuse(&replaced, "instead of the next", at);
    }
    write_files(export.path(), &entries);
    assert!(is_accepted(export.path()));
}

/// Changes a bit of every byte of every proof, limited to the share of this `turn`.
fn flip_bytes_of_proofs(turn: usize, turns: usize) {
    let entries = entries();
    let policy = TrustPolicy::of_log(signer().verifier_key().clone());
    let is_accepted = |bundle: &[u8], entry: &[u8]| {
        let proof = std::str::from_utf8(bundle).ok();
        let proof = proof.and_then(|text| text.parse::<TlogProof>().ok());
        proof.is_some_and(|proof| {
            proof.extra.as_deref() == Some(entry)
                && proof.verify(&leaf_hash(entry), &policy).is_ok()
        })
    };
    let proofs = proofs(&entries);
    for index in (turn..entries.len()).step_by(turns) {
        let entry = &entries[index];
        let mut bundle = proofs[index].to_string().into_bytes();
        assert!(is_accepted(&bundle, entry), "proof {index}");
        let other = &entries[(index + 1) % entries.len()];
        assert!(
            !is_accepted(&bundle, other),
            "proof {index} of another entry"
        );
        for at in 0..bundle.len() {
            bundle[at] ^= 1 << (at % 8);
            assert!(!is_accepted(&bundle, entry), "byte {at} of proof {index}");
            bundle[at] ^= 1 << (at % 8);
        }
    }
}

#[test]
fn a10_every_byte_of_a_proof_counts() {
    std::thread::scope(|threads| {
        for turn in 0..2 {
            threads.spawn(move || flip_bytes_of_proofs(turn, 2));
        }
    });
}

#[test]
fn a10_an_older_log_and_a_fork_are_refused_by_who_kept_a_checkpoint() {
    let (entries, directory) = (entries(), TempDir::new().unwrap());
    let export = directory.path().join("export");
    let kept = |size: u64| directory.path().join(format!("kept-{size}"));
    let sizes = || OLDER.into_iter().chain([ENTRIES]);
    let of_size = |size: u64| &entries[..usize::try_from(size).unwrap()];
    for size in sizes() {
        fs::write(kept(size), sign(of_size(size)).to_string()).unwrap();
    }
    for served in sizes() {
        write_export(&export, of_size(served));
        for size in sizes() {
            let accepted = is_accepted_since(&export, Some(kept(size)));
            assert_eq!(accepted, size <= served, "{served} served, {size} kept");
        }
    }
    for at in (0..entries.len()).step_by(step()) {
        write_export(&export, &fork_entries(&entries, at));
        assert!(is_accepted(&export));
        for size in sizes() {
            let accepted = is_accepted_since(&export, Some(kept(size)));
            assert_eq!(accepted, size <= at as u64, "forked at {at}, {size} kept");
        }
    }
}

/// Returns checkpoints of all lengths of [`OLDER`], cosigned by two witnesses, and the policy that requires both.
fn cosigned_checkpoints(entries: &[Vec<u8>]) -> (Vec<SignedNote>, String) {
    let witness = |name: &str, seed| Cosigner::from_pkcs8(name, &log_key(seed)).unwrap();
    let witnesses = [
        witness("witness.example/w1", 2),
        witness("witness.example/w2", 3),
    ];
    let keys = witnesses.each_ref().map(Cosigner::verifier_key);
    let policy = format!(
        "log {}\nwitness w1 {}\nwitness w2 {}\ngroup both all w1 w2\nquorum both\n",
        signer().verifier_key(),
        keys[0],
        keys[1]
    );
    let notes = OLDER.map(|size| {
        let mut note = sign(&entries[..usize::try_from(size).unwrap()]);
        for witness in &witnesses {
            note.add(witness.cosign(&note, 1_762_869_000));
        }
        note
    });
    (notes.into(), policy)
}

/// Changes a bit of every byte of checkpoints whose policy requires the cosignatures of two witnesses.
#[test]
fn a10_every_byte_of_a_cosigned_checkpoint_counts() {
    let (notes, policy) = cosigned_checkpoints(&entries());
    let policy: TrustPolicy = policy.parse().unwrap();
    let is_accepted = |note: &[u8]| {
        let note = std::str::from_utf8(note).ok();
        let note = note.and_then(|text| text.parse::<SignedNote>().ok());
        note.is_some_and(|note| policy.verify(&note).is_ok())
    };
    for (size, note) in OLDER.into_iter().zip(notes) {
        let mut note = note.to_string().into_bytes();
        assert!(is_accepted(&note), "{size} records");
        for at in 0..note.len() {
            note[at] ^= 1 << (at % 8);
            assert!(!is_accepted(&note), "byte {at}, {size} records");
            note[at] ^= 1 << (at % 8);
            assert!(!is_accepted(&note[..at]), "cut off at {at}, {size} records");
        }
    }
}

/// Writes the files that `tamper_log.py` reads.
fn write_log(directory: &Path) {
    let entries = entries();
    write_export(&directory.join("export"), &entries);
    let write = |name: String, text: String| {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    for proof in proofs(&entries) {
        write(format!("proofs/{}", proof.index), proof.to_string());
    }
    let (notes, policy) = cosigned_checkpoints(&entries);
    write("policy".to_owned(), policy);
    for (size, note) in OLDER.into_iter().zip(notes) {
        write(format!("cosigned/{size}"), note.to_string());
    }
    for at in 0..entries.len() {
        let fork = sign(&fork_entries(&entries, at));
        write(format!("forks/{at}"), fork.to_string());
    }
    for (position, old_size) in OLDER.into_iter().enumerate() {
        let of_size = |size: u64| &entries[..usize::try_from(size).unwrap()];
        let older = sign(of_size(old_size));
        write(format!("older/{old_size}"), older.to_string());
        for new_size in OLDER.into_iter().skip(position).chain([ENTRIES]) {
            let tiles = tiles(of_size(new_size));
            let submission = CheckpointSubmission {
                old_size,
                path: consistency_path(old_size, new_size, |node| tiles.node(node)).unwrap(),
                checkpoint: sign(of_size(new_size)),
            };
            write(
                format!("submissions/{old_size}-{new_size}"),
                submission.to_string(),
            );
        }
    }
}

/// The verifier in Python refuses the same changes: changed bytes of files, proofs, submissions and cosigned checkpoints, entries
/// that are removed, swapped or doubled, older logs, and forks.
#[test]
fn a10_the_verifier_in_python_refuses_what_was_changed_too() {
    let directory = TempDir::new().unwrap();
    write_log(directory.path());
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/journeys/tamper_log.py"
    );
    let key = signer().verifier_key().to_string();
    let run = Command::new("python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args([script, directory.path().to_str().unwrap(), &key])
        .args(["--step", &step().to_string()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert!(said.contains("forgeries refused"), "{said}");
    print!("{said}");
}
