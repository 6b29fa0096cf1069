//! What the client of a session said it can be asked for, as far as its version has that and it means anything here.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wardgate_mcp::Version;

use crate::{JsonRpcRequest, object};

/// The client's own capabilities, normalised: a session id that carries them stays short whatever a client sends.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeclaredCapabilities {
    #[serde(default, rename = "r", skip_serializing_if = "is_false")]
    /// It can list its roots.
    pub roots: bool,
    #[serde(default, rename = "s", skip_serializing_if = "Option::is_none")]
    /// It samples its model.
    pub sampling: Option<SamplingCapability>,
    #[serde(default, rename = "e", skip_serializing_if = "Option::is_none")]
    /// It asks its user.
    pub elicitation: Option<ElicitationCapability>,
}

/// What sampling may contain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplingCapability {
    #[serde(default, rename = "t", skip_serializing_if = "is_false")]
    /// Tools.
    pub tools: bool,
    #[serde(default, rename = "c", skip_serializing_if = "is_false")]
    /// The context of servers.
    pub context: bool,
}

/// The modes of elicitation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElicitationCapability {
    #[serde(default, rename = "f", skip_serializing_if = "is_false")]
    /// Forms.
    pub form: bool,
    #[serde(default, rename = "u", skip_serializing_if = "is_false")]
    /// URLs that the user opens.
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
    /// Of `initialize`, in the version that was agreed on.
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
                    // Without a mode, it means forms.
                    form: !url || has(elicitation, "form"),
                    url,
                }
            }),
        }
    }

    /// As MCP `ClientCapabilities`; none where there is nothing to say.
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

    fn declared(version: Version, capabilities: &str) -> Option<String> {
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
            let said: Value = serde_json::from_str(&declared(version, ALL).unwrap()).unwrap();
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
            let said = declared(Version::V2025_11_25, capabilities);
            assert_eq!(said.as_deref(), expected, "{capabilities}");
        }
    }
}
