//! The JSON-RPC methods of approvers.

/// A method about requests for approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalMethod {
    /// The pending requests that the person may decide about, without arguments.
    List,
    /// One of them, with its arguments.
    Get,
    /// Approves it.
    Approve,
    /// Refuses it.
    Refuse,
}

impl ApprovalMethod {
    const ALL: [Self; 4] = [Self::List, Self::Get, Self::Approve, Self::Refuse];

    /// The method of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }

    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "approvals/list",
            Self::Get => "approvals/get",
            Self::Approve => "approvals/approve",
            Self::Refuse => "approvals/refuse",
        }
    }
}
