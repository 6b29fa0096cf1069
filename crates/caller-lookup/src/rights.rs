//! The checked roles and attributes of a table or a query.

use std::collections::BTreeMap;

use serde_json::Value;
use wardgate_domain::AttributeValue;
use wardgate_edge::{attribute_value, is_name};

/// Maximum number of roles of one caller.
const MAX_ROLES: usize = 256;

/// Roles and attributes from a table or a query.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListedRights {
    pub(crate) roles: Vec<String>,
    pub(crate) attributes: BTreeMap<String, AttributeValue>,
}

impl ListedRights {
    /// Checks roles and attributes by the same rules as claims of tokens. The error names an attribute, but contains no
    /// values.
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
                    "the attribute `{name}` is not a string, whole number, Boolean or list of strings, or is too long"
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
