//! The members of a client's `_meta` that concern only the client and the server.

use std::fmt;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::value::RawValue;
use wardgate_json::Members;
use wardgate_mcp::meta;

/// The members that concern a single hop. Every sender sets its own.
const OF_THE_HOP: [&str; 9] = [
    "progressToken",
    "traceparent",
    "tracestate",
    "baggage",
    meta::PROTOCOL_VERSION,
    meta::CLIENT_INFO,
    meta::CLIENT_CAPABILITIES,
    meta::LOG_LEVEL,
    meta::RELATED_TASK,
];

/// The members that are passed on to the server, each value byte for byte.
#[derive(Clone, Default)]
pub struct PassthroughMembers(Vec<(String, Box<RawValue>)>);

impl PassthroughMembers {
    /// Returns those members of `meta`, a JSON object or empty. Returns `None` if it cannot be read.
    pub fn from_meta(meta: &[u8]) -> Option<Self> {
        if meta.is_empty() {
            return Some(Self::default());
        }
        let members: Members<'_> = serde_json::from_slice(meta).ok()?;
        let others = members.0.into_iter().filter(|(name, _)| {
            !OF_THE_HOP.contains(&name.as_str()) && !name.starts_with(meta::GATEWAY_PREFIX)
        });
        Some(Self(
            others
                .map(|(name, value)| (name, value.to_owned()))
                .collect(),
        ))
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for PassthroughMembers {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl fmt::Debug for PassthroughMembers {
    /// Formats the number of members without their contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PassthroughMembers")
            .field("members", &self.0.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_of_the_hop_goes_on_byte_for_byte() {
        let meta = r#"{"progressToken":7,"a.example/x": {"n":1.10},"traceparent":"00-","dev.wardgate/idempotencyKey":"k","io.modelcontextprotocol/new":[1e400],"io.modelcontextprotocol/clientCapabilities":{}}"#;
        let others = PassthroughMembers::from_meta(meta.as_bytes()).unwrap();
        assert_eq!(
            serde_json::to_string(&others).unwrap(),
            r#"{"a.example/x":{"n":1.10},"io.modelcontextprotocol/new":[1e400]}"#
        );
        assert!(
            PassthroughMembers::from_meta(br#"{"progressToken":7}"#)
                .unwrap()
                .is_empty()
        );
        assert!(PassthroughMembers::from_meta(b"").unwrap().is_empty());
        assert!(PassthroughMembers::from_meta(b"7").is_none());
    }
}
