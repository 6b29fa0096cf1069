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
    #[error("the tool catalogue has faults:\n{}", lines(.0))]
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
        "tool_runner.advertise: write scheme, host and port, like https://10.1.2.3:7002, instead of `{0}`"
    )]
    Advertise(String),
    /// A tool refers to a source that does not exist or has another type.
    #[error("there is no source `{0}` of the type its tools need")]
    NoSource(String),
    /// A tool queries conversations, and no memory service is configured.
    #[error(
        "tool_runner.links.memory is missing: a tool asks the interface `memory`, so name the memory service's address, for example https://127.0.0.1:7004"
    )]
    NoMemory,
    /// No tool with that canonical name is configured.
    #[error("no tool of that name is configured; list the tools")]
    UnknownTool,
    /// The call carries no permit.
    #[error("the call carries no permit; ask the policy service for one")]
    NoPermit,
    /// The client's part in the interaction is invalid, or the tool does not support any.
    #[error("the client cannot take part like that: {0}")]
    Interaction(#[from] InvalidMessage),
    /// The permit does not cover the call.
    #[error(transparent)]
    Permit(#[from] PermitRefusal),
    /// The permit's row rule does not fit the tool.
    #[error(transparent)]
    RowRule(#[from] RowRuleError),
    /// The switches have not been read yet.
    #[error("it is not known yet which tools are switched off; try again later")]
    SwitchesUnknown,
    /// The operator is refused.
    #[error(transparent)]
    Operator(#[from] OperatorError),
    /// A switch was set for a target that is not configured.
    #[error("there is no {kind} `{name}`; use the name that `tools.yaml` gives it, not an alias")]
    NoSuchTarget {
        /// The kind of the target.
        kind: &'static str,
        /// The name of the target.
        name: String,
    },
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
    #[error("the change cannot be recorded durably, so it is not made; try again later")]
    NotRecorded(#[source] CallError),
    /// The execution could not be recorded, so the call was not run or its result was not released.
    #[error("the call cannot be recorded durably, so nothing of it is released; try again later")]
    ExecutionNotRecorded(#[source] CallError),
    /// The task that made the change panicked.
    #[error("the change was interrupted; list the switches to see whether it was made")]
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
            Self::NoPermit | Self::Permit(_) | Self::RowRule(_) => ErrorReason::PermitRefused,
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
