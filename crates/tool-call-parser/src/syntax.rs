//! How a model writes calls as text: by the habits of its family, and by its own chat template where there is one.

use std::sync::Arc;

use super::Family;
use super::template::{CallFormat, TemplateError};

/// How a model writes calls.
#[derive(Debug, Clone, Default)]
pub struct CallSyntax {
    pub(super) family: Family,
    pub(super) format: Option<Arc<CallFormat>>,
}

impl CallSyntax {
    /// The same, with what the model's chat template (Jinja) shows of its calls. It is tried before the forms of the
    /// family.
    pub fn with_template(self, source: &str) -> Result<Self, TemplateError> {
        let format = CallFormat::learn(source)?;
        Ok(Self {
            format: Some(Arc::new(format)),
            ..self
        })
    }

    /// The same, for a model of this family.
    #[must_use]
    pub fn with_family(self, family: Family) -> Self {
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
