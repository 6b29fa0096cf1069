//! The methods of prompts, resources and skills.

/// A method of prompts, resources or skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ContentMethod {
    ListPrompts,
    GetPrompt,
    ListResources,
    ListTemplates,
    ReadResource,
    Complete,
    ListSkills,
    GetSkill,
    ReadDirectory,
}

impl ContentMethod {
    const ALL: [Self; 9] = [
        Self::ListPrompts,
        Self::GetPrompt,
        Self::ListResources,
        Self::ListTemplates,
        Self::ReadResource,
        Self::Complete,
        Self::ListSkills,
        Self::GetSkill,
        Self::ReadDirectory,
    ];

    /// The method of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut methods = Self::ALL.into_iter();
        methods.find(|method| method.as_str() == name)
    }

    /// As JSON-RPC and records spell it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::ListPrompts => "prompts/list",
            Self::GetPrompt => "prompts/get",
            Self::ListResources => "resources/list",
            Self::ListTemplates => "resources/templates/list",
            Self::ReadResource => "resources/read",
            Self::Complete => "completion/complete",
            Self::ListSkills => "skills/list",
            Self::GetSkill => "skills/get",
            Self::ReadDirectory => "resources/directory/read",
        }
    }
}
