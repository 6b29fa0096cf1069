//! What of a source's prompts and resources the policy decides on.

use serde::Deserialize;

/// What the policy decides on.
pub(crate) enum DecisionSubject {
    Prompt(String),
    /// Or a template of URIs.
    Resource(String),
}

impl DecisionSubject {
    pub(crate) fn parse(decided: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct SubjectMembers {
            name: Option<String>,
            uri: Option<String>,
        }
        let decided: SubjectMembers = serde_json::from_slice(decided).ok()?;
        match (decided.name, decided.uri) {
            (Some(name), None) => Some(Self::Prompt(name)),
            (None, Some(uri)) => Some(Self::Resource(uri)),
            _ => None,
        }
    }
}
