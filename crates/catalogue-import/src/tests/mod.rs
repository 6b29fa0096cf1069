mod hostile;
mod mcp_servers;
mod openapi;
mod toolbox;

use std::fmt::Write;

use super::ImportedCatalogue;

/// Returns the file and the notes for a snapshot. Also checks the file against the JSON Schema for editors.
pub(super) fn render_snapshot(ImportedCatalogue { yaml, notes }: &ImportedCatalogue) -> String {
    let schema = serde_json::from_str(wardgate_catalogue::TOOLS_SCHEMA).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let value = serde_saphyr::from_str(yaml).unwrap();
    let faults: Vec<_> = schema
        .iter_errors(&value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}\n{yaml}");
    let mut shown = yaml.clone();
    shown.push_str("\n=== notes ===\n");
    for note in notes {
        writeln!(shown, "{note}").unwrap();
    }
    shown
}
