//! What `tests/faults/run` runs under faults of the disk: appends that say what was acknowledged, and a check without faults.
//!
//! `disk_faults append STORE COUNT` prints `acknowledged SEQUENCE LEAF_HASH` for each record, as soon as it is, and the
//! checkpoints that it sees; `disk_faults check STORE DIR < printed` starts the service again and wants all of that in it.

use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::signature::Ed25519KeyPair;
use futures::TryStreamExt;
use wardgate_audit::{
    AuditKeys, CallingProcesses, CheckpointKind, Config, DetailsKey, LogCloser, LogKey, MacKey,
    RecordReader, Verifier,
};
use wardgate_domain::{Ambient, Event, Record, RefusalCount, Refusals};
use wardgate_rpc::client::{AuditClient, AuditFilter, QueriedRecord};
use wardgate_rpc::{Peer, link};
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{Checkpoint, Signer, TrustPolicy};

type Failure = Box<dyn std::error::Error>;

const ORIGIN: &str = "example.com/faults";

/// Where in the directory a checkpoint is that was seen.
const KEPT: &str = "kept";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["append", store, count] => append(store, count.parse()?).await,
        ["check", store, directory] => Box::pin(check(store, Path::new(directory))).await,
        _ => Err("append STORE COUNT, or check STORE DIR".into()),
    }
}

fn key() -> Result<Vec<u8>, Failure> {
    Ok(Ed25519KeyPair::from_seed_unchecked(&[1; 32])?
        .to_pkcs8()?
        .as_ref()
        .to_vec())
}

async fn start(store: &str) -> Result<(AuditClient, LogCloser), Failure> {
    let keys = AuditKeys {
        mac: MacKey::from_bytes(&[7; 32]),
        log: LogKey::from_pkcs8(&key()?)?,
        details: DetailsKey::from_bytes(&[9; 32]),
    };
    let config = Config {
        log_origin: Some(ORIGIN.to_owned()),
        ..Config::for_store(store)
    };
    let callers = CallingProcesses::ThisProcess;
    let service = wardgate_audit::service(config, keys, callers, None, Ambient::system());
    let (service, closer) = service.await?;
    let link = link::local(service, Peer::Gateway).link;
    Ok((AuditClient::new(link, Duration::from_secs(1)), closer))
}

async fn append(store: &str, count: u64) -> Result<(), Failure> {
    let (audit, closer) = start(store).await?;
    let ambient = Ambient::system();
    for number in 1..=count {
        let counts = vec![RefusalCount {
            reason: "token_expired".to_owned(),
            client_ip: "192.0.2.7".to_owned(),
            subject: String::new(),
            count: number,
        }];
        let record = Record {
            time: ambient.now(),
            event: Event::Refusals(Refusals {
                window_start: ambient.now(),
                counts,
            }),
        };
        match audit.append(&record, false).await {
            Ok(receipt) => say(&format!(
                "acknowledged {} {}",
                receipt.sequence(),
                receipt.leaf_hash()
            ))?,
            Err(error) => say(&format!("refused {error}"))?,
        }
    }
    closer.close().await;
    let reader = RecordReader::open(store, &DatabaseSettings::default()).await?;
    if let Ok(note) = reader.checkpoint(CheckpointKind::Signed).await {
        let checkpoint: Checkpoint = note.text().parse()?;
        say(&format!("checkpoint {}", checkpoint.head.size))?;
    }
    Ok(())
}

/// Flushed, so that what was acknowledged is known whatever happens next.
fn say(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

async fn check(store: &str, directory: &Path) -> Result<(), Failure> {
    // What was signed before the service runs again must be of the history that it signs then.
    let reader = RecordReader::open(store, &DatabaseSettings::default()).await?;
    let before = reader.checkpoint(CheckpointKind::Signed).await?;
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join(KEPT), before.to_string())?;
    let (_, closer) = start(store).await?;
    closer.close().await;
    let records: Vec<_> = reader.query(AuditFilter::default())?.try_collect().await?;
    let mut acknowledged = 0;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if let ["acknowledged", sequence, hash] = line.split(' ').collect::<Vec<_>>()[..] {
            acknowledged += 1;
            let stored = records.get(sequence.parse::<usize>()?);
            let Some(QueriedRecord::Intact(stored)) = stored else {
                return Err(format!("record {sequence} was acknowledged and is not there").into());
            };
            if stored.sequence.to_string() != sequence || stored.leaf_hash.to_string() != hash {
                return Err(format!("record {sequence} is not the one acknowledged").into());
            }
        }
    }
    let export = directory.join("export");
    let exported = reader.export(&export, CheckpointKind::Signed, |_, _| ());
    let size = exported.await?.head.size;
    if size != records.len() as u64 {
        return Err(format!("the checkpoint has {size} of {} records", records.len()).into());
    }
    let log = Signer::from_pkcs8(ORIGIN, &key()?)?;
    let verifier = Verifier {
        policy: TrustPolicy::of_log(log.verifier_key().clone()),
        since: Some(directory.join(KEPT)),
        receipt: None,
    };
    verifier.verify(&export, |_, _| ())?;
    println!("{acknowledged} acknowledged, {size} in the log");
    Ok(())
}
