//! What `tests/faults/run` runs under faults of the disk, and `tests/power/run` under losses of power: appends that say what was
//! acknowledged, and a check without faults.
//!
//! `disk_faults append STORE COUNT [COPY]` prints `acknowledged SEQUENCE LEAF_HASH` for each record, as soon as it is, and
//! `checkpoint SIZE ROOT` for the newest one that was signed; `disk_faults check STORE DIR [COPY] < printed` wants all records in the
//! second copy as it was left, starts the service again, and wants all of them in the store, in the history of each
//! checkpoint, and in a copy that verifies.

use std::collections::HashSet;
use std::io::{BufRead, Write};
use std::path::Path;
use std::time::Duration;

use aws_lc_rs::signature::Ed25519KeyPair;
use futures::TryStreamExt;
use serde_json::value::RawValue;
use wardgate_audit::{
    AuditKeys, CallingProcesses, CheckpointKind, Config, DetailsKey, LogCloser, LogKey, MacKey,
    RecordReader, Verifier,
};
use wardgate_domain::{Ambient, Digest, Event, Record, RefusalCount, Refusals};
use wardgate_rpc::client::{AuditClient, AuditFilter, QueriedRecord, StoredRecord};
use wardgate_rpc::{Peer, link};
use wardgate_store::DatabaseSettings;
use wardgate_transparency::{Checkpoint, CompactTree, Signer, TrustPolicy, leaf_hash};

type Failure = Box<dyn std::error::Error>;

const ORIGIN: &str = "example.com/faults";

/// Where in the directory a checkpoint is that was seen.
const KEPT: &str = "kept";

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["append", store, count] => append(&StorePaths { store, copy: None }, count.parse()?).await,
        ["append", store, count, copy] => {
            append(&StorePaths::with_copy(store, copy), count.parse()?).await
        }
        ["check", store, directory] => {
            Box::pin(check(
                &StorePaths { store, copy: None },
                Path::new(directory),
            ))
            .await
        }
        ["check", store, directory, copy] => {
            Box::pin(check(
                &StorePaths::with_copy(store, copy),
                Path::new(directory),
            ))
            .await
        }
        _ => Err("append STORE COUNT [COPY], or check STORE DIR [COPY]".into()),
    }
}

/// Where records are kept.
struct StorePaths<'a> {
    store: &'a str,
    copy: Option<&'a Path>,
}

impl<'a> StorePaths<'a> {
    fn with_copy(store: &'a str, copy: &'a str) -> Self {
        let copy = Some(Path::new(copy));
        Self { store, copy }
    }
}

fn key() -> Result<Vec<u8>, Failure> {
    Ok(Ed25519KeyPair::from_seed_unchecked(&[1; 32])?
        .to_pkcs8()?
        .as_ref()
        .to_vec())
}

async fn start(places: &StorePaths<'_>) -> Result<(AuditClient, LogCloser), Failure> {
    let keys = AuditKeys {
        mac: MacKey::from_bytes(&[7; 32]),
        log: LogKey::from_pkcs8(&key()?)?,
        details: DetailsKey::from_bytes(&[9; 32]).into(),
    };
    let config = Config {
        log_origin: Some(ORIGIN.to_owned()),
        second_copy_dir: places.copy.map(Path::to_owned),
        ..Config::for_store(places.store)
    };
    let callers = CallingProcesses::ThisProcess;
    let service = wardgate_audit::service(config, keys, callers, None, Ambient::system());
    let (service, closer) = service.await?;
    let link = link::local(service, Peer::Gateway).link;
    Ok((AuditClient::new(link, Duration::from_secs(1)), closer))
}

async fn append(places: &StorePaths<'_>, count: u64) -> Result<(), Failure> {
    let (audit, closer) = start(places).await?;
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
            Ok(receipt) => print_line(&format!(
                "acknowledged {} {}",
                receipt.sequence(),
                receipt.leaf_hash()
            ))?,
            Err(error) => print_line(&format!("refused {error}"))?,
        }
        say_checkpoint(places).await?;
    }
    closer.close().await;
    say_checkpoint(places).await
}

/// Where the store can be read: who reads it may keep what it was shown.
async fn say_checkpoint(places: &StorePaths<'_>) -> Result<(), Failure> {
    let Ok(reader) = RecordReader::open(places.store, &DatabaseSettings::default()).await else {
        return Ok(());
    };
    if let Ok(note) = reader.checkpoint(CheckpointKind::Signed).await {
        let Checkpoint { head, .. } = note.text().parse()?;
        let root = Digest::from_bytes(head.root);
        print_line(&format!("checkpoint {} {root}", head.size))?;
    }
    Ok(())
}

/// Flushed, so that what was acknowledged is known whatever happens next.
fn print_line(line: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// The leaf hashes of the records in a second copy, as `SEQUENCE LEAF_HASH`.
fn read_copied_hashes(directory: &Path) -> Result<HashSet<String>, Failure> {
    #[derive(serde::Deserialize)]
    struct Line<'a> {
        sequence: u64,
        #[serde(borrow)]
        record: &'a RawValue,
    }
    let mut found = HashSet::new();
    for file in std::fs::read_dir(directory)? {
        let path = file?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "jsonl")
        {
            // The last line may be one that a fault cut off.
            let text = std::fs::read_to_string(path)?;
            let lines = text
                .lines()
                .filter_map(|line| serde_json::from_str(line).ok());
            found.extend(lines.map(|Line { sequence, record }| {
                let hash = leaf_hash(record.get().as_bytes());
                format!("{sequence} {}", Digest::from_bytes(hash))
            }));
        }
    }
    Ok(found)
}

async fn check(places: &StorePaths<'_>, directory: &Path) -> Result<(), Failure> {
    let lines: Vec<_> = std::io::stdin().lock().lines().collect::<Result<_, _>>()?;
    if let Some(copy) = places.copy {
        let copied = read_copied_hashes(copy)?;
        let acknowledged = lines
            .iter()
            .filter_map(|line| line.strip_prefix("acknowledged "));
        if let Some(missing) = acknowledged.into_iter().find(|it| !copied.contains(*it)) {
            return Err(format!("{missing} was acknowledged and is not in the copy").into());
        }
    }
    // What was signed before the service runs again must be of the history that it signs then.
    let reader = RecordReader::open(places.store, &DatabaseSettings::default()).await?;
    let before = reader.checkpoint(CheckpointKind::Signed).await?;
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join(KEPT), before.to_string())?;
    let (_, closer) = start(places).await?;
    closer.close().await;
    let records: Vec<_> = reader.query(AuditFilter::default())?.try_collect().await?;
    let stored: Vec<_> = records
        .into_iter()
        .map(|record| match record {
            QueriedRecord::Intact(stored) => Ok(stored),
            QueriedRecord::Damaged(damage) => Err(damage.to_string()),
        })
        .collect::<Result<_, _>>()?;
    let acknowledged = check_printed(&lines, &stored)?;
    let export = directory.join("export");
    let exported = reader.export(&export, CheckpointKind::Signed, |_, _| ());
    let size = exported.await?.head.size;
    if size != stored.len() as u64 {
        return Err(format!("the checkpoint has {size} of {} records", stored.len()).into());
    }
    let log = Signer::from_pkcs8(ORIGIN, &key()?)?;
    let verifier = Verifier {
        policy: TrustPolicy::of_log(log.verifier_key().clone()),
        since: Some(directory.join(KEPT)),
        receipt: None,
    };
    verifier.verify(&export, |_, _| ())?;
    if let Some(copy) = places.copy {
        let copied = verifier.verify(copy, |_, _| ())?.checkpoint.head.size;
        if copied != size {
            return Err(format!("the copy's checkpoint has {copied} of {size} records").into());
        }
    }
    println!("{acknowledged} acknowledged, {size} in the log");
    Ok(())
}

/// Wants the records and checkpoints that were printed among those that are stored; gives the number of records.
fn check_printed(lines: &[String], stored: &[StoredRecord]) -> Result<usize, Failure> {
    let mut roots = Vec::new();
    let mut tree = CompactTree::default();
    for record in stored {
        roots.push(tree.head().root);
        tree.append(*record.leaf_hash.as_bytes(), |_, _| ());
    }
    roots.push(tree.head().root);
    let mut acknowledged = 0;
    for line in lines {
        match line.split(' ').collect::<Vec<_>>()[..] {
            ["acknowledged", sequence, hash] => {
                acknowledged += 1;
                let Some(found) = stored.get(sequence.parse::<usize>()?) else {
                    return Err(
                        format!("record {sequence} was acknowledged and is not there").into(),
                    );
                };
                if found.sequence.to_string() != sequence || found.leaf_hash.to_string() != hash {
                    return Err(format!("record {sequence} is not the one acknowledged").into());
                }
            }
            ["checkpoint", size, root] => {
                let of_size = roots.get(size.parse::<usize>()?);
                if of_size.is_none_or(|found| Digest::from_bytes(*found).to_string() != root) {
                    return Err(format!("the checkpoint of {size} is not of this history").into());
                }
            }
            _ => {}
        }
    }
    Ok(acknowledged)
}
