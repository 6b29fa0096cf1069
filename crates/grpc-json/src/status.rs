//! What a failed call means.

use std::error::Error;

use tonic::{Code, ConnectError, Status, TimeoutExpired};
use wardgate_rpc::code_name;

use super::GrpcError;
use super::codec::DecodeFailure;

/// How tonic says that a message is larger than the limit. A server that says the same gains nothing.
const TOO_LARGE: &str = "Error, decoded message length too large";

/// A status of the server's own or of a broken transport.
pub(super) fn failed(status: &Status) -> GrpcError {
    if let Some(source) = status.source() {
        return broken(source, status);
    }
    match status.code() {
        Code::OutOfRange if status.message().starts_with(TOO_LARGE) => GrpcError::TooLarge,
        Code::DeadlineExceeded => GrpcError::Timeout,
        // The server gave up: it may have acted before.
        code @ (Code::Internal | Code::Unknown | Code::DataLoss | Code::Cancelled) => {
            GrpcError::Broken(format!("the server answered {}", code_name(code)))
        }
        code => GrpcError::Status {
            code,
            message: status.message().to_owned(),
        },
    }
}

/// The connection could not take the call.
pub(super) fn unready(error: tonic::transport::Error) -> Status {
    Status::from_error(Box::new(error))
}

fn broken(source: &(dyn Error + 'static), status: &Status) -> GrpcError {
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
            return GrpcError::BadAnswer("a message is not of the type that the descriptors tell");
        }
        causes.push(error.to_string());
        cause = error.source();
    }
    causes.dedup();
    GrpcError::Broken(causes.join(": "))
}

/// The cause that says most.
pub(super) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
