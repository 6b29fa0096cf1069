//! The parts of an answer on their way to the client: each waits until there is room for it.

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use futures::stream::{self, Stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Status;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;

/// How long a client may take to hear why there is no more.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Takes parts.
pub(super) struct Parts {
    sender: mpsc::Sender<pb::RelayResponse>,
    /// When the last one must be taken; none where there is no hurry.
    pub(super) deadline: Option<Instant>,
}

/// The client did not take a part in time.
#[derive(Debug)]
pub(super) struct Slow;

impl Parts {
    pub(super) async fn send(&self, part: Part) -> Result<(), Slow> {
        let sending = self.sender.send(response(part));
        let sent = match self.deadline {
            Some(deadline) => timeout_at(deadline, sending).await,
            None => Ok(sending.await),
        };
        // The stream holds both ends, so that only time can pass.
        sent.map(drop).map_err(|_| Slow)
    }

    pub(super) async fn fail(&self, failure: pb::RelayFailure) {
        let sending = self.sender.send(response(Part::Failure(failure)));
        let _ = timeout(LAST_WORD, sending).await;
    }
}

fn response(part: Part) -> pb::RelayResponse {
    pb::RelayResponse { part: Some(part) }
}

/// What `run` sends, until it is done. Dropping the stream stops it.
pub(super) fn stream<F>(
    run: impl FnOnce(Parts) -> F,
) -> impl Stream<Item = Result<pb::RelayResponse, Status>>
where
    F: Future<Output = ()>,
{
    let (sender, mut sent) = mpsc::channel(1);
    let parts = Parts {
        sender,
        deadline: None,
    };
    let mut running = Some(Box::pin(run(parts)));
    stream::poll_fn(move |context| {
        if let Some(run) = &mut running
            && let Poll::Ready(()) = run.as_mut().poll(context)
        {
            running = None;
        }
        // With the run its sender is gone, so that the channel ends after what it still holds.
        sent.poll_recv(context).map(|part| part.map(Ok))
    })
}
