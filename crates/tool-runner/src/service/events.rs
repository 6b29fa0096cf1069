//! One call as a stream of what it says and how it ends.

use std::future::Future;
use std::task::Poll;

use futures::stream::{self, Stream};
use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc;
use tonic::Status;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::call_tool_response::Event;

use crate::call::{AdmittedCall, CallEnd};
use crate::executor::{Progress, RunEvent};
use crate::loaded::SharedState;
use crate::platform::CountedCall;
use wardgate_mcp_client::LogMessage;

/// How many events before the end may wait for a slow reader.
const MAX_PENDING_EVENTS: usize = 16;

/// The events of one call, and then exactly one end. Dropping the stream stops the call.
pub(super) fn events(
    call: AdmittedCall,
    shared: SharedState,
    counted: CountedCall,
) -> impl Stream<Item = Result<pb::CallToolResponse, Status>> {
    let (sender, events) = mpsc::channel(MAX_PENDING_EVENTS);
    let running = async move {
        let end = Box::pin(call.run(&shared, &sender)).await;
        counted.ended(matches!(&end, CallEnd::Result(result) if result.is_error));
        end
    };
    in_order(running, events).map(|event| Ok(pb::CallToolResponse { event: Some(event) }))
}

/// The events of `running`, then its end. No event before the end is lost, however late it is taken.
fn in_order(
    running: impl Future<Output = CallEnd>,
    mut events: mpsc::Receiver<RunEvent>,
) -> impl Stream<Item = Event> {
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
            return Poll::Ready(Some(event.into()));
        }
        let Some(end) = end.take() else {
            return Poll::Pending;
        };
        is_done = true;
        Poll::Ready(Some(match end {
            CallEnd::Result(result) => Event::Result(result.into()),
            CallEnd::InputRequired(required) => Event::InputRequired(required.into()),
            CallEnd::Task(task) => Event::Task((*task).into()),
        }))
    })
}

impl From<RunEvent> for Event {
    fn from(event: RunEvent) -> Self {
        match event {
            RunEvent::Progress(step) => Self::Progress(step.into()),
            RunEvent::Log(message) => Self::Log(log_message(message)),
            RunEvent::Completed(elicitation_id) => {
                Self::Completed(pb::ElicitationCompleted { elicitation_id })
            }
        }
    }
}

impl From<Progress> for pb::Progress {
    fn from(step: Progress) -> Self {
        Self {
            progress: step.done,
            total: step.total.unwrap_or_default(),
            message: step.message,
        }
    }
}

fn log_message(message: LogMessage) -> pb::LogMessage {
    pb::LogMessage {
        level: message.level.as_str().to_owned(),
        logger: message.logger.unwrap_or_default(),
        data_json: message.data.get().to_owned().into(),
    }
}

#[cfg(test)]
mod tests {
    use wardgate_domain::Status;

    use super::*;
    use crate::result;

    #[tokio::test]
    async fn what_was_said_in_the_moment_of_the_end_comes_before_it() {
        let (sender, events) = mpsc::channel(MAX_PENDING_EVENTS);
        let running = async move {
            for done in [1.0, 2.0, 3.0] {
                let step = Progress {
                    done,
                    total: None,
                    message: String::new(),
                };
                sender.try_send(RunEvent::Progress(step)).unwrap();
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
                Event::Progress(step) => step.progress.to_string(),
                Event::Result(_) => "end".to_owned(),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(kinds, ["1", "2", "3", "end"]);
    }
}
