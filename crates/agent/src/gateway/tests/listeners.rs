//! The gateway's side of change streams.

use std::convert::Infallible;

use futures::{StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::interval;

use super::*;

/// The interval at which a gateway sends keep-alives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The gateway's response to a request for a stream.
#[derive(Clone, Copy, Default)]
pub(super) enum ListenerBehaviour {
    /// The method is unknown.
    #[default]
    Unknown,
    TooMany,
    /// A stream is opened, but without changes of the tool list.
    Declined,
    Acknowledged,
    /// The stream is acknowledged when the test requests it.
    Later,
    /// The stream is acknowledged, and then nothing is sent, not even keep-alives.
    Mute,
}

#[derive(Clone, Default)]
pub(super) struct Listeners(Arc<Mutex<ListenerState>>);

#[derive(Default)]
struct ListenerState {
    how: ListenerBehaviour,
    requests: Vec<ReceivedRequest>,
    lines: Vec<StreamLine>,
}

struct StreamLine {
    who: String,
    tell: mpsc::UnboundedSender<String>,
}

impl Listeners {
    pub(super) fn set(&self, how: ListenerBehaviour) {
        self.0.lock().unwrap().how = how;
    }

    /// Returns the requests for streams so far.
    pub(super) fn requests(&self) -> Vec<ReceivedRequest> {
        self.0.lock().unwrap().requests.clone()
    }

    /// Returns the callers whose streams are open.
    pub(super) fn open_for(&self) -> Vec<String> {
        let state = self.0.lock().unwrap();
        let open = state.lines.iter().filter(|line| !line.tell.is_closed());
        open.map(|line| line.who.clone()).collect()
    }

    pub(super) fn acknowledge(&self, who: &str) {
        self.send_message(who, &acknowledgement(true));
    }

    /// Reports a change of this caller's list.
    pub(super) fn notify_list_changed(&self, who: &str) {
        self.send_message(
            who,
            &json!({ "jsonrpc": "2.0", "method": "notifications/tools/list_changed" }),
        );
    }

    /// Ends the streams of this caller.
    pub(super) fn end(&self, who: &str) {
        self.0.lock().unwrap().lines.retain(|line| line.who != who);
    }

    fn send_message(&self, who: &str, message: &Value) {
        let state = self.0.lock().unwrap();
        for line in state.lines.iter().filter(|line| line.who == who) {
            let _ = line.tell.send(event(message));
        }
    }

    pub(super) fn open(&self, seen: &ReceivedRequest) -> Response {
        let mut state = self.0.lock().unwrap();
        state.requests.push(seen.clone());
        let first = match state.how {
            ListenerBehaviour::Unknown => {
                return seen.error(404, -32601, "Unknown method", &json!({}));
            }
            ListenerBehaviour::TooMany => {
                return seen.error(429, -32603, "Too many streams", &json!({}));
            }
            ListenerBehaviour::Declined => event(&acknowledgement(false)),
            ListenerBehaviour::Acknowledged | ListenerBehaviour::Mute => {
                event(&acknowledgement(true))
            }
            ListenerBehaviour::Later => ":\n\n".to_owned(),
        };
        let (tell, mut told) = mpsc::unbounded_channel();
        let _ = tell.send(first);
        let who = seen.header("authorization").replace("Bearer ", "");
        state.lines.push(StreamLine { who, tell });
        let is_mute = matches!(state.how, ListenerBehaviour::Mute);
        let mut ticks = interval(KEEP_ALIVE);
        let words = stream::poll_fn(move |context| {
            let word = told.poll_recv(context);
            if word.is_pending() && !is_mute && ticks.poll_tick(context).is_ready() {
                return std::task::Poll::Ready(Some(":\n\n".to_owned()));
            }
            word
        });
        event_stream(Body::from_stream(words.map(Ok::<_, Infallible>)))
    }
}

fn acknowledgement(tools: bool) -> Value {
    json!({
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": { "notifications": if tools { json!({ "toolsListChanged": true }) } else { json!({}) } },
    })
}

fn event(message: &Value) -> String {
    format!("event: message\ndata: {message}\n\n")
}
