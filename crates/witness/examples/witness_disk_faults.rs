//! The program that `tests/faults/run` and `tests/power/run` run under disk faults and power losses: a witness that
//! prints the checkpoints that it cosigned, and a check without faults.
//!
//! `witness_disk_faults cosign DIR COUNT` prints `cosigned SIZE` for each checkpoint.
//! `witness_disk_faults check DIR < printed` starts the witness again, and checks that it refuses every other history.

use std::io::{BufRead, Write};
use std::path::Path;

use aws_lc_rs::signature::Ed25519KeyPair;
use wardgate_domain::Ambient;
use wardgate_transparency::{
    Checkpoint, CheckpointSubmission, CompactTree, Hash, Node, Signer, consistency_path, leaf_hash,
};
use wardgate_witness::{Refusal, Witness};

type Failure = Box<dyn std::error::Error>;

const ORIGIN: &str = "example.com/faults";

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["cosign", directory, count] => cosign(Path::new(directory), count.parse()?),
        ["check", directory] => check(Path::new(directory)),
        _ => Err("cosign DIR COUNT, or check DIR".into()),
    }
}

fn key(seed: u8) -> Result<Vec<u8>, Failure> {
    Ok(Ed25519KeyPair::from_seed_unchecked(&[seed; 32])?
        .to_pkcs8()?
        .as_ref()
        .to_vec())
}

/// A log of numbered entries that belong to one history.
struct NumberedLog {
    signer: Signer,
    history: &'static str,
}

impl NumberedLog {
    fn new(history: &'static str) -> Result<Self, Failure> {
        let signer = Signer::from_pkcs8(ORIGIN, &key(1)?)?;
        Ok(Self { signer, history })
    }

    fn tree(&self, entries: std::ops::Range<u64>) -> CompactTree {
        let mut tree = CompactTree::default();
        for entry in entries {
            tree.append(
                leaf_hash(format!("{} {entry}", self.history).as_bytes()),
                |_, _| (),
            );
        }
        tree
    }

    fn submission(&self, old_size: u64, size: u64) -> Result<String, Failure> {
        let node = |node: Node| -> Result<Hash, Failure> {
            let first = node.index << node.height;
            Ok(self.tree(first..first + (1 << node.height)).head().root)
        };
        let checkpoint = Checkpoint {
            origin: ORIGIN.to_owned(),
            head: self.tree(0..size).head(),
        };
        let submission = CheckpointSubmission {
            old_size,
            path: consistency_path(old_size, size, node)?,
            checkpoint: self.signer.sign(&checkpoint.to_string())?,
        };
        Ok(submission.to_string())
    }
}

fn open(log: &NumberedLog, directory: &Path) -> Result<Witness, Failure> {
    let keys = vec![log.signer.verifier_key().clone()];
    let witness = Witness::open("w", &key(2)?, keys, directory, Ambient::system());
    Ok(witness?)
}

fn cosign(directory: &Path, count: u64) -> Result<(), Failure> {
    let log = NumberedLog::new("true")?;
    let witness = open(&log, directory)?;
    let mut seen = 0;
    for size in 1..=count {
        match witness.cosign(&log.submission(seen, size)?) {
            Ok(_) => {
                seen = size;
                let mut out = std::io::stdout().lock();
                writeln!(out, "cosigned {size}")?;
                out.flush()?;
            }
            Err(Refusal::NotStored) => {}
            Err(refusal) => return Err(refusal.into()),
        }
    }
    Ok(())
}

fn check(directory: &Path) -> Result<(), Failure> {
    let (log, fork) = (NumberedLog::new("true")?, NumberedLog::new("other")?);
    let mut cosigned = 0;
    for line in std::io::stdin().lock().lines() {
        if let Some(size) = line?.strip_prefix("cosigned ") {
            cosigned = size.parse()?;
        }
    }
    let witness = open(&log, directory)?;
    // The size that the witness reports as seen last must not be less than the size that it cosigned.
    let seen = match witness.cosign(&fork.submission(0, 1_000)?) {
        Err(Refusal::Conflict(seen)) => seen,
        Ok(_) if cosigned == 0 => {
            println!("nothing cosigned, nothing seen");
            return Ok(());
        }
        other => return Err(format!("a fork of {cosigned} was answered {other:?}").into()),
    };
    if seen < cosigned {
        return Err(format!("{cosigned} was cosigned, and {seen} is what was seen").into());
    }
    if witness.cosign(&fork.submission(seen, 1_000)?).is_ok() {
        return Err(format!("a fork behind {seen} was cosigned").into());
    }
    witness.cosign(&log.submission(seen, 1_000)?)?;
    println!("{cosigned} cosigned, {seen} seen");
    Ok(())
}
