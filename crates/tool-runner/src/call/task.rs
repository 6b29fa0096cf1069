//! Calls that became tasks of their servers, and what is asked about those afterwards.

use serde_json::{Value, json};
use wardgate_domain::ColumnTier;
use wardgate_proto::toolrunner::v1 as pb;

use super::{AdmittedCall, ERROR, End, EndedRun};
use crate::failure::ToolOutcome;
use crate::interaction::{FollowedTask, Interaction};
use wardgate_mcp_client::{RpcError, TaskStatus};

impl AdmittedCall {
    /// Whether it is about a task that an earlier call became.
    pub(super) fn looks_after_task(&self) -> bool {
        let interaction = self.interaction.as_ref();
        interaction.is_some_and(Interaction::looks_after_task)
    }

    /// How a task stands that has given no result, or none yet.
    pub(super) fn stands(self, task: FollowedTask) -> EndedRun {
        let kind = match (&task.about, &task.standing) {
            (Some(_), None) => "task",
            (None, _) => "",
            (_, Some(TaskStatus::Working)) => "task_working",
            (_, Some(TaskStatus::Cancelled)) => "task_cancelled",
            (_, Some(TaskStatus::Asks(_))) => "task_input_required",
            (_, Some(TaskStatus::Failed(_) | TaskStatus::Completed(_))) => "task_failed",
        };
        let (mut requests, mut failed) = (String::new(), String::new());
        match &task.standing {
            Some(TaskStatus::Asks(asked)) => requests.clone_from(asked),
            Some(TaskStatus::Failed(error)) => failed = self.released_error(error),
            _ => {}
        }
        let status = if failed.is_empty() {
            pb::OutcomeStatus::Ok
        } else {
            pb::OutcomeStatus::ToolError
        };
        let facts = pb::ResultFacts {
            status: status.into(),
            error_kind: kind.to_owned(),
            phi: !failed.is_empty() && self.tool.tool.result().class(ERROR).is_phi(),
            stages: self.stopwatch.into_stages(),
            ..pb::ResultFacts::default()
        };
        let task = pb::Task {
            input_requests_json: requests.into(),
            error_json: failed.into(),
            facts: Some(facts),
            ..wire(task)
        };
        EndedRun {
            end: End::Task(Box::new(task)),
            ran: ToolOutcome::Perhaps,
        }
    }

    /// The JSON-RPC error that a call or a task ended in, as far as the permit lets it out: whole where the permit
    /// restricts nothing or shows errors, else its code with the words redacted.
    pub(super) fn released_error(&self, error: &RpcError) -> String {
        let class = self.tool.tool.result().class(ERROR);
        let tier = self.permit.tier(class);
        let classes = &self.tool.tool.facts().classes;
        if tier == ColumnTier::Clear || !self.compiled.restricts(&self.permit, classes) {
            return error.for_clients();
        }
        let words = Value::from(error.message.as_str());
        let words = self.compiled.redactor.field(class, tier, words);
        let words = words.filter(Value::is_string);
        let released = json!({
            "code": error.code_for_clients(),
            "message": words.unwrap_or_else(|| "the tool reported an error, which is withheld".into()),
        });
        released.to_string()
    }
}

impl EndedRun {
    /// The same as what a completed task gave; what is no result is itself the end.
    pub(super) fn of_task(self, task: FollowedTask) -> Self {
        let end = match self.end {
            End::Result(result) => End::Task(Box::new(pb::Task {
                facts: result.facts.clone(),
                result: Some(result),
                ..wire(task)
            })),
            end => end,
        };
        Self { end, ..self }
    }
}

fn wire(task: FollowedTask) -> pb::Task {
    pb::Task {
        state: task.state,
        task_json: task.about.unwrap_or_default().into(),
        ..pb::Task::default()
    }
}
