//! May the caller read a conversation of somebody else?

use std::collections::HashMap;

use cedar_policy::{Authorizer, Context, Entities, Entity, Request, RestrictedExpression};
use wardgate_domain::{ConversationFacts, DenialReason};

use crate::call::{Answer, Denial, decided, failing, ids};
use crate::entities::text;
use crate::fault::Fault;
use crate::set::PolicySet;
use crate::vocabulary::{OWNER, TENANT, uid};

impl PolicySet {
    /// Decides for `caller`, an entity that knows its roles. Without words for it the answer is no.
    pub(crate) fn recall(
        &self,
        caller: Entity,
        conversation: &ConversationFacts,
    ) -> Result<Answer, Fault> {
        let words = &self.words;
        let Some(sharing) = &words.sharing else {
            return Ok(Err(Denial {
                reason: DenialReason::NotPermitted,
                policies: Vec::new(),
            }));
        };
        let refused = || Fault::Refused("the question whether a conversation may be recalled");
        let principal = caller.uid();
        let resource = uid(&sharing.conversation, &conversation.key.to_string());
        let owner = RestrictedExpression::new_entity_uid(words.user(&conversation.owner));
        let attributes = HashMap::from([
            (OWNER.to_owned(), owner),
            (TENANT.to_owned(), text(&conversation.tenant)),
        ]);
        let conversation =
            Entity::new(resource.clone(), attributes, [].into()).map_err(|_| refused())?;
        let entities = Entities::from_entities([caller, conversation], Some(&words.schema))
            .map_err(|_| refused())?;
        let request = Request::new(
            principal,
            sharing.recall.clone(),
            resource,
            Context::empty(),
            Some(&words.schema),
        )
        .map_err(|_| refused())?;
        let response = Authorizer::new().is_authorized(&request, &self.recall, &entities);
        let failing = failing(response.diagnostics());
        if !failing.is_empty() {
            return Err(Fault::Policies(failing));
        }
        Ok(decided(
            response.decision(),
            ids(response.diagnostics().reason()),
        ))
    }
}
