//! A client of a stream of server-sent events. It keeps events as they were sent, so that tests can check their format.

use reqwest::{RequestBuilder, Response};
use serde_json::Value;

use crate::until::PATIENCE;

/// An open stream of events.
pub struct EventStreamClient {
    response: Response,
    unread: String,
    /// The id of the last event that had one, or an empty string.
    pub last_id: String,
}

impl EventStreamClient {
    /// Opens a stream, and panics if the server refuses it.
    pub async fn open(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self::new(response)
    }

    /// Returns the stream of a response.
    pub fn new(response: Response) -> Self {
        Self {
            response,
            unread: String::new(),
            last_id: String::new(),
        }
    }

    /// Returns a header of the response.
    pub fn header(&self, name: &str) -> &str {
        let value = self.response.headers().get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    /// Returns the next message, or `None` at the end of the stream. Skips events of other types, and comments.
    pub async fn next_message(&mut self) -> Option<Value> {
        let message = tokio::time::timeout(PATIENCE, self.try_next_message());
        message.await.unwrap().unwrap()
    }

    /// Returns the next message like [`Self::next_message`], or the error of a stream that broke off. Waits indefinitely.
    pub async fn try_next_message(&mut self) -> reqwest::Result<Option<Value>> {
        while let Some(event) = self.try_next_event().await? {
            if let Some((before, data)) = event.split_once("event: message\ndata: ") {
                assert!(before.is_empty() || before.starts_with("id: "), "{event}");
                return Ok(Some(serde_json::from_str(data).unwrap()));
            }
        }
        Ok(None)
    }

    /// Returns the next event as it was sent, or `None` at the end of the stream.
    pub async fn next_event(&mut self) -> Option<String> {
        self.try_next_event().await.unwrap()
    }

    async fn try_next_event(&mut self) -> reqwest::Result<Option<String>> {
        loop {
            if let Some((event, rest)) = self.unread.split_once("\n\n") {
                let event = event.to_owned();
                self.unread = String::from(rest);
                if let Some(id) = event.lines().find_map(|line| line.strip_prefix("id: ")) {
                    id.clone_into(&mut self.last_id);
                }
                return Ok(Some(event));
            }
            let Some(chunk) = self.response.chunk().await? else {
                return Ok(None);
            };
            self.unread += std::str::from_utf8(&chunk).unwrap();
        }
    }
}
