//! A chat client, which sends a message and reads the events of its turn.

use std::time::Duration;

use serde_json::{Value, json};

/// A timeout longer than any turn of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// A message of a person, with IDs that the client chose.
#[derive(Debug, Clone)]
pub(super) struct PersonMessage {
    pub(super) conversation: String,
    pub(super) id: String,
    pub(super) text: String,
}

/// The events of a stream.
pub(super) struct Events {
    response: reqwest::Response,
    buffer: Vec<u8>,
    /// The events so far.
    pub(super) seen: Vec<Value>,
    /// Whether the connection was lost.
    pub(super) is_lost: bool,
}

/// Sends a message to the agent at `base`.
pub(super) async fn send_message(
    base: &str,
    token: &str,
    message: &PersonMessage,
) -> reqwest::Result<Events> {
    let body = json!({
        "message": message.text,
        "conversation_id": message.conversation,
        "message_id": message.id,
    });
    let client = reqwest::Client::builder().timeout(PATIENCE).build()?;
    let request = client
        .post(format!("{base}/api/chat/message/"))
        .bearer_auth(token)
        .header("content-type", "application/json")
        .body(body.to_string());
    let response = request.send().await?;
    assert_eq!(response.status(), 200);
    Ok(Events {
        response,
        buffer: Vec::new(),
        seen: Vec::new(),
        is_lost: false,
    })
}

impl Events {
    /// Waits for the next event, or returns `None` after the last one.
    pub(super) async fn next(&mut self) -> Option<&Value> {
        let line = loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                // An empty line keeps the stream alive.
                if line.len() > 1 {
                    break line;
                }
                continue;
            }
            match self.response.chunk().await {
                Ok(Some(bytes)) => self.buffer.extend_from_slice(&bytes),
                Ok(None) => {
                    assert!(self.buffer.is_empty(), "half an event");
                    return None;
                }
                Err(error) => {
                    assert!(!error.is_timeout(), "no end after {:?}", self.seen);
                    self.is_lost = true;
                    return None;
                }
            }
        };
        let event = serde_json::from_slice(&line)
            .unwrap_or_else(|_| panic!("no event: {}", String::from_utf8_lossy(&line)));
        self.seen.push(event);
        self.seen.last()
    }

    /// Reads the stream to its end, and checks that a stream that was not lost ends with a reason.
    pub(super) async fn rest(mut self) -> Vec<Value> {
        while self.next().await.is_some() {}
        if !self.is_lost {
            let last = self.seen.last().expect("a stream has events");
            assert_eq!(last["type"], "done", "{:?}", self.seen);
        }
        self.seen
    }
}

/// Returns the events of one type.
pub(super) fn of_type<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    let events = events.iter();
    events.filter(|event| event["type"] == kind).collect()
}

/// Returns the text of all tokens.
pub(super) fn text(events: &[Value]) -> String {
    let tokens = of_type(events, "token").into_iter();
    tokens.filter_map(|token| token["text"].as_str()).collect()
}

/// Returns the reason why the stream ended, or an empty string if it did not end.
pub(super) fn finish(events: &[Value]) -> &str {
    let last = events.last();
    last.and_then(|event| event["finish_reason"].as_str())
        .unwrap_or_default()
}
