//! Tools of 2025-11-25 that only run as tasks: the task is followed to its end, and its result becomes the result of the call.
//!
//! ```text
//!   tools/call with `task` ─▶ tasks/get, again and again ─▶ tasks/result            dropped before: tasks/cancel
//! ```

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::connection::UpstreamConnection;
use super::error::UpstreamError;
use super::message::{MemberValue, UpstreamRequest};
use super::server_message::Listener;

/// Interval between two polls of a task, unless the server specifies one.
const PAUSE: Duration = Duration::from_secs(1);
/// Minimum interval that the server may specify.
const SHORTEST: Duration = Duration::from_millis(100);
/// Maximum interval that the server may specify.
const LONGEST: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
struct CreatedTask {
    task: Task,
}

#[derive(Deserialize)]
struct Task {
    #[serde(rename = "taskId")]
    id: String,
    status: String,
    #[serde(default, rename = "pollInterval")]
    poll_interval: Option<u64>,
}

impl Task {
    fn pause(&self) -> Duration {
        let named = self.poll_interval.map(Duration::from_millis);
        named.unwrap_or(PAUSE).clamp(SHORTEST, LONGEST)
    }
}

/// Returns the result of the task that `created` began, or `created` itself if the server began no task.
pub(super) async fn follow(
    connection: &UpstreamConnection,
    created: Box<RawValue>,
    listener: Option<Listener<'_>>,
) -> Result<Box<RawValue>, UpstreamError> {
    let Ok(CreatedTask { task }) = serde_json::from_str(created.get()) else {
        return Ok(created);
    };
    let mut begun = RunningTask {
        connection,
        id: task.id.clone(),
        is_over: false,
    };
    let of_task =
        |method| UpstreamRequest::new(method, vec![("taskId", MemberValue::Text(&task.id))]);
    let (look, collect) = (of_task("tasks/get"), of_task("tasks/result"));
    let (mut status, mut pause) = (task.status.clone(), task.pause());
    // A task that requires input requests it while its result is awaited.
    while status == "working" {
        sleep(pause).await;
        let looked = connection.request_plainly(&look, None).await;
        let looked = looked.map_err(UpstreamError::after_acceptance)?;
        let looked: Task = serde_json::from_str(looked.get())
            .map_err(|_| UpstreamError::BadResult("its task is not valid"))?;
        (pause, status) = (looked.pause(), looked.status);
    }
    let result = connection.request_plainly(&collect, listener).await;
    let result = result.map_err(UpstreamError::after_acceptance);
    begun.is_over = result.is_ok() || matches!(result, Err(UpstreamError::Rpc(_)));
    result
}

/// A task that runs at the server. Dropping it before its end cancels the task.
struct RunningTask<'a> {
    connection: &'a UpstreamConnection,
    id: String,
    is_over: bool,
}

impl Drop for RunningTask<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            let members = vec![("taskId", MemberValue::Text(&self.id))];
            self.connection
                .request_later(&UpstreamRequest::new("tasks/cancel", members));
        }
    }
}
