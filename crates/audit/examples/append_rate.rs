//! How many durable appends a store takes a second, by how many callers wait at once.
//!
//! `cargo run --release -p wardgate-audit --example append_rate -- sqlite:/tmp/rate.sqlite postgres://…`
//!
//! Appends go the whole way from a client over a local link, so the figures include the messages.

use std::time::{Duration, Instant};

use aws_lc_rs::signature::Ed25519KeyPair;
use futures::future::join_all;
use wardgate_audit::{AuditKeys, CallingProcesses, Config, DetailsKey, LogKey, MacKey};
use wardgate_domain::{Ambient, CallFacts, CallId, Digest, Event, Outcome, Record, Status};
use wardgate_rpc::client::AuditClient;
use wardgate_rpc::{Peer, link};

/// How long each number of callers appends.
const SECONDS: usize = 5;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let ambient = Ambient::system();
    for store in std::env::args().skip(1) {
        let config = Config::for_store(store.as_str());
        let key = Ed25519KeyPair::from_seed_unchecked(&[1; 32])?;
        let service = wardgate_audit::service(
            config,
            AuditKeys {
                details: DetailsKey::from_bytes(&[9; 32]).into(),
                mac: MacKey::from_bytes(&[7; 32]),
                log: LogKey::from_pkcs8(key.to_pkcs8()?.as_ref())?,
            },
            CallingProcesses::ThisProcess,
            None,
            ambient.clone(),
        );
        let audit = link::local(service.await?.0, Peer::Gateway).link;
        let audit = AuditClient::new(audit, Duration::from_secs(1));
        println!("{}", store.split(':').next().unwrap_or_default());
        for waiters in [1, 16, 64] {
            let worked_before = processor_time()?;
            let waits = join_all((0..waiters).map(|_| {
                let (audit, ambient) = (audit.clone(), ambient.clone());
                tokio::spawn(append_for(
                    Duration::from_secs(SECONDS as u64),
                    audit,
                    ambient,
                ))
            }));
            let mut waits: Vec<_> = waits.await.into_iter().flatten().flatten().collect();
            let worked =
                processor_time()?.saturating_sub(worked_before) / u32::try_from(waits.len())?;
            let rate = waits.len() / SECONDS;
            waits.sort_unstable();
            let (p50, p99) = (waits[waits.len() / 2], waits[waits.len() * 99 / 100]);
            println!(
                "{waiters:>4} waiters {rate:>8} records/s   p50 {:>5} µs   p99 {:>6} µs   CPU {:>4} µs",
                p50.as_micros(),
                p99.as_micros(),
                worked.as_micros()
            );
        }
    }
    Ok(())
}

/// Processor time of this process so far (Linux counts it in hundredths of a second).
fn processor_time() -> Result<Duration, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<_> = stat
        .rsplit(") ")
        .next()
        .unwrap_or_default()
        .split(' ')
        .collect();
    let ticks = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// How long each append took.
async fn append_for(limit: Duration, audit: AuditClient, ambient: Ambient) -> Vec<Duration> {
    let begun = Instant::now();
    let mut waits = Vec::new();
    while begun.elapsed() < limit {
        let record = record(&ambient);
        let started = Instant::now();
        if audit.append(&record, false).await.is_ok() {
            waits.push(started.elapsed());
        }
    }
    waits
}

fn record(ambient: &Ambient) -> Record {
    let subject = CallFacts {
        call_id: CallId::new(ambient),
        issuer: "https://issuer.example".to_owned(),
        subject: "dr.yenji".to_owned(),
        tenant: String::new(),
        roles: vec!["Doctor".to_owned()],
        token_id: "019a7318-2b40-7000-8000-000000000001".to_owned(),
        client_ip: "192.0.2.7".to_owned(),
        protocol: "2026-07-28".to_owned(),
        requested_tool: "read_records".to_owned(),
        tool: "read_records".parse().ok(),
        definition_digest: Some(Digest::compute(b"definition")),
        tags: None,
        arguments_digest: Digest::compute(b"arguments"),
        decision_id: None,
        policy_hash: None,
        bundle: None,
        policies: Vec::new(),
        permit_id: None,
        method: String::new(),
        approval_id: None,
        conversation: None,
    };
    let outcome = Outcome {
        call: subject,
        status: Status::Ok,
        reason: String::new(),
        rows: 10,
        rows_withheld: 0,
        fields_redacted: 20,
        phi: true,
        result_digest: Some(Digest::compute(b"result")),
        duration: Duration::from_millis(2),
        details: None,
    };
    Record {
        time: ambient.now(),
        event: Event::Outcome(outcome),
    }
}
