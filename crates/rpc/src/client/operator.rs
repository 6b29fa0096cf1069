//! Authorization of operators by their token and the policy, and the audit records of their actions.

use std::sync::Arc;

use tracing::{error, warn};
use wardgate_domain::{
    AdminChange, Ambient, BearerToken, Caller, DecisionId, Event, OperatorAction, OperatorFacts,
    ReadDecision, Record,
};
use wardgate_proto::common::v1::ErrorReason;

use super::{AuditClient, CallError, PolicyClient};
use crate::ServiceError;

/// The holder of a verified token, and the policy decision on their action.
#[derive(Debug, Clone)]
pub struct IdentifiedOperator {
    /// The operator.
    pub caller: Caller,
    /// The requested action.
    pub action: OperatorAction,
    /// The decision of the policy.
    pub decision: ReadDecision,
}

impl IdentifiedOperator {
    /// Asks `policy` whether `caller` may do `action`. A denial is not an error.
    pub async fn authorize(
        policy: &PolicyClient,
        caller: Caller,
        action: OperatorAction,
    ) -> Result<Self, CallError> {
        let decision = policy.authorize_operator(&caller, action).await?;
        Ok(Self {
            caller,
            action,
            decision,
        })
    }

    /// Returns an error if the policy denied the action.
    pub fn check_permitted(&self) -> Result<(), OperatorError> {
        if self.decision.allowed {
            return Ok(());
        }
        Err(OperatorError::NotPermitted {
            subject: self.caller.subject().to_owned(),
            action: self.action,
            decision_id: self.decision.id,
        })
    }

    /// Creates the audit record of a change by the operator: `action`, for example `tool.disable`, of the object `target`.
    pub fn change(&self, action: impl Into<String>, target: impl Into<String>) -> AdminChange {
        let caller = &self.caller;
        AdminChange {
            actor: caller.subject().to_owned(),
            action: action.into(),
            target: target.into(),
            operator: Some(Box::new(OperatorFacts {
                issuer: caller.issuer().to_owned(),
                tenant: caller.tenant().to_owned(),
                roles: caller.roles().to_vec(),
                token_id: caller.token_id().to_owned(),
                decision: self.decision.clone(),
            })),
            ..AdminChange::default()
        }
    }
}

/// Records the actions of operators before they are executed.
#[derive(Debug, Clone)]
pub struct OperatorLog {
    audit: AuditClient,
    ambient: Ambient,
}

impl OperatorLog {
    /// Creates a log that appends to the audit service.
    pub fn new(audit: AuditClient, ambient: Ambient) -> Self {
        Self { audit, ambient }
    }

    /// Records `change`, with one retry.
    pub async fn append(&self, change: AdminChange) -> Result<(), CallError> {
        let record = Arc::new(Record {
            time: self.ambient.now(),
            event: Event::AdminChange(change),
        });
        let mut appended = self.audit.append_shared(&record, false).await;
        if appended.is_err() {
            appended = self.audit.append_shared(&record, true).await;
        }
        appended.map(drop)
    }

    /// Returns `done`. If `done` is an error, records `change` again as failed. The change may have been made in spite of the
    /// error, if only the response was lost.
    pub async fn settle<T, E>(&self, change: AdminChange, done: Result<T, E>) -> Result<T, E> {
        if done.is_err() {
            let failed = AdminChange {
                failed: true,
                ..change
            };
            if let Err(error) = self.append(failed).await {
                error!(%error, "a change was recorded but not made, and this failure cannot be recorded");
            }
        }
        done
    }

    /// Returns an error unless the policy permits `operator` to make `change` and the operator has no tenant, because the change
    /// concerns all tenants. A refusal is recorded.
    pub async fn check_permitted(
        &self,
        operator: &IdentifiedOperator,
        change: &AdminChange,
    ) -> Result<(), OperatorError> {
        let mut permitted = operator.check_permitted();
        if permitted.is_ok() && !operator.caller.tenant().is_empty() {
            permitted = Err(OperatorError::OfOneTenant {
                subject: operator.caller.subject().to_owned(),
            });
        }
        if permitted.is_err() {
            let mut refused = change.clone();
            if let Some(facts) = &mut refused.operator {
                facts.decision.allowed = false;
            }
            let recorded = self.append(refused).await;
            recorded.map_err(OperatorError::NotRecorded)?;
        }
        permitted
    }

    /// Records that `operator` reads the object that `change` names, after checking that the policy permits it.
    pub async fn record_reading(
        &self,
        operator: &IdentifiedOperator,
        change: AdminChange,
    ) -> Result<(), OperatorError> {
        self.check_permitted(operator, &change).await?;
        self.append(change)
            .await
            .map_err(OperatorError::NotRecorded)
    }
}

/// Authorization of operators by the policy service.
#[derive(Debug, Clone)]
pub struct OperatorRights {
    /// The policy service, or `None` if it is not configured, in which case every action is refused.
    policy: Option<PolicyClient>,
    /// The name of the setting for the policy service.
    setting: &'static str,
}

impl OperatorRights {
    /// Creates the authorization over `policy`, which is configured by the setting `setting`.
    pub fn new(policy: Option<PolicyClient>, setting: &'static str) -> Self {
        Self { policy, setting }
    }

    /// Identifies the holder of `token`, and decides whether they may do `action`. A denial is not an error.
    pub async fn decide(
        &self,
        token: &str,
        action: OperatorAction,
    ) -> Result<IdentifiedOperator, OperatorError> {
        let setting = self.setting;
        let policy = self.policy.as_ref();
        let policy = policy.ok_or(OperatorError::NoPolicyLink { setting })?;
        if token.is_empty() {
            return Err(OperatorError::NoToken);
        }
        let caller = policy.identify(&BearerToken::new(token)).await;
        let caller = caller.map_err(refusal)?;
        let operator = IdentifiedOperator::authorize(policy, caller, action).await;
        operator.map_err(refusal)
    }
}

/// Returns the operator's error for an error of the policy service.
fn refusal(error: CallError) -> OperatorError {
    match error.reason() {
        ErrorReason::TokenRefused => OperatorError::TokenRefused(error),
        ErrorReason::Denied => OperatorError::Unlisted(error),
        _ => {
            warn!(%error, "the policy service did not return the permissions of operators");
            OperatorError::PolicyUnavailable
        }
    }
}

/// The reason why an operator's request was refused.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The request has no token.
    #[error("an operator must send a token, and the request has none")]
    NoToken,
    /// The policy service did not accept the token.
    #[error("{0}")]
    TokenRefused(CallError),
    /// The policy does not permit the action.
    #[error(
        "no policy permits `{subject}` to {} (Action::\"{}\"); decision {decision_id}", describe(*action), action.as_str()
    )]
    NotPermitted {
        /// The subject of the token.
        subject: String,
        /// The requested action.
        action: OperatorAction,
        /// The id of the policy decision.
        decision_id: DecisionId,
    },
    /// The request concerns all tenants, and the operator has a tenant.
    #[error("this affects all tenants, but `{subject}` is an operator of a single tenant")]
    OfOneTenant {
        /// The subject of the token.
        subject: String,
    },
    /// The subject is unknown to the service that looks up callers.
    #[error("{0}")]
    Unlisted(CallError),
    /// The policy service is unavailable.
    #[error("the policy service cannot decide now what operators may do; try again later")]
    PolicyUnavailable,
    /// The policy service is not configured.
    #[error(
        "`{setting}` is not set: it must contain the address of the policy service, which decides what operators may do"
    )]
    NoPolicyLink {
        /// The name of the setting for the policy service.
        setting: &'static str,
    },
    /// The action could not be recorded, and therefore was not executed.
    #[error("this cannot be recorded durably now and was not done; try again later")]
    NotRecorded(#[source] CallError),
}

fn describe(action: OperatorAction) -> &'static str {
    match action {
        OperatorAction::ReadRecord => "read the record",
        OperatorAction::ReadOwnRecord => "read the record of their own calls",
        OperatorAction::ManageRecord => "manage the record and conversations",
        OperatorAction::RevokeAccess => "revoke access",
        OperatorAction::ManageTools => "manage tools",
    }
}

impl ServiceError for OperatorError {
    fn reason(&self) -> ErrorReason {
        match self {
            Self::NoToken | Self::TokenRefused(_) => ErrorReason::TokenRefused,
            Self::NotPermitted { .. } | Self::OfOneTenant { .. } | Self::Unlisted(_) => {
                ErrorReason::Denied
            }
            Self::PolicyUnavailable | Self::NoPolicyLink { .. } => ErrorReason::Unavailable,
            Self::NotRecorded(_) => ErrorReason::NotDurable,
        }
    }
}
