//! Errors that occur before a tool runs. An error that occurs while a tool runs is a result.

use wardgate_domain::{InvalidMessage, PermitRefusal};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::ServiceError;
use wardgate_rpc::client::{CallError, OperatorError};

use crate::row_rule::RowRuleError;
use crate::store::StoreError;
use wardgate_catalogue::Fault;

/// The reason why the service did not start, or did not run a call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The `tools.yaml` has faults.
    #[error("the tool catalogue has errors:\n{}", lines(.0))]
    Catalogue(Vec<Fault>),
    /// A database source could not be set up although its settings passed validation.
    #[error("a source cannot be set up")]
    Source(#[source] sqlx::Error),
    /// An HTTP source could not be set up although its settings passed validation.
    #[error("an HTTP source cannot be set up: {0}")]
    HttpSource(String),
    /// A gRPC source could not be set up although its settings passed validation.
    #[error("a gRPC source cannot be set up: {0}")]
    GrpcSource(String),
    /// The configured address of this replica is invalid.
    #[error(
        "tool_runner.advertise: `{0}` is not a URL of scheme, host and port, like https://10.1.2.3:7002"
    )]
    Advertise(String),
    /// A tool refers to a source that does not exist or has another type.
    #[error("the source `{0}` does not exist, or does not have the type that its tools require")]
    NoSource(String),
    /// A tool queries conversations, and no memory service is configured.
    #[error(
        "tool_runner.links.memory is missing: a tool uses the interface `memory`, so set it to the address of the memory service, for \
         example https://127.0.0.1:7004"
    )]
    NoMemory,
    /// No tool with that canonical name is configured.
    #[error("no tool of this name is configured; list the tools")]
    UnknownTool,
    /// The call carries no permit.
    #[error("the call has no permit; request one from the policy service")]
    NoPermit,
    /// The client's part in the interaction is invalid, or the tool does not support any.
    #[error("the parameters of the client interaction are not valid: {0}")]
    Interaction(#[from] InvalidMessage),
    /// The permit does not cover the call.
    #[error(transparent)]
    Permit(#[from] PermitRefusal),
    /// The permit's row rule does not fit the tool.
    #[error(transparent)]
    RowRule(#[from] RowRuleError),
    /// The switches have not been read yet.
    #[error("the tool switches have not been read yet; try again later")]
    SwitchesUnknown,
    /// The operator is refused.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// A switch was set for a target that is not configured.
    #[error("the {kind} `{name}` does not exist; use its name in `tools.yaml`, not an alias")]
    NoSuchTarget {
        /// The kind of the target.
        kind: &'static str,
        /// The name of the target.
        name: String,
    },
    /// A request about a connection does not prove who its person is.
    #[error(
        "no permitted call of this person required a connection to this source within the last hour; call the tool again"
    )]
    NoCallerProof,
    /// A person's grant could not be started or finished.
    #[error("{text}")]
    Connection {
        /// The machine-readable reason.
        reason: ErrorReason,
        /// The reason as text.
        text: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The change could not be recorded, so it was not made.
    #[error("the change cannot be recorded durably and was not made; try again later")]
    NotRecorded(#[source] CallError),
    /// The execution could not be recorded, so the call was not run or its result was not released.
    #[error("the call cannot be recorded durably, so its result is not released; try again later")]
    ExecutionNotRecorded(#[source] CallError),
    /// The task that made the change panicked.
    #[error("the change was interrupted; list the switches to check whether it was made")]
    Interrupted,
}

fn lines(faults: &[Fault]) -> String {
    let lines: Vec<_> = faults.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

impl ServiceError for Error {
    fn reason(&self) -> ErrorReason {
        match self {
            Self::Catalogue(_)
            | Self::Source(_)
            | Self::HttpSource(_)
            | Self::GrpcSource(_)
            | Self::NoSource(_)
            | Self::NoMemory
            | Self::Advertise(_)
            | Self::Interrupted => ErrorReason::Internal,
            Self::UnknownTool => ErrorReason::UnknownTool,
            Self::Connection { reason, .. } => *reason,
            Self::Store(error) => error.reason(),
            Self::Operator(error) => error.reason(),
            Self::SwitchesUnknown => ErrorReason::Unavailable,
            Self::NoSuchTarget { .. } | Self::Interaction(_) => ErrorReason::InvalidMessage,
            Self::NotRecorded(_) | Self::ExecutionNotRecorded(_) => ErrorReason::NotDurable,
            Self::NoPermit | Self::NoCallerProof | Self::Permit(_) | Self::RowRule(_) => {
                ErrorReason::PermitRefused
            }
        }
    }
}

impl StoreError {
    fn reason(&self) -> ErrorReason {
        match self {
            Self::Database(_) | Self::Late => ErrorReason::Unavailable,
            Self::TooLarge | Self::TooManySwitches(_) => ErrorReason::InvalidMessage,
            Self::UnknownStore | Self::Open { .. } | Self::Schema(_) | Self::Sealed => {
                ErrorReason::Internal
            }
        }
    }
}
