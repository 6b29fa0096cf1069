//! Pairs of a name and a text: the query, the fields of a form, and the headers of a request.

use http::header::{AUTHORIZATION, HeaderMap};
use http::{HeaderName, HeaderValue};
use serde_json::{Map, Value};
use wardgate_yaml::{Node, Yaml};

use crate::scope::Scope;
use crate::source::header_name;
use crate::template::{Template, UnfitValue};

/// Pairs in the configured order. A pair is left out if all of its placeholders are null or missing. A placeholder that is
/// the whole text and whose value is a list produces one pair for each element.
#[derive(Debug, Clone, Default)]
pub struct PairTemplates(Vec<(String, Template)>);

impl PairTemplates {
    pub(super) fn from_node(node: &Node, what: &str, scope: &mut Scope<'_, '_>) -> Option<Self> {
        let entries = scope.faults.map(node, what)?;
        let read = entries
            .iter()
            .filter_map(|(key, node)| Some((key.name.clone(), text(node, what, scope)?)));
        Some(Self(read.collect()))
    }

    /// Returns the pairs for one call.
    pub fn fill(&self, values: &Map<String, Value>) -> Result<Vec<(&str, String)>, UnfitValue> {
        let mut pairs = Vec::new();
        for (name, template) in &self.0 {
            let texts = texts(template, values)?;
            pairs.extend(texts.into_iter().map(|text| (name.as_str(), text)));
        }
        Ok(pairs)
    }
}

/// Headers, filled by the same rules as [`PairTemplates`], except that a list produces one header with its elements
/// separated by commas.
#[derive(Debug, Clone, Default)]
pub struct HeaderTemplates(Vec<(HeaderName, Template)>);

impl HeaderTemplates {
    pub(super) fn from_node(node: &Node, scope: &mut Scope<'_, '_>) -> Option<Self> {
        let mut headers = Vec::new();
        for (key, node) in scope.faults.map(node, "headers")? {
            let name = header_name(&key.name).filter(|name| name != AUTHORIZATION);
            if name.is_none() {
                scope.faults.add(
                    key.at,
                    format!("`{}` is not a header that a tool can set", key.name),
                    "use letters, digits and `-`; credentials belong in `auth` of the source",
                );
            }
            if matches!(&node.value, Yaml::Text(text) if text.contains(char::is_control)) {
                scope.faults.add(
                    node.at,
                    format!(
                        "the value of header `{}` contains a line break or another control character",
                        key.name
                    ),
                    "write it on a single line",
                );
            }
            let template = text(node, "headers", scope);
            headers.extend(name.zip(template));
        }
        Some(Self(headers))
    }

    /// Returns the pairs for one call.
    pub fn fill(&self, values: &Map<String, Value>) -> Result<HeaderMap, UnfitValue> {
        let mut headers = HeaderMap::new();
        for (name, template) in &self.0 {
            let texts = texts(template, values)?;
            if texts.is_empty() {
                continue;
            }
            let text = texts.join(", ");
            let value = HeaderValue::from_bytes(text.as_bytes())
                .ok()
                .filter(|_| !text.contains(char::is_control));
            let Some(value) = value else {
                return Err(UnfitValue {
                    argument: template
                        .places()
                        .next()
                        .map(|place| place.name.clone())
                        .unwrap_or_default(),
                    problem: "must not contain control characters: it is part of a header",
                });
            };
            headers.insert(name.clone(), value);
        }
        Ok(headers)
    }
}

/// Reads a template. Numbers and booleans need no quotes.
fn text(node: &Node, what: &str, scope: &mut Scope<'_, '_>) -> Option<Template> {
    match &node.value {
        Yaml::Boolean(_) | Yaml::Integer(_) | Yaml::Decimal(_) => {
            Some(Template::parse(&node.to_value().to_string(), node.at))
        }
        _ => scope.template(node, what),
    }
}

/// Returns the texts of one pair.
fn texts(template: &Template, values: &Map<String, Value>) -> Result<Vec<String>, UnfitValue> {
    let stands_for = |name: &str| values.get(name).filter(|value| !value.is_null());
    let mut places = template.places().peekable();
    if places.peek().is_some() && places.all(|place| stands_for(&place.name).is_none()) {
        return Ok(Vec::new());
    }
    let Some((place, Value::Array(items))) = template
        .only_place()
        .and_then(|place| Some((place, stands_for(&place.name)?)))
    else {
        return Ok(vec![template.fill_plain(values)?]);
    };
    let items = items.iter().filter(|item| !item.is_null());
    items
        .map(|item| template.fill_plain(&Map::from_iter([(place.name.clone(), item.clone())])))
        .collect()
}
