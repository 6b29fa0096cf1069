//! May the caller read the record of what everybody did, or of what they did themselves?

use cedar_policy::Entity;
use wardgate_domain::RecordScope;

use crate::access_question::{AccessQuestion, missing_vocabulary};
use crate::call::CallAnswer;
use crate::fault::DecisionFault;
use crate::set::PolicySet;
use crate::vocabulary::uid;

/// There is one record.
const RECORD: &str = "record";

/// The question, for faults.
const WHAT: &str = "the question whether the record may be read";

impl PolicySet {
    /// Decides for `caller`, an entity that knows its roles. Without words for it the answer is no.
    pub(crate) fn record(
        &self,
        caller: Entity,
        scope: RecordScope,
    ) -> Result<CallAnswer, DecisionFault> {
        let Some(auditing) = &self.vocabulary.auditing else {
            return Ok(missing_vocabulary());
        };
        let (action, policies) = match scope {
            RecordScope::All => (Some(&auditing.read_record), &self.read_record),
            RecordScope::Own => (auditing.read_own_record.as_ref(), &self.read_own_record),
        };
        let Some(action) = action else {
            return Ok(missing_vocabulary());
        };
        let record = Entity::new(uid(&auditing.audit, RECORD), [].into(), [].into());
        let access_question = AccessQuestion {
            action,
            resource: record.map_err(|_| DecisionFault::Refused(WHAT))?,
            policies,
            what: WHAT,
        };
        self.decide_reading(caller, access_question)
    }
}
