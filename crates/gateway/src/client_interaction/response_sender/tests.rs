//! Tests of the sender of responses.

use axum::body::to_bytes;
use futures::StreamExt;

use super::*;

/// Creates a stream that has begun, and its body.
fn start_stream() -> (ResponseSender<McpResponse>, Body) {
    let (mut out, mut answer) = response_channel();
    let mut body = None;
    out.start_stream(|stream| {
        body = Some(stream);
        McpResponse::accepted_without_body()
    });
    answer.try_recv().unwrap();
    (out, body.unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_holds_nothing_up() {
    let (mut out, _unread) = start_stream();
    for _ in 0..=AHEAD {
        assert!(matches!(out, ResponseSender::Streaming(_)));
        out.send_event(Bytes::from_static(b"data:\n\n")).await;
    }
    assert!(matches!(out, ResponseSender::Closed));
    out.disconnected().await;
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_says_that_it_lives() {
    let (mut out, body) = start_stream();
    let mut received = body.into_data_stream();
    assert_eq!(received.next().await.unwrap().unwrap(), ":\n\n");
    out.send_event(format_event(None, None, "1")).await;
    assert_eq!(
        received.next().await.unwrap().unwrap(),
        "event: message\ndata: 1\n\n"
    );
}

#[tokio::test]
async fn nothing_follows_the_last_word() {
    let (mut out, body) = start_stream();
    let id = serde_json::value::to_raw_value(&7).unwrap();
    out.send_answer(McpResponse::empty(&id)).await;
    out.send_event(format_event(None, None, "late")).await;
    let received = to_bytes(body, 1_000).await.unwrap();
    let received = std::str::from_utf8(&received).unwrap();
    assert!(received.contains(r#""result":{}"#) && !received.contains("late"));
}
