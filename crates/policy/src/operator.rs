//! Decisions about operator actions: reading or managing the record, revoking access, and managing tools.

use cedar_policy::Entity;
use wardgate_domain::OperatorAction;

use crate::access_question::AccessQuestion;
use crate::call::CallAnswer;
use crate::fault::DecisionFault;
use crate::set::PolicySet;
use crate::vocabulary::uid;

/// The id of the only `Audit` entity.
const RECORD: &str = "record";

/// The name of the question in faults.
const WHAT: &str = "the authorization request of an operator";

impl PolicySet {
    /// Decides for `caller`, an entity whose parents are its roles.
    pub(crate) fn operator(
        &self,
        caller: Entity,
        action: OperatorAction,
    ) -> Result<CallAnswer, DecisionFault> {
        let refused = || DecisionFault::Refused(WHAT);
        let vocabulary = &self.vocabulary;
        let record = Entity::new(uid(&vocabulary.audit, RECORD), [].into(), [].into());
        let access_question = AccessQuestion {
            action: vocabulary.operator.get(&action).ok_or_else(refused)?,
            resource: record.map_err(|_| refused())?,
            policies: self.operator.get(&action).ok_or_else(refused)?,
            what: WHAT,
        };
        self.decide_reading(caller, access_question)
    }
}
