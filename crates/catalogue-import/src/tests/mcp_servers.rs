use super::render_snapshot;
use crate::mcp_servers;

#[test]
fn the_servers_of_claude_desktop_become_sources() {
    let imported = mcp_servers(include_str!("fixtures/claude_desktop.json")).unwrap();
    assert!(
        !render_snapshot(&imported).contains("canary"),
        "{}",
        render_snapshot(&imported)
    );
    insta::assert_snapshot!(render_snapshot(&imported));
}

#[test]
fn the_servers_of_vs_code_become_sources() {
    let imported = mcp_servers(include_str!("fixtures/vscode.json")).unwrap();
    insta::assert_snapshot!(render_snapshot(&imported));
}

#[test]
fn the_servers_of_cursor_become_sources() {
    let imported = mcp_servers(include_str!("fixtures/cursor.json")).unwrap();
    assert!(
        !render_snapshot(&imported).contains("canary"),
        "{}",
        render_snapshot(&imported)
    );
    insta::assert_snapshot!(render_snapshot(&imported));
}

#[test]
fn what_has_no_servers_says_so() {
    let error = mcp_servers("{\"a\": 1}").unwrap_err().to_string();
    assert!(
        error.contains("neither `mcpServers` nor `servers`"),
        "{error}"
    );
    let error = mcp_servers("{\"mcpServers\": {}}").unwrap_err().to_string();
    assert!(error.contains("nothing to import"), "{error}");
}
