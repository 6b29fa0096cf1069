//! Faults that end a request without a response from the gateway, with messages for the person who set up the bridge.

use reqwest::StatusCode;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use wardgate_json::parse_object;
use wardgate_mcp::error_code::{INTERNAL_ERROR, PARSE_ERROR};
use wardgate_mcp::message::ErrorObject;

use crate::message::Id;

/// A fault that ended a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RequestFault {
    #[error("The line is not a JSON-RPC message.")]
    NotAMessage,
    #[error("The gateway at {0} cannot be reached.")]
    Unreachable(String),
    #[error(
        "The connection to the gateway failed before the response. It is not known whether the request was executed."
    )]
    Lost,
    #[error("The gateway's answer is larger than {} MiB.", crate::MAX_MESSAGE_BYTES >> 20)]
    TooLarge,
    #[error(
        "The server is not an MCP endpoint; set --url to that of the gateway, for example http://127.0.0.1:8080/mcp."
    )]
    NotMcp,
    #[error("The session has ended; initialize again.")]
    SessionEnded,
    #[error("{0}")]
    Token(#[from] crate::Error),
    /// The gateway answered with an error status. `reason` is the JSON-RPC error in the body, if there is one.
    #[error("The gateway answered HTTP {status}.")]
    Refused {
        status: StatusCode,
        reason: Option<Box<RawValue>>,
        /// Advice on how to correct the problem.
        advice: Option<String>,
    },
    #[error("The id is used by a request in progress.")]
    IdInUse,
    #[error("Too many requests are in progress.")]
    Busy,
    #[error("The client disconnected before the response.")]
    Closing,
}

impl RequestFault {
    /// Returns whether repeating the request would fail in the same way.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::NotMcp | Self::SessionEnded => true,
            Self::Refused { status, .. } => {
                status.is_client_error() && !matches!(status.as_u16(), 401 | 408 | 429)
            }
            _ => false,
        }
    }

    /// Returns the error response to the request `id`, or to a line that is not a message if there is no id.
    pub(crate) fn answer(&self, id: Option<&Id>) -> String {
        let error = match self {
            Self::Refused {
                reason: Some(reason),
                advice,
                ..
            } => append_advice(reason, advice.as_deref()),
            Self::Refused {
                advice: Some(advice),
                ..
            } => error(INTERNAL_ERROR, &format!("{self} {advice}")),
            Self::NotAMessage => error(PARSE_ERROR, &self.to_string()),
            other => error(INTERNAL_ERROR, &other.to_string()),
        };
        match id {
            Some(id) => format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{error}}}"#,
                id.as_json()
            ),
            None => format!(r#"{{"jsonrpc":"2.0","error":{error}}}"#),
        }
    }
}

fn error(code: i64, message: &str) -> String {
    json!({ "code": code, "message": message }).to_string()
}

/// Returns the gateway's own error, with the advice appended to its message.
fn append_advice(reason: &RawValue, advice: Option<&str>) -> String {
    let Some(advice) = advice else {
        return reason.get().to_owned();
    };
    let Some(ErrorObject {
        code,
        message,
        data,
    }) = parse_object(reason.get())
    else {
        return error(INTERNAL_ERROR, advice);
    };
    let message = Value::from(format!("{message} {advice}"));
    let data = match data {
        Value::Null => String::new(),
        data => format!(r#","data":{data}"#),
    };
    format!(r#"{{"code":{code},"message":{message}{data}}}"#)
}
