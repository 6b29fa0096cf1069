use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::stream::{self, StreamExt};
use tokio::sync::oneshot;
use wardgate_rpc::code_name;
use wardgate_testkit::{TestCertificate, serve};

use super::*;
use crate::add_metadata;
use crate::methods::NotAMethod;
use wardgate_egress::{ClientProof, OAuthClient, ServerSettings};

fn parcels(count: usize) -> Vec<DynamicMessage> {
    let parcel_of = |number: usize| parcel(&json!({ "parcelId": format!("p{number}") }));
    (0..count).map(parcel_of).collect()
}

#[tokio::test]
async fn a_unary_method_answers_once() {
    let server = TestServer::start(methods(pool(), |_, message| {
        let id = message.get_field_by_name("parcel_id").unwrap().into_owned();
        let id = id.as_str().unwrap();
        answers(vec![parcel(&json!({"parcelId": id, "grams": "7"}))])(
            MetadataMap::new(),
            message.clone(),
        )
    }))
    .await;
    let client = open_with_descriptors(&server.url);
    let answer = get(&client).await.unwrap();
    assert_eq!(answer["parcelId"], "p1");
    assert_eq!(answer["grams"], "7");
}

#[tokio::test]
async fn a_stream_answers_message_by_message() {
    let server = TestServer::start(methods(pool(), answers(parcels(100)))).await;
    let client = open_with_descriptors(&server.url);
    let all = call(&client, &method("List"), json!({"count": 100}))
        .await
        .unwrap();
    let ids: Vec<_> = all
        .iter()
        .map(|answer| answer["parcelId"].clone())
        .collect();
    let sent: Vec<_> = (0..100)
        .map(|number| Value::from(format!("p{number}")))
        .collect();
    assert_eq!(ids, sent);

    let server = TestServer::start(methods(pool(), answers(vec![]))).await;
    let client = open_with_descriptors(&server.url);
    assert!(
        call(&client, &method("List"), json!({}))
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn unknown_methods_and_streams_of_requests_are_refused_unsent() {
    let server = TestServer::start(methods(pool(), |_, _| panic!("nothing is to be sent"))).await;
    let client = open_with_descriptors(&server.url);
    for (name, text) in [
        (
            "parcels.v1.Parcels/Gone",
            "the server has no method `parcels.v1.Parcels/Gone`",
        ),
        (
            "parcels.v1.Gone/Get",
            "the server has no method `parcels.v1.Gone/Get`",
        ),
        (
            "parcels.v1.Parcels/Send",
            "the method `parcels.v1.Parcels/Send` requires a stream of messages; only one message can be sent",
        ),
    ] {
        let error = call(&client, &name.parse().unwrap(), json!({}))
            .await
            .unwrap_err();
        assert_eq!(error.to_string(), text);
    }
    let misfit = call(&client, &method("Get"), json!({"id": 1}))
        .await
        .unwrap_err();
    assert!(matches!(misfit, GrpcError::Misfit(_)), "{misfit}");
    let huge = json!({"parcelId": "x".repeat(5 << 20)});
    let huge = call(&client, &method("Get"), huge).await.unwrap_err();
    assert!(matches!(huge, GrpcError::RequestTooLarge(_)), "{huge}");
}

#[test]
fn a_name_is_a_service_and_a_method() {
    for name in ["a.B/C", "B/C", "_a.b.C_1/D_2"] {
        assert_eq!(name.parse::<MethodName>().unwrap().to_string(), name);
    }
    for name in [
        "",
        "B",
        "/a.B/C",
        "a.B/C/D",
        "a.B/",
        "/C",
        "a..B/C",
        ".B/C",
        "a.B/C?x",
        "a b/C",
        "a.B/\u{dc}",
    ] {
        assert_eq!(name.parse::<MethodName>(), Err(NotAMethod), "{name}");
    }
}

#[tokio::test]
async fn the_server_sees_the_metadata_and_the_deadline() {
    let (seen, mut received) = tokio::sync::mpsc::unbounded_channel();
    let server = TestServer::start(methods(pool(), move |metadata, message| {
        seen.send(metadata).unwrap();
        answers(parcels(1))(MetadataMap::new(), message)
    }))
    .await;
    let mut metadata = MetadataMap::new();
    add_metadata(&mut metadata, "x-tenant", "north").unwrap();
    add_metadata(&mut metadata, "x-key-bin", "AP8=").unwrap();
    let client = open(&GrpcSettings {
        metadata: metadata.into_headers(),
        auth: AuthSettings::Bearer {
            token: "token".to_owned().into(),
        },
        ..settings(&server.url, Some(descriptors()))
    });
    let deadline = Instant::now() + Duration::from_secs(9);
    let mut answers = client
        .call(&method("Get"), &json!({}), None, deadline)
        .await
        .unwrap();
    answers.next().await.unwrap();

    let seen = received.recv().await.unwrap();
    assert_eq!(seen.get("x-tenant").unwrap(), "north");
    assert_eq!(
        seen.get_bin("x-key-bin").unwrap().to_bytes().unwrap(),
        [0, 255].as_slice()
    );
    assert_eq!(seen.get("authorization").unwrap(), "Bearer token");
    assert!(
        seen.get("user-agent")
            .unwrap()
            .to_str()
            .unwrap()
            .starts_with("wardgate/")
    );
    let timeout = seen.get("grpc-timeout").unwrap().to_str().unwrap();
    let (digits, unit) = timeout.split_at(timeout.len() - 1);
    assert_eq!(unit, "u");
    let micros: u64 = digits.parse().unwrap();
    assert!((5_000_000..=9_000_000).contains(&micros), "{timeout}");
}

#[tokio::test]
async fn a_silent_server_ends_at_the_deadline() {
    let server = TestServer::start(methods(pool(), |_, _| {
        let first = stream::iter(vec![Ok(parcel(&json!({})))]);
        Ok(first.chain(stream::pending()).boxed())
    }))
    .await;
    let client = open_with_descriptors(&server.url);
    let deadline = Instant::now() + Duration::from_millis(300);
    let name = method("List");
    let mut answers = client
        .call(&name, &json!({}), None, deadline)
        .await
        .unwrap();
    assert!(answers.next().await.unwrap().is_some());
    let late = answers.next().await.unwrap_err();
    assert!(matches!(late, GrpcError::Timeout), "{late}");

    // The server does not even send headers. The deadline of the second call has already passed.
    let server = TestServer::start(raw(|_| std::future::pending())).await;
    let client = open_with_descriptors(&server.url);
    for milliseconds in [300, 0] {
        let deadline = Instant::now() + Duration::from_millis(milliseconds);
        let late = client
            .call(&name, &json!({}), None, deadline)
            .await
            .err()
            .unwrap();
        assert!(matches!(late, GrpcError::Timeout), "{late}");
    }
}

/// Sends a signal when it is dropped.
struct DropSignal(Option<oneshot::Sender<()>>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        let _ = self.0.take().unwrap().send(());
    }
}

#[tokio::test]
async fn to_stop_reading_cancels_the_call_at_the_server() {
    let (dropped, cancelled) = oneshot::channel();
    let guard = Arc::new(Mutex::new(Some(DropSignal(Some(dropped)))));
    let server = TestServer::start(methods(pool(), move |_, _| {
        let guard = guard.lock().unwrap().take().unwrap();
        let endless = stream::repeat_with(move || {
            let _held = &guard;
            Ok(parcel(&json!({})))
        });
        Ok(endless.boxed())
    }))
    .await;
    let client = open_with_descriptors(&server.url);
    let name = method("List");
    let mut answers = client.call(&name, &json!({}), None, soon()).await.unwrap();
    for _ in 0..3 {
        assert!(answers.next().await.unwrap().is_some());
    }
    drop(answers);
    tokio::time::timeout(Duration::from_mins(1), cancelled)
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn every_status_means_something() {
    for (code, name) in [
        (Code::InvalidArgument, "INVALID_ARGUMENT"),
        (Code::NotFound, "NOT_FOUND"),
        (Code::AlreadyExists, "ALREADY_EXISTS"),
        (Code::PermissionDenied, "PERMISSION_DENIED"),
        (Code::FailedPrecondition, "FAILED_PRECONDITION"),
        (Code::Aborted, "ABORTED"),
        (Code::OutOfRange, "OUT_OF_RANGE"),
        (Code::ResourceExhausted, "RESOURCE_EXHAUSTED"),
        (Code::Unavailable, "UNAVAILABLE"),
        (Code::Unimplemented, "UNIMPLEMENTED"),
        (Code::Unauthenticated, "UNAUTHENTICATED"),
    ] {
        match status_of(code).await {
            GrpcError::Status { code, message } => {
                assert_eq!((code_name(code), message.as_str()), (name, "SECRET"));
            }
            other => panic!("{name}: {other}"),
        }
    }
    for code in [
        Code::Internal,
        Code::Unknown,
        Code::DataLoss,
        Code::Cancelled,
    ] {
        let broken = status_of(code).await;
        assert!(matches!(broken, GrpcError::Broken(_)), "{code:?}: {broken}");
    }
}

#[tokio::test]
async fn a_time_limit_of_the_server_is_not_the_deadline_of_the_call() {
    let stopped = status_of(Code::DeadlineExceeded).await;
    assert!(matches!(stopped, GrpcError::ServerTimeout), "{stopped}");

    // The server reports that the deadline has passed, before the client's own timer ends the call.
    let status = Status::deadline_exceeded("SECRET");
    let work = std::future::ready(Err::<(), _>(status));
    let late = before(Instant::now(), work).await.unwrap_err();
    assert!(matches!(late, GrpcError::Timeout), "{late}");
}

async fn status_of(code: Code) -> GrpcError {
    let server = TestServer::start(methods(pool(), refuses(Status::new(code, "SECRET")))).await;
    let client = open_with_descriptors(&server.url);
    let error = get(&client).await.unwrap_err();
    assert!(!error.to_string().contains("SECRET"), "{error}");
    error
}

#[tokio::test]
async fn a_status_after_messages_fails_the_call() {
    let handle = |_: MetadataMap, _: DynamicMessage| {
        let status = Status::not_found("there is no more");
        Ok(stream::iter(vec![Ok(parcel(&json!({}))), Err(status)]).boxed())
    };
    let server = TestServer::start(methods(pool(), handle)).await;
    let client = open_with_descriptors(&server.url);
    for name in ["List", "Get"] {
        let error = call(&client, &method(name), json!({})).await.unwrap_err();
        assert!(
            matches!(
                error,
                GrpcError::Status {
                    code: Code::NotFound,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[tokio::test]
async fn where_nobody_listens_nothing_was_sent() {
    let server = TestServer::start(methods(pool(), answers(parcels(1)))).await;
    let url = server.url.clone();
    let client = open_with_descriptors(&url);
    server.stop().await;
    let error = get(&client).await.unwrap_err();
    assert!(matches!(error, GrpcError::Unreachable(_)), "{error}");
}

#[tokio::test]
async fn a_lost_connection_is_made_again() {
    let server = TestServer::start(methods(pool(), answers(parcels(1)))).await;
    let address = server.address;
    let client = open_with_descriptors(&server.url);
    get(&client).await.unwrap();
    server.stop().await;
    get(&client).await.unwrap_err();
    let _server = TestServer::start_at(address, methods(pool(), answers(parcels(1)))).await;
    get(&client).await.unwrap();
}

#[tokio::test]
async fn addresses_off_the_internet_are_connected_to_only_where_listed() {
    let server = TestServer::start(methods(pool(), answers(parcels(1)))).await;
    let port = server.address.port();
    for (host, networks, reached) in [
        ("127.0.0.1", "127.0.0.0/8", true),
        ("localhost", "127.0.0.0/8", true),
        ("127.0.0.1", "10.0.0.0/8", false),
        ("localhost", "10.0.0.0/8", false),
        ("[::1]", "127.0.0.0/8", false),
        ("[::ffff:127.0.0.1]", "10.0.0.0/8", false),
    ] {
        let url: Url = format!("http://{host}:{port}").parse().unwrap();
        let mut settings = settings(&url, Some(descriptors()));
        settings.egress.private = PrivateAddresses::Listed(vec![networks.parse().unwrap()]);
        match get(&open(&settings)).await {
            Ok(_) => assert!(reached, "{host} {networks}"),
            Err(GrpcError::Unreachable(cause)) => {
                assert!(!reached, "{host} {networks}: {cause}");
                assert!(
                    cause.contains("if this is intended, add their network to `private`"),
                    "{cause}"
                );
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn over_tls_the_server_has_to_be_one_that_the_ca_vouches_for() {
    let own = TestCertificate::localhost();
    let routes = methods(pool(), answers(parcels(1)));
    let server = TestServer::start_tls(&own.certificate, &own.key, routes).await;
    let url: Url = format!("https://localhost:{}", server.address.port())
        .parse()
        .unwrap();
    let with = |ca: &str| {
        let mut settings = settings(&url, Some(descriptors()));
        settings.egress.network.tls.ca = Some(ca.to_owned());
        settings
    };
    get(&open(&with(&own.certificate))).await.unwrap();

    let other = TestCertificate::localhost();
    let error = get(&open(&with(&other.certificate))).await.unwrap_err();
    assert!(matches!(error, GrpcError::Unreachable(_)), "{error}");
}

#[tokio::test]
async fn a_token_that_is_not_accepted_is_renewed_once() {
    let server = TestServer::start(methods(pool(), |metadata, message| {
        match metadata.get("authorization").unwrap().to_str().unwrap() {
            "Bearer token2" => answers(parcels(1))(metadata, message),
            _ => Err(Status::unauthenticated("")),
        }
    }))
    .await;
    let granted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&granted);
    let grant = axum::routing::post(move || async move {
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        json!({"access_token": format!("token{number}"), "token_type": "Bearer", "expires_in": 600})
            .to_string()
    });
    let routes = axum::Router::new().route("/", grant);
    let token_url = format!("http://{}/", serve(routes).await);
    let mut settings = settings(&server.url, Some(descriptors()));
    settings.egress.timeout = Duration::from_secs(10);
    settings.auth = AuthSettings::ClientCredentials(OAuthClient {
        server: ServerSettings {
            token_url: Some(token_url.parse().unwrap()),
            ..ServerSettings::default()
        },
        resource: None,
        client_id: "me".to_owned(),
        proof: ClientProof::Secret("secret".to_owned().into()),
        scope: None,
        audience: None,
    });
    let client = open(&settings);
    for _ in 0..3 {
        get(&client).await.unwrap();
    }
    assert_eq!(granted.load(Ordering::Relaxed), 2);
}
