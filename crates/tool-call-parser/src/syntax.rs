//! The syntax in which a model writes calls as text, given by its family and its chat template.

use std::sync::Arc;

use super::Family;
use super::template::{CallFormat, TemplateError};

/// The syntax in which a model writes calls.
#[derive(Debug, Clone, Default)]
pub struct CallSyntax {
    pub(super) family: Family,
    pub(super) format: Option<Arc<CallFormat>>,
}

impl CallSyntax {
    /// Adds the call format of the model's chat template (in Jinja), which is tried before the forms of the family.
    pub fn with_template(self, source: &str) -> Result<Self, TemplateError> {
        let format = CallFormat::from_template(source)?;
        Ok(Self {
            format: Some(Arc::new(format)),
            ..self
        })
    }

    /// Sets the family of the model.
    #[must_use]
    pub(crate) fn with_family(self, family: Family) -> Self {
        Self { family, ..self }
    }
}

impl From<Family> for CallSyntax {
    fn from(family: Family) -> Self {
        Self {
            family,
            format: None,
        }
    }
}
