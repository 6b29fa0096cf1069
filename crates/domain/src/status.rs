//! How calls end.

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// The result was released.
    Ok,
    /// Refused by policy, or a tool the caller may not see: a violation.
    Denied,
    /// No such tool.
    UnknownTool,
    /// The arguments do not fit the input schema.
    InvalidArguments,
    /// The tool ran and failed, or a part of the platform did.
    Error,
    /// The time limit passed.
    Timeout,
    /// The client went away.
    Cancelled,
    /// The process ended between intent and outcome.
    Unknown,
}

impl Status {
    /// Every status, for help texts and filters.
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

    /// The status as records spell it.
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

    /// What the reference says of it, in Markdown.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Ok => {
                "the result was released; the reason is empty, or `input_required`, `task`, `task_working`, …"
            }
            Self::Denied => "refused by policy, switch, scope or agent",
            Self::UnknownTool => "there is no such tool, prompt, resource or task",
            Self::InvalidArguments => "the arguments do not fit",
            Self::Error => "the tool ran and failed, or a part of the platform did",
            Self::Timeout => "the time limit passed",
            Self::Cancelled => "the client went away or cancelled",
            Self::Unknown => "how it ended is not known: it may have run",
        }
    }
}
