//! Tests of appends to an audit service in another process.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use wardgate_domain::{AdminChange, Ambient, Event, Receipt, Record};
use wardgate_proto::common::v1::ErrorReason;

use super::world::{FakeResolver, RunningReplica};
use super::{ready, until};
use crate::client::{AuditClient, CallError};
use crate::deadline;
use crate::link::SILENT;

/// A time limit that no append reaches.
const AMPLE: Duration = Duration::from_secs(20);

/// Starts `count` replicas, and returns them with a client whose appends may take `limit`.
async fn start_replicas(count: usize, limit: Duration) -> (Vec<RunningReplica>, AuditClient) {
    let replicas = std::iter::repeat_with(RunningReplica::audit).take(count);
    let replicas: Vec<_> = replicas.collect();
    let mut neighbour = FakeResolver::for_replicas(&replicas).link();
    ready(&mut neighbour).await;
    (replicas, AuditClient::new(neighbour.link.transport, limit))
}

fn record(target: &str) -> Record {
    Record {
        time: Ambient::system().now(),
        event: Event::AdminChange(AdminChange {
            actor: "op".to_owned(),
            action: "tool.off".to_owned(),
            target: target.to_owned(),
            ..AdminChange::default()
        }),
    }
}

async fn append(client: &AuditClient, target: &str) -> Result<Receipt, CallError> {
    client.append_shared(&Arc::new(record(target)), false).await
}

/// Returns the targets of the records that `replica` appended, each with `retry`.
fn appended_records(replica: &RunningReplica) -> Vec<(String, bool)> {
    let appended = replica.behaviour.appended.lock().unwrap();
    let targets = appended.iter().map(|(record, retry)| match &record.event {
        Event::AdminChange(change) => (change.target.clone(), *retry),
        other => panic!("{other:?}"),
    });
    targets.collect()
}

#[tokio::test]
async fn many_records_share_a_call_and_each_gets_its_own_receipt() {
    let (replicas, client) = start_replicas(1, AMPLE).await;
    let targets: Vec<_> = (0..500).map(|at| at.to_string()).collect();
    let receipts = join_all(targets.iter().map(|target| append(&client, target))).await;
    let stored = appended_records(&replicas[0]);
    assert_eq!(stored.len(), targets.len());
    for (target, receipt) in targets.iter().zip(receipts) {
        let at = usize::try_from(receipt.unwrap().sequence()).unwrap();
        assert_eq!(stored[at], (target.clone(), false));
    }
    let calls = replicas[0].behaviour.appends.load(Ordering::Relaxed);
    assert!(calls < 10, "{calls} calls");
}

#[tokio::test]
async fn an_error_of_one_record_is_the_result_of_this_record_only() {
    let (replicas, client) = start_replicas(1, AMPLE).await;
    let not_durable = crate::status::with_reason(ErrorReason::NotDurable, "the disk is full");
    replicas[0].refuse(Some(not_durable));
    let error = append(&client, "refused").await.unwrap_err();
    assert_eq!(error.reason(), ErrorReason::NotDurable);
    assert_eq!(error.to_string(), "the disk is full");
    replicas[0].refuse(None);
    append(&client, "stored").await.unwrap();
    assert_eq!(
        appended_records(&replicas[0]),
        [("stored".to_owned(), false)]
    );
}

#[tokio::test]
async fn records_without_a_result_are_sent_again_to_another_replica() {
    let (mut replicas, client) = start_replicas(2, AMPLE).await;
    for replica in &replicas {
        *replica.behaviour.pause.lock().unwrap() = AMPLE;
    }
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { append(&client, "waits").await }
    });
    let received = async || replicas.iter().position(|replica| replica.calls() > 0);
    until("a replica receives the record", async || {
        received().await.is_some()
    })
    .await;
    let first = received().await.unwrap();
    *replicas[1 - first].behaviour.pause.lock().unwrap() = Duration::ZERO;
    replicas[first].kill();
    waiting.await.unwrap().unwrap();
    assert_eq!(
        appended_records(&replicas[1 - first]),
        [("waits".to_owned(), true)]
    );
}

#[tokio::test]
async fn a_replica_that_does_not_respond_gets_no_further_records() {
    let (replicas, client) = start_replicas(2, Duration::from_millis(400)).await;
    let _hanging = replicas[0].hang();
    let started = Instant::now();
    // The first append continues after its caller gave up, to measure the store, so the second one shows that the replica hangs.
    let mut late = 0;
    for at in 0..20 {
        late += u32::from(append(&client, &at.to_string()).await.is_err());
    }
    assert!(late <= 3, "{late} late appends");
    // A connection that is silent counts as lost much later.
    assert!(started.elapsed() < 2 * SILENT);
    assert!(appended_records(&replicas[1]).len() >= 17);
}

#[tokio::test]
async fn all_replicas_get_records_while_calls_succeed() {
    let (replicas, client) = start_replicas(3, AMPLE).await;
    let mut count = 0;
    until("every replica gets records", async || {
        append(&client, &count.to_string()).await.unwrap();
        count += 1;
        replicas
            .iter()
            .all(|replica| !appended_records(replica).is_empty())
    })
    .await;
    let stored: usize = replicas
        .iter()
        .map(|replica| appended_records(replica).len())
        .sum();
    assert_eq!(stored, count);
}

#[tokio::test]
async fn a_server_that_ends_finishes_the_appends_that_it_has_begun() {
    let (mut replicas, client) = start_replicas(1, AMPLE).await;
    *replicas[0].behaviour.pause.lock().unwrap() = Duration::from_millis(300);
    let waiting = tokio::spawn(async move { append(&client, "begun").await });
    until("the replica receives the record", async || {
        replicas[0].calls() > 0
    })
    .await;
    replicas[0].end().await;
    waiting.await.unwrap().unwrap();
    assert_eq!(
        appended_records(&replicas[0]),
        [("begun".to_owned(), false)]
    );
}

#[tokio::test]
async fn an_append_without_a_service_fails_before_its_time_limit() {
    let (mut replicas, client) = start_replicas(1, AMPLE).await;
    append(&client, "first").await.unwrap();
    replicas[0].kill();
    let started = Instant::now();
    let error = append(&client, "second").await.unwrap_err();
    assert_eq!(error.reason(), ErrorReason::Unavailable);
    assert!(started.elapsed() < AMPLE / 2);
}

#[tokio::test]
async fn a_short_time_limit_of_one_record_does_not_affect_the_others() {
    let (replicas, client) = start_replicas(1, AMPLE).await;
    *replicas[0].behaviour.pause.lock().unwrap() = Duration::from_millis(400);
    let patient = append(&client, "patient");
    let hasty = deadline::within(Duration::from_millis(5), append(&client, "hasty"));
    let (patient, hasty) = tokio::join!(patient, hasty);
    patient.unwrap();
    assert!(hasty.is_none_or(|appended| appended.is_err()));
    assert!(appended_records(&replicas[0]).contains(&("patient".to_owned(), false)));
}
