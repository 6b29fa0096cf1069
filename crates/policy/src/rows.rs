//! Which rows may leave: what is left of `read` when only the row is unknown.

use cedar_policy::{
    Context, Decision, EntityUid, PartialEntities, PartialEntityUid, PartialRequest,
};
use wardgate_domain::RowRule;

use crate::call::ids;
use crate::fault::Fault;
use crate::residual::stand_alone;
use crate::set::PolicySet;

impl PolicySet {
    /// The rule for rows of type `entity`. It holds for this caller only, and can be decided by the
    /// stable authorizer with nothing but the one row as its entities.
    pub(crate) fn row_rule(
        &self,
        principal: &EntityUid,
        entity: &str,
        entities: &PartialEntities,
    ) -> Result<RowRule, Fault> {
        let words = &self.words;
        let (row_type, policies) = words
            .rows
            .get(entity)
            .zip(self.read.get(entity))
            .ok_or_else(|| Fault::UnknownEntity(entity.to_owned()))?;
        let request = PartialRequest::new(
            PartialEntityUid::from_concrete(principal.clone()),
            words.read.clone(),
            PartialEntityUid::new(row_type.name.clone(), None),
            Some(Context::empty()),
            &words.schema,
        )
        .map_err(|_| Fault::Refused("the question whether a row may be read"))?;
        let response = policies
            .tpe(&request, entities, &words.schema)
            .map_err(|_| Fault::Refused("to evaluate `read` in part"))?;
        let failing = ids(response.error_forbids().chain(response.error_permits()));
        if !failing.is_empty() {
            return Err(Fault::Policies(failing));
        }
        let mut rule = RowRule {
            entity: entity.to_owned(),
            policies_json: Vec::new(),
            all: false,
        };
        match response.decision() {
            Some(Decision::Allow) => rule.all = true,
            Some(Decision::Deny) => {}
            None => {
                // A permit that is already true is part of the rule too: without it the forbids that
                // are left would have nothing to take away from.
                let already_true = response
                    .true_permits()
                    .filter_map(|id| response.get_policy(id));
                let mut left: Vec<_> = already_true.chain(response.residual_policies()).collect();
                left.sort_unstable_by(|a, b| a.id().cmp(b.id()));
                rule.policies_json = left.iter().map(stand_alone).collect::<Result<_, _>>()?;
            }
        }
        Ok(rule)
    }
}
