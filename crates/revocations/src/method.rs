//! The JSON-RPC methods of operators, authorized by the token of the request.

use std::sync::Arc;

use serde_json::json;
use wardgate_domain::{
    AdminChange, Caller, Digest, Event, ListedRevocation, OperatorAction, Reason, Revocation,
    RevocationKind, RevocationTarget,
};
use wardgate_mcp::Version;
use wardgate_mcp_server::{JsonRpcRequest, McpResponse, ObjectMembers, RpcError, inner};
use wardgate_rpc::client::IdentifiedOperator;

use crate::{RevocationError, Revocations};

/// Maximum length of a name, issuer, tenant or reason, in bytes.
const MAX_TEXT: usize = 512;

/// A JSON-RPC method about revocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevocationMethod {
    /// Lists the revocations in force.
    List,
    /// Revokes a token, a subject or a sign-in.
    Add,
    /// Lifts a revocation.
    Remove,
}

impl RevocationMethod {
    const ALL: [Self; 3] = [Self::List, Self::Add, Self::Remove];

    /// Returns the method with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.as_str() == name)
    }

    /// Returns the name of the method.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "revocations/list",
            Self::Add => "revocations/add",
            Self::Remove => "revocations/remove",
        }
    }
}

/// A change that an operator requests.
enum RevocationChange {
    Add {
        target: RevocationTarget,
        reason: String,
    },
    Remove {
        target: RevocationTarget,
    },
}

impl Revocations {
    /// Handles a `request` of `operator` for `method`.
    pub async fn answer(
        self: &Arc<Self>,
        request: &JsonRpcRequest<'_>,
        version: Version,
        method: RevocationMethod,
        operator: &Arc<Caller>,
    ) -> Result<McpResponse, RpcError> {
        let params = ObjectMembers::of_params(request.raw_params())?;
        let result = match method {
            RevocationMethod::List => {
                params.only(&[])?;
                let listed = self.list(operator).await;
                let listed = listed.map_err(|error| error.to_rpc_error().with_reason())?;
                let listed: Vec<_> = listed.into_iter().map(ListedRevocation::from).collect();
                json!({ "revocations": listed })
            }
            RevocationMethod::Add => {
                params.only(&["kind", "name", "issuer", "tenant", "reason"])?;
                let change = RevocationChange::Add {
                    target: read_target(&params, operator)?,
                    reason: plain_text(&params, "reason")?.unwrap_or_default(),
                };
                self.apply_change(operator, change).await?
            }
            RevocationMethod::Remove => {
                params.only(&["kind", "name", "issuer", "tenant"])?;
                let target = read_target(&params, operator)?;
                self.apply_change(operator, RevocationChange::Remove { target })
                    .await?
            }
        };
        let members = result.to_string();
        Ok(McpResponse::result(request.id, version, inner(&members)))
    }

    /// Returns the revocations that `operator` may see: all of them, or only those of the operator's tenant.
    async fn list(&self, operator: &Caller) -> Result<Vec<Revocation>, RevocationError> {
        if !self.authorize(operator).await?.decision.allowed {
            return Err(RevocationError::Denied);
        }
        let mut all = self.store.revocations().await?;
        let own = own_tenant(operator);
        all.retain(|it| own.is_none() || it.target.tenant == own);
        Ok(all)
    }

    async fn apply_change(
        self: &Arc<Self>,
        operator: &Arc<Caller>,
        change: RevocationChange,
    ) -> Result<serde_json::Value, RpcError> {
        let (revocations, operator) = (Arc::clone(self), Arc::clone(operator));
        // A separate task, so that a recorded change is made or recorded as failed even if the client disconnects.
        let made =
            tokio::spawn(async move { revocations.record_and_make(&operator, &change).await });
        let made = made.await;
        let made = made.map_err(|_| RpcError::internal(Reason::PANIC, "Internal error."))?;
        made.map_err(|error| error.to_rpc_error().with_reason())?;
        Ok(json!({}))
    }

    async fn record_and_make(
        &self,
        caller: &Caller,
        change: &RevocationChange,
    ) -> Result<(), RevocationError> {
        let operator = self.authorize(caller).await?;
        // A refused attempt is recorded too.
        self.record(&operator, change, false).await?;
        if !operator.decision.allowed {
            return Err(RevocationError::Denied);
        }
        let made = self.change_store(caller, change).await;
        if made.is_err() {
            // The change may have been made although the response was lost. The second record says that the outcome is
            // unknown.
            self.record(&operator, change, true).await?;
            return made;
        }
        // The change has been made. If it cannot be read now, the next poll reads it.
        let _ = self.follower.refresh().await;
        Ok(())
    }

    /// Asks the policy service whether `caller` may revoke access.
    async fn authorize(&self, caller: &Caller) -> Result<IdentifiedOperator, RevocationError> {
        let action = OperatorAction::RevokeAccess;
        let operator = IdentifiedOperator::authorize(&self.policy, caller.clone(), action).await;
        operator.map_err(RevocationError::Policy)
    }

    async fn change_store(
        &self,
        operator: &Caller,
        change: &RevocationChange,
    ) -> Result<(), RevocationError> {
        match change {
            RevocationChange::Add { target, reason } => {
                let revocation = Revocation {
                    target: target.clone(),
                    reason: reason.clone(),
                    revoked_by: operator.subject().to_owned(),
                    revoked_at: self.ambient.now(),
                };
                let added = self.store.add_revocation(&revocation).await?;
                added.ok_or(RevocationError::TooMany)
            }
            RevocationChange::Remove { target } => {
                let removed = self.store.remove_revocation(target).await?;
                removed.then_some(()).ok_or(RevocationError::Unknown)
            }
        }
    }

    async fn record(
        &self,
        operator: &IdentifiedOperator,
        change: &RevocationChange,
        failed: bool,
    ) -> Result<(), RevocationError> {
        let (verb, target, reason) = match change {
            RevocationChange::Add { target, reason } => ("revoke", target, reason.as_str()),
            RevocationChange::Remove { target } => ("restore", target, ""),
        };
        let event = Event::AdminChange(AdminChange {
            scope: target.tenant.clone().unwrap_or_default(),
            // A reason may contain names of patients, which could not be erased from the record, so only its digest is
            // recorded.
            detail_digest: (!reason.is_empty()).then(|| Digest::compute(reason.as_bytes())),
            failed,
            ..operator.change(
                format!("{}.{verb}", target.kind.as_str()),
                target.to_string(),
            )
        });
        let recorded = self.recorder.audit_log().append(event).await;
        recorded.map(drop).map_err(|_| RevocationError::NotRecorded)
    }
}

fn own_tenant(operator: &Caller) -> Option<String> {
    let tenant = operator.tenant();
    (!tenant.is_empty()).then(|| tenant.to_owned())
}

/// Parses the target of a change. The operator of a tenant can only revoke within that tenant.
fn read_target(
    params: &ObjectMembers<'_>,
    operator: &Caller,
) -> Result<RevocationTarget, RpcError> {
    let wanted = plain_text(params, "tenant")?;
    let own = own_tenant(operator);
    if own.is_some() && wanted.is_some() && own != wanted {
        return Err(params.wrong("tenant", "belongs to another caller"));
    }
    let name = plain_text(params, "name")?;
    Ok(RevocationTarget {
        kind: params.required_word("kind", &RevocationKind::ALL, RevocationKind::as_str)?,
        name: name.ok_or_else(|| params.wrong("name", "is missing"))?,
        issuer: plain_text(params, "issuer")?,
        tenant: own.or(wanted),
    })
}

/// Parses a text of 1 to [`MAX_TEXT`] bytes without control characters.
fn plain_text(params: &ObjectMembers<'_>, name: &str) -> Result<Option<String>, RpcError> {
    let text = params.text(name)?;
    let is_plain =
        |text: &str| !text.is_empty() && text.len() <= MAX_TEXT && !text.contains(char::is_control);
    if text.as_deref().is_some_and(|text| !is_plain(text)) {
        let problem = format!("is not 1 to {MAX_TEXT} bytes without control characters");
        return Err(params.wrong(name, &problem));
    }
    Ok(text)
}
