//! The subject of a policy decision about a source's prompts and resources.

use serde::Deserialize;

/// The prompt or resource that the policy service decides on.
pub(crate) enum DecisionSubject {
    Prompt(String),
    /// A resource or a URI template of resources.
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
