//! The reasons for which a request has no page.

use http::{Method, StatusCode};
use wardgate_domain::CallId;
use wardgate_edge::{BodyRefusal, TokenRefusal};

use crate::mcp::GatewayFault;

/// Why there is no page. Nothing of what was sent is in it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Problem {
    /// Not signed in, or not any more; where to come back to.
    #[error("sign in")]
    SignedOut(Option<String>),
    #[error("{0}")]
    Token(TokenRefusal),
    #[error("{0}")]
    Host(String),
    /// What changes something did not come from a page of the console.
    #[error("the form was not sent from a page of this console")]
    Foreign,
    /// The form was opened by another person than the one who is signed in now.
    #[error("the form is another person's")]
    OtherPerson,
    /// A result that is kept no more, or not here, or not for this person; and the call, where the link names it.
    #[error("the result is not kept")]
    NoResult(Option<CallId>),
    /// Results cannot be kept or looked at now: nothing was called.
    #[error("the store of results is away")]
    NoStore,
    /// Sessions cannot be looked at or renewed now.
    #[error("the store of sessions is away")]
    NoSessions,
    /// A call was made, and what came of it cannot be kept for its page.
    #[error("the result cannot be kept")]
    ResultLost(Option<CallId>),
    #[error("the method is not served here")]
    Method(&'static [Method]),
    #[error("the body cannot be read")]
    Body(BodyRefusal),
    #[error("{0}")]
    Input(String),
    /// No such page, no such tool, or none that this person may see: all alike.
    #[error("there is nothing here")]
    Unknown,
    #[error("too many pages are worked on")]
    Busy,
    /// The gateway does not let this person, in its own words.
    #[error("the gateway refused")]
    Refused(String),
    #[error("{0}")]
    Gateway(#[from] GatewayFault),
    /// The policy does not let this person read the record.
    #[error("the record is not for this caller")]
    NotForYou,
    /// There is no link to the record.
    #[error("the record is not linked")]
    NoRecord,
    /// The record or the policy cannot be asked, or the look cannot be put on record.
    #[error("the record cannot be read now")]
    RecordAway,
}

impl Problem {
    /// Whether its page says who is signed in: not where nobody can be, or where that would be more work under load.
    pub(crate) fn has_header(&self) -> bool {
        !matches!(
            self,
            Self::SignedOut(_) | Self::Token(_) | Self::Host(_) | Self::Busy | Self::NoSessions
        )
    }

    /// The status of the page that says so.
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

    /// The word for metrics.
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
