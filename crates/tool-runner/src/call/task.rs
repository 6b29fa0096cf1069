//! Calls that became tasks of their MCP servers, and later requests about those tasks.

use serde_json::{Value, json};
use wardgate_domain::{ColumnTier, Reason, Status};
use wardgate_rpc::client::{ResultFacts, Task};

use super::{AdmittedCall, CallEnd, ERROR, EndedRun};
use crate::failure::ToolEffect;
use crate::interaction::{FollowedTask, Interaction};
use crate::result;
use wardgate_mcp_client::{TaskStatus, UpstreamRpcError};

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

    /// Returns the JSON-RPC error of a call or a task as the permit allows it: unchanged if the permit restricts
    /// nothing or shows errors, otherwise the code with the message redacted.
    pub(super) fn released_error(&self, error: &UpstreamRpcError) -> String {
        let class = self.tool.tool.result().class(ERROR);
        let tier = self.permit.tier(class);
        let classes = &self.tool.tool.facts().classes;
        if tier == ColumnTier::Clear || !self.compiled.restricts(&self.permit, classes) {
            return error.for_clients();
        }
        let words = Value::from(error.message.as_str());
        let forms = self.tool.tool.result().forms();
        let words = self.compiled.redactor.field(class, tier, forms, words);
        let words = words.filter(Value::is_string);
        let released = json!({
            "code": error.code_for_clients(),
            "message": words.unwrap_or_else(|| "the tool reported an error; its text is withheld".into()),
        });
        released.to_string()
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
