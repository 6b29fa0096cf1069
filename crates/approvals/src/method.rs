//! The JSON-RPC methods of approvers.

/// A JSON-RPC method about requests for approvals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalMethod {
    /// Lists the pending requests that the person may decide about, without arguments.
    List,
    /// Returns one pending request with its arguments.
    Get,
    /// Approves a pending request.
    Approve,
    /// Refuses a pending request.
    Refuse,
}

impl ApprovalMethod {
    const ALL: [Self; 4] = [Self::List, Self::Get, Self::Approve, Self::Refuse];

    /// Returns the method of this name, or `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }

    /// Returns the name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "approvals/list",
            Self::Get => "approvals/get",
            Self::Approve => "approvals/approve",
            Self::Refuse => "approvals/refuse",
        }
    }
}
