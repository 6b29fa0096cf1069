//! Operators: whose token it is, whether the policy lets them do what they ask for, and the record of it.

use tracing::{error, warn};
use wardgate_domain::{
    AdminChange, Ambient, BearerToken, Caller, DecisionId, Event, OperatorAction, OperatorFacts,
    ReadDecision, Record,
};
use wardgate_proto::common::v1::ErrorReason;

use super::{AuditClient, CallError, PolicyClient};
use crate::ServiceError;

/// The holder of a token that was verified, and what the policy says of them.
#[derive(Debug, Clone)]
pub struct IdentifiedOperator {
    /// Who they are.
    pub caller: Caller,
    /// What they ask for.
    pub action: OperatorAction,
    /// Whether they may.
    pub decision: ReadDecision,
}

impl IdentifiedOperator {
    /// `caller`, and whether `policy` lets them do `action`. A denial is an answer, not an error.
    pub async fn ask(
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

    /// Fails unless the policy lets them.
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

    /// What the record says of a change that they ask for: `action`, for example `tool.disable`, of what is called `target`.
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

/// Puts on record what operators do, before it is done.
#[derive(Debug, Clone)]
pub struct OperatorLog {
    audit: AuditClient,
    ambient: Ambient,
}

impl OperatorLog {
    /// Over the audit service.
    pub fn new(audit: AuditClient, ambient: Ambient) -> Self {
        Self { audit, ambient }
    }

    /// Puts `change` on record, in two attempts.
    pub async fn append(&self, change: AdminChange) -> Result<(), CallError> {
        let record = Record {
            time: self.ambient.now(),
            event: Event::AdminChange(change),
        };
        let mut appended = self.audit.append(&record, false).await;
        if appended.is_err() {
            appended = self.audit.append(&record, true).await;
        }
        appended.map(drop)
    }

    /// `done`; where it failed, `change`, which is on record, is so once more as failed: perhaps it was made and only the answer was
    /// lost.
    pub async fn settle<T, E>(&self, change: AdminChange, done: Result<T, E>) -> Result<T, E> {
        if done.is_err() {
            let failed = AdminChange {
                failed: true,
                ..change
            };
            if let Err(error) = self.append(failed).await {
                error!(%error, "a change was recorded, not made, and that cannot be recorded");
            }
        }
        done
    }

    /// Fails unless the policy lets `operator` make `change`, which concerns all tenants: an operator without one belongs to
    /// whoever runs the whole. Who tried is on record, too.
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

    /// Puts on record that `operator` reads what `change` names, whom the policy has to let.
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

/// The policy service, which knows operators and what they may.
#[derive(Debug, Clone)]
pub struct OperatorRights {
    /// None: there is nobody to ask, so nobody may do anything.
    policy: Option<PolicyClient>,
    /// The setting that names it.
    setting: &'static str,
}

impl OperatorRights {
    /// Over `policy`, which the setting `setting` names.
    pub fn new(policy: Option<PolicyClient>, setting: &'static str) -> Self {
        Self { policy, setting }
    }

    /// Whose `token` is, and whether they may do `action`. A denial is an answer, not an error.
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
        let operator = IdentifiedOperator::ask(policy, caller, action).await;
        operator.map_err(refusal)
    }
}

/// What an operator is told of an answer of the policy service that is none.
fn refusal(error: CallError) -> OperatorError {
    match error.reason() {
        ErrorReason::TokenRefused => OperatorError::TokenRefused(error),
        ErrorReason::Denied => OperatorError::Unlisted(error),
        _ => {
            warn!(%error, "the policy service does not say what operators may do");
            OperatorError::PolicyUnavailable
        }
    }
}

/// Why an operator is refused.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// Nobody's word is taken for who they are.
    #[error("an operator shows a token, and the request has none")]
    NoToken,
    /// The policy service does not take the token.
    #[error("{0}")]
    TokenRefused(CallError),
    /// No policy lets them.
    #[error(
        "no policy permits `{subject}` to {} (Action::\"{}\"); decision {decision_id}", describe(*action), action.as_str()
    )]
    NotPermitted {
        /// Whose token it was.
        subject: String,
        /// What they asked for.
        action: OperatorAction,
        /// Of the policy service.
        decision_id: DecisionId,
    },
    /// An operator of a tenant asks for what concerns all.
    #[error("this concerns all tenants, and `{subject}` is an operator of one")]
    OfOneTenant {
        /// Whose token it was.
        subject: String,
    },
    /// Nobody may do anything who is not listed where callers are looked up.
    #[error("{0}")]
    Unlisted(CallError),
    /// The policy service gives no answer.
    #[error("the policy service does not say what operators may do now; try again later")]
    PolicyUnavailable,
    /// There is no policy service.
    #[error(
        "`{setting}` does not say where the policy service is, which says what operators may do"
    )]
    NoPolicyLink {
        /// The setting.
        setting: &'static str,
    },
    /// What cannot be recorded is not done.
    #[error("this cannot be recorded durably now, so it is not done; try again later")]
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
