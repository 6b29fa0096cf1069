//! How long it takes to verify an exported log of so many records, and how much memory.
//!
//! `cargo run --release -p wardgate-audit --example verify_rate -- 10000000 /var/tmp/log`
//!
//! The directory, which is empty or not there, gets about 1.3 kB a record. The log is made without a store: its records are
//! of the size of a call's outcome, and one checkpoint is signed at its end. `verify_rate DIR` verifies one that was made before.

use std::path::Path;
use std::time::Instant;

use aws_lc_rs::signature::Ed25519KeyPair;
use bytes::Bytes;
use futures::stream;
use wardgate_audit::{Error, ExportDirectory, ExportPart, Verifier};
use wardgate_domain::Digest;
use wardgate_rpc::client::StoredRecord;
use wardgate_transparency::{Checkpoint, CompactTree, Signer, TrustPolicy, leaf_hash};

type Failure = Box<dyn std::error::Error>;

const ORIGIN: &str = "example.com/rate";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let key = Ed25519KeyPair::from_seed_unchecked(&[1; 32])?;
    let signer = Signer::from_pkcs8(ORIGIN, key.to_pkcs8()?.as_ref())?;
    let path = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [size, directory] => {
            let path = Path::new(directory);
            write(&signer, size.parse()?, path).await?;
            path
        }
        [directory] => Path::new(directory),
        _ => return Err("SIZE DIRECTORY, or DIRECTORY".into()),
    };
    let verifier = Verifier {
        policy: TrustPolicy::of_log(signer.verifier_key().clone()),
        since: None,
        receipt: None,
    };
    let started = Instant::now();
    let size = verifier.verify(path, |_, _| ())?.checkpoint.head.size;
    let seconds = started.elapsed().as_secs_f64();
    println!("{size} records verified in {seconds:.1} s; {}", memory()?);
    Ok(())
}

async fn write(signer: &Signer, size: u64, path: &Path) -> Result<(), Failure> {
    let mut tree = CompactTree::default();
    for sequence in 0..size {
        tree.append(leaf_hash(&record(sequence)), |_, _| ());
    }
    let checkpoint = Checkpoint {
        origin: ORIGIN.to_owned(),
        head: tree.head(),
    };
    let note = signer.sign(&checkpoint.to_string())?;
    let parts = (0..size).map(|sequence| {
        let record = Bytes::from(record(sequence));
        Ok::<_, Error>(ExportPart::Record(StoredRecord {
            sequence,
            leaf_hash: Digest::from_bytes(leaf_hash(&record)),
            record,
            details: None,
        }))
    });
    let directory = ExportDirectory::create(path)?;
    let started = Instant::now();
    directory
        .write(&note, stream::iter(parts), |_, _| ())
        .await?;
    println!("written in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// An outcome as the record has it.
fn record(sequence: u64) -> Vec<u8> {
    let hash = "5f85a1b27c4e1d90".repeat(4);
    format!(
        r#"{{"arguments_hmac":"{hash}","call_id":"019a7318-2b40-7000-8000-{sequence:012x}","caller":{{"issuer":"https://issuer.example","roles":["Doctor"],"subject":"dr.yenji","token_id":"t-1"}},"client_ip":"192.0.2.7","duration_us":1250,"event":"outcome","fields_redacted":24,"phi":true,"protocol":"2026-07-28","requested_tool":"get_patient_records","result_hmac":"{hash}","rows":12,"rows_withheld":3,"status":"ok","time":"2025-11-11T13:50:00.000042Z","tool":"get_medical_records","version":1,"violation":false}}"#
    )
    .into_bytes()
}

/// The most memory that this process had (Linux).
fn memory() -> Result<String, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most = status.lines().find(|line| line.starts_with("VmHWM"));
    Ok(most.unwrap_or_default().to_owned())
}
