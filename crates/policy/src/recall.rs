//! Decisions whether a caller may read a conversation of somebody else.

use std::collections::HashMap;

use cedar_policy::{Entity, RestrictedExpression};
use wardgate_domain::ConversationFacts;

use crate::access_question::AccessQuestion;
use crate::call::CallAnswer;
use crate::entities::text;
use crate::fault::DecisionFault;
use crate::set::PolicySet;
use crate::vocabulary::{OWNER, TENANT, uid};

/// The name of the question in faults.
const WHAT: &str = "the authorization request to recall a conversation";

impl PolicySet {
    /// Decides for `caller`, an entity whose parents are its roles.
    pub(crate) fn recall(
        &self,
        caller: Entity,
        conversation: &ConversationFacts,
    ) -> Result<CallAnswer, DecisionFault> {
        let vocabulary = &self.vocabulary;
        let own = uid(&vocabulary.conversation, &conversation.key.to_string());
        let owner = RestrictedExpression::new_entity_uid(vocabulary.user(&conversation.owner));
        let attributes = HashMap::from([
            (OWNER.to_owned(), owner),
            (TENANT.to_owned(), text(&conversation.tenant)),
        ]);
        let conversation = Entity::new(own, attributes, [].into());
        let access_question = AccessQuestion {
            action: &vocabulary.recall,
            resource: conversation.map_err(|_| DecisionFault::Refused(WHAT))?,
            policies: &self.recall,
            what: WHAT,
        };
        self.decide_reading(caller, access_question)
    }
}
