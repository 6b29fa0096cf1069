//! An export of a thousand entries, of which nothing can be changed, for this verifier and for one in Python.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use wardgate_audit::Verifier;
use wardgate_transparency::{
    Checkpoint, CompactTree, Hash, Signer, TileSet, TlogProof, TrustPolicy, encode_entry,
    inclusion_path, leaf_hash, tiles_of_size,
};

use crate::support::log_key;

const ENTRIES: u64 = 1_000;

/// Proofs of which every byte is changed; of the others one byte each.
const WHOLE_PROOFS: u64 = 40;

fn signer() -> Signer {
    Signer::from_pkcs8("example.com/audit", &log_key(1)).unwrap()
}

fn entries() -> Vec<Vec<u8>> {
    (0..ENTRIES)
        .map(|index| format!("{{\"n\":{index}}}").into_bytes())
        .collect()
}

/// The levels of tiles over `entries`.
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

/// Files of `entries` that fit each other, beside the checkpoint that is in the directory already.
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

/// An export of [`ENTRIES`].
fn export() -> TempDir {
    let directory = TempDir::new().unwrap();
    let checkpoint = Checkpoint {
        origin: "example.com/audit".to_owned(),
        head: levels(&entries()).0.head(),
    };
    let note = signer().sign(&checkpoint.to_string()).unwrap();
    fs::write(directory.path().join("checkpoint"), note.to_string()).unwrap();
    write_files(directory.path(), &entries());
    directory
}

fn is_accepted(path: &Path) -> bool {
    let verifier = Verifier {
        policy: TrustPolicy::of_log(signer().verifier_key().clone()),
        since: None,
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

/// Changes a bit of every byte of every file, of those whose turn it is.
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
        // With an entry behind it too, so that there are as many.
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
        refuse(&replaced, "in place of the next", at);
    }
    write_files(export.path(), &entries);
    assert!(is_accepted(export.path()));
}

#[test]
fn a10_every_byte_of_a_proof_counts() {
    let entries = entries();
    let (tree, levels) = levels(&entries);
    let mut tiles = TileSet::default();
    for id in tiles_of_size(ENTRIES) {
        let hashes = &levels[usize::from(id.level())][range(&id.range())];
        tiles.insert(id, hashes.as_flattened()).unwrap();
    }
    let checkpoint = Checkpoint {
        origin: "example.com/audit".to_owned(),
        head: tree.head(),
    };
    let checkpoint = signer().sign(&checkpoint.to_string()).unwrap();
    let policy = TrustPolicy::of_log(signer().verifier_key().clone());
    let is_accepted = |bundle: &[u8], entry: &[u8]| {
        let proof = std::str::from_utf8(bundle).ok();
        let proof = proof.and_then(|text| text.parse::<TlogProof>().ok());
        proof.is_some_and(|proof| {
            proof.extra.as_deref() == Some(entry)
                && proof.verify(&leaf_hash(entry), &policy).is_ok()
        })
    };
    for (index, entry) in (0..).zip(&entries) {
        let proof = TlogProof {
            extra: Some(entry.clone()),
            index,
            path: inclusion_path(index, ENTRIES, |node| tiles.node(node)).unwrap(),
            checkpoint: checkpoint.clone(),
        };
        let bundle = proof.to_string().into_bytes();
        assert!(is_accepted(&bundle, entry), "proof {index}");
        let other = &entries[(usize::try_from(index).unwrap() + 1) % entries.len()];
        assert!(
            !is_accepted(&bundle, other),
            "proof {index} of another entry"
        );
        let whole = index % (ENTRIES / WHOLE_PROOFS) == 0;
        let pick = usize::try_from(index).unwrap() * 7 % bundle.len();
        for at in 0..bundle.len() {
            if whole || at == pick {
                let mut changed = bundle.clone();
                changed[at] ^= 1 << (at % 8);
                assert!(!is_accepted(&changed, entry), "byte {at} of proof {index}");
            }
        }
    }
}

/// The verifier in Python refuses a sample of the same: bytes of each file, and entries dropped, swapped and doubled.
#[test]
fn a10_the_verifier_in_python_refuses_what_was_changed_too() {
    let export = export();
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/journeys/tamper_log.py"
    );
    let key = signer().verifier_key().to_string();
    let run = Command::new("python3")
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .args([script, export.path().to_str().unwrap(), &key])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&run.stderr)
    );
    assert!(said.contains("forgeries refused"), "{said}");
}
