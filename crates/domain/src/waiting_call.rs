//! A call that waits for an approval, in the format in which the gateway reports it to clients of approvers.

use serde::{Deserialize, Serialize};

use crate::Approvers;

/// A waiting call as a JSON object. All texts in it are untrusted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingCall {
    /// The id of the approval, with which an approver decides on the call.
    pub id: String,
    /// The canonical name of the tool.
    pub tool: String,
    /// The caller.
    pub caller: WaitingCaller,
    /// The address of the client; empty if unknown.
    pub client_ip: String,
    /// The people who may approve the call.
    pub approvers: Approvers,
    /// The time of the call, in RFC 3339 format.
    pub requested_at: String,
    /// The time until which the call waits, in RFC 3339 format.
    pub expires_at: String,
    /// The arguments as they were sent; `None` in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
}

/// The caller of a waiting call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WaitingCaller {
    /// The token issuer.
    pub issuer: String,
    /// The token subject.
    pub subject: String,
}
