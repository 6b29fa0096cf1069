//! Test support for providers.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use wardgate_testkit::lowest_chance;

use super::answer::AnswerAssembly;
use super::calls::CallIds;
use super::frames::{ByteStream, Frames};
use super::replay::CASSETTES;
use super::telemetry::AnswerTelemetry;
use super::{AnswerReader, Provider, ProviderKind};
use crate::model::{FinishReason, FunctionCall, ModelError, ModelEvent, ModelRequest, ModelStream};

/// Returns all events of `stream`, and the error that ended it, if any.
pub(super) async fn collect(mut stream: ModelStream) -> (Vec<ModelEvent>, Result<(), ModelError>) {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(event) => events.push(event),
            Err(error) => return (events, Err(error)),
        }
    }
    (events, Ok(()))
}

/// A complete answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) text: String,
    pub(super) calls: Vec<FunctionCall>,
    pub(super) finish: Option<FinishReason>,
}

/// Requests an answer and waits until it is complete.
pub(super) async fn complete(
    provider: &Provider,
    request: &ModelRequest,
) -> Result<Completion, ModelError> {
    let (events, end) = collect(provider.stream(request).await?).await;
    let mut answer = Completion::default();
    for event in events {
        match event {
            ModelEvent::Text(text) => answer.text.push_str(&text),
            ModelEvent::Call(call) => answer.calls.push(call),
            ModelEvent::Finished(finish) => answer.finish = Some(finish),
            ModelEvent::Reasoning(_) | ModelEvent::Usage(_) => {}
        }
    }
    end.map(|()| answer)
}

/// Returns the events of an answer whose bytes arrive in these pieces. Adjacent texts are joined, because the boundaries
/// between them have no meaning.
pub(super) async fn read_pieces(
    kind: ProviderKind,
    pieces: Vec<Vec<u8>>,
) -> (Vec<ModelEvent>, Result<(), ModelError>) {
    let pieces = pieces.into_iter().map(|piece| Ok(Bytes::from(piece)));
    let body = stream::iter(pieces).boxed();
    let (events, end) = match open_reader(kind, body).await {
        Ok(reading) => {
            collect(
                reading
                    .with_telemetry(AnswerTelemetry::start(kind, "m"))
                    .boxed(),
            )
            .await
        }
        Err(error) => (Vec::new(), Err(error)),
    };
    let mut joined: Vec<ModelEvent> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(ModelEvent::Text(before)), ModelEvent::Text(text)) => before.push_str(&text),
            (_, event) => joined.push(event),
        }
    }
    (joined, end)
}

/// Returns the events of a recorded answer of a real model.
pub(crate) async fn read_cassette(cassette: &str) -> Vec<ModelEvent> {
    let path = format!("{CASSETTES}/{cassette}.sse");
    let bytes = std::fs::read(path).unwrap();
    let (events, end) = read_pieces(ProviderKind::OpenAi, vec![bytes]).await;
    end.unwrap();
    events
}

pub(super) async fn open_reader(
    kind: ProviderKind,
    body: ByteStream,
) -> Result<AnswerReader, ModelError> {
    Ok(AnswerReader {
        kind,
        frames: Frames::open(body).await?,
        answer: AnswerAssembly::new(1 << 20, CallIds::new(HashSet::new(), lowest_chance())),
        is_done: false,
    })
}

/// What happens after the bytes of a scripted reply.
#[derive(Debug, Clone, Copy)]
enum ReplyEnding {
    Close,
    /// Nothing more is sent, but the connection stays open.
    Hang,
    /// The body is sent again and again.
    Repeat,
}

/// A scripted reply, byte for byte.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    bytes: Vec<u8>,
    then: ReplyEnding,
}

impl Reply {
    /// Creates a reply with a status, headers and a body.
    pub(super) fn new(status: &str, headers: &[&str], body: &str) -> Self {
        let length = format!("content-length: {}", body.len());
        let head = [&[status, &length, "connection: close"], headers].concat();
        Self {
            bytes: format!("HTTP/1.1 {}\r\n\r\n{body}", head.join("\r\n")).into_bytes(),
            then: ReplyEnding::Close,
        }
    }

    /// Creates a successful reply that streams these pieces and ends.
    pub(super) fn stream(pieces: &[&str]) -> Self {
        let mut reply = Self::cut(pieces);
        reply.bytes.extend_from_slice(b"0\r\n\r\n");
        reply
    }

    /// Creates a successful reply whose connection closes after these pieces, before its end.
    pub(super) fn cut(pieces: &[&str]) -> Self {
        let mut text =
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\
                        connection: close\r\n\r\n"
                .to_owned();
        for piece in pieces {
            text.push_str(&format!("{:x}\r\n{piece}\r\n", piece.len()));
        }
        Self {
            bytes: text.into_bytes(),
            then: ReplyEnding::Close,
        }
    }

    /// Creates a successful reply that sends these pieces and then nothing more, without closing the connection.
    pub(super) fn stall_after(pieces: &[&str]) -> Self {
        Self {
            then: ReplyEnding::Hang,
            ..Self::cut(pieces)
        }
    }

    /// Creates a successful reply that repeats `piece` endlessly.
    pub(super) fn endless(piece: &str) -> Self {
        Self {
            then: ReplyEnding::Repeat,
            ..Self::cut(&[piece])
        }
    }

    /// Creates a reply that never sends anything, not even a status.
    pub(super) fn silence() -> Self {
        Self {
            bytes: Vec::new(),
            then: ReplyEnding::Hang,
        }
    }

    /// Creates a reply that closes the connection without sending anything.
    pub(super) fn disconnect() -> Self {
        Self {
            bytes: Vec::new(),
            then: ReplyEnding::Close,
        }
    }
}

/// A request that a scripted provider received.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    /// The request line and the headers, in lower case.
    pub(super) head: String,
    pub(super) body: Value,
}

/// A provider on the loopback interface that sends one scripted reply per connection and records the requests.
pub(super) struct ScriptedProvider {
    pub(super) url: String,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    closed: Arc<Notify>,
}

impl ScriptedProvider {
    /// Starts the provider, which accepts no further connection after the last reply.
    pub(super) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let server = Self {
            url,
            seen: Arc::default(),
            closed: Arc::default(),
        };
        let (seen, closed) = (Arc::clone(&server.seen), Arc::clone(&server.closed));
        let replies: Vec<_> = replies.into_iter().collect();
        tokio::spawn(async move {
            for reply in replies {
                let (mut connection, _) = listener.accept().await.unwrap();
                let request = read_request(&mut connection).await;
                seen.lock().unwrap().push(request);
                let closed = Arc::clone(&closed);
                tokio::spawn(async move {
                    play(reply, connection).await;
                    closed.notify_one();
                });
            }
        });
        server
    }

    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until a reply is over, either because it ended or because the client closed the connection.
    pub(super) async fn closed(&self) {
        timeout(Duration::from_secs(10), self.closed.notified())
            .await
            .unwrap();
    }
}

async fn read_request(connection: &mut TcpStream) -> ReceivedRequest {
    let mut bytes = Vec::new();
    let head = loop {
        assert_ne!(connection.read_buf(&mut bytes).await.unwrap(), 0);
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break String::from_utf8(bytes[..at].to_vec())
                .unwrap()
                .to_lowercase();
        }
    };
    let (_, length) = head.split_once("content-length: ").unwrap();
    let length: usize = length.lines().next().unwrap().parse().unwrap();
    let start = head.len() + 4;
    while bytes.len() < start + length {
        assert_ne!(connection.read_buf(&mut bytes).await.unwrap(), 0);
    }
    let body = serde_json::from_slice(&bytes[start..]).unwrap();
    ReceivedRequest { head, body }
}

async fn play(reply: Reply, mut connection: TcpStream) {
    connection.write_all(&reply.bytes).await.unwrap();
    match reply.then {
        ReplyEnding::Close => {}
        ReplyEnding::Hang => {
            let mut byte = [0];
            let _closed = connection.read(&mut byte).await;
        }
        ReplyEnding::Repeat => {
            let at = reply.bytes.windows(4).position(|four| four == b"\r\n\r\n");
            let piece = &reply.bytes[at.unwrap() + 4..];
            while connection.write_all(piece).await.is_ok() {}
        }
    }
}
