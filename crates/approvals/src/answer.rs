//! Answers the methods of approvers. Each request is for the person whose token it carries.

use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;
use wardgate_domain::{ApprovalId, Reason, WaitingCall, WaitingCaller};
use wardgate_mcp::Version;
use wardgate_mcp_server::{JsonRpcRequest, McpResponse, ObjectMembers, RpcError, inner};

use crate::{ApprovalError, ApprovalMethod, Approvals, Approver, PendingApproval};

impl Approvals {
    /// Answers `request`, whose method is `method`.
    pub async fn answer(
        self: &Arc<Self>,
        request: &JsonRpcRequest<'_>,
        version: Version,
        method: ApprovalMethod,
        approver: Approver,
    ) -> Result<McpResponse, RpcError> {
        let params = ObjectMembers::of_params(request.raw_params())?;
        let id = || {
            params.only(&["id"])?;
            params.parse_required::<ApprovalId>("id")
        };
        let result = match method {
            ApprovalMethod::List => {
                params.only(&[])?;
                let pending = self.list(&approver.caller).await;
                let pending = pending.map_err(|error| refusal(&error))?;
                let pending: Vec<_> = pending.iter().map(waiting_call).collect();
                json!({ "approvals": pending })
            }
            ApprovalMethod::Get => {
                let pending = self.show_request(&approver, id()?).await;
                let pending = pending.map_err(|error| refusal(&error))?;
                // The arguments are returned exactly as they were sent, including the form of numbers.
                let arguments = serde_json::from_slice::<&RawValue>(&pending.call.arguments);
                let approval = WaitingCall {
                    arguments: arguments.ok().map(|it| it.get().to_owned()),
                    ..waiting_call(&pending)
                };
                json!({ "approval": approval })
            }
            ApprovalMethod::Approve | ApprovalMethod::Refuse => {
                let approves = method == ApprovalMethod::Approve;
                let (approvals, id) = (Arc::clone(self), id()?);
                // A separate task, so that a recorded decision takes effect even if the client disconnects.
                let decided =
                    tokio::spawn(
                        async move { approvals.decide_request(&approver, id, approves).await },
                    );
                let decided = decided.await;
                let decided =
                    decided.map_err(|_| RpcError::internal(Reason::PANIC, "Internal error."))?;
                let pending = decided.map_err(|error| refusal(&error))?;
                let state = if approves { "approved" } else { "refused" };
                json!({ "id": pending.call.id.to_string(), "state": state })
            }
        };
        let members = result.to_string();
        Ok(McpResponse::result(request.id, version, inner(&members)))
    }
}

fn refusal(error: &ApprovalError) -> RpcError {
    error.to_rpc_error().with_reason()
}

/// Returns the description of a request in a list.
fn waiting_call(pending: &PendingApproval) -> WaitingCall {
    let PendingApproval {
        call,
        approvers,
        policy_hash: _,
        requested_at,
        expires_at,
    } = pending;
    WaitingCall {
        id: call.id.to_string(),
        tool: call.tool.name.to_string(),
        caller: WaitingCaller {
            issuer: call.caller.issuer().to_owned(),
            subject: call.caller.subject().to_owned(),
        },
        client_ip: call.client_ip.clone(),
        approvers: approvers.clone(),
        requested_at: requested_at.to_string(),
        expires_at: expires_at.to_string(),
        arguments: None,
    }
}
