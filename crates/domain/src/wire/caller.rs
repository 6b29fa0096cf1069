//! Conversions of callers.

use std::collections::BTreeMap;

use wardgate_proto::common;

use super::require_field;
use crate::{AttributeValue, Caller, CallerClaims, InvalidMessage};

impl TryFrom<common::v1::Caller> for Caller {
    type Error = InvalidMessage;

    fn try_from(caller: common::v1::Caller) -> Result<Self, Self::Error> {
        if caller.issuer.is_empty() {
            return Err(InvalidMessage::field("caller.issuer", "is empty"));
        }
        if caller.subject.is_empty() {
            return Err(InvalidMessage::field("caller.subject", "is empty"));
        }
        let attributes = caller
            .attributes
            .into_iter()
            .map(|(name, value)| AttributeValue::try_from(value).map(|value| (name, value)))
            .collect::<Result<BTreeMap<_, _>, _>>()?;
        let rights_expire_at = caller.rights_expire_at.map(TryInto::try_into).transpose()?;
        let verified = Self::from_verified(CallerClaims {
            issuer: caller.issuer,
            subject: caller.subject,
            tenant: caller.tenant,
            roles: caller.roles,
            attributes,
            token_id: caller.token_id,
            expires_at: require_field(caller.expires_at, "caller.expires_at")?.try_into()?,
        });
        Ok(verified.with_rights_until(rights_expire_at))
    }
}

impl From<&Caller> for common::v1::Caller {
    fn from(caller: &Caller) -> Self {
        Self {
            issuer: caller.issuer().to_owned(),
            subject: caller.subject().to_owned(),
            tenant: caller.tenant().to_owned(),
            roles: caller.roles().to_vec(),
            attributes: caller
                .attributes()
                .iter()
                .map(|(name, value)| (name.clone(), value.into()))
                .collect(),
            token_id: caller.token_id().to_owned(),
            expires_at: Some(caller.expires_at().into()),
            rights_expire_at: caller.rights_expire_at().map(Into::into),
        }
    }
}

impl TryFrom<common::v1::AttributeValue> for AttributeValue {
    type Error = InvalidMessage;

    fn try_from(value: common::v1::AttributeValue) -> Result<Self, Self::Error> {
        use common::v1::attribute_value::Value;
        Ok(match require_field(value.value, "caller.attributes")? {
            Value::Text(text) => Self::Text(text),
            Value::Integer(number) => Self::Integer(number),
            Value::Boolean(truth) => Self::Boolean(truth),
            Value::List(list) => Self::List(list.items),
        })
    }
}

impl From<&AttributeValue> for common::v1::AttributeValue {
    fn from(value: &AttributeValue) -> Self {
        use common::v1::attribute_value::Value;
        let value = match value {
            AttributeValue::Text(text) => Value::Text(text.clone()),
            AttributeValue::Integer(number) => Value::Integer(*number),
            AttributeValue::Boolean(truth) => Value::Boolean(*truth),
            AttributeValue::List(items) => Value::List(common::v1::TextList {
                items: items.clone(),
            }),
        };
        Self { value: Some(value) }
    }
}
