//! Tests of P8: `tools.yaml` is the single source of truth, and the sources contain no configured tool names.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::samples::{catalogues, wardgate};
use crate::REPOSITORY;

/// Returns every source file below `directory` that ships. Tests may name the demo's tools.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !["tests", "examples", "target"].contains(&name) {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|it| it == "rs") && name != "tests.rs" {
            found.push(path);
        }
    }
    found
}

/// Returns the text of a source file without the tests at its end.
fn shipped_part(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    text[..end].to_owned()
}

#[test]
fn p8_no_tool_specific_code() {
    let mut names = Vec::new();
    for catalogue in catalogues() {
        for line in wardgate(&["tools", "list", "-o", "jsonl"], &catalogue).lines() {
            let tool: Value = serde_json::from_str(line).unwrap();
            names.push(tool["name"].as_str().unwrap().to_owned());
            names.extend(
                tool["aliases"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|alias| alias.as_str().unwrap().to_owned()),
            );
        }
    }
    // One tool has the same name as a kind of execution: `execute: { type: query }`.
    names.retain(|name| name != "query");
    assert!(names.len() >= 12, "{names:?}");
    let sources = sources(&Path::new(REPOSITORY).join("crates"));
    assert!(
        sources.len() > 50,
        "the sources are where they are looked for"
    );
    for path in sources {
        let text = shipped_part(&path);
        for name in &names {
            assert!(
                !text.contains(name.as_str()),
                "{} speaks of the tool {name}",
                path.display()
            );
        }
    }
}
