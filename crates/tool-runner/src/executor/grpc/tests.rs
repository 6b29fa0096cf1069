use serde_json::json;
use tempfile::TempDir;
use tonic::Status;

use super::*;
use crate::executor::testing::{TestTool, refusal_text};
use wardgate_grpc_json::testing::{
    TestServer, answers, descriptor_set, methods, parcel, pool, refuses,
};

/// A tool that calls a server with a given handler. Its methods are known from a descriptor file.
struct Setup {
    server: TestServer,
    dir: TempDir,
}

impl Setup {
    async fn new(routes: axum::Router) -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::write(dir.path().join("parcels.binpb"), descriptor_set()).unwrap();
        Self {
            server: TestServer::start(routes).await,
            dir,
        }
    }

    fn sources(&self) -> String {
        format!(
            "{{ depot: {{ type: grpc, url: '{}', descriptors: '{}', private: true }} }}",
            self.server.url,
            self.dir.path().join("parcels.binpb").display()
        )
    }

    fn tool(&self, execute: &str, result: &str) -> TestTool {
        TestTool::new(&self.sources(), execute, result)
    }

    fn faults(&self, execute: &str) -> String {
        TestTool::faults(&self.sources(), execute)
    }
}

/// Returns a handler that answers with the `parcelId` of the request.
fn echo() -> axum::Router {
    methods(pool(), |metadata, message| {
        let id = message.get_field_by_name("parcel_id").unwrap();
        let id = id.as_str().unwrap_or_default().to_owned();
        answers(vec![parcel(
            &json!({"parcelId": id, "notes": [{"text": "a"}, {"text": "b"}]}),
        )])(metadata, message.clone())
    })
}

const GET: &str =
    "{ type: grpc, source: depot, method: parcels.v1.Parcels/Get, message: { parcel_id: '{id}' } }";

#[tokio::test]
async fn an_answer_is_a_document() {
    let setup = Setup::new(echo()).await;
    let ran = setup
        .tool(GET, "{}")
        .run(json!({"id": "p7"}))
        .await
        .unwrap();
    assert_eq!(ran.rows.len(), 1);
    assert_eq!(ran.rows[0]["parcelId"], "p7");
    assert_eq!(ran.rows[0]["fragile"], false);

    let tool = setup.tool(GET, "{ rows: /notes, columns: { said: /text } }");
    let ran = tool.run(json!({"id": "p7"})).await.unwrap();
    assert_eq!(ran.rows, [json!({"said": "a"}), json!({"said": "b"})]);
}

#[tokio::test]
async fn an_absent_argument_leaves_its_field_out() {
    let setup = Setup::new(echo()).await;
    let ran = setup.tool(GET, "{}").run(json!({})).await.unwrap();
    assert_eq!(ran.rows[0]["parcelId"], "");
}

#[tokio::test]
async fn each_message_of_a_stream_is_a_document() {
    let parcels = ["a", "b", "c"].map(|id| parcel(&json!({ "parcelId": id })));
    let setup = Setup::new(methods(pool(), answers(parcels.to_vec()))).await;
    let list =
        "{ type: grpc, source: depot, method: parcels.v1.Parcels/List, message: { count: '{n}' } }";
    let tool = setup.tool(list, "{ columns: { id: /parcelId } }");
    let ran = tool.run(json!({"n": 3})).await.unwrap();
    assert_eq!(
        ran.rows,
        [json!({"id": "a"}), json!({"id": "b"}), json!({"id": "c"})]
    );
}

#[tokio::test]
async fn a_full_result_ends_the_stream() {
    // The harness accepts at most a thousand rows.
    let one = parcel(&json!({ "parcelId": "x" }));
    let setup = Setup::new(methods(pool(), move |_, _| {
        let one = one.clone();
        Ok(Box::pin(futures::stream::repeat_with(move || {
            Ok(one.clone())
        })))
    }))
    .await;
    let list = "{ type: grpc, source: depot, method: parcels.v1.Parcels/List, message: {} }";
    let ran = setup.tool(list, "{}").run(json!({})).await.unwrap();
    assert_eq!(ran.rows.len(), 1_000);
}

#[tokio::test]
async fn a_value_that_does_not_fit_is_named_and_nothing_is_sent() {
    let setup = Setup::new(methods(pool(), |_, _| panic!("nothing is to be sent"))).await;
    let error = setup
        .tool(GET, "{}")
        .run(json!({"id": ["SECRET"]}))
        .await
        .unwrap_err();
    let ExecutorError::BadArgument { text } = error else {
        panic!("{error}");
    };
    assert_eq!(text, "`parcel_id` is not a string");
}

#[tokio::test]
async fn the_servers_words_are_released_only_where_the_tool_says() {
    let status = Status::not_found("no parcel SECRET");
    let setup = Setup::new(methods(pool(), refuses(status))).await;
    let run = async |result| {
        setup
            .tool(GET, result)
            .run(json!({"id": "p"}))
            .await
            .unwrap_err()
    };

    let refused = refusal_text(run("{}").await);
    assert_eq!(refused, "the service answered NOT_FOUND");
    match run("{ error: /error/message }").await {
        ExecutorError::Reported(words) => assert_eq!(words, "no parcel SECRET"),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_server_that_is_in_trouble_says_nothing_else() {
    for status in [
        Status::unavailable("SECRET"),
        Status::resource_exhausted("SECRET"),
    ] {
        let setup = Setup::new(methods(pool(), refuses(status))).await;
        let tool = setup.tool(GET, "{ error: /error/message }");
        let error = tool.run(json!({"id": "p"})).await.unwrap_err();
        assert!(
            matches!(error, ExecutorError::Unavailable { .. }),
            "{error}"
        );
        assert!(!refusal_text(error).contains("SECRET"));
    }
}

#[tokio::test]
async fn a_configured_call_is_checked_against_the_descriptors() {
    let setup = Setup::new(echo()).await;
    for (rest, faults) in [
        (
            "method: Get",
            "tools.yaml:7:51: `method` is not a method name; write it like `package.Service/Method`",
        ),
        (
            "method: parcels.v1.Parcels/Gone, message: {}",
            "tools.yaml:7:51: the descriptors of the source do not contain the method `parcels.v1.Parcels/Gone`; use one of `parcels.v1.Parcels/Get`, `parcels.v1.Parcels/List`, `parcels.v1.Parcels/Send`",
        ),
        (
            "method: parcels.v1.Parcels/Send, message: {}",
            "tools.yaml:7:51: `parcels.v1.Parcels/Send` takes a stream of messages, which is not supported; use a method that takes a single message",
        ),
        (
            "method: parcels.v1.Parcels/Get, message: { id: '{id}' }",
            "tools.yaml:7:86: `parcels.v1.GetRequest` has no field `id`; use one of `parcelId`",
        ),
        (
            "method: parcels.v1.Parcels/Get, message: { parcelId: '{nobody}' }",
            "`{nobody}` is not a property of `input_schema`",
        ),
        (
            "method: parcels.v1.Parcels/Get",
            "`parcels.v1.GetRequest` has no field for the argument `tags`; use one of `parcelId`, or add a `message`",
        ),
    ] {
        let found = setup.faults(&format!("{{ type: grpc, source: depot, {rest} }}"));
        assert!(found.contains(faults), "{rest}:\n{found}");
    }
}

#[test]
fn a_source_says_what_is_wrong_with_it() {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("broken"), b"\xff").unwrap();
    let good = "url: 'https://grpc.example.com'";
    for (source, fault) in [
        ("{ type: grpc }".to_owned(), "`sources.depot` has no `url`"),
        (
            "{ type: grpc, url: 'ftp://x' }".to_owned(),
            "`url` is not an http(s) URL",
        ),
        (
            "{ type: grpc, url: 'https://x/path' }".to_owned(),
            "`url` contains a path",
        ),
        (
            "{ type: grpc, url: 'http://127.0.0.1:1' }".to_owned(),
            "the URL is an address outside the public internet",
        ),
        (
            format!("{{ type: grpc, {good}, headers: {{}} }}"),
            "unknown key `headers`",
        ),
        (
            format!("{{ type: grpc, {good}, descriptors: '{}' }}", path("gone")),
            "the file of `descriptors` cannot be read",
        ),
        (
            format!(
                "{{ type: grpc, {good}, descriptors: '{}' }}",
                path("broken")
            ),
            "`descriptors` cannot be used: the bytes are not a protobuf FileDescriptorSet; create it with `protoc",
        ),
        (
            format!(
                "{{ type: grpc, {good}, tls: {{ ca: '{}' }} }}",
                path("broken")
            ),
            "`ca` contains no PEM certificate",
        ),
        (
            format!("{{ type: grpc, {good}, metadata: {{ grpc-timeout: 1S }} }}"),
            "`grpc-timeout` is set by gRPC or by `auth`",
        ),
        (
            format!("{{ type: grpc, {good}, metadata: {{ x-bin: '%SECRET' }} }}"),
            "`x-bin` ends with `-bin`, so its value must be Base64",
        ),
    ] {
        let found = TestTool::faults(&format!("{{ depot: {source} }}"), GET);
        assert!(found.contains(fault), "{source}:\n{found}");
        assert!(!found.contains("SECRET"), "{found}");
    }
    let sql = TestTool::faults("{ depot: { type: sqlite, url: 'sqlite:x' } }", GET);
    assert!(sql.contains("the source is not a gRPC server"), "{sql}");
}
