mod hostile;
mod mcp_servers;
mod openapi;
mod toolbox;

use std::fmt::Write;

use super::Imported;

/// The file and what was said about it, for a snapshot.
fn shown(Imported { yaml, notes }: &Imported) -> String {
    let mut shown = yaml.clone();
    shown.push_str("\n=== notes ===\n");
    for note in notes {
        writeln!(shown, "{note}").unwrap();
    }
    shown
}
