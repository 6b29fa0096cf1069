//! Tests of links over several replicas.

mod appends;
mod rotation;
mod world;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;
use tonic::{Code, Request, Status};
use wardgate_proto::audit::v1 as audit;
use wardgate_proto::audit::v1::audit_service_client::AuditServiceClient;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::policy::v1 as pb;
use wardgate_proto::policy::v1::policy_service_client::PolicyServiceClient;

use self::world::{FakeResolver, RunningReplica};
use super::{Link, LinkedService, SILENT};
use crate::readiness::Readiness;

async fn call(link: &Link) -> Result<(), Status> {
    call_within(link, Duration::from_secs(20)).await
}

async fn call_within(link: &Link, limit: Duration) -> Result<(), Status> {
    let mut request = Request::new(pb::AuthorizeRequest::default());
    request.set_timeout(limit);
    let mut client = PolicyServiceClient::new(link.clone());
    client.authorize(request).await.map(drop)
}

/// Makes a call that is never retried.
async fn call_once(link: &Link) -> Result<(), Status> {
    let mut request = Request::new(audit::ChangeLegalHoldRequest::default());
    request.set_timeout(Duration::from_secs(20));
    let mut client = AuditServiceClient::new(link.clone());
    client.change_legal_hold(request).await.map(drop)
}

/// Waits until `condition` is true, which should take seconds. The limit is for heavily loaded machines.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < Duration::from_mins(1), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    started.elapsed()
}

async fn ready(neighbour: &mut LinkedService) {
    let ready = neighbour.readiness.wait_for(Readiness::is_ready);
    drop(ready.await.unwrap());
}

/// Waits until each replica has received a call.
async fn all_in_use(link: &Link, replicas: &[RunningReplica]) -> Duration {
    until("every replica gets calls", async || {
        call(link).await.unwrap();
        replicas.iter().all(|replica| replica.calls() > 0)
    })
    .await
}

/// Starts `count` replicas, and returns them with a link once all are in use.
async fn start_replicas(count: usize) -> (Vec<RunningReplica>, LinkedService) {
    let replicas = std::iter::repeat_with(RunningReplica::start).take(count);
    let replicas: Vec<_> = replicas.collect();
    let mut neighbour = FakeResolver::for_replicas(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link.transport, &replicas).await;
    (replicas, neighbour)
}

#[tokio::test]
async fn calls_are_spread_evenly_over_every_address_of_the_name() {
    let (replicas, neighbour) = start_replicas(4).await;
    let before: Vec<_> = replicas.iter().map(RunningReplica::calls).collect();
    for _ in 0..400 {
        call(&neighbour.link.transport).await.unwrap();
    }
    for (replica, before) in replicas.iter().zip(before) {
        let share = replica.calls() - before;
        assert!((90..=110).contains(&share), "{share} of 400");
    }
}

#[tokio::test]
async fn a_slow_replica_gets_fewer_calls() {
    let (replicas, neighbour) = start_replicas(2).await;
    *replicas[0].behaviour.pause.lock().unwrap() = Duration::from_millis(200);
    let before = replicas[0].calls();
    let callers = (0..4).map(|_| async {
        for _ in 0..50 {
            call(&neighbour.link.transport).await.unwrap();
        }
    });
    join_all(callers).await;
    let slow = replicas[0].calls() - before;
    assert!(slow <= 40, "{slow} of 200");
}

#[tokio::test]
async fn a_call_that_one_replica_does_not_answer_in_half_of_its_time_another_one_answers() {
    let (replicas, neighbour) = start_replicas(2).await;
    *replicas[0].behaviour.pause.lock().unwrap() = Duration::from_secs(60);
    let before = replicas[0].calls();
    until("the silent replica gets a call", async || {
        let called = call_within(&neighbour.link.transport, Duration::from_secs(2)).await;
        called.unwrap();
        replicas[0].calls() > before
    })
    .await;
}

#[tokio::test]
async fn a_service_that_hangs_is_not_ready_before_its_connection_is_lost() {
    let replicas = [RunningReplica::start()];
    let mut neighbour = FakeResolver::for_replicas(&replicas).link();
    ready(&mut neighbour).await;
    let began = Instant::now();
    let hanging = replicas[0].hang();
    let unready = |readiness: &Readiness| !readiness.is_ready();
    drop(neighbour.readiness.wait_for(unready).await.unwrap());
    // The connection is given up after this time.
    assert!(began.elapsed() < 2 * SILENT, "{:?}", began.elapsed());
    drop(hanging);
    ready(&mut neighbour).await;
    call(&neighbour.link.transport).await.unwrap();
}

#[tokio::test]
async fn a_call_that_no_other_replica_could_answer_has_all_of_its_time() {
    let replicas = [RunningReplica::start()];
    let mut neighbour = FakeResolver::for_replicas(&replicas).link();
    ready(&mut neighbour).await;
    *replicas[0].behaviour.pause.lock().unwrap() = Duration::from_millis(1_200);
    call_within(&neighbour.link.transport, Duration::from_secs(2))
        .await
        .unwrap();
    assert_eq!(replicas[0].calls(), 1);
}

#[tokio::test]
async fn a_new_replica_gets_calls_within_seconds_and_a_gone_one_no_more() {
    let mut replicas = vec![RunningReplica::start()];
    let names = FakeResolver::for_replicas(&replicas);
    let mut neighbour = names.link();
    ready(&mut neighbour).await;
    replicas.push(RunningReplica::start());
    names.set(&replicas);
    let took = all_in_use(&neighbour.link.transport, &replicas).await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    let gone = replicas.remove(0);
    names.set(&replicas);
    until("no call goes to the replica that left", async || {
        let before = gone.calls();
        for _ in 0..10 {
            call(&neighbour.link.transport).await.unwrap();
        }
        gone.calls() == before
    })
    .await;
    assert!(neighbour.readiness.borrow().is_ready());
}

#[tokio::test]
async fn a_replica_killed_under_load_loses_no_call_that_may_be_repeated() {
    let (mut replicas, neighbour) = start_replicas(3).await;
    for replica in &replicas {
        *replica.behaviour.pause.lock().unwrap() = Duration::from_millis(2);
    }
    let callers = (0..8).map(|_| {
        let link = neighbour.link.transport.clone();
        tokio::spawn(async move {
            for _ in 0..150 {
                call(&link).await.unwrap();
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let before = replicas[0].calls();
    until("the load runs", async || replicas[0].calls() > before + 20).await;
    replicas[0].kill();
    for caller in callers {
        caller.await.unwrap();
    }
}

#[tokio::test]
async fn a_restarted_replica_is_taken_up_again_without_a_failed_call() {
    let mut replicas = vec![RunningReplica::start(), RunningReplica::start()];
    let mut neighbour = FakeResolver::for_replicas(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link.transport, &replicas).await;
    let address = replicas[0].address;
    replicas[0].kill();
    for _ in 0..20 {
        call(&neighbour.link.transport).await.unwrap();
    }
    replicas[0] = RunningReplica::start_at(address);
    all_in_use(&neighbour.link.transport, &replicas).await;
}

#[tokio::test]
async fn the_neighbour_is_ready_while_one_replica_is() {
    let mut replicas = vec![RunningReplica::start(), RunningReplica::start()];
    let mut neighbour = FakeResolver::for_replicas(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link.transport, &replicas).await;
    let full = Readiness::NotReady("the disk is full".to_owned());
    replicas[0].readiness.send_replace(full.clone());
    until("the replica that is not ready gets no calls", async || {
        let before = replicas[0].calls();
        for _ in 0..10 {
            call(&neighbour.link.transport).await.unwrap();
        }
        replicas[0].calls() == before
    })
    .await;
    assert!(neighbour.readiness.borrow().is_ready());
    replicas[1].readiness.send_replace(full);
    let told = neighbour.readiness.wait_for(|told| !told.is_ready());
    drop(told.await.unwrap());
    // As long as there is no better replica, calls go to one that is not ready, because its response explains the failure best.
    call(&neighbour.link.transport).await.unwrap();
    replicas[0].kill();
    replicas[1].kill();
    let refused = until("nobody is left", async || {
        call(&neighbour.link.transport)
            .await
            .is_err_and(|status| status.code() == Code::Unavailable)
    });
    refused.await;
}

#[tokio::test]
async fn a_replica_that_only_fails_is_left_alone_and_tried_again_later() {
    let replicas = vec![RunningReplica::start(), RunningReplica::start()];
    let mut neighbour = FakeResolver::for_replicas(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link.transport, &replicas).await;
    replicas[0].refuse(Some(Status::unavailable("broken")));
    for _ in 0..40 {
        call(&neighbour.link.transport).await.unwrap();
    }
    let before = replicas[0].calls();
    for _ in 0..40 {
        call(&neighbour.link.transport).await.unwrap();
    }
    // Only probes reach the ejected replica.
    assert!(replicas[0].calls() <= before + 3);
    replicas[0].refuse(None);
    until("the mended replica gets its share again", async || {
        let before = replicas[0].calls();
        for _ in 0..10 {
            call(&neighbour.link.transport).await.unwrap();
        }
        replicas[0].calls() >= before + 4
    })
    .await;
}

#[tokio::test]
async fn when_everything_fails_no_more_than_the_budget_is_sent() {
    let replicas = vec![RunningReplica::start(), RunningReplica::start()];
    for replica in &replicas {
        replica.refuse(Some(Status::unavailable("broken")));
    }
    let mut neighbour = FakeResolver::for_replicas(&replicas).link();
    ready(&mut neighbour).await;
    let started = Instant::now();
    let callers = (0..20).map(async |_| {
        for _ in 0..20 {
            let refused = call(&neighbour.link.transport).await.unwrap_err();
            let told = (refused.code(), refused.message().to_owned());
            assert_eq!(told, (Code::Unavailable, "broken".to_owned()));
        }
    });
    join_all(callers).await;
    let offered = 400;
    let sent: u64 = replicas.iter().map(RunningReplica::calls).sum();
    let free = 100 * (started.elapsed().as_secs() / 10 + 1);
    assert!(sent <= offered * 12 / 10 + free, "{sent} for {offered}");
    assert!(sent > offered, "nothing was made again");
}

#[tokio::test]
async fn who_is_asked_to_wait_waits_and_who_is_told_no_gives_up() {
    let replica = RunningReplica::start();
    let mut neighbour = FakeResolver::for_replicas(std::slice::from_ref(&replica)).link();
    ready(&mut neighbour).await;
    let pushback = |text: &'static str| {
        let mut refusal = Status::unavailable("overloaded");
        let text = tonic::metadata::MetadataValue::from_static(text);
        refusal
            .metadata_mut()
            .insert("grpc-retry-pushback-ms", text);
        refusal
    };
    replica.refuse(Some(pushback("300")));
    let started = Instant::now();
    call(&neighbour.link.transport).await.unwrap_err();
    assert_eq!(replica.calls(), 3);
    assert!(started.elapsed() >= Duration::from_millis(600));
    for no in ["-1", "soon"] {
        let before = replica.calls();
        replica.refuse(Some(pushback(no)));
        call(&neighbour.link.transport).await.unwrap_err();
        assert_eq!(replica.calls(), before + 1, "{no}");
    }
    // A call is not retried if its deadline would pass before.
    let before = replica.calls();
    replica.refuse(Some(pushback("60000")));
    call_within(&neighbour.link.transport, Duration::from_secs(5))
        .await
        .unwrap_err();
    assert_eq!(replica.calls(), before + 1);
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_and_each_attempt_has_what_is_left() {
    let replica = RunningReplica::start();
    let mut neighbour = FakeResolver::for_replicas(std::slice::from_ref(&replica)).link();
    ready(&mut neighbour).await;
    *replica.behaviour.pause.lock().unwrap() = Duration::from_secs(60);
    let started = Instant::now();
    let late = call_within(&neighbour.link.transport, Duration::from_secs(1))
        .await
        .unwrap_err();
    assert_eq!(crate::reason_of(&late), ErrorReason::DeadlineExceeded);
    assert!(started.elapsed() < Duration::from_secs(40));
    let told = replica.behaviour.timeout.lock().unwrap().clone().unwrap();
    let micros: u64 = told.strip_suffix('u').unwrap().parse().unwrap();
    assert!((1..=1_000_000).contains(&micros), "{told}");
}

#[tokio::test]
async fn a_watch_is_no_load() {
    let (replicas, neighbour) = start_replicas(2).await;
    let mut client = PolicyServiceClient::new(neighbour.link.transport.clone());
    let _watch = client
        .watch_version(pb::WatchVersionRequest {})
        .await
        .unwrap();
    let before: Vec<_> = replicas.iter().map(RunningReplica::calls).collect();
    for _ in 0..40 {
        call(&neighbour.link.transport).await.unwrap();
    }
    for (replica, before) in replicas.iter().zip(before) {
        assert_eq!(replica.calls() - before, 20);
    }
}

#[tokio::test]
async fn a_replica_that_never_answers_is_left_alone() {
    let replicas = vec![RunningReplica::start(), RunningReplica::start()];
    let mut neighbour = FakeResolver::for_replicas(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link.transport, &replicas).await;
    *replicas[0].behaviour.pause.lock().unwrap() = Duration::from_secs(600);
    until(
        "it gets calls, which others answer or nobody, until it is ejected",
        async || {
            let before = replicas[0].calls();
            let calls =
                (0..8).map(|_| call_within(&neighbour.link.transport, Duration::from_millis(100)));
            let ended = join_all(calls).await;
            ended.iter().all(Result::is_ok) && replicas[0].calls() == before
        },
    )
    .await;
    for _ in 0..20 {
        call(&neighbour.link.transport).await.unwrap();
    }
}

#[tokio::test]
async fn replicas_that_are_all_replaced_at_once_cost_no_call_and_no_moment_of_readiness() {
    let mut replicas = vec![RunningReplica::audit(), RunningReplica::audit()];
    let names = FakeResolver::for_replicas(&replicas);
    let mut neighbour = names.link();
    ready(&mut neighbour).await;
    for _ in 0..3 {
        let leaving = std::mem::replace(
            &mut replicas,
            vec![RunningReplica::audit(), RunningReplica::audit()],
        );
        neighbour.readiness.mark_unchanged();
        names.set(&replicas);
        until("calls go to the new ones alone", async || {
            let before: u64 = leaving.iter().map(RunningReplica::calls).sum();
            for _ in 0..10 {
                call_once(&neighbour.link.transport).await.unwrap();
            }
            leaving.iter().map(RunningReplica::calls).sum::<u64>() == before
        })
        .await;
        assert!(!neighbour.readiness.has_changed().unwrap());
    }
}

#[tokio::test]
async fn replicas_told_to_stop_before_others_are_known_cost_no_call_and_no_moment_of_readiness() {
    let leaving = [RunningReplica::audit(), RunningReplica::audit()];
    let names = FakeResolver::for_replicas(&leaving);
    let mut neighbour = names.link();
    ready(&mut neighbour).await;
    neighbour.readiness.mark_unchanged();
    let get_calls = async |which: &[RunningReplica]| {
        let before: Vec<_> = which.iter().map(RunningReplica::calls).collect();
        for _ in 0..10 {
            call_once(&neighbour.link.transport).await.unwrap();
        }
        let mut both = which.iter().zip(before);
        both.all(|(replica, before)| replica.calls() > before)
    };
    until("both are in use", async || get_calls(&leaving).await).await;
    let stopping = Readiness::NotReady("it was told to stop".to_owned());
    leaving[0].readiness.send_replace(stopping.clone());
    until("one is left alone", async || {
        !get_calls(&leaving[..1]).await
    })
    .await;
    leaving[1].readiness.send_replace(stopping);
    until("there is none better than the other", async || {
        get_calls(&leaving).await
    })
    .await;
    let others = [RunningReplica::audit(), RunningReplica::audit()];
    names.set(&others);
    until("the others are in use", async || get_calls(&others).await).await;
    assert!(!neighbour.readiness.has_changed().unwrap());
}

#[tokio::test]
async fn a_stream_stays_with_its_replica_when_that_leaves_the_name() {
    let mut replicas = vec![RunningReplica::start()];
    let names = FakeResolver::for_replicas(&replicas);
    let mut neighbour = names.link();
    ready(&mut neighbour).await;
    let mut client = PolicyServiceClient::new(neighbour.link.transport.clone());
    let versions = client.watch_version(pb::WatchVersionRequest {}).await;
    let mut versions = versions.unwrap().into_inner();
    let first = replicas.remove(0);
    replicas.push(RunningReplica::start());
    names.set(&replicas);
    all_in_use(&neighbour.link.transport, &replicas).await;
    first.behaviour.tell.notify_one();
    assert!(versions.message().await.unwrap().is_some());
}

#[tokio::test]
async fn a_replica_that_ends_in_order_loses_no_call_not_even_one_that_is_made_once() {
    let mut replicas: Vec<_> = std::iter::repeat_with(RunningReplica::audit)
        .take(3)
        .collect();
    let mut neighbour = FakeResolver::for_replicas(&replicas).link();
    ready(&mut neighbour).await;
    for replica in &replicas {
        *replica.behaviour.pause.lock().unwrap() = Duration::from_millis(2);
    }
    let done = AtomicBool::new(false);
    let callers = (0..8).map(async |_| {
        while !done.load(Ordering::Relaxed) {
            call_once(&neighbour.link.transport).await.unwrap();
        }
    });
    let restarts = async {
        for replica in &mut replicas {
            let before = replica.calls();
            until("the load runs", async || replica.calls() > before + 20).await;
            let address = replica.address;
            replica.end().await;
            *replica = RunningReplica::audit_at(address);
            until("it is back", async || replica.calls() > 20).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    tokio::join!(join_all(callers), restarts);
}

#[tokio::test]
async fn an_old_connection_is_replaced_without_a_failed_call_or_a_moment_of_unreadiness() {
    let second = Duration::from_secs(1);
    let replica = RunningReplica::with_connection_age(second, second);
    let mut neighbour = FakeResolver::for_replicas(std::slice::from_ref(&replica)).link();
    ready(&mut neighbour).await;
    let mut client = AuditServiceClient::new(neighbour.link.transport.clone());
    let query = client.query(audit::QueryRequest::default()).await;
    let mut open = query.unwrap().into_inner();
    neighbour.readiness.mark_unchanged();
    let closed = AtomicBool::new(false);
    let calls = async {
        let mut calls_after = 0;
        while calls_after < 100 {
            call_once(&neighbour.link.transport).await.unwrap();
            calls_after += u32::from(closed.load(Ordering::Relaxed));
        }
    };
    let end = async {
        let ended = tokio::time::timeout(Duration::from_secs(20), open.message()).await;
        closed.store(true, Ordering::Relaxed);
        ended.unwrap().unwrap_err();
    };
    tokio::join!(end, calls);
    assert!(!neighbour.readiness.has_changed().unwrap());
}
