//! What a table or a query says of somebody, checked.

use std::collections::BTreeMap;

use serde_json::Value;
use wardgate_domain::AttributeValue;
use wardgate_edge::{attribute_value, is_name};

/// The most roles of one caller.
const MAX_ROLES: usize = 256;

/// Roles and attributes as a table or a query has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListedRights {
    pub(crate) roles: Vec<String>,
    pub(crate) attributes: BTreeMap<String, AttributeValue>,
}

impl ListedRights {
    /// Checks what was read, as claims of tokens are. The error names roles and attributes by where they stand.
    pub(crate) fn check(
        roles: Vec<String>,
        attributes: impl IntoIterator<Item = (String, Value)>,
    ) -> Result<Self, String> {
        if roles.len() > MAX_ROLES {
            return Err(format!("there are more than {MAX_ROLES} roles"));
        }
        if !roles.iter().all(|role| is_name(role)) {
            return Err("a role is not 1 to 256 visible characters".to_owned());
        }
        let attributes = attributes.into_iter().map(|(name, value)| {
            let value = attribute_value(&value).ok_or_else(|| {
                format!(
                    "the attribute `{name}` is no text, whole number, truth value or list of texts, or is too long"
                )
            })?;
            Ok((name, value))
        });
        Ok(Self {
            roles,
            attributes: attributes.collect::<Result<_, String>>()?,
        })
    }
}
