//! A call that waits for an approval, as the gateway tells approvers of it and their clients show it.

use serde::{Deserialize, Serialize};

use crate::Approvers;

/// One JSON object. All of it may be somebody else's words.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingCall {
    /// What approvers decide with.
    pub id: String,
    /// Canonical tool name.
    pub tool: String,
    /// Who calls.
    pub caller: WaitingCaller,
    /// The address of the client; empty where it is not known.
    pub client_ip: String,
    /// Those of whom one has to approve it.
    pub approvers: Approvers,
    /// When it was made, RFC 3339.
    pub requested_at: String,
    /// Until when it waits, RFC 3339.
    pub expires_at: String,
    /// The arguments as they were sent; none in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
}

/// Who calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WaitingCaller {
    /// Token issuer.
    pub issuer: String,
    /// Token subject.
    pub subject: String,
}
