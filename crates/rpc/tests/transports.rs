//! Tests that a service behaves in the same way by function calls, over an in-memory duplex and over TCP, as it would on a
//! laptop and in a cluster.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the helpers of a test fail by panicking"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use hyper_util::rt::TokioIo;
use tokio::sync::{oneshot, watch};
use tonic::transport::{Endpoint, Server, Uri};
use tonic::{Request, Response, Status};
use wardgate_domain::{
    AdminChange, Ambient, BearerToken, BundleReference, CallId, Caller, Decision, DecisionId,
    DenialReason, Digest, Event, InvalidMessage, Record, SignedPermit, Verdict,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::policy::v1 as pb;
use wardgate_proto::policy::v1::policy_service_client::PolicyServiceClient;
use wardgate_proto::policy::v1::policy_service_server::{PolicyService, PolicyServiceServer};
use wardgate_resilience::concurrency::{Config, Limiter};
use wardgate_rpc::client::{
    AuditClient, Authorizer, CallError, CallQuestion, CallTool, Interaction, LocalPolicy,
    PolicyClient, PolicyVersion, ToolRunnerClient,
};
use wardgate_rpc::server::{BoundServer, ListenConfig};
use wardgate_rpc::{Link, Peer, Readiness, Service, ServiceError, ServiceLink, Shutdown, link};
use wardgate_testkit::tool_facts;

/// A policy service whose response depends on the caller's token.
#[derive(Debug, Clone)]
struct TokenDrivenPolicy;

#[derive(Debug, thiserror::Error)]
#[error("the store is full")]
struct StoreFull;

impl ServiceError for StoreFull {
    fn reason(&self) -> ErrorReason {
        ErrorReason::NotDurable
    }
}

/// Returns the decision for the holder of `token`, or `None` for an invalid response without a decision.
async fn decide(token: &str) -> Result<Option<Decision>, CallError> {
    match token {
        "decides" => Ok(Some(Decision {
            id: DecisionId::new(&Ambient::system()),
            verdict: Verdict::Deny {
                reason: DenialReason::Forbidden,
                visible: true,
            },
            policies: vec!["p1".to_owned()],
            policy_hash: Digest::compute(b"policies"),
            bundle: None,
            approval: None,
        })),
        "fails" => Err(CallError::from(&StoreFull)),
        "panics" => panic!("on purpose"),
        "hangs" => std::future::pending().await,
        _ => Ok(None),
    }
}

#[tonic::async_trait]
impl Authorizer for TokenDrivenPolicy {
    async fn authorize(&self, question: CallQuestion<'_>) -> Result<Decision, CallError> {
        let decision = decide(question.token.expose()).await?;
        Ok(decision.ok_or_else(|| InvalidMessage::field("decision", "is missing"))?)
    }
}

#[tonic::async_trait]
impl PolicyService for TokenDrivenPolicy {
    async fn authorize(
        &self,
        request: Request<pb::AuthorizeRequest>,
    ) -> Result<Response<pb::AuthorizeResponse>, Status> {
        let decision = decide(&request.into_inner().caller_token).await?;
        Ok(Response::new(pb::AuthorizeResponse {
            decision: decision.as_ref().map(Into::into),
        }))
    }

    async fn identify(
        &self,
        _request: Request<pb::IdentifyRequest>,
    ) -> Result<Response<pb::IdentifyResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn approve(
        &self,
        _request: Request<pb::ApproveRequest>,
    ) -> Result<Response<pb::ApproveResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn list_visible(
        &self,
        request: Request<pb::ListVisibleRequest>,
    ) -> Result<Response<pb::ListVisibleResponse>, Status> {
        let visible = request
            .into_inner()
            .tools
            .into_iter()
            .map(|tool| tool.name)
            .collect();
        Ok(Response::new(pb::ListVisibleResponse {
            visible,
            policy_hash: Bytes::new(),
        }))
    }

    async fn authorize_recall(
        &self,
        _request: Request<pb::AuthorizeRecallRequest>,
    ) -> Result<Response<pb::AuthorizeRecallResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn authorize_operator(
        &self,
        _request: Request<pb::AuthorizeOperatorRequest>,
    ) -> Result<Response<pb::AuthorizeOperatorResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn list_shadow_flips(
        &self,
        _: Request<pb::ListShadowFlipsRequest>,
    ) -> Result<Response<pb::ListShadowFlipsResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    type WatchVersionStream = BoxStream<'static, Result<pb::WatchVersionResponse, Status>>;

    async fn watch_version(
        &self,
        _: Request<pb::WatchVersionRequest>,
    ) -> Result<Response<Self::WatchVersionStream>, Status> {
        let versions = [b"one", b"two"].map(|version| {
            Ok(pb::WatchVersionResponse {
                policy_hash: Digest::compute(version).to_wire(),
                looks_up_callers: true,
                bundle: Some(bundle().into()),
            })
        });
        Ok(Response::new(futures::stream::iter(versions).boxed()))
    }
}

/// The bundle in every version of the policies.
fn bundle() -> BundleReference {
    BundleReference {
        version: 7,
        digest: Digest::compute(b"bundle"),
    }
}

const NAME: &str = "wardgate.policy.v1.PolicyService";

fn service() -> (
    watch::Sender<Readiness>,
    Service<PolicyServiceServer<TokenDrivenPolicy>, LocalPolicy>,
) {
    let (sender, readiness) = watch::channel(Readiness::Ready);
    (
        sender,
        Service {
            server: PolicyServiceServer::new(TokenDrivenPolicy),
            local: Arc::new(TokenDrivenPolicy) as LocalPolicy,
            readiness,
        },
    )
}

fn listen(listen: &str, plaintext: bool) -> ListenConfig {
    ListenConfig {
        listen: listen.parse().unwrap(),
        tls: None,
        plaintext,
    }
}

/// Returns links to the same service over each transport.
async fn doors() -> Vec<(&'static str, ServiceLink<LocalPolicy>)> {
    let local = link::local(service().1, Peer::Gateway).link;

    let (near, far) = tokio::io::duplex(64 * 1024);
    let server = Server::builder().add_service(service().1.server);
    tokio::spawn(server.serve_with_incoming(tokio_stream::once(Ok::<_, std::io::Error>(far))));
    let mut near = Some(near);
    let channel = Endpoint::from_static("http://duplex").connect_with_connector_lazy(
        tower::service_fn(move |_: Uri| {
            let near = near.take().map(TokioIo::new);
            async move { near.ok_or_else(|| std::io::Error::other("connected twice")) }
        }),
    );
    let duplex = Link::new(channel).into();

    let bound = BoundServer::bind(&listen("127.0.0.1:0", true))
        .await
        .unwrap();
    let url = format!("http://{}", bound.address().unwrap());
    let (readiness, service) = service();
    tokio::spawn(async move {
        let _readiness = readiness;
        let never = Shutdown::when(std::future::pending());
        bound.serve(service, never).await
    });
    let loopback = link::connect(&url, Peer::Policy, NAME, None).unwrap().link;
    vec![("local", local), ("duplex", duplex), ("loopback", loopback)]
}

fn caller(subject: &str) -> Caller {
    wardgate_testkit::caller(subject, &["Doctor"]).with_token(BearerToken::new(subject))
}

async fn authorize_subject(
    link: &ServiceLink<LocalPolicy>,
    subject: &str,
    limit: Duration,
) -> Result<Decision, ErrorReason> {
    PolicyClient::new(link.clone(), limit)
        .authorize(
            &caller(subject),
            &tool_facts("read_it"),
            &Bytes::from_static(b"{}"),
            "",
        )
        .await
        .map_err(|error| error.reason())
}

const AMPLE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn every_door_gives_the_same_answers_and_the_same_errors() {
    for (door, link) in doors().await {
        let decision = authorize_subject(&link, "decides", AMPLE).await.unwrap();
        let Verdict::Deny {
            reason: DenialReason::Forbidden,
            visible: true,
        } = decision.verdict
        else {
            panic!("{door}: {decision:?}");
        };
        assert_eq!(decision.policies, ["p1"], "{door}");
        assert_eq!(
            authorize_subject(&link, "fails", AMPLE).await.unwrap_err(),
            ErrorReason::NotDurable,
            "{door}"
        );
        let nothing = authorize_subject(&link, "answers nothing", AMPLE)
            .await
            .unwrap_err();
        assert_eq!(nothing, ErrorReason::InvalidMessage, "{door}");
    }
}

#[tokio::test]
async fn a_deadline_ends_a_call_behind_every_door() {
    for (door, link) in doors().await {
        let late = authorize_subject(&link, "hangs", Duration::from_millis(50))
            .await
            .unwrap_err();
        assert_eq!(late, ErrorReason::DeadlineExceeded, "{door}");
    }
}

#[tokio::test]
async fn a_stream_arrives_whole_behind_every_door() {
    for (door, link) in doors().await {
        let client = PolicyClient::new(link, AMPLE);
        let versions = client.watch_version().await.unwrap();
        let versions: Vec<PolicyVersion> = versions.map(Result::unwrap).collect().await;
        let expected = [b"one", b"two"].map(|version| PolicyVersion {
            hash: Digest::compute(version),
            bundle: Some(bundle()),
            looks_up_callers: true,
        });
        assert_eq!(versions, expected, "{door}");
    }
}

#[tokio::test]
async fn a_panic_behind_our_stack_is_an_answer_and_the_next_call_works() {
    for (door, link) in doors().await {
        if door == "duplex" {
            continue; // served bare, to have one door without the stack in the other tests
        }
        assert_eq!(
            authorize_subject(&link, "panics", AMPLE).await.unwrap_err(),
            ErrorReason::Internal,
            "{door}"
        );
        assert!(
            authorize_subject(&link, "decides", AMPLE).await.is_ok(),
            "{door}"
        );
    }
}

#[tokio::test]
async fn a_local_peer_that_may_not_call_is_refused() {
    let link = link::local(service().1, Peer::Audit).link;
    assert_eq!(
        authorize_subject(&link, "decides", AMPLE)
            .await
            .unwrap_err(),
        ErrorReason::PeerRefused
    );
}

/// Callers embed these futures in their own, which are copied when they are first awaited.
#[tokio::test]
async fn the_future_of_a_call_has_at_most_a_kibibyte() {
    let link = link::local(service().1, Peer::Gateway).link;
    let (caller, facts) = (Arc::new(caller("decides")), tool_facts("read_it"));
    let arguments = Bytes::from_static(b"{}");
    let policy = PolicyClient::new(link.clone(), AMPLE);
    let decision = policy.authorize(&caller, &facts, &arguments, "");

    let audit = AuditClient::new(link.transport.clone(), AMPLE);
    let record = Record {
        time: Ambient::system().now(),
        event: Event::AdminChange(AdminChange {
            actor: "op".to_owned(),
            action: "tool.off".to_owned(),
            target: "read_it".to_owned(),
            ..AdminChange::default()
        }),
    };
    let append = audit.append(&record, false);

    let runner = ToolRunnerClient::new(link.transport, AMPLE);
    let permit = pb::SignedPermit {
        permit: Bytes::from_static(b"permit"),
        signature: Bytes::from_static(b"signature"),
    };
    let permit = SignedPermit::try_from(permit).unwrap();
    let call = runner.call_tool(CallTool {
        call_id: CallId::new(&Ambient::system()),
        caller: &caller,
        tool: &facts.name,
        arguments: arguments.clone(),
        permit: &permit,
        caller_token: None,
        idempotency_key: None,
        interaction: Interaction::default(),
        limit: AMPLE,
    });
    let sizes = [
        ("Authorize", size_of_val(&decision)),
        ("Append", size_of_val(&append)),
        ("CallTool", size_of_val(&call)),
    ];
    for (method, size) in sizes {
        assert!(size <= 1024, "{method}: {size} bytes");
    }
}

#[tokio::test]
async fn plain_text_needs_loopback_and_an_explicit_wish() {
    assert!(
        BoundServer::bind(&listen("127.0.0.1:0", false))
            .await
            .is_err()
    );
    assert!(BoundServer::bind(&listen("0.0.0.0:0", true)).await.is_err());
    for url in [
        "http://10.0.0.1:7001",
        "https://127.0.0.1:7001",
        "ftp://127.0.0.1",
        "nonsense url",
    ] {
        assert!(
            link::connect::<()>(url, Peer::Policy, NAME, None).is_err(),
            "{url}"
        );
    }
}

#[tokio::test]
async fn what_is_more_than_a_server_can_do_is_turned_away_and_told_when_to_come_back() {
    let one = Config {
        min: 1,
        max: 1,
        initial: 1,
        queue: 0,
        ..Config::default()
    };
    let bound = BoundServer::bind(&listen("127.0.0.1:0", true))
        .await
        .unwrap();
    let limiter = Limiter::new("test", one);
    let bound = bound.with_limiter(limiter.clone());
    let url = format!("http://{}", bound.address().unwrap());
    let (_readiness, service) = service();
    let never = Shutdown::when(std::future::pending());
    tokio::spawn(bound.serve(service, never));
    let link = link::connect(&url, Peer::Policy, NAME, None).unwrap().link;

    assert!(authorize_subject(&link, "decides", AMPLE).await.is_ok());
    let taken = limiter.enter_unchecked("", "");
    let refused = authorize_subject(&link, "decides", AMPLE)
        .await
        .unwrap_err();
    assert_eq!(refused, ErrorReason::Overloaded);
    let mut client = PolicyServiceClient::new(link.transport.clone());
    let status = client.authorize(pb::AuthorizeRequest::default()).await;
    let status = status.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unavailable);
    let pushback = status.metadata().get("grpc-retry-pushback-ms").unwrap();
    assert!(pushback.to_str().unwrap().parse::<u64>().unwrap() > 0);
    // Streams that last as long as their client occupy no slot.
    let versions = PolicyClient::new(link.clone(), AMPLE).watch_version().await;
    assert_eq!(versions.unwrap().count().await, 2);

    drop(taken);
    assert!(authorize_subject(&link, "decides", AMPLE).await.is_ok());
}

#[tokio::test]
async fn readiness_is_heard_over_a_wire_and_lost_with_the_connection() {
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("http://{address}");
    let (said, service) = service();
    // The server has a separate runtime, so that its connections end with it as with a process.
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let bound = BoundServer::bind(&listen(&address.to_string(), true))
                .await
                .unwrap();
            bound
                .serve(service, Shutdown::when(async { drop(stopped.await) }))
                .await
                .unwrap();
        });
    });
    let mut heard = link::connect::<()>(&url, Peer::Policy, NAME, None)
        .unwrap()
        .readiness;
    heard.wait_for(Readiness::is_ready).await.unwrap();

    said.send_replace(Readiness::NotReady("the disk is full".to_owned()));
    heard
        .wait_for(|readiness| !readiness.is_ready())
        .await
        .unwrap();
    said.send_replace(Readiness::Ready);
    heard.wait_for(Readiness::is_ready).await.unwrap();

    // The open watch does not prevent the server from ending.
    drop(stop);
    heard
        .wait_for(|readiness| !readiness.is_ready())
        .await
        .unwrap();
    serving.join().unwrap();
}
