//! Tasks of a server of 2026-07-28, by the tasks extension: the task that a call became, and its status.
//!
//! ```text
//!   tools/call ─▶ `resultType: task` ─▶ begun        tasks/get ─▶ looked at        tasks/update, tasks/cancel ─▶ taken
//! ```

use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_json::{Members, is_strict};

use super::error::{UpstreamError, UpstreamRpcError};
use super::members::object;
use super::message::{MemberValue, UpstreamRequest};
use super::participation::Participation;
use super::responses::Responses;
use super::result::check_asked;

/// Maximum length of a task id in bytes.
const MAX_ID: usize = 1_024;

/// Maximum size of the members of a task that do not concern its outcome, in bytes.
const MAX_ABOUT: usize = 64 * 1_024;

/// Members that are not part of the description of a task: its id, which is replaced by the gateway's id, its outcome, and
/// members of the surrounding result.
const APART: [&str; 7] = [
    "taskId",
    "result",
    "error",
    "inputRequests",
    "requestState",
    "resultType",
    "_meta",
];

/// A request about a task of a server.
#[derive(Debug, Clone)]
pub enum ServerTaskRequest {
    /// `tasks/get`
    Get,
    /// `tasks/update`
    Update(Responses),
    /// `tasks/cancel`
    Cancel,
}

/// A task as its server describes it.
#[derive(Debug)]
pub struct ServerTask {
    /// The id that the server assigned.
    pub id: String,
    /// MCP `Task` without its id: one JSON object, each member byte for byte.
    pub about: String,
}

/// The status of a task.
#[derive(Debug)]
pub enum TaskStatus {
    /// The task is running.
    Working,
    /// The task was cancelled.
    Cancelled,
    /// The task requests input: MCP `inputRequests`, a JSON object.
    Asks(String),
    /// The task is complete, with the result of its call.
    Completed(Box<RawValue>),
    /// The task failed.
    Failed(UpstreamRpcError),
}

#[derive(Deserialize)]
struct TaskMembers {
    #[serde(rename = "taskId")]
    id: String,
    status: Status,
    #[serde(default)]
    result: Option<Box<RawValue>>,
    #[serde(default)]
    error: Option<UpstreamRpcError>,
    #[serde(default, rename = "inputRequests")]
    requests: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl ServerTaskRequest {
    pub(super) fn request<'a>(
        &'a self,
        id: &'a str,
        client: &'a Participation,
    ) -> UpstreamRequest<'a> {
        let task = vec![("taskId", MemberValue::Text(id))];
        let request = match self {
            Self::Get => UpstreamRequest::new("tasks/get", task),
            Self::Cancel => UpstreamRequest::new("tasks/cancel", task),
            Self::Update(responses) => {
                let mut request = UpstreamRequest::new("tasks/update", task);
                responses.add_to(&mut request, None);
                request
            }
        };
        request.with(client).offering_tasks(true)
    }
}

impl ServerTask {
    /// Reads the task in `result` that a call became.
    pub(super) fn from_result(result: &RawValue) -> Result<Self, UpstreamError> {
        let (task, _) = Self::parse(result)?;
        Ok(task)
    }

    /// Reads the task and its status from `result`, the response to a request about the task `id`.
    pub(super) fn looked_at(
        result: &RawValue,
        id: &str,
        client: &Participation,
    ) -> Result<(Self, TaskStatus), UpstreamError> {
        let (task, task_members) = Self::parse(result)?;
        if task.id != id {
            return Err(UpstreamError::BadResult("it reports another task"));
        }
        let standing = match (
            task_members.status,
            task_members.requests,
            task_members.result,
            task_members.error,
        ) {
            (Status::Working, ..) => TaskStatus::Working,
            (Status::Cancelled, ..) => TaskStatus::Cancelled,
            (Status::InputRequired, Some(requests), ..) => {
                check_asked(requests.get(), client.capabilities.profile)?;
                TaskStatus::Asks(requests.get().to_owned())
            }
            (Status::Completed, _, Some(result), _) => TaskStatus::Completed(result),
            (Status::Failed, _, _, Some(error)) => TaskStatus::Failed(error),
            _ => {
                return Err(UpstreamError::BadResult(
                    "its task lacks a member that its status requires",
                ));
            }
        };
        Ok((task, standing))
    }

    fn parse(result: &RawValue) -> Result<(Self, TaskMembers), UpstreamError> {
        const UNREADABLE: UpstreamError = UpstreamError::BadResult("its task is not valid");
        // Deserialization fails if one of these members occurs twice.
        let task_members: TaskMembers =
            serde_json::from_str(result.get()).map_err(|_| UNREADABLE)?;
        let members: Members<'_> = serde_json::from_str(result.get()).map_err(|_| UNREADABLE)?;
        let members = members.0.iter();
        let members = members.filter(|(name, _)| !APART.contains(&name.as_str()));
        let about = object(members.map(|(name, value)| (name.as_str(), value.get().to_owned())));
        let fits = (1..=MAX_ID).contains(&task_members.id.len()) && about.len() <= MAX_ABOUT;
        if !fits || !is_strict(&about) {
            return Err(UNREADABLE);
        }
        let id = task_members.id.clone();
        Ok((Self { id, about }, task_members))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{ClientCapabilities, PassthroughMembers};

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn looked_at(json: &str) -> Result<(ServerTask, TaskStatus), UpstreamError> {
        let client = Participation {
            capabilities: ClientCapabilities::parse(br#"{"elicitation":{}}"#).unwrap(),
            log_level: None,
            others: PassthroughMembers::default(),
            is_legacy: false,
        };
        ServerTask::looked_at(&raw(json), "t", &client)
    }

    #[test]
    fn what_a_server_says_of_a_task_stays_byte_for_byte_but_for_its_id_and_its_end() {
        let task_members = r#"{"resultType":"task","taskId":"t","status":"working","ttlMs":null, "x": {"n":1.10},"_meta":{},"requestState":"s"}"#;
        let task = ServerTask::from_result(&raw(task_members)).unwrap();
        assert_eq!(task.id, "t");
        let about = r#"{"status":"working","ttlMs":null,"x":{"n":1.10}}"#;
        assert_eq!(task.about, about);
    }

    #[test]
    fn a_task_stands_as_its_status_and_what_belongs_to_that_say() {
        let of = |rest: &str| looked_at(&format!(r#"{{"taskId":"t","status":{rest}}}"#));
        let stands = |rest: &str| of(rest).unwrap().1;
        assert!(matches!(stands(r#""working""#), TaskStatus::Working));
        assert!(matches!(stands(r#""cancelled""#), TaskStatus::Cancelled));
        match stands(r#""completed","result":{"a":1.10}"#) {
            TaskStatus::Completed(result) => assert_eq!(result.get(), r#"{"a":1.10}"#),
            other => panic!("{other:?}"),
        }
        match stands(r#""failed","error":{"code":-32603,"message":"m"}"#) {
            TaskStatus::Failed(error) => assert_eq!((error.code, &*error.message), (-32603, "m")),
            other => panic!("{other:?}"),
        }
        let form = json!({ "k": { "method": "elicitation/create", "params": {} } });
        match stands(&format!(r#""input_required","inputRequests":{form}"#)) {
            TaskStatus::Asks(requests) => assert_eq!(requests, form.to_string()),
            other => panic!("{other:?}"),
        }
        for odd in [
            r#""completed""#,
            r#""failed""#,
            r#""input_required""#,
            r#""done""#,
            r#""input_required","inputRequests":{"k":{"method":"roots/list"}}"#,
            r#""working","status":"failed""#,
            r#""working","x":{"a":1,"a":2}"#,
        ] {
            assert!(of(odd).is_err(), "{odd}");
        }
        assert!(looked_at(r#"{"taskId":"u","status":"working"}"#).is_err());
        assert!(looked_at(r#"{"taskId":"","status":"working"}"#).is_err());
    }
}
