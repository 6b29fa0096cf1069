//! Converts the failures of MCP servers into errors for callers.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use wardgate_domain::{Reason, RequiredCapabilities};

use crate::executor_error::{ExecutorError, TimeLimit};
use crate::interaction::ElicitationError;
use wardgate_mcp::error_code::MISSING_CAPABILITY;
use wardgate_mcp::extension::TASKS;
use wardgate_mcp_client::{UpstreamError, UpstreamRpcError};

/// Reason for a refusal by a server that does not accept this platform's credentials.
const UNAUTHORIZED: Reason = Reason::UPSTREAM_UNAUTHORIZED;

impl From<ElicitationError> for ExecutorError {
    fn from(error: ElicitationError) -> Self {
        match error {
            ElicitationError::Upstream(error) => error.into(),
            ElicitationError::NotWaiting => Self::NotWaiting,
            ElicitationError::Declined => Self::Refused {
                kind: Reason::DECLINED,
                text: "the user declined the input that the tool requires first".to_owned(),
                cause: error.to_string(),
            },
        }
    }
}

impl From<UpstreamError> for ExecutorError {
    fn from(error: UpstreamError) -> Self {
        let cause = error.to_string();
        match error {
            UpstreamError::Unreachable(_) | UpstreamError::Gone => Self::Unreachable(cause),
            UpstreamError::NotConnected { scope } => Self::NotConnected { scope },
            UpstreamError::ToolChanged => Self::ToolChanged,
            UpstreamError::NoCallerToken => Self::Refused {
                kind: Reason::NO_CREDENTIALS,
                text: "the service requires the caller's token, which was not sent with the call"
                    .to_owned(),
                cause,
            },
            UpstreamError::Busy => Self::Busy(Duration::ZERO),
            UpstreamError::Timeout => Self::Timeout(TimeLimit::Call),
            UpstreamError::SourceTimeout(limit) => Self::Timeout(TimeLimit::Source(limit)),
            UpstreamError::Broken(_) => Self::Broken(cause),
            UpstreamError::Status(401 | 403) => Self::Refused {
                kind: UNAUTHORIZED,
                text: "the upstream server does not accept this platform's credentials".to_owned(),
                cause,
            },
            UpstreamError::Status(429) => Self::Unavailable {
                text: cause,
                pause: Some(Duration::ZERO),
            },
            UpstreamError::Status(502..=504) => Self::Unavailable {
                text: cause,
                pause: None,
            },
            UpstreamError::Status(_) => Self::Refused {
                kind: Reason::HTTP_STATUS,
                text: cause.clone(),
                cause,
            },
            UpstreamError::Rpc(error) if needs_tasks(&error) => Self::Refused {
                kind: Reason::NEEDS_TASKS,
                text: "the tool runs only as a task: it requires a client of 2026-07-28 that declares io.modelcontextprotocol/tasks, \
                       sends no idempotency key and may see all of its results"
                    .to_owned(),
                cause,
            },
            UpstreamError::Rpc(error)
                if let Some(kind) = undeclared_capability_reason(&error) =>
            {
                Self::Refused {
                    kind,
                    text: NOT_ASKABLE.to_owned(),
                    cause,
                }
            }
            UpstreamError::Rpc(error) => Self::Protocol(error),
            UpstreamError::BadResult(_) => Self::BadResult(cause),
            UpstreamError::TooLarge => Self::TooLarge,
            UpstreamError::AsksOutOfTurn => Self::Refused {
                kind: Reason::INPUT_REQUIRED,
                text: "the tool requests input during a call in a form that MCP 2026-07-28 does not support; a client of an earlier \
                       version that supports the request may call it"
                    .to_owned(),
                cause,
            },
            UpstreamError::InputRequired => Self::Refused {
                kind: Reason::INPUT_REQUIRED,
                text: "the tool requests input during a call, and its caller may not be asked for it"
                    .to_owned(),
                cause,
            },
        }
    }
}

/// Returns the reason for a refusal by a server whose client did not declare a capability that the server needs, or
/// `None` for any other error. Gateways know these reasons.
fn undeclared_capability_reason(error: &UpstreamRpcError) -> Option<Reason> {
    let required = required_capabilities(error)?;
    kind_of_missing(|capability| required.contains_key(capability))
}

/// Returns the reason for the first of these capabilities that `is_required`.
fn kind_of_missing(is_required: impl Fn(&str) -> bool) -> Option<Reason> {
    let kinds = [
        ("sampling", Reason::NEEDS_SAMPLING),
        ("elicitation", Reason::NEEDS_ELICITATION),
        ("roots", Reason::NEEDS_ROOTS),
    ];
    let mut kinds = kinds.into_iter();
    let (_, kind) = kinds.find(|(capability, _)| is_required(capability))?;
    Some(kind)
}

/// Creates the refusal of a tool that its server shows only to clients with the capabilities `required`. Nothing was
/// sent.
pub(super) fn not_for_client(required: &RequiredCapabilities) -> ExecutorError {
    ExecutorError::Refused {
        kind: kind_of_missing(|capability| required.contain(capability))
            .unwrap_or(Reason::NEEDS_CAPABILITY),
        text: NOT_ASKABLE.to_owned(),
        cause: format!("the client lacks some of {}", required.to_json()),
    }
}

const NOT_ASKABLE: &str = "the tool requires a client that supports its requests for input; this client did not declare the capability, \
                           or may not be asked here";

/// Returns whether the server refused because the client does not support tasks.
fn needs_tasks(error: &UpstreamRpcError) -> bool {
    let extensions =
        required_capabilities(error).and_then(|mut required| required.remove("extensions"));
    extensions.is_some_and(|extensions| extensions.get(TASKS).is_some())
}

/// Returns the client capabilities that the server says it requires.
fn required_capabilities(error: &UpstreamRpcError) -> Option<Map<String, Value>> {
    #[derive(Deserialize)]
    struct Data {
        #[serde(rename = "requiredCapabilities")]
        required: Map<String, Value>,
    }
    let data = error.data.as_ref()?;
    let data: Option<Data> =
        (error.code == MISSING_CAPABILITY).then(|| serde_json::from_str(data.get()).ok())?;
    data.map(|data| data.required)
}
