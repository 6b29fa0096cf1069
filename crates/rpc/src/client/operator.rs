//! Operators: whose token it is, and whether the policy lets them do what they ask for.

use tracing::warn;
use wardgate_domain::{BearerToken, Caller, DecisionId, OperatorAction, ReadDecision};
use wardgate_proto::common::v1::ErrorReason;

use super::{CallError, PolicyClient};
use crate::ServiceError;

/// The holder of a token that was verified, and what the policy says of them.
#[derive(Debug, Clone)]
pub struct Operator {
    /// Who they are.
    pub caller: Caller,
    /// What they ask for.
    pub action: OperatorAction,
    /// Whether they may.
    pub decision: ReadDecision,
}

impl Operator {
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

    /// Fails unless the policy lets them, and they belong to no tenant: an operator without one belongs to whoever runs the
    /// whole.
    pub fn check_permitted_for_all_tenants(&self) -> Result<(), OperatorError> {
        self.check_permitted()?;
        if self.caller.tenant().is_empty() {
            return Ok(());
        }
        Err(OperatorError::OfOneTenant {
            subject: self.caller.subject().to_owned(),
        })
    }
}

/// The policy service, which knows operators and what they may. None: there is nobody to ask, so nobody may do anything.
#[derive(Debug, Clone)]
pub struct OperatorRights(pub Option<PolicyClient>);

impl OperatorRights {
    /// Whose `token` is, and whether they may do `action`. A denial is an answer, not an error.
    pub async fn decide(
        &self,
        token: &str,
        action: OperatorAction,
    ) -> Result<Operator, OperatorError> {
        let policy = self.0.as_ref().ok_or(OperatorError::NoPolicyLink)?;
        if token.is_empty() {
            return Err(OperatorError::NoToken);
        }
        let caller = policy.identify(&BearerToken::new(token)).await;
        let caller = caller.map_err(refusal)?;
        let decision = policy.authorize_operator(&caller, action).await;
        Ok(Operator {
            decision: decision.map_err(refusal)?,
            action,
            caller,
        })
    }
}

/// What an operator is told of an answer of the policy service that is none.
fn refusal(error: CallError) -> OperatorError {
    if error.reason() == ErrorReason::TokenRefused {
        return OperatorError::TokenRefused(error);
    }
    warn!(%error, "the policy service does not say what operators may do");
    OperatorError::PolicyAway
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
    /// The policy service gives no answer.
    #[error("the policy service does not say what operators may do now; try again later")]
    PolicyAway,
    /// There is no policy service.
    #[error(
        "this service has no link to the policy service, which says what operators may do: set `links.policy`"
    )]
    NoPolicyLink,
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
            Self::NotPermitted { .. } | Self::OfOneTenant { .. } => ErrorReason::Denied,
            Self::PolicyAway | Self::NoPolicyLink => ErrorReason::Unavailable,
        }
    }
}
