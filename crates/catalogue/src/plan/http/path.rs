//! The path of a request. Values cannot change the number of its segments.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};
use wardgate_yaml::Node;

use crate::scope::Scope;
use crate::template::{Template, UnfitValue};

/// Characters that are percent-encoded: all except the unreserved characters of RFC 3986.
const ENCODED: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A path with placeholders, each within one segment.
#[derive(Debug, Clone)]
pub struct PathTemplate(Vec<Template>);

impl PathTemplate {
    pub(crate) fn from_node(node: &Node, scope: &mut Scope<'_, '_>) -> Option<Self> {
        let whole = scope.template(node, "path")?;
        let text = scope.faults.text(node, "path")?;
        let Some(text) = text.strip_prefix('/') else {
            scope.faults.add(
                node.at,
                "`path` does not begin with `/`",
                "write it like /v1/items/{id}; it is appended to the URL of the source",
            );
            return None;
        };
        if text.contains(['?', '#', '\\']) {
            scope.faults.add(
                node.at,
                "`path` contains `?`, `#` or `\\`",
                "write a query under `query`",
            );
            return None;
        }
        let segments: Vec<_> = text
            .split('/')
            .map(|segment| Template::parse(segment, whole.at()))
            .collect();
        let last = segments.len() - 1;
        let bad = segments.iter().enumerate().any(|(at, segment)| {
            let fixed = segment.places().next().is_none().then(|| segment.prefix());
            fixed.is_some_and(|text| {
                (text.is_empty() && at != last) || has_dots(&decode_segment(text))
            })
        });
        if bad {
            scope.faults.add(
                node.at,
                "`path` has an empty, `.` or `..` segment",
                "write the path without such segments",
            );
            return None;
        }
        Some(Self(segments))
    }

    /// Returns the path for one call, with each segment percent-encoded.
    pub fn fill(&self, values: &Map<String, Value>) -> Result<String, UnfitValue> {
        let mut path = String::new();
        for segment in &self.0 {
            let filled = segment.fill(values, |text| {
                Cow::Owned(utf8_percent_encode(text, &ENCODED).to_string())
            })?;
            if let Some(place) = segment.places().next()
                && let Some(problem) = unfit(&decode_segment(&filled))
            {
                return Err(UnfitValue {
                    argument: place.name.clone(),
                    problem,
                });
            }
            path.push('/');
            path.push_str(&filled);
        }
        Ok(path)
    }
}

fn decode_segment(segment: &str) -> Cow<'_, str> {
    percent_decode_str(segment).decode_utf8_lossy()
}

fn unfit(segment: &str) -> Option<&'static str> {
    if segment.is_empty() {
        Some("must not be empty: it is part of a path")
    } else if segment.contains(char::is_control) {
        Some("must not contain control characters: it is part of a path")
    } else if has_dots(segment) {
        Some("must not contain `.` or `..` as a segment: it is part of a path")
    } else {
        None
    }
}

/// Returns whether a segment contains `.` or `..` between slashes. Intermediate servers may decode a slash, after which
/// these would count as segments.
fn has_dots(segment: &str) -> bool {
    segment
        .split(['/', '\\'])
        .any(|part| matches!(part, "." | ".."))
}
