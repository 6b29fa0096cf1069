//! Calls that became tasks of their MCP servers, and later requests about those tasks.

use wardgate_domain::{Reason, Status};
use wardgate_rpc::client::{ResultFacts, Task};

use super::{AdmittedCall, CallEnd, ERROR, EndedRun};
use crate::failure::ToolEffect;
use crate::interaction::{FollowedTask, Interaction};
use crate::result;
use wardgate_mcp_client::TaskStatus;

impl AdmittedCall {
    /// Returns whether the call is a request about a task that an earlier call became.
    pub(super) fn is_task_request(&self) -> bool {
        let interaction = self.interaction.as_ref();
        interaction.is_some_and(Interaction::is_task_request)
    }

    /// Ends the call with the status of a task that has no result.
    pub(super) fn end_with_status(self, task: FollowedTask) -> EndedRun {
        let kind = match (&task.about, &task.status) {
            (Some(_), None) => Reason::TASK.as_str(),
            (None, _) => "",
            (_, Some(TaskStatus::Working)) => Reason::TASK_WORKING.as_str(),
            (_, Some(TaskStatus::Cancelled)) => Reason::TASK_CANCELLED.as_str(),
            (_, Some(TaskStatus::Asks(_))) => Reason::TASK_INPUT_REQUIRED.as_str(),
            (_, Some(TaskStatus::Failed(_) | TaskStatus::Completed(_))) => {
                Reason::TASK_FAILED.as_str()
            }
        };
        let (mut requests, mut failed) = (String::new(), String::new());
        match &task.status {
            Some(TaskStatus::Asks(asked)) => requests.clone_from(asked),
            Some(TaskStatus::Failed(error)) => failed = self.released_error(error),
            _ => {}
        }
        let status = if failed.is_empty() {
            Status::Ok
        } else {
            Status::Error
        };
        let facts = ResultFacts {
            phi: !failed.is_empty() && self.tool.tool.result().class(ERROR).is_phi(),
            ..result::facts(status, kind, self.stopwatch.into_stages())
        };
        let task = Task {
            state: task.state,
            about: task.about.unwrap_or_default(),
            requests,
            result: None,
            error: failed,
            facts,
        };
        EndedRun {
            end: CallEnd::Task(Box::new(task)),
            effect: ToolEffect::Possible,
        }
    }
}

impl EndedRun {
    /// Wraps a result as the result of a completed task. Any other end stays as it is.
    pub(super) fn of_task(self, task: FollowedTask) -> Self {
        let end = match self.end {
            CallEnd::Result(result) => CallEnd::Task(Box::new(Task {
                state: task.state,
                about: task.about.unwrap_or_default(),
                requests: String::new(),
                error: String::new(),
                facts: result.facts.clone(),
                result: Some(result),
            })),
            end => end,
        };
        Self { end, ..self }
    }
}
