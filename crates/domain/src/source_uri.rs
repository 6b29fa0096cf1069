//! The mapping between the resource URIs of upstream servers and the URIs that clients see, which name the source.
//!
//! ```text
//!   file:///a.txt      of `notes`  ⇄  notes+file:///a.txt
//!   ui://panel/main    of `notes`  ⇄  ui://notes/panel/main
//! ```
//!
//! The mapping allows two servers to use the same URI, and lets any URI of a template be traced back to its server.
//! Hosts look for the schemes `ui` and `skill`, so these schemes are kept.

use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_json::parse_object;

/// Schemes that are kept.
const KEPT: [&str; 2] = ["ui://", "skill://"];

/// The separator between the name of a source and the scheme.
const SEPARATOR: char = '+';

/// Returns whether a URI can begin with the name of this source, that is, whether the name can begin a scheme (RFC
/// 3986, section 3.1). Upper case is excluded because parsers convert schemes to lower case.
pub fn can_name(source: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    source.starts_with(|c: char| c.is_ascii_lowercase()) && source.chars().all(is_legal)
}

/// Converts a URI, or URI template, of `source` to the form that clients see. Returns `None` if it is not absolute.
pub fn outward(source: &str, uri: &str) -> Option<String> {
    for scheme in KEPT {
        if let Some(rest) = uri.strip_prefix(scheme) {
            return Some(format!("{scheme}{source}/{rest}"));
        }
    }
    let (scheme, _) = uri.split_once(':')?;
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
    let is_scheme =
        scheme.starts_with(|c: char| c.is_ascii_alphabetic()) && scheme.chars().all(is_legal);
    is_scheme.then(|| format!("{source}{SEPARATOR}{uri}"))
}

/// Converts each of `uris` in the JSON document `text` to the form that clients see. The URIs are JSON strings of
/// `source` that borrow from `text`, in any order. All other bytes, and URIs that are not absolute, are kept unchanged.
pub fn outward_in<'a>(
    source: &str,
    text: &str,
    uris: impl IntoIterator<Item = &'a RawValue>,
) -> String {
    let mut uris: Vec<&RawValue> = uris.into_iter().collect();
    uris.sort_by_key(|raw| raw.get().as_ptr());
    let mut rewritten = String::with_capacity(text.len());
    let mut at = 0;
    for raw in uris {
        let uri: Option<String> = serde_json::from_str(raw.get()).ok();
        if let Some(uri) = uri.and_then(|uri| outward(source, &uri)) {
            let start = raw.get().as_ptr().addr() - text.as_ptr().addr();
            rewritten.push_str(&text[at..start]);
            rewritten.push_str(&serde_json::Value::from(uri).to_string());
            at = start + raw.get().len();
        }
    }
    rewritten.push_str(&text[at..]);
    rewritten
}

/// Splits a URI as clients see it into the name of the source and the source's own URI.
pub fn inward(uri: &str) -> Option<(&str, String)> {
    for scheme in KEPT {
        if let Some(rest) = uri.strip_prefix(scheme) {
            let (source, rest) = rest.split_once('/')?;
            return Some((source, format!("{scheme}{rest}")));
        }
    }
    let (scheme, _) = uri.split_once(':')?;
    let (source, _) = scheme.split_once(SEPARATOR)?;
    let own = &uri[source.len() + SEPARATOR.len_utf8()..];
    Some((source, own.to_owned()))
}

/// Returns the JSON strings in the definition of a tool, a JSON object, that name the resource of the tool's page (MCP
/// Apps).
pub fn app_pages(definition: &str) -> Vec<&RawValue> {
    #[derive(Deserialize)]
    struct ToolDefinition<'a> {
        #[serde(borrow, default, rename = "_meta")]
        meta: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct DefinitionMeta<'a> {
        #[serde(borrow, default)]
        ui: Option<&'a RawValue>,
        /// The form of earlier drafts.
        #[serde(borrow, default, rename = "ui/resourceUri")]
        flat: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct AppPage<'a> {
        #[serde(borrow, default, rename = "resourceUri")]
        uri: Option<&'a RawValue>,
    }
    let meta =
        parse_object::<ToolDefinition<'_>>(definition).and_then(|definition| definition.meta);
    let Some(DefinitionMeta { ui, flat }) = meta.and_then(|meta| parse_object(meta.get())) else {
        return Vec::new();
    };
    let page = ui.and_then(|ui| parse_object::<AppPage<'_>>(ui.get())?.uri);
    page.into_iter().chain(flat).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_leads_back_to_its_source() {
        for uri in [
            "file:///a.txt",
            "git+https://host/path?x=1#y",
            "ui://panel/main",
            "ui://",
            "skill://a/SKILL.md",
            "urn:isbn:1",
            "x:",
            "file:///{+path}",
        ] {
            let shown = outward("my-notes", uri).unwrap();
            assert_eq!(
                inward(&shown),
                Some(("my-notes", uri.to_owned())),
                "{shown}"
            );
            assert_ne!(Some(&shown), outward("others", uri).as_ref());
        }
        assert_eq!(outward("n", "file:///a").unwrap(), "n+file:///a");
        assert_eq!(outward("n", "ui://p/m").unwrap(), "ui://n/p/m");
    }

    #[test]
    fn what_names_no_source_is_nobodys() {
        for uri in ["file:///a", "guide://a+b", "ui://panel", "", "a+b"] {
            assert_eq!(inward(uri), None, "{uri}");
        }
        for uri in ["", "a b:c", "{scheme}:a", "/path", "7:x"] {
            assert_eq!(outward("n", uri), None, "{uri}");
        }
    }

    #[test]
    fn a_source_is_named_as_a_scheme_begins() {
        assert!(can_name("my-notes.2"));
        for name in ["", "Notes", "my_notes", "2nd", "a+b", "é"] {
            assert!(!can_name(name), "{name}");
        }
    }
}
