use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use super::*;

const GOOD: &str = r#"
sources:
  main: { type: "${DB_TYPE:-sqlite}", url: "${DB_URL}" }
tools:
  - name: read_rows
    aliases: [list_rows]
    title: Rows
    description: Rows of one group.
    tags: [demo]
    annotations: { readOnlyHint: true, openWorldHint: false }
    input_schema:
      type: object
      properties:
        zone: { type: string, pattern: "^[A-Z]+$" }
        limit: { type: integer, default: 10, minimum: 1 }
      required: [zone]
    time_limit: 5s
    execute:
      type: sql
      source: main
      statement: >
        SELECT id, zone, owner FROM rows
        WHERE zone = :zone AND :row_rule LIMIT :limit
    result:
      entity: Row
      key: id
      classes: { zone: place.zone, owner: phi.name }
      internal: [owner]
      row_rule: { owner: owner }
      empty: { error: "No rows in {zone}" }
"#;

fn variables() -> BTreeMap<String, String> {
    BTreeMap::from([("DB_URL".to_owned(), "sqlite:rows.db".to_owned())])
}

fn parse(text: &str) -> Result<Catalogue, Vec<Fault>> {
    Catalogue::parse(Path::new("tools.yaml"), text, &variables())
}

fn shown(faults: &[Fault]) -> String {
    faults
        .iter()
        .map(|fault| fault.to_string() + "\n")
        .collect()
}

#[test]
fn a_tool_is_read_whole() {
    let catalogue = parse(GOOD).unwrap();
    let [tool] = catalogue.tools() else {
        panic!("not one tool");
    };
    let facts = tool.facts();
    assert_eq!(facts.name.as_str(), "read_rows");
    assert!(facts.read_only);
    assert_eq!(facts.entity.as_deref(), Some("Row"));
    let classes: Vec<_> = facts.classes.iter().map(ToString::to_string).collect();
    assert_eq!(
        classes,
        ["place.zone", "unclassified"],
        "internal columns are never released"
    );
    assert_eq!(
        std::str::from_utf8(tool.definition_json()).unwrap(),
        concat!(
            r#"{"title":"Rows","description":"Rows of one group.","#,
            r#""inputSchema":{"type":"object","properties":{"#,
            r#""zone":{"type":"string","pattern":"^[A-Z]+$"},"#,
            r#""limit":{"type":"integer","default":10,"minimum":1}},"required":["zone"]},"#,
            r#""annotations":{"readOnlyHint":true,"openWorldHint":false}}"#
        )
    );
    assert_eq!(
        tool.statement().render(None).trim(),
        "SELECT id, zone, owner FROM rows WHERE zone = ?1 AND (TRUE) LIMIT ?2"
    );
}

#[test]
fn a_changed_tool_is_a_new_tool() {
    let digest = |text: &str| parse(text).unwrap().tools()[0].facts().definition_digest;
    let version = |text: &str| parse(text).unwrap().version();
    let original = digest(GOOD);
    for (from, to) in [
        ("Rows of one group.", "Rows of any group."),
        ("minimum: 1", "minimum: 2"),
        ("openWorldHint: false", "openWorldHint: true"),
        ("place.zone", "phi.zone"),
        ("FROM rows", "FROM lines"),
        ("[demo]", "[other]"),
    ] {
        assert_ne!(digest(&GOOD.replace(from, to)), original, "{to}");
    }
    let renamed = GOOD.replace("[list_rows]", "[all_rows]");
    assert_eq!(
        digest(&renamed),
        original,
        "other names are not the definition"
    );
    assert_ne!(version(&renamed), version(GOOD), "but clients see them");
    let moved = GOOD.replace("${DB_URL}", "sqlite:elsewhere.db");
    assert_eq!(digest(&moved), original, "nor is where the data is");
    let reordered = GOOD.replace(
        "readOnlyHint: true, openWorldHint: false",
        "openWorldHint: false, readOnlyHint: true",
    );
    assert_eq!(digest(&reordered), original, "nor the order of keys");
}

/// Each entry changes one thing of the good file.
const FAULTS: [(&str, &str); 43] = [
    ("type: \"${DB_TYPE:-sqlite}\"", "type: oracle"),
    ("type: \"${DB_TYPE:-sqlite}\"", "type: postgres"),
    ("\"${DB_URL}\"", "\"${NOT_SET_ANYWHERE}\""),
    ("\"${DB_URL}\"", "\"${DB_URL\""),
    ("\"${DB_URL}\" }", "\"${DB_URL}\", max_connections: 0 }"),
    ("\"${DB_URL}\" }", "\"${DB_URL}\", pool: 3 }"),
    ("    description: Rows of one group.\n", ""),
    ("title: Rows", "titel: Rows"),
    ("name: read_rows", "name: read rows"),
    (
        "name: read_rows",
        "name: a123456789012345678901234567890123456789012345678901234567890123456789",
    ),
    ("aliases: [list_rows]", "aliases: [read_rows]"),
    ("aliases: [list_rows]", "aliases: list_rows"),
    ("openWorldHint: false", "openWorld: false"),
    ("readOnlyHint: true", "readOnlyHint: yes"),
    ("      type: object\n", ""),
    ("default: 10", "default: ten"),
    ("\"^[A-Z]+$\"", "\"^[A-Z+$\""),
    ("type: string", "type: strnig"),
    ("type: string", "$ref: \"https://example.com/schema.json\""),
    ("zone: { type: string, pattern: \"^[A-Z]+$\" }", "zone: {}"),
    (
        "zone: { type: string, pattern: \"^[A-Z]+$\" }",
        "zone: { type: array }",
    ),
    (
        "zone: { type: string",
        "row_rule: { type: string }\n        zone: { type: string",
    ),
    ("time_limit: 5s", "time_limit: soon"),
    ("time_limit: 5s", "time_limit: 0"),
    ("time_limit: 5s", "time_limit: 6m"),
    ("readOnlyHint: true", "readOnlyHint: false"),
    ("type: sql\n", "type: shell\n"),
    ("source: main", "source: other"),
    ("LIMIT :limit", "LIMIT :limt"),
    ("LIMIT :limit", "LIMIT :limit; DELETE FROM rows"),
    ("LIMIT :limit", "LIMIT ?"),
    ("SELECT id", "DROP TABLE rows; SELECT id"),
    (" AND :row_rule", ""),
    (" AND :row_rule", " AND :row_rule AND :row_rule"),
    ("      row_rule: { owner: owner }\n", ""),
    (
        "row_rule: { owner: owner }",
        "row_rule: { owner: \"owner) OR (1=1\" }",
    ),
    ("      entity: Row\n", ""),
    ("      key: id\n", ""),
    ("entity: Row", "entity: \"Row rule\""),
    ("place.zone", "\"place zone\""),
    ("{zone}", "{zoen}"),
    ("tools:\n", "tools:\n  - not a tool\n"),
    ("    execute:\n", "    execute: {}\n    exe:\n"),
];

#[test]
fn every_fault_names_its_line_and_the_fix() {
    let mut report = String::new();
    for (from, to) in FAULTS {
        assert!(GOOD.contains(from), "{from}");
        let faults = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
        writeln!(report, "# {}\n{}", to.trim(), shown(&faults)).unwrap();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn several_faults_are_shown_at_once() {
    let text = GOOD
        .replace("title: Rows", "titel: Rows")
        .replace("time_limit: 5s", "time_limit: soon")
        .replace("entity: Row", "entity: \"Row rule\"")
        .replace("source: main", "source: other");
    let faults = parse(&text).unwrap_err();
    assert_eq!(faults.len(), 4, "{}", shown(&faults));
    let lines: Vec<_> = faults.iter().map(|fault| fault.line).collect();
    assert!(lines.is_sorted(), "{lines:?}");
}

#[test]
fn what_is_no_catalogue_at_all_is_a_fault_too() {
    for text in [
        "",
        "[]",
        "tools: 5",
        "tools: [",
        "a: *b",
        "\u{0}",
        "tools:\n\t- x",
        "tools: []\nextra: 1",
    ] {
        assert!(parse(text).is_err(), "{text:?}");
    }
    let missing = Catalogue::load(Path::new("/nowhere/tools.yaml"), &variables()).unwrap_err();
    assert!(
        missing[0]
            .to_string()
            .starts_with("/nowhere/tools.yaml:1:1: "),
        "{}",
        missing[0]
    );
}

#[test]
fn two_tools_cannot_share_a_name() {
    let tool = GOOD.split_once("tools:\n").unwrap().1;
    let faults = parse(&format!("{GOOD}{}", tool.replace("read_rows", "other"))).unwrap_err();
    assert!(shown(&faults).contains("the name `list_rows` is taken by tool `read_rows`"));
}

#[test]
fn a_url_is_never_shown() {
    let variables = BTreeMap::from([("DB_URL".to_owned(), "mysql://u:secret@h/d".to_owned())]);
    let faults = Catalogue::parse(Path::new("t"), GOOD, &variables).unwrap_err();
    assert!(!shown(&faults).contains("secret"));
    let catalogue = parse(GOOD).unwrap();
    assert!(!format!("{catalogue:?}").contains("rows.db"));
}
