//! The body of an HTTP request: JSON, a form or a text.

use bytes::Bytes;
use serde_json::{Map, Value};
use url::form_urlencoded;

use super::pairs::PairTemplates;
use crate::fault::FieldReader;
use crate::scope::Scope;
use crate::template::{JsonTemplate, Template, UnfitValue};

/// The template of a request body.
#[derive(Debug, Clone)]
pub enum BodyTemplate {
    /// The request has no body.
    None,
    /// A JSON body, sent as `application/json`.
    Json(JsonTemplate),
    /// A form, sent as `application/x-www-form-urlencoded`.
    Form(PairTemplates),
    /// A text, sent as `text/plain`.
    Text(Template),
}

impl BodyTemplate {
    pub(super) fn from_fields(
        fields: &mut FieldReader<'_>,
        scope: &mut Scope<'_, '_>,
    ) -> Option<Self> {
        let json = fields.take_optional("json");
        let form = fields.take_optional("form");
        let text = fields.take_optional("text");
        match (json, form, text) {
            (None, None, None) => Some(Self::None),
            (Some(node), None, None) => Some(Self::Json(scope.json_template(node))),
            (None, Some(node), None) => {
                PairTemplates::from_node(node, "form", scope).map(Self::Form)
            }
            (None, None, Some(node)) => scope.template(node, "text").map(Self::Text),
            (Some(node), ..) | (_, Some(node), _) => {
                scope.faults.add(
                    node.at,
                    "a request has more than one of `json`, `form` and `text`",
                    "keep one of them",
                );
                None
            }
        }
    }

    pub(super) fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns the content type and the bytes of the body for one call, or `None` if there is no body.
    pub fn fill(
        &self,
        values: &Map<String, Value>,
    ) -> Result<Option<(&'static str, Bytes)>, UnfitValue> {
        Ok(match self {
            Self::None => None,
            Self::Json(template) => template
                .fill(values)?
                .map(|body| ("application/json", body.to_string().into())),
            Self::Form(pairs) => {
                let mut form = form_urlencoded::Serializer::new(String::new());
                form.extend_pairs(pairs.fill(values)?);
                Some(("application/x-www-form-urlencoded", form.finish().into()))
            }
            Self::Text(template) => {
                let text = template.fill_plain(values)?;
                Some(("text/plain; charset=utf-8", text.into()))
            }
        })
    }
}
