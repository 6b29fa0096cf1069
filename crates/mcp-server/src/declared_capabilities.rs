//! The capabilities that the client of a session declared, limited to those that its version defines and the gateway uses.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wardgate_mcp::Version;

use crate::{JsonRpcRequest, object};

/// The normalised capabilities of a client. A session id can carry them and stays short, whatever the client sends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredCapabilities {
    #[serde(default, rename = "r", skip_serializing_if = "is_false")]
    /// Whether the client can list its roots.
    pub roots: bool,
    #[serde(default, rename = "s", skip_serializing_if = "Option::is_none")]
    /// The sampling capability, or `None` if the client does not sample.
    pub sampling: Option<SamplingCapability>,
    #[serde(default, rename = "e", skip_serializing_if = "Option::is_none")]
    /// The elicitation capability, or `None` if the client cannot ask its user.
    pub elicitation: Option<ElicitationCapability>,
}

/// The optional features of sampling that a client supports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingCapability {
    #[serde(default, rename = "t", skip_serializing_if = "is_false")]
    /// Whether a request may contain tools.
    pub tools: bool,
    #[serde(default, rename = "c", skip_serializing_if = "is_false")]
    /// Whether a request may include context from servers.
    pub context: bool,
}

/// The modes of elicitation that a client supports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElicitationCapability {
    #[serde(default, rename = "f", skip_serializing_if = "is_false")]
    /// Whether the client supports forms.
    pub form: bool,
    #[serde(default, rename = "u", skip_serializing_if = "is_false")]
    /// Whether the client supports URLs that the user opens.
    pub url: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn is_false(flag: &bool) -> bool {
    !flag
}

#[derive(Deserialize)]
struct InitializeParams<'a> {
    #[serde(borrow)]
    capabilities: &'a RawValue,
}

impl DeclaredCapabilities {
    /// Reads the capabilities from the request `initialize`, under the negotiated version.
    pub fn from_initialize(initialize: &JsonRpcRequest<'_>, version: Version) -> Self {
        let params = initialize.raw_params();
        let params = params.and_then(|params| object::<InitializeParams<'_>>(params.get()));
        let capabilities = params.and_then(|params| object(params.capabilities.get()));
        let capabilities: Map<String, Value> = capabilities.unwrap_or_default();
        let member = |name: &str| capabilities.get(name).and_then(Value::as_object);
        let has = |of: &Map<String, Value>, name: &str| of.get(name).is_some_and(Value::is_object);
        let is_newest = version >= Version::V2025_11_25;
        let elicitation = member("elicitation").filter(|_| version >= Version::V2025_06_18);
        Self {
            roots: member("roots").is_some(),
            sampling: member("sampling").map(|sampling| SamplingCapability {
                tools: is_newest && has(sampling, "tools"),
                context: is_newest && has(sampling, "context"),
            }),
            elicitation: elicitation.map(|elicitation| {
                let url = is_newest && has(elicitation, "url");
                ElicitationCapability {
                    // An elicitation capability without any mode means forms.
                    form: !url || has(elicitation, "form"),
                    url,
                }
            }),
        }
    }

    /// Returns the capabilities as MCP `ClientCapabilities`, or `None` if there are none.
    pub fn to_json(&self) -> Option<String> {
        let mut capabilities = Map::new();
        let flags = |flags: &[(&str, bool)]| {
            let set = flags.iter().filter(|(_, is_set)| *is_set);
            let set = set.map(|(name, _)| ((*name).to_owned(), json!({})));
            Value::Object(set.collect())
        };
        if let Some(ElicitationCapability { form, url }) = self.elicitation {
            let modes = flags(&[("form", form), ("url", url)]);
            capabilities.insert("elicitation".to_owned(), modes);
        }
        if self.roots {
            capabilities.insert("roots".to_owned(), json!({}));
        }
        if let Some(SamplingCapability { tools, context }) = self.sampling {
            let parts = flags(&[("tools", tools), ("context", context)]);
            capabilities.insert("sampling".to_owned(), parts);
        }
        (!capabilities.is_empty()).then(|| Value::Object(capabilities).to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JsonRpcMessage;

    fn parse_declared(version: Version, capabilities: &str) -> Option<String> {
        let text = format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{{"capabilities":{capabilities}}}}}"#
        );
        let Ok(JsonRpcMessage::Request(request)) = JsonRpcMessage::parse(&text) else {
            panic!("{text}")
        };
        DeclaredCapabilities::from_initialize(&request, version).to_json()
    }

    const ALL: &str = r#"{"experimental":{"x":{}},"roots":{"listChanged":true},"sampling":{"tools":{},"context":{}},"elicitation":{"form":{},"url":{}}}"#;

    #[test]
    fn a_client_is_asked_for_no_more_than_its_version_has() {
        use Version::{V2024_11_05, V2025_03_26, V2025_06_18, V2025_11_25};
        for (version, expected) in [
            (V2024_11_05, r#"{"roots":{},"sampling":{}}"#),
            (V2025_03_26, r#"{"roots":{},"sampling":{}}"#),
            (
                V2025_06_18,
                r#"{"elicitation":{"form":{}},"roots":{},"sampling":{}}"#,
            ),
            (
                V2025_11_25,
                r#"{"elicitation":{"form":{},"url":{}},"roots":{},"sampling":{"context":{},"tools":{}}}"#,
            ),
        ] {
            let said: Value = serde_json::from_str(&parse_declared(version, ALL).unwrap()).unwrap();
            let expected: Value = serde_json::from_str(expected).unwrap();
            assert_eq!(said, expected, "{version}");
        }
    }

    #[test]
    fn without_a_mode_elicitation_means_forms() {
        for (capabilities, expected) in [
            (
                r#"{"elicitation":{}}"#,
                Some(r#"{"elicitation":{"form":{}}}"#),
            ),
            (
                r#"{"elicitation":{"url":{}}}"#,
                Some(r#"{"elicitation":{"url":{}}}"#),
            ),
            (r#"{"elicitation":true,"roots":null}"#, None),
            ("{}", None),
            ("[]", None),
        ] {
            let said = parse_declared(Version::V2025_11_25, capabilities);
            assert_eq!(said.as_deref(), expected, "{capabilities}");
        }
    }
}
