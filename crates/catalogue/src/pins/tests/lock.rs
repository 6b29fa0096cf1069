//! Tests of the lock file.

use std::path::Path;

use serde_json::json;
use wardgate_domain::{Ambient, Timestamp};
use wardgate_mcp_client::CanonicalDefinition;

use super::support::{definition, with};
use crate::pins::Pins;

fn pins() -> Pins {
    let mut pins = Pins::default();
    let at = Timestamp::from_seconds(1_762_869_000);
    let odd = with(
        "/description",
        json!("A \"quoted\" #text: with\ttabs,\nlines, \u{200b}hidden\u{e0041} and \u{1f600}."),
    );
    pins.approve("shop", definition(&odd), "alice: the first", at);
    pins.approve("shop", definition(&with("/name", json!("null"))), "bob", at);
    let plain = json!({ "name": "b", "inputSchema": { "maximum": 0 } });
    pins.approve("1.5", definition(&plain), "bob\u{202e}", at);
    pins
}

fn fault(text: &str) -> String {
    Pins::parse(Path::new("tools.lock"), text)
        .unwrap_err()
        .to_string()
}

#[test]
fn what_is_written_is_read_back_and_written_alike() {
    let text = pins().to_text();
    let again = Pins::parse(Path::new("tools.lock"), &text).unwrap();
    assert_eq!(again, pins());
    assert_eq!(again.to_text(), text);
    assert!(!text.contains(['\u{200b}', '\u{202e}', '\u{e0041}']));
    let empty = Pins::default().to_text();
    assert_eq!(
        Pins::parse(Path::new("tools.lock"), &empty).unwrap(),
        Pins::default()
    );
}

#[test]
fn it_reads_like_this() {
    let mut pins = Pins::default();
    let tool = json!({
        "name": "now",
        "description": "The time.\u{200b}",
        "inputSchema": { "type": "object", "properties": {}, "required": [], "x": [1.5, null] },
    });
    pins.approve(
        "clock",
        definition(&tool),
        "alice",
        Timestamp::from_seconds(1_762_869_000),
    );
    insta::assert_snapshot!(pins.to_text(), @r##"
    # The approved definitions of the tools of MCP upstreams. `wardgate tools diff` shows what differs from
    # them, `wardgate tools approve` writes them. Review a change of this file like a change of code.
    version: 1
    sources:
      "clock":
        "now":
          sha256: "f4ddd281a69884d22a1e877df038f90124276131f1766f1c6ef324bb7cb6cb01"
          approved_at: "2025-11-11T13:50:00.000000Z"
          approved_by: "alice"
          definition: |
            {
              "name": "now",
              "description": "The time.\u200b",
              "inputSchema": {
                "type": "object",
                "properties": {},
                "required": [],
                "x": [
                  1.5,
                  null
                ]
              }
            }
    "##);
}

#[test]
fn a_change_of_one_tool_changes_its_lines_only() {
    let before = pins().to_text();
    let mut pins = pins();
    let changed = with("/description", json!("Other."));
    pins.approve(
        "shop",
        definition(&changed),
        "alice: the first",
        Timestamp::from_seconds(1_762_869_000),
    );
    let after = pins.to_text();
    let changed = before
        .lines()
        .zip(after.lines())
        .filter(|(a, b)| a != b)
        .count();
    assert_eq!(
        (before.lines().count(), changed),
        (after.lines().count(), 2)
    );
}

#[test]
fn every_fault_names_its_line() {
    let good = pins().to_text();
    let digest = definition(&with("/name", json!("null")))
        .digest()
        .to_string();
    let zeros = "0".repeat(64);
    // The broken text, the line that the fault names, and the problem.
    for (bad, line, problem) in [
        (
            good.replace("version: 1", "version: 3"),
            "version: 3",
            "version 3 of tools.lock is not supported",
        ),
        (
            good.replace("version: 1", "version: 3\nmore: 1"),
            "version: 3",
            "version 3 of tools.lock is not",
        ),
        (
            good.replace("version: 1\n", ""),
            "sources:",
            "missing field `version`",
        ),
        (
            good.replacen("sha256:", "note: x\n      sha256:", 1),
            "note: x",
            "unknown field `note`",
        ),
        (
            good.replace(&digest, &zeros),
            &zeros,
            "the sha256 of tool null does not match its definition",
        ),
        (
            good.replacen("\"Orders\"", "\"Order\"", 1),
            "sha256",
            "the sha256 of tool find_orders does not",
        ),
        (
            good.replace("\"null\":", "\"nil\":"),
            "sha256",
            "`nil` belongs to another tool",
        ),
        (
            good.replacen("2025-11-11T", "2025-11-11 at ", 1),
            "2025-11-11 at",
            "not an RFC 3339 time",
        ),
        (
            good.replacen("\"maximum\": 0", "\"maximum\": 00", 1),
            "{",
            "it is not JSON at line",
        ),
        (
            good.replacen("sources:", "<<<<<<< HEAD\nsources:", 1),
            "",
            "the file is not a tools.lock",
        ),
        (
            format!("{good}  \"shop\": {{}}\n"),
            "\"shop\": {}",
            "duplicate",
        ),
    ] {
        let fault = fault(&bad);
        assert!(fault.contains(problem), "{fault}");
        let named: usize = fault.split(':').nth(1).unwrap().parse().unwrap();
        assert!(
            bad.lines().nth(named - 1).unwrap().contains(line),
            "{fault}: {line}"
        );
    }
}

#[test]
fn a_file_that_is_not_there_is_no_approval_and_one_that_cannot_be_read_is_a_fault() {
    let directory = tempfile::tempdir().unwrap();
    assert_eq!(
        Pins::load(&directory.path().join("tools.lock")).unwrap(),
        Pins::default()
    );
    let fault = Pins::load(directory.path()).unwrap_err().to_string();
    assert!(fault.contains("the file cannot be read"), "{fault}");
}

#[test]
fn the_file_is_replaced_whole_and_nothing_is_left_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tools.lock");
    std::fs::write(&path, "old").unwrap();
    pins().save(&path, &Ambient::system()).unwrap();
    assert_eq!(Pins::load(&path).unwrap(), pins());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_file_of_the_first_version_stays_as_it_is_and_instructions_leave_its_approvals_alone() {
    let mut pins = Pins::default();
    let definition = CanonicalDefinition::parse_tool(
        r#"{"name":"a","inputSchema":{},"_meta":{"x":1},"icons":[],"execution":{}}"#,
    );
    pins.approve(
        "files",
        definition.unwrap(),
        "alice",
        Timestamp::from_seconds(0),
    );
    let first = pins.to_text();
    assert!(first.contains("version: 1\n"), "{first}");
    let mut read = Pins::parse(Path::new("tools.lock"), &first).unwrap();
    assert_eq!(read.to_text(), first);

    let said = CanonicalDefinition::of_instructions("Read first.\nThen: \u{202e}stop.");
    read.approve("files", said.clone(), "bob", Timestamp::from_seconds(1));
    let second = read.to_text();
    assert!(
        second.contains("version: 2\n") && second.contains(r"\u202e"),
        "{second}"
    );
    assert!(
        second.contains(&first[first.find("sources:").unwrap()..]),
        "{second}"
    );
    let again = Pins::parse(Path::new("tools.lock"), &second).unwrap();
    assert_eq!(again, read);
    assert_eq!(again.instructions("files"), Some(&said));
    let forged = second.replace("Read first.", "Send first.");
    assert!(Pins::parse(Path::new("tools.lock"), &forged).is_err());
}

#[test]
fn every_member_of_a_definition_is_part_of_what_was_approved() {
    let with = |member: &str| {
        let text = format!(r#"{{"name":"a","inputSchema":{{}}{member}}}"#);
        CanonicalDefinition::parse_tool(&text).unwrap().digest()
    };
    let members = [
        "",
        r#","_meta":{"ui":{"visibility":["app"]}}"#,
        r#","icons":[{"src":"x"}]"#,
        r#","execution":{"taskSupport":"optional"}"#,
        r#","title":"A""#,
        r#","x-vendor":1"#,
    ];
    let digests: std::collections::BTreeSet<_> = members
        .iter()
        .map(|member| with(member).to_string())
        .collect();
    assert_eq!(digests.len(), members.len());
}
