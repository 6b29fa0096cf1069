//! How long it takes to verify an exported log of so many records, and how much memory.
//!
//! `verify_rate write SIZE DIR` makes such a log in a directory that is empty or not there, about 1.3 kB a record, and without a
//! store: its records are of the size of a call's outcome, and one checkpoint is signed at its end. `verify_rate verify DIR`
//! verifies it, and ends with 1 where that takes longer, or more memory, than it may. `make bench-verify` runs both.

use std::path::Path;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::Ed25519KeyPair;
use bytes::Bytes;
use futures::stream;
use nix::sys::resource::{UsageWho, getrusage};
use wardgate_audit::{Error, ExportDirectory, ExportPart, Verifier};
use wardgate_domain::Digest;
use wardgate_rpc::client::StoredRecord;
use wardgate_transparency::{Checkpoint, CompactTree, Signer, TrustPolicy, leaf_hash};

type Failure = Box<dyn std::error::Error>;

const ORIGIN: &str = "example.com/rate";

/// How much processor time one record may take: ten million take a minute.
const LIMIT: Duration = Duration::from_micros(6);

/// How much memory a log of any size may take, in KiB.
const MEMORY_LIMIT: u64 = 256 * 1_024;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let key = Ed25519KeyPair::from_seed_unchecked(&[1; 32])?;
    let signer = Signer::from_pkcs8(ORIGIN, key.to_pkcs8()?.as_ref())?;
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["write", size, directory] => write(&signer, size.parse()?, Path::new(directory)).await,
        ["verify", directory] => verify(&signer, Path::new(directory)),
        _ => Err("write SIZE DIRECTORY, or verify DIRECTORY".into()),
    }
}

fn verify(signer: &Signer, path: &Path) -> Result<(), Failure> {
    let verifier = Verifier {
        policy: TrustPolicy::of_log(signer.verifier_key().clone()),
        since: None,
        receipt: None,
    };
    let started = Instant::now();
    let size = verifier.verify(path, |_, _| ())?.checkpoint.head.size;
    let (elapsed, spent) = (started.elapsed().as_secs_f64(), processor_time()?);
    let (seconds, memory) = (spent.as_secs_f64(), most_memory()?);
    println!(
        "{size} records verified in {elapsed:.2} s, with {seconds:.2} s of processor time and {memory} KiB of memory"
    );
    if spent > LIMIT * u32::try_from(size)? {
        return Err(format!("a record takes longer than {LIMIT:?}").into());
    }
    if memory >= MEMORY_LIMIT {
        return Err(format!("it takes {MEMORY_LIMIT} KiB of memory or more").into());
    }
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

/// Processor time so far.
fn processor_time() -> Result<Duration, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let time = usage.user_time() + usage.system_time();
    let (seconds, micros) = (time.tv_sec().try_into()?, time.tv_usec().try_into()?);
    Ok(Duration::from_secs(seconds) + Duration::from_micros(micros))
}

/// The most memory that this process had, in KiB (Linux).
fn most_memory() -> Result<u64, Failure> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let most = most.and_then(|most| most.split_whitespace().next());
    Ok(most.ok_or("/proc/self/status has no VmHWM")?.parse()?)
}
