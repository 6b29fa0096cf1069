//! Conversion of a status to the error of a call.

use std::error::Error;

use tonic::{Code, ConnectError, Status, TimeoutExpired};
use wardgate_rpc::code_name;

use super::GrpcError;
use super::codec::DecodeFailure;

/// The message by which tonic reports a message that is larger than the limit. A server gains nothing by sending the same.
const TOO_LARGE: &str = "Error, decoded message length too large";

/// Converts a status that the server sent or that a broken transport caused.
pub(super) fn to_grpc_error(status: &Status) -> GrpcError {
    if let Some(source) = status.source() {
        return transport_error(source, status);
    }
    match status.code() {
        Code::OutOfRange if status.message().starts_with(TOO_LARGE) => GrpcError::TooLarge,
        Code::DeadlineExceeded => GrpcError::ServerTimeout,
        // The server failed, and may have acted before.
        code @ (Code::Internal | Code::Unknown | Code::DataLoss | Code::Cancelled) => {
            GrpcError::Broken(format!("the server answered {}", code_name(code)))
        }
        code => GrpcError::Status {
            code,
            message: status.message().to_owned(),
        },
    }
}

/// Returns the status for a connection that could not accept the call.
pub(super) fn unready(error: tonic::transport::Error) -> Status {
    Status::from_error(Box::new(error))
}

fn transport_error(source: &(dyn Error + 'static), status: &Status) -> GrpcError {
    let mut causes = vec![status.message().to_owned()];
    let mut cause = Some(source);
    while let Some(error) = cause {
        if error.is::<ConnectError>() {
            return GrpcError::Unreachable(innermost(error));
        }
        if error.is::<TimeoutExpired>() {
            return GrpcError::Timeout;
        }
        if error.is::<DecodeFailure>() {
            return GrpcError::BadAnswer("a message does not have the type in the descriptors");
        }
        causes.push(error.to_string());
        cause = error.source();
    }
    causes.dedup();
    GrpcError::Broken(causes.join(": "))
}

/// Returns the text of the innermost cause, which is the most specific one.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
