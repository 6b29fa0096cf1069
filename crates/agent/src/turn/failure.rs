//! Failures that end a turn without an answer.

use crate::approval::InvalidApproval;
use crate::assistant::MissingVariables;
use crate::clients::GatewayFailure;
use crate::event::{Cap, ErrorKind};
use crate::model::ModelError;

/// A failure that ends a turn's stream. The journal is kept, so that sending the same message id again resumes the turn.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TurnFailure {
    #[error("{0}")]
    Request(String),
    #[error("the assistant does not exist; request the list of models")]
    UnknownModel,
    #[error("assistant `{0}` has no model: set {names}", names = .1.0.iter().map(String::as_str).collect::<Vec<_>>().join(", "))]
    NotConfigured(String, MissingVariables),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("the model returned neither text nor a call")]
    Empty,
    #[error(
        "the model requested tools again instead of answering after the turn reached a limit of its assistant; request less at once"
    )]
    Capped(Cap),
    #[error("{0}")]
    Gateway(#[from] GatewayFailure),
    #[error("{0}")]
    Conflict(String),
    #[error(transparent)]
    Approval(#[from] InvalidApproval),
    #[error("too many of your turns are in progress; wait until one completes")]
    TooManyTurns,
}

impl TurnFailure {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Request(_) => ErrorKind::InvalidRequest,
            Self::UnknownModel => ErrorKind::UnknownModel,
            Self::NotConfigured(..) => ErrorKind::ModelNotConfigured,
            Self::Model(_) => ErrorKind::ModelFailed,
            Self::Empty | Self::Capped(_) => ErrorKind::EmptyAnswer,
            Self::Gateway(_) => ErrorKind::GatewayFailed,
            Self::Conflict(_) => ErrorKind::Conflict,
            Self::Approval(_) => ErrorKind::InvalidApproval,
            Self::TooManyTurns => ErrorKind::TooManyTurns,
        }
    }

    /// Returns the limit that the turn reached, if the failure is caused by one.
    pub(crate) fn cap(&self) -> Option<Cap> {
        match self {
            Self::Capped(cap) => Some(*cap),
            _ => None,
        }
    }
}
