//! Why a call of a gRPC method gave no answer.

use tonic::Code;
use wardgate_rpc::code_name;

use super::json_mismatch::JsonMismatch;
use wardgate_egress::EgressError;

/// Shown in logs: holds no argument, no value of an answer and no word of the server's own.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// The settings do not make a client.
    #[error("the gRPC client cannot be set up: {0}")]
    Setup(String),
    /// Nothing was sent for want of credentials.
    #[error(transparent)]
    Auth(#[from] EgressError),
    /// Nothing of the call was sent.
    #[error("the server cannot be reached: {0}")]
    Unreachable(String),
    /// Nothing of the call was sent: what the server tells about itself is of no use.
    #[error("the server does not describe its methods: {0}")]
    Undescribed(String),
    /// Nothing was sent.
    #[error("the server has no method `{0}`")]
    NoMethod(String),
    /// Nothing was sent.
    #[error("the method `{0}` wants a stream of messages; only one message can be sent")]
    ClientStreaming(String),
    /// Nothing was sent: the message does not fit the method's.
    #[error("the message does not fit the method: {0}")]
    Misfit(#[from] JsonMismatch),
    /// Nothing was sent.
    #[error("the message is larger than {0} bytes")]
    RequestTooLarge(usize),
    /// Whether the method ran is open.
    #[error("no answer within the time limit")]
    Timeout,
    /// Whether the method ran is open.
    #[error("the call broke: {0}")]
    Broken(String),
    /// The server's own answer.
    #[error("the server answered {}", code_name(*code))]
    Status {
        /// Of the answer.
        code: Code,
        /// The server's own words, which are released like any other value or not at all.
        message: String,
    },
    /// A message of the answer is larger than the limit.
    #[error(
        "a message of the answer is larger than the limit; see `max_response_bytes` of the source"
    )]
    TooLarge,
    /// The answer is not what the method promises.
    #[error("the answer cannot be shown: {0}")]
    BadAnswer(&'static str),
}
