//! URI templates of resources (RFC 6570, level 1): only `{name}` expressions.
//!
//! ```text
//!   guide://ward/{ward}   ── fill {ward: "A 1"} ──▶   guide://ward/A%201
//!                         ◀─────── read ──────────
//! ```
//!
//! A URI is accepted only in exactly the form that filling the template would produce. Each resource therefore has one
//! spelling, and a policy about a URI cannot be bypassed with a different spelling of it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The characters that are escaped in a value: all but the unreserved ones (RFC 3986, section 2.3).
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// An error for a text that is not a supported URI template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUriTemplate {
    /// A brace has no counterpart.
    #[error("its braces are not balanced")]
    Braces,
    /// The text between braces is empty, or contains an operator or a modifier.
    #[error("`{{{0}}}` is not a name of letters, digits and `_`")]
    Name(String),
    /// A variable appears twice.
    #[error("`{{{0}}}` occurs twice")]
    Twice(String),
    /// Two variables have no text between them.
    #[error("no text separates `{{{0}}}` from the previous variable")]
    Adjacent(String),
    /// The text has no variable, so it is a plain URI.
    #[error("it contains no `{{variable}}`")]
    NoVariable,
}

/// A URI template with at least one variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UriTemplate {
    text: String,
    /// The text before the first variable.
    start: String,
    /// Each variable with the text that follows it.
    variables: Vec<(String, String)>,
}

impl FromStr for UriTemplate {
    type Err = InvalidUriTemplate;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split('{');
        let start = parts.next().unwrap_or_default();
        let mut variables: Vec<(String, String)> = Vec::new();
        for part in parts {
            let (name, after) = part.split_once('}').ok_or(InvalidUriTemplate::Braces)?;
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_name) {
                return Err(InvalidUriTemplate::Name(name.to_owned()));
            }
            if variables.iter().any(|(other, _)| other == name) {
                return Err(InvalidUriTemplate::Twice(name.to_owned()));
            }
            if variables.last().is_some_and(|(_, after)| after.is_empty()) {
                return Err(InvalidUriTemplate::Adjacent(name.to_owned()));
            }
            variables.push((name.to_owned(), after.to_owned()));
        }
        let mut literals = variables.iter().map(|(_, after)| after.as_str());
        if start.contains('}') || literals.any(|literal| literal.contains('}')) {
            return Err(InvalidUriTemplate::Braces);
        }
        if variables.is_empty() {
            return Err(InvalidUriTemplate::NoVariable);
        }
        Ok(Self {
            text: text.to_owned(),
            start: start.to_owned(),
            variables,
        })
    }
}

impl fmt::Display for UriTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl UriTemplate {
    /// Returns `value` percent-encoded for use in a URI.
    pub fn escape(value: &str) -> Cow<'_, str> {
        utf8_percent_encode(value, ESCAPED).into()
    }

    /// Returns the template as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the names of the variables, in their order.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.variables.iter().map(|(name, _)| name.as_str())
    }

    /// Returns the URI for these values. A variable without a value becomes empty.
    pub fn fill(&self, values: &BTreeMap<String, String>) -> String {
        let mut uri = self.start.clone();
        for (name, after) in &self.variables {
            if let Some(value) = values.get(name) {
                uri.push_str(&Self::escape(value));
            }
            uri.push_str(after);
        }
        uri
    }

    /// Returns the values for which filling the template gives `uri`, or `None` if there are none. No value is empty.
    /// If several solutions are possible, earlier variables get the shortest possible values.
    pub fn match_uri(&self, uri: &str) -> Option<BTreeMap<String, String>> {
        let mut rest = uri.strip_prefix(self.start.as_str())?;
        let mut values = BTreeMap::new();
        let last = self.variables.len() - 1;
        for (position, (name, after)) in self.variables.iter().enumerate() {
            let (value, behind) = if position == last {
                (rest.strip_suffix(after.as_str())?, "")
            } else {
                rest.split_once(after.as_str())?
            };
            let value = percent_decode_str(value).decode_utf8().ok()?;
            if value.is_empty() {
                return None;
            }
            values.insert(name.clone(), value.into_owned());
            rest = behind;
        }
        (self.fill(&values) == uri).then_some(values)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn template(text: &str) -> UriTemplate {
        text.parse().unwrap()
    }

    fn values(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        pairs.iter().map(owned).collect()
    }

    proptest! {
        #[test]
        fn whatever_is_filled_in_reads_back(ward in ".+", bed in ".+") {
            let template = template("guide://ward/{ward}/bed/{bed}.md");
            let values = values(&[("ward", &ward), ("bed", &bed)]);
            let uri = template.fill(&values);
            prop_assert!(uri.bytes().all(|byte| byte.is_ascii_graphic()));
            prop_assert_eq!(template.match_uri(&uri), Some(values));
        }
    }

    #[test]
    fn a_uri_of_another_form_or_another_spelling_is_none_of_the_templates() {
        let template = template("guide://ward/{ward}");
        assert_eq!(
            template.match_uri("guide://ward/A%20b"),
            Some(values(&[("ward", "A b")]))
        );
        for uri in [
            "guide://ward/",
            "guide://ward",
            "guide://beds/A",
            "guide://ward/A/B",
            "guide://ward/A?x=1",
            "guide://ward/%41",
            "guide://ward/a%2fb",
            "guide://ward/%FF",
            "GUIDE://ward/A",
        ] {
            assert_eq!(template.match_uri(uri), None, "{uri}");
        }
    }

    #[test]
    fn anything_but_a_plain_variable_is_refused_by_name() {
        use InvalidUriTemplate as Invalid;
        let name = |text: &str| text.to_owned();
        for (text, expected) in [
            ("x://{a", Invalid::Braces),
            ("x://a}", Invalid::Braces),
            ("x://{a}}", Invalid::Braces),
            ("x://{}", Invalid::Name(name(""))),
            ("x://{+a}", Invalid::Name(name("+a"))),
            ("x://{a*}", Invalid::Name(name("a*"))),
            ("x://{a}/{a}", Invalid::Twice(name("a"))),
            ("x://{a}{b}", Invalid::Adjacent(name("b"))),
            ("x://a", Invalid::NoVariable),
        ] {
            assert_eq!(text.parse::<UriTemplate>(), Err(expected), "{text}");
        }
    }
}
