//! One call as a stream of what it says and how it ends.

use std::future::Future;
use std::task::Poll;

use futures::stream::{self, Stream};
use tokio::sync::mpsc;
use tonic::Status;
use wardgate_proto::toolrunner::v1 as pb;

use crate::call::{AdmittedCall, End};
use crate::executor::{Progress, Said};
use crate::loaded::Shared;
use crate::mcp::LogMessage;
use crate::platform::Counted;

/// How many events before the end may wait for a slow reader.
const SAID_WAITING: usize = 16;

/// The events of one call: what it says meanwhile, and then exactly one end. Dropping the stream stops the call.
pub(super) fn events(
    call: AdmittedCall,
    shared: Shared,
    counted: Counted,
) -> impl Stream<Item = Result<pb::CallToolResponse, Status>> {
    let (sender, mut said) = mpsc::channel(SAID_WAITING);
    let mut running = Box::pin(async move {
        let end = Box::pin(call.run(&shared, &sender)).await;
        counted.ended(matches!(&end, End::Result(result) if result.is_error));
        end
    });
    let mut is_done = false;
    stream::poll_fn(move |context| {
        use pb::call_tool_response::Event;
        if is_done {
            return Poll::Ready(None);
        }
        let result = running.as_mut().poll(context);
        let event = match (said.poll_recv(context), result) {
            (_, Poll::Ready(end)) => {
                is_done = true;
                match end {
                    End::Result(result) => Event::Result(result),
                    End::Waits(waits) => Event::InputRequired(waits),
                }
            }
            (Poll::Ready(Some(Said::Progress(step))), Poll::Pending) => {
                Event::Progress(step.into())
            }
            (Poll::Ready(Some(Said::Log(message))), Poll::Pending) => Event::Log(message.into()),
            (Poll::Ready(Some(Said::Completed(elicitation_id))), Poll::Pending) => {
                Event::Completed(pb::ElicitationCompleted { elicitation_id })
            }
            (_, Poll::Pending) => return Poll::Pending,
        };
        Poll::Ready(Some(Ok(pb::CallToolResponse { event: Some(event) })))
    })
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

impl From<LogMessage> for pb::LogMessage {
    fn from(message: LogMessage) -> Self {
        Self {
            level: message.level.as_str().to_owned(),
            logger: message.logger.unwrap_or_default(),
            data_json: message.data.get().to_owned().into(),
        }
    }
}
