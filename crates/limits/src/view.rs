//! The JSON-RPC method that shows operators the usage of limits, authorized by the token of the request.

use std::sync::Arc;

use serde_json::json;
use wardgate_domain::{AdminChange, Caller, Event, OperatorAction, Reason};
use wardgate_gateway_record::CallRecorder;
use wardgate_mcp::Version;
use wardgate_mcp_server::{JsonRpcRequest, McpResponse, ObjectMembers, RpcError, inner, sentence};
use wardgate_resilience::{LeaseStoreUnavailable, LimitState};
use wardgate_rpc::client::{CallError, IdentifiedOperator, PolicyClient};

use crate::RequestAdmission;

/// The name of the method that lists the usage of each limit.
pub const LIST_LIMITS: &str = "limits/list";

/// The reason why nothing is shown.
#[derive(Debug, thiserror::Error)]
enum LimitsError {
    #[error(transparent)]
    Store(#[from] LeaseStoreUnavailable),
    #[error(transparent)]
    Policy(CallError),
    #[error("the policies do not permit you `read_record`, which shows what callers use")]
    Denied,
    #[error("the access could not be recorded")]
    NotRecorded,
}

impl LimitsError {
    fn to_rpc_error(&self) -> RpcError {
        match self {
            Self::Store(_) => RpcError::internal(
                Reason::STORE_UNAVAILABLE,
                "The usage of limits is not available now. Try again later.",
            ),
            Self::Policy(_) => RpcError::not_decided(),
            Self::NotRecorded => RpcError::not_recorded(),
            Self::Denied => RpcError::invalid_params(sentence(self)).because(Reason::DENIED),
        }
    }
}

/// The usage of limits, for operators.
pub struct LimitsView {
    admission: Arc<RequestAdmission>,
    policy: PolicyClient,
    recorder: Arc<CallRecorder>,
}

impl LimitsView {
    /// Creates the view of the limits of `admission`.
    pub fn new(
        admission: &Arc<RequestAdmission>,
        policy: PolicyClient,
        recorder: &Arc<CallRecorder>,
    ) -> Self {
        Self {
            admission: Arc::clone(admission),
            policy,
            recorder: Arc::clone(recorder),
        }
    }

    /// Handles a `request` of `operator`.
    pub async fn answer(
        &self,
        request: &JsonRpcRequest<'_>,
        version: Version,
        operator: &Caller,
    ) -> Result<McpResponse, RpcError> {
        ObjectMembers::of_params(request.raw_params())?.only(&[])?;
        let limits = self.list(operator).await;
        let limits = limits.map_err(|error| error.to_rpc_error().with_reason())?;
        let members = json!({ "limits": limits }).to_string();
        Ok(McpResponse::result(request.id, version, inner(&members)))
    }

    /// Returns the usage of every limit, or only that of the operator's tenant. The request is recorded before anything
    /// is read.
    async fn list(&self, operator: &Caller) -> Result<Vec<LimitState>, LimitsError> {
        let action = OperatorAction::ReadRecord;
        let operator = IdentifiedOperator::authorize(&self.policy, operator.clone(), action).await;
        let operator = operator.map_err(LimitsError::Policy)?;
        self.record(&operator).await?;
        if !operator.decision.allowed {
            return Err(LimitsError::Denied);
        }
        let tenant = operator.caller.tenant();
        let tenant = (!tenant.is_empty()).then_some(tenant);
        Ok(self.admission.uses(tenant).await?)
    }

    async fn record(&self, operator: &IdentifiedOperator) -> Result<(), LimitsError> {
        let event = Event::AdminChange(AdminChange {
            scope: operator.caller.tenant().to_owned(),
            ..operator.change("limits.read", "limits")
        });
        let recorded = self.recorder.audit_log().append(event).await;
        recorded.map(drop).map_err(|_| LimitsError::NotRecorded)
    }
}
