//! Providers as the tests here need them.

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

/// What `stream` gives, to its end.
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

/// A whole answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) text: String,
    pub(super) calls: Vec<FunctionCall>,
    pub(super) finish: Option<FinishReason>,
}

/// Asks for an answer and waits until it ends.
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

/// What comes of an answer that arrives in these pieces. Neighbouring texts are put together, as their borders
/// mean nothing.
pub(super) async fn read_pieces(
    kind: ProviderKind,
    pieces: Vec<Vec<u8>>,
) -> (Vec<ModelEvent>, Result<(), ModelError>) {
    let pieces = pieces.into_iter().map(|piece| Ok(Bytes::from(piece)));
    let body = stream::iter(pieces).boxed();
    let (events, end) = match reading(kind, body).await {
        Ok(reading) => collect(reading.watched(AnswerTelemetry::start(kind, "m")).boxed()).await,
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

/// What a real model once answered.
pub(crate) async fn recorded(cassette: &str) -> Vec<ModelEvent> {
    let path = format!("{CASSETTES}/{cassette}.sse");
    let bytes = std::fs::read(path).unwrap();
    let (events, end) = read_pieces(ProviderKind::OpenAi, vec![bytes]).await;
    end.unwrap();
    events
}

pub(super) async fn reading(
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

/// What follows the bytes of a scripted reply.
#[derive(Debug, Clone, Copy)]
enum ReplyEnding {
    Close,
    /// Nothing more comes, and the connection stays.
    Hang,
    /// The last bytes come again, for ever.
    Repeat,
}

/// One scripted reply, byte for byte.
#[derive(Debug, Clone)]
pub(super) struct Reply {
    bytes: Vec<u8>,
    then: ReplyEnding,
}

impl Reply {
    /// A status with headers and a body.
    pub(super) fn of(status: &str, headers: &[&str], body: &str) -> Self {
        let length = format!("content-length: {}", body.len());
        let head = [&[status, &length, "connection: close"], headers].concat();
        Self {
            bytes: format!("HTTP/1.1 {}\r\n\r\n{body}", head.join("\r\n")).into_bytes(),
            then: ReplyEnding::Close,
        }
    }

    /// A success that streams these pieces, and ends.
    pub(super) fn stream(pieces: &[&str]) -> Self {
        let mut reply = Self::cut(pieces);
        reply.bytes.extend_from_slice(b"0\r\n\r\n");
        reply
    }

    /// A success whose connection closes after these pieces, before its end.
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

    /// A success that says no more after these pieces, not even that it ends.
    pub(super) fn hanging(pieces: &[&str]) -> Self {
        Self {
            then: ReplyEnding::Hang,
            ..Self::cut(pieces)
        }
    }

    /// A success that says `piece` again and again.
    pub(super) fn endless(piece: &str) -> Self {
        Self {
            then: ReplyEnding::Repeat,
            ..Self::cut(&[piece])
        }
    }

    /// Nothing at all, not even a status.
    pub(super) fn silence() -> Self {
        Self {
            bytes: Vec::new(),
            then: ReplyEnding::Hang,
        }
    }

    /// A connection that closes without a word.
    pub(super) fn closed() -> Self {
        Self {
            bytes: Vec::new(),
            then: ReplyEnding::Close,
        }
    }
}

/// A request as a scripted provider received it.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    /// Request line and headers, in lower case.
    pub(super) head: String,
    pub(super) body: Value,
}

/// A provider on loopback with scripted replies, one for each connection, which remembers the requests it received.
pub(super) struct ScriptedProvider {
    pub(super) url: String,
    seen: Arc<Mutex<Vec<ReceivedRequest>>>,
    closed: Arc<Notify>,
}

impl ScriptedProvider {
    /// After the last reply it takes no connection.
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

    pub(super) fn seen(&self) -> Vec<ReceivedRequest> {
        self.seen.lock().unwrap().clone()
    }

    /// Waits until a reply is over, because it ended or because the other side left.
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
