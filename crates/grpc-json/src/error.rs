//! The errors of a call of a gRPC method.

use tonic::Code;
use wardgate_rpc::code_name;

use super::json_mismatch::JsonMismatch;
use wardgate_egress::EgressError;

/// An error of a call. It is safe to log, because it contains no argument, no value of a response and no text of the
/// server, except for the message of [`GrpcError::Status`], which is not displayed.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// The settings are not valid for a client.
    #[error("the gRPC client cannot be set up: {0}")]
    Setup(String),
    /// There are no credentials. Nothing was sent.
    #[error(transparent)]
    Auth(#[from] EgressError),
    /// The server could not be reached. Nothing of the call was sent.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// The server's description of its methods cannot be used. Nothing of the call was sent.
    #[error("the server does not describe its methods: {0}")]
    Undescribed(String),
    /// The server has no such method. Nothing was sent.
    #[error("the server has no method `{0}`")]
    NoMethod(String),
    /// The method takes a stream of messages. Nothing was sent.
    #[error("the method `{0}` requires a stream of messages; only one message can be sent")]
    ClientStreaming(String),
    /// The message does not match the input type of the method. Nothing was sent.
    #[error("the message does not match the method: {0}")]
    Misfit(#[from] JsonMismatch),
    /// The message is too large. Nothing was sent.
    #[error("the message is larger than {0} bytes")]
    RequestTooLarge(usize),
    /// The deadline passed. It is unknown whether the method ran.
    #[error("no answer within the time limit")]
    Timeout,
    /// The server ended the call with `DEADLINE_EXCEEDED` before the deadline passed. It is unknown whether the method ran.
    #[error("the server stopped at its own time limit")]
    ServerTimeout,
    /// The call failed. It is unknown whether the method ran.
    #[error("the call failed: {0}")]
    Broken(String),
    /// The server responded with an error status.
    #[error("the server answered {}", code_name(*code))]
    Status {
        /// The code of the status.
        code: Code,
        /// The message of the status, which is released like any other value or not at all.
        message: String,
    },
    /// A message of the response is larger than the limit.
    #[error(
        "a message of the answer is larger than the limit; see `max_response_bytes` of the source"
    )]
    TooLarge,
    /// The response is not valid for the method.
    #[error("the answer cannot be shown: {0}")]
    BadAnswer(&'static str),
}
