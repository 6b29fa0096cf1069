//! Conversion between errors and `tonic::Status`. Every status is created here.
//!
//! A status carries `google.rpc.ErrorInfo` with the reason, so that callers do not have to interpret messages. Causes are only
//! logged by the service where they occurred.

use std::collections::HashMap;

use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use wardgate_domain::InvalidMessage;
use wardgate_proto::common::v1::ErrorReason;
use wardgate_resilience::concurrency::OverloadRefusal;

/// The domain of every reason in `google.rpc.ErrorInfo`.
const DOMAIN: &str = "wardgate.dev";

/// An error that can be sent over a link.
pub trait ServiceError: std::error::Error {
    /// Returns the reason, for programs to act on.
    fn reason(&self) -> ErrorReason;
}

/// Returns the name of a status code in the gRPC specification.
pub fn code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}

/// Returns the status for `error`. Internal faults are logged here, once, and sent without their cause.
pub fn status(error: &(impl ServiceError + 'static)) -> Status {
    let reason = error.reason();
    if reason == ErrorReason::Internal {
        tracing::error!(
            error = error as &dyn std::error::Error,
            "a request failed inside the service"
        );
        return internal();
    }
    with_reason(reason, &error.to_string())
}

/// Returns the status for a message that cannot be converted.
pub fn invalid(error: &InvalidMessage) -> Status {
    let details = ErrorDetails::with_error_info(
        ErrorReason::InvalidMessage.as_str_name(),
        DOMAIN,
        HashMap::from([("field".to_owned(), error.name().to_owned())]),
    );
    Status::with_error_details(Code::InvalidArgument, error.to_string(), details)
}

/// Returns the reason in a status. A status without a reason comes from the transport, and its reason follows from the code.
pub fn reason_of(status: &Status) -> ErrorReason {
    let told = status
        .get_details_error_info()
        .filter(|info| info.domain == DOMAIN)
        .and_then(|info| ErrorReason::from_str_name(&info.reason));
    told.unwrap_or(match status.code() {
        Code::DeadlineExceeded => ErrorReason::DeadlineExceeded,
        Code::Unavailable | Code::Cancelled | Code::Unknown => ErrorReason::Unavailable,
        _ => ErrorReason::Internal,
    })
}

/// Returns the status for an internal fault, without the cause, which has to be logged where it is known.
pub(crate) fn internal() -> Status {
    with_reason(
        ErrorReason::Internal,
        "internal error; the log of the service contains the cause",
    )
}

/// Metadata key for the time after which a call may be retried (gRPC proposal A6).
pub(crate) const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Returns the status for a call that the concurrency limiter refused before any work was done.
pub(crate) fn overload_status(refused: &OverloadRefusal) -> Status {
    let mut status = with_reason(ErrorReason::Overloaded, &refused.to_string());
    let pushback = MetadataValue::try_from(refused.retry_after.as_millis().to_string());
    if let Ok(pushback) = pushback {
        status.metadata_mut().insert(PUSHBACK, pushback);
    }
    status
}

/// Returns the gRPC status code for the reason `reason`.
pub fn code_of(reason: ErrorReason) -> Code {
    match reason {
        ErrorReason::InvalidMessage => Code::InvalidArgument,
        ErrorReason::PermitRefused | ErrorReason::PeerRefused | ErrorReason::Denied => {
            Code::PermissionDenied
        }
        ErrorReason::UnknownTool | ErrorReason::UnknownConversation => Code::NotFound,
        ErrorReason::Conflict => Code::AlreadyExists,
        ErrorReason::Held => Code::FailedPrecondition,
        ErrorReason::NotDurable | ErrorReason::Unavailable | ErrorReason::Overloaded => {
            Code::Unavailable
        }
        ErrorReason::DeadlineExceeded => Code::DeadlineExceeded,
        ErrorReason::TokenRefused => Code::Unauthenticated,
        ErrorReason::Internal | ErrorReason::Unspecified => Code::Internal,
    }
}

pub(crate) fn with_reason(reason: ErrorReason, message: &str) -> Status {
    let details = ErrorDetails::with_error_info(reason.as_str_name(), DOMAIN, HashMap::new());
    Status::with_error_details(code_of(reason), message, details)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the secret cause")]
    struct Failure(ErrorReason);

    impl ServiceError for Failure {
        fn reason(&self) -> ErrorReason {
            self.0
        }
    }

    #[test]
    fn a_reason_survives_the_wire() {
        for reason in [
            ErrorReason::NotDurable,
            ErrorReason::PermitRefused,
            ErrorReason::UnknownTool,
            ErrorReason::Held,
            ErrorReason::TokenRefused,
        ] {
            assert_eq!(reason_of(&status(&Failure(reason))), reason);
        }
    }

    #[test]
    fn an_internal_cause_is_not_sent() {
        let status = status(&Failure(ErrorReason::Internal));
        assert!(!status.message().contains("secret"));
        assert_eq!(status.code(), Code::Internal);
    }

    #[test]
    fn a_transport_failure_reads_as_unavailable() {
        assert_eq!(
            reason_of(&Status::unavailable("connection refused")),
            ErrorReason::Unavailable
        );
    }
}
