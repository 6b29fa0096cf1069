//! Descriptions of configuration keys, for the JSON Schema and for the reference page.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

/// Descriptions by key path. An entry applies to every key whose path ends in the path of the entry.
static DESCRIPTIONS: LazyLock<BTreeMap<String, String>> =
    LazyLock::new(|| serde_saphyr::from_str(include_str!("descriptions.yaml")).unwrap_or_default());

/// Returns the entry that applies to the key at `path`, and its text. If several apply, returns the one with the longest
/// path.
fn entry(path: &str) -> Option<(&'static str, &'static str)> {
    let ends_in = |key: &str| {
        let before = path.strip_suffix(key);
        before.is_some_and(|before| before.is_empty() || before.ends_with('.'))
    };
    let entries = DESCRIPTIONS.iter().filter(|(key, _)| ends_in(key));
    let longest = entries.max_by_key(|(key, _)| key.len());
    longest.map(|(key, text)| (key.as_str(), text.as_str()))
}

/// Adds the description of each member to `schema`.
pub(super) fn describe(schema: &mut Value) {
    walk(schema, "", &mut |path, member| {
        if let Some((_, text)) = entry(path) {
            if let Value::Bool(true) = member {
                *member = serde_json::json!({});
            }
            member["description"] = text.into();
        }
    });
}

/// Calls `visit` with the path of each member of `schema`, parents before their children.
fn walk(schema: &mut Value, path: &str, visit: &mut impl FnMut(&str, &mut Value)) {
    if let Some(items) = schema.get_mut("items") {
        walk(items, &format!("{path}[]"), visit);
    }
    if let Some(Value::Object(members)) = schema.get_mut("properties") {
        for (name, member) in members {
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}.{name}")
            };
            visit(&path, member);
            walk(member, &path, visit);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::commands::config::configuration;
    use crate::reference_pages::{assert_current, kind};

    /// Returns the expected text of reference/configuration.md in the book.
    fn page() -> String {
        let mut page = String::from(
            "# wardgate.yaml\n\n\
             This page is generated from the schema that `wardgate config schema wardgate.yaml` prints for editors; a test keeps this page \
             current. Any\nkey can also be set by an environment variable: `WARDGATE_GATEWAY__LISTEN` is `gateway.listen`. Relative paths are \
             relative to the\nfile. `wardgate config check` prints every error with line and column. A file for `wardgate up` \
             requires only\n`policy.policies` and `tool_runner.catalogue`, and omits the keys of services that run \
             separately.\n",
        );
        let mut schema = configuration();
        walk(&mut schema, "", &mut |path, member| {
            let text = member["description"].as_str().unwrap_or_default();
            if !path.contains('.') {
                page += &format!("\n## {path}\n\n{text}\n\n| key | value | |\n|---|---|---|\n");
                return;
            }
            page += &format!(
                "| `{path}` | {} | {} |\n",
                kind(member, &str::to_owned),
                text.replace('|', "\\|")
            );
        });
        page
    }

    #[test]
    fn every_key_has_a_description_and_every_description_a_key() {
        let mut used = BTreeSet::new();
        let mut without = Vec::new();
        walk(
            &mut configuration(),
            "",
            &mut |path, member| match entry(path) {
                Some((key, _)) => {
                    assert!(member["description"].is_string(), "{path}");
                    used.insert(key);
                }
                None => without.push(path.to_owned()),
            },
        );
        assert!(
            without.is_empty(),
            "describe in descriptions.yaml: {without:?}"
        );
        let unused = DESCRIPTIONS
            .keys()
            .filter(|key| !used.contains(key.as_str()));
        assert_eq!(unused.collect::<Vec<_>>(), Vec::<&String>::new());
    }

    #[test]
    fn the_page_of_every_key_is_current() {
        assert_current("configuration.md", &page());
    }
}
