//! Links over several replicas, each a real server on loopback with a runtime of its own, so that it dies as a process
//! does.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use futures::stream::BoxStream;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::time::Instant;
use tonic::{Code, Status};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::policy::v1 as pb;
use wardgate_proto::policy::v1::policy_service_client::PolicyServiceClient;
use wardgate_proto::policy::v1::policy_service_server::{PolicyService, PolicyServiceServer};

use super::*;
use crate::server::{Bound, ListenConfig};

const NAME: &str = "wardgate.policy.v1.PolicyService";

/// What a replica does with calls, and how many came.
#[derive(Default)]
struct Behaviour {
    calls: AtomicU64,
    /// Answers with this instead.
    refusal: Mutex<Option<Status>>,
    /// Takes so long.
    pause: Mutex<Duration>,
    /// Makes the watch tell something.
    tell: Notify,
    /// `grpc-timeout` of the last call.
    timeout: Mutex<Option<String>>,
}

struct Replying(Arc<Behaviour>);

impl Replying {
    async fn reply(&self, metadata: &tonic::metadata::MetadataMap) -> Result<(), Status> {
        self.0.calls.fetch_add(1, Ordering::Relaxed);
        let timeout = metadata.get("grpc-timeout");
        *self.0.timeout.lock().unwrap() = timeout.map(|text| text.to_str().unwrap().to_owned());
        let pause = *self.0.pause.lock().unwrap();
        tokio::time::sleep(pause).await;
        match self.0.refusal.lock().unwrap().clone() {
            Some(refusal) => Err(refusal),
            None => Ok(()),
        }
    }
}

#[tonic::async_trait]
impl PolicyService for Replying {
    async fn authorize(
        &self,
        request: tonic::Request<pb::AuthorizeRequest>,
    ) -> Result<tonic::Response<pb::AuthorizeResponse>, Status> {
        self.reply(request.metadata()).await?;
        Ok(tonic::Response::new(pb::AuthorizeResponse::default()))
    }

    async fn list_visible(
        &self,
        _: tonic::Request<pb::ListVisibleRequest>,
    ) -> Result<tonic::Response<pb::ListVisibleResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn authorize_recall(
        &self,
        _: tonic::Request<pb::AuthorizeRecallRequest>,
    ) -> Result<tonic::Response<pb::AuthorizeRecallResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    type WatchVersionStream = BoxStream<'static, Result<pb::WatchVersionResponse, Status>>;

    async fn watch_version(
        &self,
        _: tonic::Request<pb::WatchVersionRequest>,
    ) -> Result<tonic::Response<Self::WatchVersionStream>, Status> {
        let behaviour = Arc::clone(&self.0);
        let told = futures::stream::unfold(behaviour, |behaviour| async {
            behaviour.tell.notified().await;
            Some((Ok(pb::WatchVersionResponse::default()), behaviour))
        });
        Ok(tonic::Response::new(Box::pin(told)))
    }
}

/// A replica that runs until it is killed or dropped.
struct Running {
    address: SocketAddr,
    behaviour: Arc<Behaviour>,
    readiness: watch::Sender<Readiness>,
    runtime: Option<Runtime>,
}

impl Running {
    fn start() -> Self {
        Self::start_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
    }

    fn start_at(listen: SocketAddr) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (readiness, told) = watch::channel(Readiness::Ready);
        let behaviour = Arc::new(Behaviour::default());
        let service = Service {
            server: PolicyServiceServer::new(Replying(Arc::clone(&behaviour))),
            readiness: told,
        };
        let config = ListenConfig {
            listen,
            tls: None,
            plaintext: true,
        };
        let (bound, ready) = std::sync::mpsc::channel();
        runtime.spawn(async move {
            let server = Bound::bind(&config).await.unwrap();
            bound.send(server.address().unwrap()).unwrap();
            server.serve(service, std::future::pending()).await.unwrap();
        });
        Self {
            address: ready.recv().unwrap(),
            behaviour,
            readiness,
            runtime: Some(runtime),
        }
    }

    fn calls(&self) -> u64 {
        self.behaviour.calls.load(Ordering::Relaxed)
    }

    fn refuse(&self, refusal: Option<Status>) {
        *self.behaviour.refusal.lock().unwrap() = refusal;
    }

    /// Its sockets are closed at once, whatever it does.
    fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the name of the service stands for, as long as nobody changes it.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<SocketAddr>>>);

impl Names {
    fn of(replicas: &[Running]) -> Self {
        let names = Self::default();
        names.set(replicas);
        names
    }

    fn set(&self, replicas: &[Running]) {
        *self.0.lock().unwrap() = replicas.iter().map(|replica| replica.address).collect();
    }

    fn link(&self) -> Neighbour {
        let names = self.clone();
        let lookup: resolve::Lookup = Arc::new(move || {
            let addresses = names.0.lock().unwrap().clone();
            Box::pin(async move {
                if addresses.is_empty() {
                    return Err(io::Error::other("no such name"));
                }
                Ok(addresses)
            })
        });
        let dial = Dial {
            origin: "http://policy.example:7001".parse().unwrap(),
            tls: None,
        };
        balanced(Peer::Policy, NAME, lookup, dial)
    }
}

async fn call(link: &Link) -> Result<(), Status> {
    call_within(link, Duration::from_secs(20)).await
}

async fn call_within(link: &Link, limit: Duration) -> Result<(), Status> {
    let mut request = tonic::Request::new(pb::AuthorizeRequest::default());
    request.set_timeout(limit);
    let mut client = PolicyServiceClient::new(link.clone());
    client.authorize(request).await.map(drop)
}

/// Waits for what has to come within seconds; the limit is for loaded machines.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    started.elapsed()
}

async fn ready(neighbour: &mut Neighbour) {
    let ready = neighbour.readiness.wait_for(Readiness::is_ready);
    drop(ready.await.unwrap());
}

/// Waits until each replica has had a call.
async fn all_in_use(link: &Link, replicas: &[Running]) -> Duration {
    until("every replica gets calls", async || {
        call(link).await.unwrap();
        replicas.iter().all(|replica| replica.calls() > 0)
    })
    .await
}

#[tokio::test]
async fn calls_are_spread_evenly_over_every_address_of_the_name() {
    let replicas: Vec<_> = std::iter::repeat_with(Running::start).take(4).collect();
    let mut neighbour = Names::of(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link, &replicas).await;
    let before: Vec<_> = replicas.iter().map(Running::calls).collect();
    for _ in 0..400 {
        call(&neighbour.link).await.unwrap();
    }
    for (replica, before) in replicas.iter().zip(before) {
        let share = replica.calls() - before;
        assert!((90..=110).contains(&share), "{share} of 400");
    }
}

#[tokio::test]
async fn a_slow_replica_gets_fewer_calls() {
    let replicas: Vec<_> = std::iter::repeat_with(Running::start).take(2).collect();
    let mut neighbour = Names::of(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link, &replicas).await;
    *replicas[0].behaviour.pause.lock().unwrap() = Duration::from_millis(200);
    let before = replicas[0].calls();
    let callers = (0..4).map(|_| async {
        for _ in 0..50 {
            call(&neighbour.link).await.unwrap();
        }
    });
    futures::future::join_all(callers).await;
    let slow = replicas[0].calls() - before;
    assert!(slow <= 40, "{slow} of 200");
}

#[tokio::test]
async fn a_new_replica_gets_calls_within_seconds_and_a_gone_one_no_more() {
    let mut replicas = vec![Running::start()];
    let names = Names::of(&replicas);
    let mut neighbour = names.link();
    ready(&mut neighbour).await;
    replicas.push(Running::start());
    names.set(&replicas);
    let took = all_in_use(&neighbour.link, &replicas).await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    let gone = replicas.remove(0);
    names.set(&replicas);
    until("no call goes to the replica that left", async || {
        let before = gone.calls();
        for _ in 0..10 {
            call(&neighbour.link).await.unwrap();
        }
        gone.calls() == before
    })
    .await;
    assert!(neighbour.readiness.borrow().is_ready());
}

#[tokio::test]
async fn a_replica_killed_under_load_loses_no_call_that_may_be_repeated() {
    let mut replicas: Vec<_> = std::iter::repeat_with(Running::start).take(3).collect();
    let mut neighbour = Names::of(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link, &replicas).await;
    for replica in &replicas {
        *replica.behaviour.pause.lock().unwrap() = Duration::from_millis(2);
    }
    let callers = (0..8).map(|_| {
        let link = neighbour.link.clone();
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
    let mut replicas = vec![Running::start(), Running::start()];
    let mut neighbour = Names::of(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link, &replicas).await;
    let address = replicas[0].address;
    replicas[0].kill();
    for _ in 0..20 {
        call(&neighbour.link).await.unwrap();
    }
    replicas[0] = Running::start_at(address);
    all_in_use(&neighbour.link, &replicas).await;
}

#[tokio::test]
async fn the_neighbour_is_ready_while_one_replica_is() {
    let mut replicas = vec![Running::start(), Running::start()];
    let mut neighbour = Names::of(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link, &replicas).await;
    let full = Readiness::NotReady("the disk is full".to_owned());
    replicas[0].readiness.send_replace(full.clone());
    until("the replica that is not ready gets no calls", async || {
        let before = replicas[0].calls();
        for _ in 0..10 {
            call(&neighbour.link).await.unwrap();
        }
        replicas[0].calls() == before
    })
    .await;
    assert!(neighbour.readiness.borrow().is_ready());
    replicas[1].readiness.send_replace(full);
    let told = neighbour.readiness.wait_for(|told| !told.is_ready());
    drop(told.await.unwrap());
    // Who is not ready says itself why, as long as there is nobody better to ask.
    call(&neighbour.link).await.unwrap();
    replicas[0].kill();
    replicas[1].kill();
    let refused = until("nobody is left", async || {
        call(&neighbour.link)
            .await
            .is_err_and(|status| status.code() == Code::Unavailable)
    });
    refused.await;
}

#[tokio::test]
async fn a_replica_that_only_fails_is_left_alone_and_tried_again_later() {
    let replicas = vec![Running::start(), Running::start()];
    let mut neighbour = Names::of(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link, &replicas).await;
    replicas[0].refuse(Some(Status::unavailable("broken")));
    for _ in 0..40 {
        call(&neighbour.link).await.unwrap();
    }
    let before = replicas[0].calls();
    for _ in 0..40 {
        call(&neighbour.link).await.unwrap();
    }
    // At most the one that tries whether it works again.
    assert!(replicas[0].calls() <= before + 1);
    replicas[0].refuse(None);
    until("the mended replica gets its share again", async || {
        let before = replicas[0].calls();
        for _ in 0..10 {
            call(&neighbour.link).await.unwrap();
        }
        replicas[0].calls() >= before + 4
    })
    .await;
}

#[tokio::test]
async fn when_everything_fails_no_more_than_the_budget_is_sent() {
    let replicas = vec![Running::start(), Running::start()];
    for replica in &replicas {
        replica.refuse(Some(Status::unavailable("broken")));
    }
    let mut neighbour = Names::of(&replicas).link();
    ready(&mut neighbour).await;
    let started = Instant::now();
    let callers = (0..20).map(async |_| {
        for _ in 0..20 {
            let refused = call(&neighbour.link).await.unwrap_err();
            let told = (refused.code(), refused.message().to_owned());
            assert_eq!(told, (Code::Unavailable, "broken".to_owned()));
        }
    });
    futures::future::join_all(callers).await;
    let offered = 400;
    let sent: u64 = replicas.iter().map(Running::calls).sum();
    let free = 10 * (started.elapsed().as_secs() + 2);
    assert!(sent <= offered * 12 / 10 + free, "{sent} for {offered}");
    assert!(sent > offered, "nothing was made again");
}

#[tokio::test]
async fn who_is_asked_to_wait_waits_and_who_is_told_no_gives_up() {
    let replica = Running::start();
    let mut neighbour = Names::of(std::slice::from_ref(&replica)).link();
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
    call(&neighbour.link).await.unwrap_err();
    assert_eq!(replica.calls(), 3);
    assert!(started.elapsed() >= Duration::from_millis(600));
    for no in ["-1", "soon"] {
        let before = replica.calls();
        replica.refuse(Some(pushback(no)));
        call(&neighbour.link).await.unwrap_err();
        assert_eq!(replica.calls(), before + 1, "{no}");
    }
    // Nor is there a point in waiting longer than the caller does.
    let before = replica.calls();
    replica.refuse(Some(pushback("5000")));
    call_within(&neighbour.link, Duration::from_secs(1))
        .await
        .unwrap_err();
    assert_eq!(replica.calls(), before + 1);
}

#[tokio::test]
async fn a_call_ends_at_its_deadline_and_each_attempt_has_what_is_left() {
    let replica = Running::start();
    let mut neighbour = Names::of(std::slice::from_ref(&replica)).link();
    ready(&mut neighbour).await;
    *replica.behaviour.pause.lock().unwrap() = Duration::from_secs(60);
    let started = Instant::now();
    let late = call_within(&neighbour.link, Duration::from_millis(300))
        .await
        .unwrap_err();
    assert_eq!(crate::reason_of(&late), ErrorReason::DeadlineExceeded);
    assert!(started.elapsed() < Duration::from_secs(5));
    let told = replica.behaviour.timeout.lock().unwrap().clone().unwrap();
    let micros: u64 = told.strip_suffix('u').unwrap().parse().unwrap();
    assert!((1..=300_000).contains(&micros), "{told}");
}

#[tokio::test]
async fn a_watch_is_no_load() {
    let replicas: Vec<_> = std::iter::repeat_with(Running::start).take(2).collect();
    let mut neighbour = Names::of(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link, &replicas).await;
    let mut client = PolicyServiceClient::new(neighbour.link.clone());
    let _watch = client
        .watch_version(pb::WatchVersionRequest {})
        .await
        .unwrap();
    let before: Vec<_> = replicas.iter().map(Running::calls).collect();
    for _ in 0..40 {
        call(&neighbour.link).await.unwrap();
    }
    for (replica, before) in replicas.iter().zip(before) {
        assert_eq!(replica.calls() - before, 20);
    }
}

#[tokio::test]
async fn a_replica_that_never_answers_is_left_alone() {
    let replicas = vec![Running::start(), Running::start()];
    let mut neighbour = Names::of(&replicas).link();
    ready(&mut neighbour).await;
    all_in_use(&neighbour.link, &replicas).await;
    *replicas[0].behaviour.pause.lock().unwrap() = Duration::from_secs(600);
    until(
        "calls end at their deadline until it is ejected",
        async || {
            let calls = (0..8).map(|_| call_within(&neighbour.link, Duration::from_millis(100)));
            let ended = futures::future::join_all(calls).await;
            ended.iter().all(Result::is_ok)
        },
    )
    .await;
    for _ in 0..20 {
        call(&neighbour.link).await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_stays_with_its_replica_when_that_leaves_the_name() {
    let mut replicas = vec![Running::start()];
    let names = Names::of(&replicas);
    let mut neighbour = names.link();
    ready(&mut neighbour).await;
    let mut client = PolicyServiceClient::new(neighbour.link.clone());
    let versions = client.watch_version(pb::WatchVersionRequest {}).await;
    let mut versions = versions.unwrap().into_inner();
    let first = replicas.remove(0);
    replicas.push(Running::start());
    names.set(&replicas);
    all_in_use(&neighbour.link, &replicas).await;
    first.behaviour.tell.notify_one();
    assert!(versions.message().await.unwrap().is_some());
}
