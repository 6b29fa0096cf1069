//! May the caller read a conversation of somebody else?

use std::collections::HashMap;

use cedar_policy::{Entity, RestrictedExpression};
use wardgate_domain::ConversationFacts;

use crate::access_question::{AccessQuestion, missing_vocabulary};
use crate::call::CallAnswer;
use crate::entities::text;
use crate::fault::DecisionFault;
use crate::set::PolicySet;
use crate::vocabulary::{OWNER, TENANT, uid};

/// The question, for faults.
const WHAT: &str = "the question whether a conversation may be recalled";

impl PolicySet {
    /// Decides for `caller`, an entity that knows its roles. Without words for it the answer is no.
    pub(crate) fn recall(
        &self,
        caller: Entity,
        conversation: &ConversationFacts,
    ) -> Result<CallAnswer, DecisionFault> {
        let vocabulary = &self.vocabulary;
        let Some(sharing) = &vocabulary.sharing else {
            return Ok(missing_vocabulary());
        };
        let own = uid(&sharing.conversation, &conversation.key.to_string());
        let owner = RestrictedExpression::new_entity_uid(vocabulary.user(&conversation.owner));
        let attributes = HashMap::from([
            (OWNER.to_owned(), owner),
            (TENANT.to_owned(), text(&conversation.tenant)),
        ]);
        let conversation = Entity::new(own, attributes, [].into());
        let access_question = AccessQuestion {
            action: &sharing.recall,
            resource: conversation.map_err(|_| DecisionFault::Refused(WHAT))?,
            policies: &self.recall,
            what: WHAT,
        };
        self.decide_reading(caller, access_question)
    }
}
