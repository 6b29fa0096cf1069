use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::stream::{BoxStream, StreamExt};
use prost_types::FileDescriptorProto;
use tonic::Response;
use tonic::service::Routes;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::server_reflection_server::{
    ServerReflection, ServerReflectionServer,
};
use tonic_reflection::pb::v1::{
    ErrorResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest,
    ServerReflectionResponse,
};

use super::*;
use crate::testing::{reflection_v1, reflection_v1alpha};

fn parcel_service() -> axum::Router {
    methods(pool(), answers(vec![parcel(&json!({"parcelId": "p1"}))]))
}

/// The responses of a server to reflection requests, and the number of requests.
#[derive(Clone)]
struct ReflectionAnswers {
    answer: Arc<dyn Fn(&MessageRequest) -> MessageResponse + Send + Sync>,
    questions: Arc<AtomicUsize>,
}

#[tonic::async_trait]
impl ServerReflection for ReflectionAnswers {
    type ServerReflectionInfoStream = BoxStream<'static, Result<ServerReflectionResponse, Status>>;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<ServerReflectionRequest>>,
    ) -> Result<Response<Self::ServerReflectionInfoStream>, Status> {
        let told = self.clone();
        let answers = request.into_inner().map(move |question| {
            told.questions.fetch_add(1, Ordering::Relaxed);
            let question = question?.message_request.unwrap();
            Ok(ServerReflectionResponse {
                message_response: Some((told.answer)(&question)),
                ..ServerReflectionResponse::default()
            })
        });
        Ok(Response::new(answers.boxed()))
    }
}

fn tells(
    answer: impl Fn(&MessageRequest) -> MessageResponse + Send + Sync + 'static,
) -> (axum::Router, Arc<AtomicUsize>) {
    let told = ReflectionAnswers {
        answer: Arc::new(answer),
        questions: Arc::default(),
    };
    let questions = Arc::clone(&told.questions);
    (
        Routes::new(ServerReflectionServer::new(told)).into_axum_router(),
        questions,
    )
}

fn sends(files: &[FileDescriptorProto]) -> MessageResponse {
    MessageResponse::FileDescriptorResponse(FileDescriptorResponse {
        file_descriptor_proto: files.iter().map(Message::encode_to_vec).collect(),
    })
}

fn knows_nothing() -> MessageResponse {
    MessageResponse::ErrorResponse(ErrorResponse {
        error_code: 5,
        error_message: "SECRET".to_owned(),
    })
}

fn imports(name: &str, of: &[&str]) -> FileDescriptorProto {
    FileDescriptorProto {
        name: Some(name.to_owned()),
        dependency: of.iter().map(ToString::to_string).collect(),
        ..FileDescriptorProto::default()
    }
}

/// Returns the error text of a call when the reflection responds like this.
async fn failure(
    answer: impl Fn(&MessageRequest) -> MessageResponse + Send + Sync + 'static,
) -> String {
    let server = TestServer::start(tells(answer).0).await;
    let error = get(&open_with_reflection(&server.url)).await.unwrap_err();
    let undescribed = matches!(error, GrpcError::Undescribed(_) | GrpcError::NoMethod(_));
    assert!(undescribed, "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn both_versions_of_reflection_describe_a_server() {
    for reflection in [reflection_v1(&files()), reflection_v1alpha(&files())] {
        let server = TestServer::start(reflection.merge(parcel_service())).await;
        let client = open_with_reflection(&server.url);
        assert_eq!(get(&client).await.unwrap()["parcelId"], "p1");
    }
}

#[tokio::test]
async fn a_server_without_reflection_wants_a_descriptor_file() {
    let server = TestServer::start(parcel_service()).await;
    let error = get(&open_with_reflection(&server.url)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server does not describe its methods: it does not support reflection; set `descriptors` of the source"
    );
}

#[tokio::test]
async fn a_server_is_asked_once_for_all_calls() {
    let all = files().file;
    let (reflection, questions) = tells(move |_| sends(&all));
    let server = TestServer::start(reflection.merge(parcel_service())).await;
    let client = open_with_reflection(&server.url);
    let calls = (0..20).map(|_| get(&client));
    for answer in futures::future::join_all(calls).await {
        answer.unwrap();
    }
    assert_eq!(questions.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn imports_are_asked_for_one_by_one_and_never_twice() {
    let all = files().file;
    let (reflection, questions) = tells(move |question| match question {
        MessageRequest::FileContainingSymbol(_) => sends(&all[all.len() - 1..]),
        MessageRequest::FileByFilename(name) => {
            // Some servers send all files in every response.
            assert_eq!(name, "sizes.proto");
            sends(&all)
        }
        _ => panic!("not asked"),
    });
    let server = TestServer::start(reflection.merge(parcel_service())).await;
    get(&open_with_reflection(&server.url)).await.unwrap();
    assert_eq!(questions.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_method_that_is_not_there_is_looked_for_again_but_not_at_every_call() {
    let mut old = files();
    for file in &mut old.file {
        for service in &mut file.service {
            service.method.retain(|method| method.name() != "Get");
        }
    }
    let (old, new) = (old.file, files().file);
    let asked = Arc::new(AtomicUsize::new(0));
    let answered = Arc::clone(&asked);
    let (reflection, questions) = tells(move |_| match answered.fetch_add(1, Ordering::Relaxed) {
        0 => sends(&old),
        _ => sends(&new),
    });
    let server = TestServer::start(reflection.merge(parcel_service())).await;
    let mut client = open_with_reflection(&server.url);
    for _ in 0..3 {
        let error = get(&client).await.unwrap_err();
        assert!(matches!(error, GrpcError::NoMethod(_)), "{error}");
    }
    assert_eq!(questions.load(Ordering::Relaxed), 1);

    asked.store(0, Ordering::Relaxed);
    questions.store(0, Ordering::Relaxed);
    client.methods = MethodTable::Reflected(ReflectedServices::new(Duration::ZERO));
    get(&client).await.unwrap_err();
    get(&client).await.unwrap();
    assert_eq!(questions.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_new_connection_is_asked_anew() {
    let all = files().file;
    let (reflection, _) = tells(move |_| sends(&all));
    let server = TestServer::start(reflection.merge(parcel_service())).await;
    let address = server.address;
    let client = open_with_reflection(&server.url);
    get(&client).await.unwrap();
    server.stop().await;

    // The server that replaces it has another name for a field.
    let mut renamed = files();
    let last = renamed.file.len() - 1;
    renamed.file[last].message_type[2].field[0].name = Some("code".to_owned());
    renamed.file[last].message_type[2].field[0].json_name = Some("code".to_owned());
    let (reflection, questions) = tells(move |_| sends(&renamed.file));
    let _server = TestServer::start_at(address, reflection.merge(parcel_service())).await;
    // The first call detects that the connection is a new one.
    get(&client).await.unwrap();
    assert_eq!(get(&client).await.unwrap()["code"], "p1");
    assert_eq!(questions.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_server_that_knows_no_method_is_asked_anew() {
    let all = files().file;
    let (reflection, questions) = tells(move |_| sends(&all));
    let refuses = refuses(Status::unimplemented(""));
    let server = TestServer::start(reflection.merge(methods(pool(), refuses))).await;
    let client = open_with_reflection(&server.url);
    for asked in 1..=2 {
        let error = get(&client).await.unwrap_err();
        assert!(
            matches!(
                error,
                GrpcError::Status {
                    code: Code::Unimplemented,
                    ..
                }
            ),
            "{error}"
        );
        assert_eq!(questions.load(Ordering::Relaxed), asked);
    }
}

#[tokio::test]
async fn lies_of_a_reflection_end_the_call() {
    const PREFIX: &str = "the server does not describe its methods: its reflection service ";
    let unknown = failure(|_| knows_nothing()).await;
    assert_eq!(unknown, "the server has no method `parcels.v1.Parcels/Get`");

    // These files describe something else.
    let other = failure(|_| sends(&[imports("other.proto", &[])])).await;
    assert_eq!(other, "the server has no method `parcels.v1.Parcels/Get`");

    let missing = failure(|question| match question {
        MessageRequest::FileContainingSymbol(_) => sends(&[imports("a", &["b"])]),
        _ => knows_nothing(),
    });
    assert_eq!(
        missing.await,
        format!("{PREFIX}does not have a file that one of its files imports")
    );

    let another = failure(|question| match question {
        MessageRequest::FileContainingSymbol(_) => sends(&[imports("a", &["b"])]),
        _ => sends(&[imports("c", &["d"])]),
    });
    assert_eq!(
        another.await,
        format!("{PREFIX}returned another file than requested")
    );

    let same = failure(|_| sends(&[imports("a", &["b"])]));
    assert_eq!(
        same.await,
        format!("{PREFIX}returned another file than requested")
    );

    let list = failure(|_| MessageResponse::ListServicesResponse(ListServiceResponse::default()));
    assert_eq!(
        list.await,
        format!("{PREFIX}returned something other than files")
    );

    let bytes = failure(|_| {
        MessageResponse::FileDescriptorResponse(FileDescriptorResponse {
            file_descriptor_proto: vec![b"SECRET".to_vec()],
        })
    });
    assert_eq!(
        bytes.await,
        format!("{PREFIX}returned bytes that are not a file")
    );

    let circle = failure(|question| match question {
        MessageRequest::FileByFilename(name) if name == "b" => sends(&[imports("b", &["a"])]),
        _ => sends(&[imports("a", &["b"])]),
    });
    let text =
        "returned descriptors that cannot be used: `a` imports itself, directly or indirectly";
    assert_eq!(circle.await, format!("{PREFIX}{text}"));
}

#[tokio::test]
async fn files_without_end_are_cut_off() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    // Each file imports the next one, of ten thousand.
    let chain = failure(move |question| {
        asked.fetch_add(1, Ordering::Relaxed);
        let number: usize = match question {
            MessageRequest::FileByFilename(name) => name.parse().unwrap(),
            _ => 0,
        };
        assert!(number < 10_000);
        sends(&[imports(&number.to_string(), &[&(number + 1).to_string()])])
    });
    let text = "the server does not describe its methods: its reflection service returned descriptors that cannot be used: there are more than 1000 files";
    assert_eq!(chain.await, text);
    assert_eq!(counted.load(Ordering::Relaxed), 1001);

    let names: Vec<_> = (0..10_000)
        .map(|number| imports(&number.to_string(), &[]))
        .collect();
    assert_eq!(failure(move |_| sends(&names)).await, text);

    let large = failure(|_| {
        let mut large = imports("a", &[]);
        large.options = Some(prost_types::FileOptions {
            java_package: Some("x".repeat(9 << 20)),
            ..prost_types::FileOptions::default()
        });
        sends(&[large])
    });
    assert!(large.await.ends_with("there are more than 8388608 bytes"));
}

#[tokio::test]
async fn a_reflection_that_says_nothing_holds_no_call_for_long() {
    let server = TestServer::start(raw(|_| std::future::pending())).await;
    let client = open_with_reflection(&server.url);
    let began = std::time::Instant::now();
    let deadline = Instant::now() + Duration::from_millis(300);
    let late = client
        .call(&method("Get"), &json!({}), None, deadline)
        .await
        .err()
        .unwrap();
    assert_eq!(
        late.to_string(),
        "the server cannot be reached: its reflection took too long"
    );
    assert!(began.elapsed() < Duration::from_mins(1));
}

#[tokio::test]
async fn a_reflection_that_stops_at_its_own_time_limit_sends_no_call() {
    let stopped = |_| async { Status::deadline_exceeded("SECRET").into_http() };
    let server = TestServer::start(raw(stopped)).await;
    let error = get(&open_with_reflection(&server.url)).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the server cannot be reached: its reflection stopped at its own time limit"
    );
}
