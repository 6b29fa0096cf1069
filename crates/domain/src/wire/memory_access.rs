//! Conversions of records about access to stored conversations.

use std::time::Duration;

use wardgate_proto::audit;

use super::{parse, parse_optional, require_field, wire_duration};
use crate::{InvalidMessage, MemoryAccess};

impl TryFrom<audit::v1::MemoryAccess> for MemoryAccess {
    type Error = InvalidMessage;

    fn try_from(access: audit::v1::MemoryAccess) -> Result<Self, Self::Error> {
        Ok(Self {
            status: access.status().try_into()?,
            call: require_field(access.call, "memory_access.call")?.try_into()?,
            method: parse(&access.method, "memory_access.method")?,
            conversation: parse_optional(&access.conversation, "memory_access.conversation")?,
            messages: access.messages,
            withheld: access.withheld,
            phi: access.phi,
            reason: access.reason,
            duration: Duration::try_from(require_field(access.duration, "memory_access.duration")?)
                .map_err(|_| InvalidMessage::field("memory_access.duration", "is negative"))?,
        })
    }
}

impl From<&MemoryAccess> for audit::v1::MemoryAccess {
    fn from(access: &MemoryAccess) -> Self {
        let conversation = access.conversation.map(|key| key.to_string());
        Self {
            call: Some((&access.call).into()),
            method: access.method.as_str().to_owned(),
            conversation: conversation.unwrap_or_default(),
            messages: access.messages,
            withheld: access.withheld,
            phi: access.phi,
            status: audit::v1::Status::from(access.status).into(),
            reason: access.reason.clone(),
            duration: Some(wire_duration(access.duration)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Ambient, CallFacts, CallId, Caller, CallerClaims, ConversationKey, MemoryMethod, Status,
        Timestamp,
    };

    fn access() -> MemoryAccess {
        let ambient = Ambient::system();
        let caller = Caller::from_verified(CallerClaims {
            issuer: "https://issuer.example".to_owned(),
            subject: "anna".to_owned(),
            tenant: String::new(),
            roles: Vec::new(),
            attributes: [].into(),
            token_id: "t".to_owned(),
            expires_at: Timestamp::from_seconds(1),
        });
        let call_id = CallId::new(&ambient);
        MemoryAccess {
            call: CallFacts::without_tool(call_id, &caller, String::new(), "jsonrpc", b"{}"),
            method: MemoryMethod::GetContext,
            conversation: Some(ConversationKey::new(&ambient)),
            messages: 3,
            withheld: 1,
            phi: true,
            status: Status::Ok,
            reason: String::new(),
            duration: Duration::from_millis(2),
        }
    }

    #[test]
    fn an_access_survives_the_wire() {
        let access = access();
        let back = MemoryAccess::try_from(audit::v1::MemoryAccess::from(&access)).unwrap();
        assert_eq!(format!("{back:?}"), format!("{access:?}"));
    }

    #[test]
    fn what_is_no_method_or_no_key_is_refused_by_name() {
        let wire = audit::v1::MemoryAccess::from(&access());
        let typed = audit::v1::MemoryAccess {
            conversation: "what a person typed".to_owned(),
            ..wire.clone()
        };
        let refused = MemoryAccess::try_from(typed).unwrap_err();
        assert_eq!(refused.name(), "memory_access.conversation");
        let unknown = audit::v1::MemoryAccess {
            method: "memory/forget".to_owned(),
            ..wire
        };
        let refused = MemoryAccess::try_from(unknown).unwrap_err();
        assert_eq!(refused.name(), "memory_access.method");
    }
}
