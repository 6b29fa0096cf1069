//! The status with which a call ends.

/// The status with which a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The result was released.
    Ok,
    /// The call was refused by policy, or the tool is one that the caller may not see. This is an access violation.
    Denied,
    /// There is no such tool.
    UnknownTool,
    /// The arguments do not match the input schema.
    InvalidArguments,
    /// The tool ran and failed, or a part of the platform did.
    Error,
    /// The time limit of the call was exceeded.
    Timeout,
    /// The client cancelled the call or disconnected.
    Cancelled,
    /// The process stopped after the intent was recorded and before the outcome.
    Unknown,
}

impl Status {
    /// All statuses, for help texts and filters.
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::Denied,
        Self::UnknownTool,
        Self::InvalidArguments,
        Self::Error,
        Self::Timeout,
        Self::Cancelled,
        Self::Unknown,
    ];

    /// Returns the name of the status in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Denied => "denied",
            Self::UnknownTool => "unknown_tool",
            Self::InvalidArguments => "invalid_arguments",
            Self::Error => "error",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the description of the status in the reference documentation, in Markdown.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Ok => {
                "the result was released; the reason is empty, or `input_required`, `task`, `task_working`, …"
            }
            Self::Denied => "refused by policy, switch, scope or agent",
            Self::UnknownTool => "the tool, prompt, resource or task does not exist",
            Self::InvalidArguments => "the arguments are not valid",
            Self::Error => "the tool or a part of the platform failed",
            Self::Timeout => "the time limit was exceeded",
            Self::Cancelled => "the client cancelled or disconnected",
            Self::Unknown => "the outcome is unknown: the tool may have run",
        }
    }
}
