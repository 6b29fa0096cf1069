//! One call as a stream of events that ends with the outcome of the call.

use std::future::Future;
use std::task::Poll;

use futures::stream::{self, Stream};
use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use wardgate_rpc::client::{CallError, CallEvent};

use crate::call::CallEnd;

/// Maximum number of events that may be queued for a slow receiver.
const MAX_PENDING_EVENTS: usize = 16;

/// Returns the events of the call that `run` runs, followed by exactly one final event. Dropping the stream stops the call.
pub(super) fn events<R: Future<Output = CallEnd>>(
    run: impl FnOnce(mpsc::Sender<CallEvent>) -> R,
) -> impl Stream<Item = Result<CallEvent, CallError>> {
    let (listener, events) = mpsc::channel(MAX_PENDING_EVENTS);
    in_order(run(listener), events).map(Ok)
}

/// Returns the events of `running`, followed by its end. Every event that was queued before the end is delivered before
/// it.
fn in_order(
    running: impl Future<Output = CallEnd>,
    mut events: mpsc::Receiver<CallEvent>,
) -> impl Stream<Item = CallEvent> {
    let mut running = Box::pin(running.fuse());
    let mut end = None;
    let mut is_done = false;
    stream::poll_fn(move |context| {
        if is_done {
            return Poll::Ready(None);
        }
        if let Poll::Ready(ended) = running.as_mut().poll(context) {
            end = Some(ended);
        }
        if let Poll::Ready(Some(event)) = events.poll_recv(context) {
            return Poll::Ready(Some(event));
        }
        let Some(end) = end.take() else {
            return Poll::Pending;
        };
        is_done = true;
        Poll::Ready(Some(match end {
            CallEnd::Result(result) => CallEvent::Result(Box::new(result)),
            CallEnd::InputRequired(required) => CallEvent::InputRequired(Box::new(required)),
            CallEnd::Task(task) => CallEvent::Task(task),
        }))
    })
}

#[cfg(test)]
mod tests {
    use wardgate_domain::Status;
    use wardgate_rpc::client::CallProgress;

    use super::*;
    use crate::result;

    #[tokio::test]
    async fn what_was_said_in_the_moment_of_the_end_comes_before_it() {
        let (sender, events) = mpsc::channel(MAX_PENDING_EVENTS);
        let running = async move {
            for done in [1.0, 2.0, 3.0] {
                let step = CallProgress {
                    done,
                    total: None,
                    message: String::new(),
                };
                sender.try_send(CallEvent::Progress(step)).unwrap();
            }
            CallEnd::Result(result::error(
                "",
                result::facts(Status::Error, "", Vec::new()),
            ))
        };
        let events: Vec<_> = in_order(running, events).collect().await;
        let kinds: Vec<_> = events
            .iter()
            .map(|event| match event {
                CallEvent::Progress(step) => step.done.to_string(),
                CallEvent::Result(_) => "end".to_owned(),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, ["1", "2", "3", "end"]);
    }
}
