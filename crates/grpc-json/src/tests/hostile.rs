use bytes::Bytes;
use futures::stream::{self, StreamExt};
use http::HeaderMap;
use http_body::Frame;
use http_body_util::StreamBody;
use tokio::io::AsyncWriteExt;
use tonic::body::Body;

use super::*;

type Frames = Vec<Result<Frame<Bytes>, std::io::Error>>;

/// Returns a message with its gRPC framing.
fn frame_message(message: &[u8]) -> Frame<Bytes> {
    let mut bytes = vec![0];
    bytes.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
    bytes.extend_from_slice(message);
    Frame::data(bytes.into())
}

fn trailers(pairs: &[(&'static str, &'static str)]) -> Frame<Bytes> {
    let pairs = pairs
        .iter()
        .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    Frame::trailers(pairs.collect::<HeaderMap>())
}

fn note() -> Frame<Bytes> {
    frame_message(&parcel(&json!({"parcelId": "p1"})).encode_to_vec())
}

/// Returns the results of a unary and of a streaming call when the server sends exactly these headers and frames.
async fn call_raw_server(
    headers: &'static [(&'static str, &'static str)],
    frames: fn() -> Frames,
) -> [Result<usize, GrpcError>; 2] {
    let server = TestServer::start(raw(move |_| async move {
        let mut response = http::Response::builder().header("content-type", "application/grpc");
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response
            .body(Body::new(StreamBody::new(stream::iter(frames()))))
            .unwrap()
    }))
    .await;
    let client = open_with_descriptors(&server.url);
    let unary = call(&client, &method("Get"), json!({}))
        .await
        .map(|all| all.len());
    let stream = call(&client, &method("List"), json!({}))
        .await
        .map(|all| all.len());
    [unary, stream]
}

#[tokio::test]
async fn the_test_server_can_be_honest() {
    let [unary, stream] = call_raw_server(&[], || {
        vec![Ok(note()), Ok(trailers(&[("grpc-status", "0")]))]
    })
    .await;
    assert_eq!((unary.unwrap(), stream.unwrap()), (1, 1));
}

#[tokio::test]
async fn a_stream_without_a_status_is_cut_and_not_complete() {
    for frames in [
        (|| vec![Ok(note())]) as fn() -> Frames,
        || vec![],
        || vec![Ok(note()), Ok(trailers(&[("x-other", "1")]))],
    ] {
        for outcome in call_raw_server(&[], frames).await {
            let error = outcome.unwrap_err();
            assert!(matches!(error, GrpcError::Broken(_)), "{error}");
        }
    }
}

#[tokio::test]
async fn a_reset_in_the_middle_breaks_the_call() {
    let frames = || vec![Ok(note()), Err(std::io::Error::other("gone"))];
    for outcome in call_raw_server(&[], frames).await {
        let error = outcome.unwrap_err();
        assert!(matches!(error, GrpcError::Broken(_)), "{error}");
    }
}

#[tokio::test]
async fn a_unary_method_answers_neither_nothing_nor_twice() {
    let none = || vec![Ok(trailers(&[("grpc-status", "0")]))];
    let [unary, stream] = call_raw_server(&[], none).await;
    assert_eq!(
        unary.unwrap_err().to_string(),
        "the answer cannot be shown: the call completed without a message"
    );
    assert_eq!(stream.unwrap(), 0);
    let [unary, stream] = call_raw_server(&[("grpc-status", "0")], Vec::new).await;
    assert!(matches!(unary.unwrap_err(), GrpcError::BadAnswer(_)));
    assert_eq!(stream.unwrap(), 0);

    let two = || {
        vec![
            Ok(note()),
            Ok(note()),
            Ok(trailers(&[("grpc-status", "0")])),
        ]
    };
    let [unary, stream] = call_raw_server(&[], two).await;
    assert_eq!(
        unary.unwrap_err().to_string(),
        "the answer cannot be shown: the call returned more than one message"
    );
    assert_eq!(stream.unwrap(), 2);
}

#[tokio::test]
async fn status_details_that_are_no_base64_do_no_harm() {
    let in_trailers = || {
        vec![Ok(trailers(&[
            ("grpc-status", "5"),
            ("grpc-status-details-bin", "%%%"),
        ]))]
    };
    for outcome in call_raw_server(&[], in_trailers).await {
        let error = outcome.unwrap_err();
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
    let in_headers = &[("grpc-status", "5"), ("grpc-status-details-bin", "%%%")];
    for outcome in call_raw_server(in_headers, Vec::new).await {
        let error = outcome.unwrap_err();
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
async fn bytes_that_are_no_message_are_a_bad_answer() {
    let frames = || {
        vec![
            Ok(frame_message(b"\xff\xff\xff")),
            Ok(trailers(&[("grpc-status", "0")])),
        ]
    };
    for outcome in call_raw_server(&[], frames).await {
        let error = outcome.unwrap_err();
        assert!(matches!(error, GrpcError::BadAnswer(_)), "{error}");
    }
    // The first frame is compressed although no compression was agreed on, and the second has an invalid flag.
    for frames in [
        (|| vec![Ok(Frame::data(Bytes::from_static(&[1, 0, 0, 0, 0])))]) as fn() -> Frames,
        || vec![Ok(Frame::data(Bytes::from_static(&[9, 0, 0, 0, 0])))],
    ] {
        for outcome in call_raw_server(&[], frames).await {
            let error = outcome.unwrap_err();
            assert!(matches!(error, GrpcError::Broken(_)), "{error}");
        }
    }
}

#[tokio::test]
async fn messages_over_the_limit_are_refused_before_they_are_read() {
    // The frame only announces four gigabytes.
    let announced = || {
        vec![Ok(Frame::data(Bytes::from_static(&[
            0, 255, 255, 255, 255,
        ])))]
    };
    for outcome in call_raw_server(&[], announced).await {
        let error = outcome.unwrap_err();
        assert!(matches!(error, GrpcError::TooLarge), "{error}");
    }
    let huge = parcel(&json!({"parcelId": "x".repeat(LIMIT)}));
    let server = TestServer::start(methods(pool(), answers(vec![huge]))).await;
    let error = get(&open_with_descriptors(&server.url)).await.unwrap_err();
    assert!(matches!(error, GrpcError::TooLarge), "{error}");
    let fits = parcel(&json!({"parcelId": "x".repeat(LIMIT - 100)}));
    let server = TestServer::start(methods(pool(), answers(vec![fits]))).await;
    get(&open_with_descriptors(&server.url)).await.unwrap();
}

#[tokio::test]
async fn an_endless_stream_is_read_only_as_far_as_wanted() {
    let server = TestServer::start(methods(pool(), |_, _| {
        Ok(stream::repeat_with(|| Ok(parcel(&json!({"parcelId": "x".repeat(1000)})))).boxed())
    }))
    .await;
    let client = open_with_descriptors(&server.url);
    let name = method("List");
    let mut answers = client.call(&name, &json!({}), None, soon()).await.unwrap();
    for _ in 0..1000 {
        answers.next().await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn http_that_is_no_grpc_breaks_the_call() {
    for status in [502, 500, 404, 200] {
        let server = TestServer::start(raw(move |_| async move {
            let body = Body::new(StreamBody::new(stream::iter(vec![
                Ok::<_, std::io::Error>(Frame::data(Bytes::from_static(b"<html>SECRET</html>"))),
            ])));
            http::Response::builder().status(status).body(body).unwrap()
        }))
        .await;
        let error = get(&open_with_descriptors(&server.url)).await.unwrap_err();
        let is_status = matches!(error, GrpcError::Status { .. });
        assert!(
            matches!(error, GrpcError::Broken(_)) || is_status,
            "{status}: {error}"
        );
        assert!(!error.to_string().contains("SECRET"), "{status}: {error}");
    }
}

#[tokio::test]
async fn what_speaks_no_http2_breaks_the_call() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Url = format!("http://{}", listener.local_addr().unwrap())
        .parse()
        .unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let error = get(&open_with_descriptors(&url)).await.unwrap_err();
    assert!(
        matches!(error, GrpcError::Broken(_) | GrpcError::Unreachable(_)),
        "{error}"
    );
}
