//! A fake model provider with scripted responses over a real socket (OpenAI's chat completions, streamed).
//!
//! ```text
//!   script   round 0 ─ piece 0, piece 1, … end      a round is what the model says between two tool results;
//!            round 1 ─ …                            the messages of a request determine its round
//! ```
//!
//! Like a model at temperature 0, the provider is deterministic: the same request gets the same response.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use axum::routing::post;
use futures::stream;
use serde_json::{Value, json};
use tokio::sync::watch;
use wardgate_testkit::{serve, until};

/// One event of a response.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Text(&'static str),
    /// A call of a tool by the model's name for it, with its arguments.
    Call(&'static str, Value),
    /// The connection is closed here, within the response.
    Cut,
}

/// The pieces that the model sends in each round.
pub(super) type Script = Vec<Vec<Piece>>;

/// A position in a script: a round, and the number of pieces before the position.
pub(super) type ScriptPosition = (usize, usize);

#[derive(Debug, Default)]
struct Play {
    script: Script,
    asked: Vec<Value>,
}

/// A running provider.
#[derive(Debug)]
pub(super) struct Provider {
    /// The base URL of its API.
    pub(super) url: String,
    play: Arc<Mutex<Play>>,
    /// The position at which responses wait.
    held: watch::Sender<Option<ScriptPosition>>,
}

type Stage = (Arc<Mutex<Play>>, watch::Receiver<Option<ScriptPosition>>);

impl Provider {
    pub(super) async fn start() -> Self {
        let play = Arc::<Mutex<Play>>::default();
        let (held, watched) = watch::channel(None);
        let router = Router::new()
            .route("/v1/chat/completions", post(answer))
            .with_state((Arc::clone(&play), watched));
        let url = format!("http://{}/v1", serve(router).await);
        Self { url, play, held }
    }

    /// Sets the script of later responses.
    pub(super) fn plays(&self, script: Script) {
        self.play.lock().unwrap().script = script;
    }

    /// Makes responses wait before this position.
    pub(super) fn hold_responses(&self, position: Option<ScriptPosition>) {
        self.held.send_replace(position);
    }

    /// Returns the bodies of all requests so far.
    pub(super) fn requests(&self) -> Vec<Value> {
        self.play.lock().unwrap().asked.clone()
    }

    /// Waits until there are more than `before` requests.
    pub(super) async fn wait_for_request(&self, before: usize) {
        until("the model is asked", async || {
            (self.requests().len() > before).then_some(())
        })
        .await;
    }
}

/// Returns the number of responses of the model since the last message of the person.
fn round(request: &Value) -> usize {
    let messages = request["messages"].as_array().expect("messages");
    let since = messages.iter().rev();
    since
        .take_while(|message| message["role"] != "user")
        .filter(|message| message["role"] == "assistant")
        .count()
}

async fn answer(State((play, watched)): State<Stage>, request: Bytes) -> Response {
    let request = serde_json::from_slice(&request).expect("JSON");
    let round = round(&request);
    let pieces = {
        let mut play = play.lock().unwrap();
        play.asked.push(request);
        let pieces = play.script.get(round);
        pieces
            .unwrap_or_else(|| panic!("the script has no round {round}"))
            .clone()
    };
    let frames = stream::unfold((0, watched), move |(at, mut watched)| {
        let pieces = pieces.clone();
        async move {
            // The end of a response is a position too.
            if at > pieces.len() {
                return None;
            }
            let passes = |held: &Option<ScriptPosition>| *held != Some((round, at));
            watched.wait_for(passes).await.ok()?;
            Some((frame(round, at, &pieces), (at + 1, watched)))
        }
    });
    Response::builder()
        .header(CONTENT_TYPE, "text/event-stream")
        .body(Body::from_stream(frames))
        .unwrap()
}

/// Returns the bytes of a piece, or an error that cuts the connection.
fn frame(round: usize, at: usize, pieces: &[Piece]) -> Result<Bytes, std::io::Error> {
    let (delta, finish) = match pieces.get(at) {
        Some(Piece::Text(text)) => (json!({ "content": text }), Value::Null),
        Some(Piece::Call(name, arguments)) => {
            let call = json!({
                "index": at,
                "id": format!("call-{round}-{at}"),
                "type": "function",
                "function": { "name": name, "arguments": arguments.to_string() },
            });
            (json!({ "tool_calls": [call] }), Value::Null)
        }
        Some(Piece::Cut) => return Err(std::io::ErrorKind::ConnectionAborted.into()),
        None => (json!({}), json!("stop")),
    };
    let chunk = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
    let end = if finish.is_null() {
        ""
    } else {
        "data: [DONE]\n\n"
    };
    Ok(format!("data: {chunk}\n\n{end}").into())
}
