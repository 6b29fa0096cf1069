//! Ids, with a separate type for each kind so that two kinds cannot be mixed up.

use std::fmt;
use std::str::FromStr;

use uuid::{Builder, Uuid};

use crate::Ambient;

/// An error for a text that is not a UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} is not a UUID")]
pub struct InvalidId {
    kind: &'static str,
}

/// Creates a new UUID version 7.
pub(crate) fn version_7(ambient: &Ambient) -> Uuid {
    let millis = u64::try_from(ambient.now().as_micros() / 1_000).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &ambient.random()).into_uuid()
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// Creates a new id: a UUID version 7 (RFC 9562), so that ids sort by the time of their creation.
            pub fn new(ambient: &Ambient) -> Self {
                Self(version_7(ambient))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::try_parse(text)
                    .map(Self)
                    .map_err(|_| InvalidId { kind: stringify!($name) })
            }
        }
    };
}

id! {
    /// The id of a tool call, from the request to the record.
    CallId
}
id! {
    /// The id of an answer of the policy service.
    DecisionId
}
id! {
    /// The id of a signed permit.
    PermitId
}
id! {
    /// The id of a request for an approval and of the approval that results from it.
    ApprovalId
}
id! {
    /// The key of a conversation, independent of the name that its owner gave to it.
    ConversationKey
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_junk_does_not() {
        let id = CallId::new(&Ambient::system());
        assert_eq!(id.to_string().parse::<CallId>().unwrap(), id);
        assert!("call-1".parse::<CallId>().is_err());
    }
}
