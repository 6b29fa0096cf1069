//! Decisions in which tier each column class may be released.

use std::collections::BTreeMap;

use cedar_policy::{Authorizer, Context, Decision, Entities, EntityUid, Request};
use wardgate_domain::{ColumnClass, ColumnTier, ToolFacts};

use crate::call::failed_policies;
use crate::fault::DecisionFault;
use crate::set::PolicySet;

impl PolicySet {
    /// Returns the mildest allowed tier of each class of `tool`. A class for which no tier is allowed is left out.
    pub(crate) fn column_tiers(
        &self,
        principal: &EntityUid,
        tool: &ToolFacts,
        entities: &Entities,
        context: &Context,
    ) -> Result<BTreeMap<ColumnClass, ColumnTier>, DecisionFault> {
        let mut tiers = BTreeMap::new();
        for class in &tool.classes {
            if let Some(tier) = self.tier(principal, class, entities, context)? {
                tiers.insert(class.clone(), tier);
            }
        }
        Ok(tiers)
    }

    fn tier(
        &self,
        principal: &EntityUid,
        class: &ColumnClass,
        entities: &Entities,
        context: &Context,
    ) -> Result<Option<ColumnTier>, DecisionFault> {
        let vocabulary = &self.vocabulary;
        for ((tier, action), policies) in vocabulary.show.iter().zip(&self.show) {
            let request = Request::new(
                principal.clone(),
                action.clone(),
                vocabulary.class(class.as_str()),
                context.clone(),
                Some(&vocabulary.schema),
            )
            .map_err(|_| DecisionFault::Refused("the authorization request for a column"))?;
            let response = Authorizer::new().is_authorized(&request, policies, entities);
            let failing = failed_policies(response.diagnostics());
            if !failing.is_empty() {
                return Err(DecisionFault::Policies(failing));
            }
            if response.decision() == Decision::Allow {
                return Ok(Some(*tier));
            }
        }
        Ok(None)
    }
}
