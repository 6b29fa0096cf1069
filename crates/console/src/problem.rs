//! The problems for which a request is answered with an error page.

use http::{Method, StatusCode};
use wardgate_domain::CallId;
use wardgate_edge::{BodyRefusal, TokenRefusal};

use crate::mcp::GatewayFault;

/// The reason for an error page. No variant contains data of the request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// The person is not signed in, or not any more. Contains the path to return to after the sign-in.
    #[error("sign in")]
    SignedOut(Option<String>),
    #[error("{0}")]
    Token(TokenRefusal),
    #[error("{0}")]
    Host(String),
    /// A request that changes something did not come from a page of the console.
    #[error("the form was not sent from a page of this console")]
    Foreign,
    /// The form was rendered for another person than the one who is signed in now.
    #[error("the form was opened by another user")]
    OtherPerson,
    /// The result does not exist, is no longer kept, or belongs to another person. Contains the id of the call if the
    /// link has it.
    #[error("the result is no longer stored")]
    NoResult(Option<CallId>),
    /// The store of results is unavailable. Nothing was called.
    #[error("the store of results is not available")]
    NoStore,
    /// The store of sessions is unavailable.
    #[error("the store of sessions is not available")]
    NoSessions,
    /// The tool was called, but its result cannot be stored.
    #[error("the result cannot be stored")]
    ResultLost(Option<CallId>),
    #[error("the method is not supported here")]
    Method(&'static [Method]),
    #[error("the body cannot be read")]
    Body(BodyRefusal),
    #[error("{0}")]
    Input(String),
    /// The page or the tool does not exist, or this person may not see it. These cases are not distinguished.
    #[error("the page does not exist")]
    Unknown,
    #[error("too many pages are being processed")]
    Busy,
    /// The gateway refused the request, with this message.
    #[error("the gateway refused the request")]
    Refused(String),
    #[error("{0}")]
    Gateway(#[from] GatewayFault),
    /// The policy does not allow this person to read the record.
    #[error("this caller may not read the record")]
    NotForYou,
    /// The record is not linked.
    #[error("the record is not linked")]
    NoRecord,
    /// The record or the policy service is unavailable, or the access cannot be recorded.
    #[error("the record is not available now")]
    RecordAway,
}

impl Problem {
    /// Returns whether the error page shows who is signed in. It does not if nobody can be signed in, or if it would
    /// cost more work under load.
    pub(crate) fn has_header(&self) -> bool {
        !matches!(
            self,
            Self::SignedOut(_) | Self::Token(_) | Self::Host(_) | Self::Busy | Self::NoSessions
        )
    }

    /// Returns the HTTP status of the error page.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::SignedOut(_) => StatusCode::UNAUTHORIZED,
            Self::Token(refusal) => refusal.status(),
            Self::Host(_) | Self::Foreign | Self::Refused(_) | Self::NotForYou => {
                StatusCode::FORBIDDEN
            }
            Self::OtherPerson => StatusCode::CONFLICT,
            Self::Method(_) => StatusCode::METHOD_NOT_ALLOWED,
            Self::Body(refusal) => refusal.status(),
            Self::Input(_) => StatusCode::BAD_REQUEST,
            Self::Unknown | Self::NoResult(_) | Self::NoRecord => StatusCode::NOT_FOUND,
            Self::Busy
            | Self::RecordAway
            | Self::NoStore
            | Self::NoSessions
            | Self::ResultLost(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Gateway(fault) => fault.status(),
        }
    }

    /// Returns the label value for metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::SignedOut(_) => "signed_out",
            Self::Token(refusal) => refusal.reason().as_str(),
            Self::Host(_) => "host_refused",
            Self::Foreign => "foreign_form",
            Self::OtherPerson => "form_of_another_person",
            Self::NoResult(_) => "result_not_kept",
            Self::NoStore => "results_unavailable",
            Self::NoSessions => "sessions_unavailable",
            Self::ResultLost(_) => "result_lost",
            Self::Method(_) => "method_not_allowed",
            Self::Body(refusal) => refusal.reason().as_str(),
            Self::Input(_) => "invalid_form",
            Self::Unknown => "not_found",
            Self::Busy => "overloaded",
            Self::Refused(_) => "gateway_refused",
            Self::Gateway(_) => "gateway_failed",
            Self::NotForYou => "record_denied",
            Self::NoRecord => "record_not_linked",
            Self::RecordAway => "record_unavailable",
        }
    }
}
