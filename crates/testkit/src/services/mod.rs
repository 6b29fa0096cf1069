//! A fake of each service: a small implementation whose behavior the test configures.

mod audit;
mod memory;
mod policy;
mod tool_runner;

use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use tokio::sync::watch;
use tonic::Status;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::{ServiceError, status};

pub use audit::{AppendAttempt, AppendBehavior, FakeAudit};
pub use memory::FakeMemory;
pub use policy::{FakePolicy, PolicyAnswer};
pub use tool_runner::{FakeToolRunner, RunBehavior, content_response, listed_tool, tool_result};

/// Timeout of the clients of fakes.
const LIMIT: Duration = Duration::from_secs(5);

/// A failure that the test ordered.
#[derive(Debug, thiserror::Error)]
#[error("as ordered")]
struct OrderedFailure(ErrorReason);

impl ServiceError for OrderedFailure {
    fn reason(&self) -> ErrorReason {
        self.0
    }
}

fn failure(reason: ErrorReason) -> Status {
    status(&OrderedFailure(reason))
}

/// Returns a stream of the current value and of every change, which ends when the value is `None`.
fn follow<T, M>(
    mut value: watch::Receiver<Option<T>>,
    message: impl Fn(T) -> M + Send + 'static,
) -> BoxStream<'static, Result<M, Status>>
where
    T: Clone + Send + Sync + 'static,
    M: Send + 'static,
{
    value.mark_changed();
    stream::unfold((value, message), |(mut value, message)| async move {
        value.changed().await.ok()?;
        let current = value.borrow_and_update().clone()?;
        Some((Ok(message(current)), (value, message)))
    })
    .boxed()
}
