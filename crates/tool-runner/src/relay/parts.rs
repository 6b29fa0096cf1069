//! The parts of an answer on their way to the client: each waits until there is room for it.

use std::future::Future;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, Stream};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tonic::Status;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_proto::toolrunner::v1::relay_response::Part;

/// Bytes of a message that are on their way at a time: what is written to the wire, and read from it, is a copy.
const PIECE: usize = 64 * 1024;

/// How long a client may take to hear why there is no more.
const LAST_WORD: Duration = Duration::from_secs(1);

/// Takes parts.
pub(super) struct Parts {
    sender: mpsc::Sender<pb::RelayResponse>,
    /// None where there is no hurry.
    time_limit: Option<TimeLimit>,
}

/// How long the exchange may take, and until when that is.
#[derive(Clone, Copy)]
struct TimeLimit {
    limit: Duration,
    deadline: Instant,
    /// What was left of the server's own time when it first asked the client something.
    own_left: Option<Duration>,
}

/// The client did not take a part in time.
#[derive(Debug)]
pub(super) struct Slow;

impl Parts {
    /// Limits the whole exchange to `limit`, from now on.
    pub(super) fn limit_to(&mut self, limit: Option<Duration>) {
        self.time_limit = limit.map(|limit| TimeLimit {
            limit,
            deadline: Instant::now() + limit,
            own_left: None,
        });
    }

    /// When the last part must be taken.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.time_limit.map(|time| time.deadline)
    }

    /// The limit that holds now; zero where there is none.
    pub(super) fn limit(&self) -> Duration {
        self.time_limit.map(|time| time.limit).unwrap_or_default()
    }

    /// Gives the client `answer_limit` for its answer, and the server after it what was left of its own time. Nobody here
    /// sees the answer, which may pass another replica, so both times run as one.
    pub(super) fn wait_for_answer(&mut self, answer_limit: Duration) {
        let Some(time) = &mut self.time_limit else {
            return;
        };
        let now = Instant::now();
        let left = time.deadline.saturating_duration_since(now);
        time.limit = answer_limit + *time.own_left.get_or_insert(left);
        time.deadline = now + time.limit;
    }

    /// Sends `part`, its message in pieces where that is long.
    pub(super) async fn send(&self, mut part: Part) -> Result<(), Slow> {
        let mut rest = rest(&mut part);
        self.send_one(part).await?;
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(PIECE));
            self.send_one(Part::Piece(piece)).await?;
        }
        Ok(())
    }

    async fn send_one(&self, part: Part) -> Result<(), Slow> {
        let sending = self.sender.send(response(part));
        let sent = match self.deadline() {
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

/// Takes from `part` what of its message does not go with it.
fn rest(part: &mut Part) -> Bytes {
    let (message, more) = match part {
        Part::Body(body) => (&mut body.message, &mut body.more),
        Part::Event(event) => (&mut event.message, &mut event.more),
        Part::Head(_) | Part::Failure(_) | Part::Piece(_) => return Bytes::new(),
    };
    let rest = message.split_off(message.len().min(PIECE));
    *more = rest.len() as u64;
    rest
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
        time_limit: None,
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
