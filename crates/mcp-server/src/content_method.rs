//! The methods of prompts, resources and skills.

/// A method of prompts, resources or skills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentMethod {
    /// `prompts/list`.
    ListPrompts,
    /// `prompts/get`.
    GetPrompt,
    /// `resources/list`.
    ListResources,
    /// `resources/templates/list`.
    ListTemplates,
    /// `resources/read`.
    ReadResource,
    /// `completion/complete`.
    Complete,
    /// `skills/list`.
    ListSkills,
    /// `skills/get`.
    GetSkill,
    /// `resources/directory/read`.
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

    /// Returns the method called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut methods = Self::ALL.into_iter();
        methods.find(|method| method.as_str() == name)
    }

    /// Returns the name of the method as in JSON-RPC requests and audit records.
    pub fn as_str(self) -> &'static str {
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
