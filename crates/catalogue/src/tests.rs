mod sources;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use wardgate_yaml::Node;

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

fn file(text: &str) -> FileText {
    FileText {
        path: PathBuf::from("tools.yaml"),
        text: text.to_owned(),
    }
}

fn parse(text: &str) -> Result<Catalogue, Vec<Fault>> {
    Catalogue::parse(&[file(text)], &variables())
}

fn format_faults(faults: &[Fault]) -> String {
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
        tool.plan()
            .statement()
            .unwrap()
            .with_values(&[], None, &[])
            .0
            .trim(),
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

/// Each entry makes one change to the valid file: the text to replace, and its replacement.
const FAULTS: [(&str, &str); 60] = [
    ("type: \"${DB_TYPE:-sqlite}\"", "type: oracle"),
    ("type: \"${DB_TYPE:-sqlite}\"", "type: postgres"),
    ("\"${DB_URL}\"", "\"${NOT_SET_ANYWHERE}\""),
    ("\"${DB_URL}\"", "\"${DB_URL\""),
    ("\"${DB_URL}\" }", "\"${DB_URL}\", max_connections: 0 }"),
    ("\"${DB_URL}\" }", "\"${DB_URL}\", pool: 3 }"),
    ("description: Rows of one group.", "description: 5"),
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
    ("      type: object\n", "      type: array\n"),
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
    (
        "row_rule: { owner: owner }",
        "row_rule: { owner: owner }\n      require_pushdown: yes please",
    ),
    ("      key: id\n", "      key: id\n      time_step: 0s\n"),
    ("      entity: Row\n", ""),
    ("      key: id\n", ""),
    ("entity: Row", "entity: \"Row rule\""),
    ("place.zone", "\"place zone\""),
    ("{zone}", "{zoen}"),
    (
        "    execute:\n",
        "    examples: [{ arguments: { zone: w1 } }]\n    execute:\n",
    ),
    (
        "      source: main\n",
        "      source: main\n      derive: { zone: \"{nobody}\", table: { argument: limit, allow: [a] } }\n",
    ),
    (
        "      source: main\n",
        "      source: main\n      derive: { sql: \"SELECT {zone}\" }\n",
    ),
    ("LIMIT :limit", "LIMIT {limit}"),
    ("LIMIT :limit", "LIMIT {limit:sql}"),
    (
        "      source: main\n",
        "      source: main\n      derive: { table: { argument: zone, allow: [] } }\n",
    ),
    (
        "      source: main\n",
        "      source: main\n      derive: { who: { caller: subject, allow: [a] } }\n",
    ),
    ("      key: id\n", "      key: id\n      max_rows: 0\n"),
    (
        "      key: id\n",
        "      key: id\n      max_rows: { argument: zone }\n",
    ),
    (
        "      key: id\n",
        "      key: id\n      max_rows: { argument: limit, most: 5 }\n",
    ),
    (
        "      source: main\n",
        "      source: main\n      derive: { limit: \"{zone}\" }\n",
    ),
    (
        "      key: id\n",
        "      key: id\n      rows: items\n      shape: table\n",
    ),
    ("      key: id\n", "      key: id\n      shape: text\n"),
    (
        "tools:\n",
        "toolsets: { rows: { tools: [list_rows] } }\ntools:\n",
    ),
    ("tools:\n", "types: { sql: { source: main } }\ntools:\n"),
    ("tools:\n", "tools:\n  - not a tool\n"),
    ("    execute:\n", "    execute: {}\n    exe:\n"),
];

#[test]
fn every_fault_names_its_line_and_the_fix() {
    let mut report = String::new();
    for (from, to) in FAULTS {
        assert!(GOOD.contains(from), "{from}");
        let faults = parse(&GOOD.replacen(from, to, 1)).expect_err(to);
        writeln!(report, "# {}\n{}", to.trim(), format_faults(&faults)).unwrap();
    }
    insta::assert_snapshot!(report);
}

#[test]
fn a_tool_that_requires_pushdown_needs_a_statement_whose_rows_the_rule_restricts() {
    let rule = "row_rule: { owner: owner }";
    let required = GOOD.replacen(rule, &format!("{rule}\n      require_pushdown: true"), 1);
    assert!(parse(&required).is_ok());
    let unrestricted = required.replacen("AND :row_rule", "OR :row_rule", 1);
    let faults = parse(&unrestricted).expect_err("the statement can return any row");
    assert!(
        format_faults(&faults).contains("`require_pushdown` requires a statement"),
        "{}",
        format_faults(&faults)
    );
}

#[test]
fn a_tag_that_the_counters_of_policies_cannot_name_is_a_fault_at_its_place() {
    let places = [
        (
            "sources:\n",
            "sources:\n  up: { type: mcp, command: [up], prefix: up., tags: [\"TAG\"] }\n",
            3,
        ),
        (
            "sources:\n",
            "sources:\n  own: { type: content, tags: [\"TAG\"], resources: [{ uri: \"guide://a\", name: a, text: A }] }\n",
            3,
        ),
        (
            "tools:\n",
            "toolsets: { rows: { tools: [read_rows], tags: [\"TAG\"] } }\ntools:\n",
            4,
        ),
        ("tags: [demo]", "tags: [demo, \"TAG\"]", 9),
    ];
    for (from, to, line) in places {
        let catalogue = |tag: &str| parse(&GOOD.replacen(from, &to.replace("TAG", tag), 1));
        let good = catalogue("bulk mail").map_err(|faults| format_faults(&faults));
        assert_eq!(good.err(), None);
        for (tag, problem) in [
            ("a,b", "the tag `a,b` contains a comma"),
            (" a", "the tag ` a` begins or ends with white space"),
        ] {
            let faults = catalogue(tag).expect_err(tag);
            assert_eq!(faults.len(), 1, "{}", format_faults(&faults));
            assert_eq!(faults[0].line, line, "{}", format_faults(&faults));
            assert!(
                format_faults(&faults).contains(problem),
                "{}",
                format_faults(&faults)
            );
        }
    }
}

#[test]
fn a_source_whose_tag_the_counters_of_policies_cannot_name_is_a_fault_at_its_name() {
    let catalogue = |name: &str, source: &str| {
        let sources = format!("sources:\n  \"{name}\": {source}\n");
        parse(&GOOD.replacen("sources:\n", &sources, 1))
    };
    let server = "{ type: mcp, command: [up], prefix: up. }";
    for (name, problem) in [
        (
            "up,down",
            "the tag `upstream:up,down` of the source contains a comma",
        ),
        (
            "up ",
            "the tag `upstream:up ` of the source begins or ends with white space",
        ),
    ] {
        let faults = catalogue(name, server).expect_err(name);
        assert_eq!(faults.len(), 1, "{}", format_faults(&faults));
        assert_eq!(faults[0].line, 3);
        assert!(faults[0].problem.starts_with(problem), "{}", faults[0]);
        assert!(faults[0].fix.starts_with("rename the source"));
        // Only the offers of MCP servers have such a tag.
        let database = catalogue(name, "{ type: sqlite, url: \"sqlite:other.db\" }");
        assert_eq!(database.err().map(|faults| format_faults(&faults)), None);
    }
    let good = catalogue("up-1.down", server).map_err(|faults| format_faults(&faults));
    assert_eq!(good.err(), None);
}

#[test]
fn a_statement_with_too_many_texts_is_a_fault() {
    let names = |count| {
        let names: Vec<_> = (0..count).map(|number| format!("t{number}")).collect();
        format!("{{ argument: zone, allow: [{}] }}", names.join(", "))
    };
    for (a, b, is_fault) in [(8, 8, false), (8, 9, true)] {
        let derive = format!(
            "source: main\n      derive: {{ a: {}, b: {} }}\n",
            names(a),
            names(b)
        );
        let text = GOOD
            .replace("source: main\n", &derive)
            .replace("FROM rows", "FROM {a}, {b}");
        let faults = parse(&text).err().unwrap_or_default();
        assert_eq!(
            format_faults(&faults).contains("more than 64 variants"),
            is_fault,
            "{}",
            format_faults(&faults)
        );
        assert_eq!(!faults.is_empty(), is_fault);
    }
}

/// Tools of another project, unchanged, below a header that defines their types.
const FOREIGN: &str = r#"
types:
  row_query: { type: sql, source: main, statement: "SELECT id FROM rows WHERE zone LIKE :pattern", derive: { pattern: "%{zone}%" } }
sources:
  main: { type: sqlite, url: "${DB_URL}" }
tools:
  - name: find_rows
    other_command:
      type: "row_query"
    input_schema:
      properties:
        zone: {type: string}
      required: ["zone"]
"#;

#[test]
fn a_word_of_types_stands_for_its_keys_and_a_command_for_execute() {
    let catalogue = parse(FOREIGN).unwrap();
    let tool = &catalogue.tools()[0];
    assert_eq!(tool.source(), Some("main"));
    assert_eq!(
        std::str::from_utf8(tool.definition_json()).unwrap(),
        r#"{"inputSchema":{"type":"object","properties":{"zone":{"type":"string"}},"required":["zone"]}}"#
    );
    let digest = |text: &str| parse(text).unwrap().tools()[0].facts().definition_digest;
    assert_ne!(
        digest(FOREIGN),
        digest(&FOREIGN.replace("%{zone}%", "{zone}%")),
        "what a word stands for is part of the tool"
    );
}

#[test]
fn files_of_a_directory_are_one_catalogue() {
    let (sources, tools) = GOOD.split_once("tools:\n").unwrap();
    let texts = [
        ("a.yaml", sources.to_owned()),
        ("b.yaml", format!("tools:\n{tools}")),
    ];
    let texts = texts.map(|(path, text)| FileText {
        path: path.into(),
        text,
    });
    let catalogue = Catalogue::parse(&texts, &variables()).unwrap();
    assert_eq!(catalogue.tools().len(), 1);
    let mut twice = texts.to_vec();
    twice.push(FileText {
        path: "c.yaml".into(),
        ..texts[0].clone()
    });
    let faults = Catalogue::parse(&twice, &variables()).unwrap_err();
    assert!(
        format_faults(&faults).starts_with("c.yaml:3:3: another file defines a source `main`"),
        "{}",
        format_faults(&faults)
    );
}

#[test]
fn examples_are_part_of_the_schema_that_clients_see() {
    let text = GOOD.replace(
        "    execute:\n",
        "    examples: [{ arguments: { zone: W }, description: one ward }]\n    execute:\n",
    );
    let catalogue = parse(&text).unwrap();
    let definition = std::str::from_utf8(catalogue.tools()[0].definition_json()).unwrap();
    assert!(
        definition.contains(r#""required":["zone"],"examples":[{"zone":"W"}]}"#),
        "{definition}"
    );
}

#[test]
fn several_faults_are_shown_at_once() {
    let text = GOOD
        .replace("title: Rows", "titel: Rows")
        .replace("time_limit: 5s", "time_limit: soon")
        .replace("entity: Row", "entity: \"Row rule\"")
        .replace("source: main", "source: other");
    let faults = parse(&text).unwrap_err();
    assert_eq!(faults.len(), 4, "{}", format_faults(&faults));
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
    assert!(
        format_faults(&faults).contains("the name `list_rows` is already used by tool `read_rows`")
    );
}

/// Returns every example catalogue in `deploy/examples`, with its path.
fn read_examples() -> Vec<(PathBuf, String)> {
    let mut directories = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples")];
    let mut found = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found.retain(|(_, text)| text.contains("\ntools:"));
    assert!(found.len() >= 5);
    found
}

#[test]
fn the_published_schema_knows_what_the_catalogue_knows() {
    let schema: serde_json::Value = serde_json::from_str(crate::TOOLS_SCHEMA).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    let check = |what: &str, text: &str| {
        let value = Node::parse(text).unwrap().to_value();
        let errors: Vec<_> = schema
            .iter_errors(&value)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{what}: {errors:#?}");
    };
    check("good", GOOD);
    check("foreign", FOREIGN);
    for (path, text) in read_examples() {
        check(&path.display().to_string(), &text);
        assert!(
            text.starts_with("# yaml-language-server: $schema="),
            "{} tells editors its schema",
            path.display()
        );
    }
    for (from, to) in [
        ("title: Rows", "titel: Rows"),
        ("\"${DB_URL}\" }", "\"${DB_URL}\", pool: 3 }"),
        ("openWorldHint: false", "openWorld: false"),
        (
            "      source: main\n",
            "      source: main\n      sorce: main\n",
        ),
        ("      key: id\n", "      kye: id\n"),
        ("time_limit: 5s", "time_limit: soon"),
        ("name: read_rows", "name: read rows"),
        ("tags: [demo]", "tags: [\"a,b\"]"),
        ("tags: [demo]", "tags: [\" a\"]"),
    ] {
        // An editor cannot know the keys of a source whose type is a variable.
        let good = GOOD.replace("\"${DB_TYPE:-sqlite}\"", "sqlite");
        assert!(good.contains(from), "{from}");
        let value = Node::parse(&good.replacen(from, to, 1)).unwrap().to_value();
        assert!(!schema.is_valid(&value), "{to}");
    }
}

#[test]
fn skills_are_offered_with_the_resources_they_are_made_of() {
    let text = |more: &str| {
        format!(
            "sources:\n  up: {{ type: mcp, url: 'https://up.example/mcp', skills: all{more} }}\n"
        )
    };
    let faults = format_faults(&parse(&text("")).expect_err("no resources"));
    assert!(faults.contains("offers skills"), "{faults}");
    assert!(faults.contains("resources: all"), "{faults}");
    assert!(parse(&text(", resources: all")).is_ok());
    assert!(parse(&text(", resources: ['skill://a/{file}']")).is_ok());
}

#[test]
fn a_required_member_that_no_call_can_have_is_a_fault_at_its_place() {
    let told =
        |from: &str, to: &str| format_faults(&parse(&GOOD.replacen(from, to, 1)).unwrap_err());
    let line = 1 + GOOD
        .lines()
        .position(|line| line.contains("required: [zone]"))
        .unwrap();
    assert_eq!(
        told("required: [zone]", "required: [zone, z]"),
        format!(
            "tools.yaml:{line}:24: `z` is required but not a property, so no call can match; add `z` to `properties`, or remove it from \
             `required`\n"
        )
    );
    let nested = "place: { type: object, properties: { x: {} }, required: [x, y], additionalProperties: false }";
    let zone = "zone: { type: string";
    assert!(told(zone, &format!("{nested}\n        {zone}")).contains("`y` is required"));
    let listed = format!(
        "places: {{ type: array, items: {} }}",
        &nested["place: ".len()..]
    );
    assert!(told(zone, &format!("{listed}\n        {zone}")).contains("`y` is required"));
    for open in [
        "required: [zone, z]\n      additionalProperties: true",
        "required: [zone, z]\n      patternProperties: { \"^z\": {} }",
    ] {
        parse(&GOOD.replacen("required: [zone]", open, 1)).unwrap();
    }
    let open = nested.replace(", additionalProperties: false", "");
    parse(&GOOD.replacen(zone, &format!("{open}\n        {zone}"), 1)).unwrap();
}

#[test]
fn whose_rows_a_result_has_is_told_by_columns_and_arguments() {
    use serde_json::json;
    use wardgate_redact::Row;

    let with = |subject: &str| {
        let key = format!("      key: id\n      subject: {subject}\n");
        parse(&GOOD.replacen("      key: id\n", &key, 1))
    };
    let row = |owner: &str| Row::new(vec![("owner".into(), json!(owner))]);
    let rows = [row("ada"), row("bob"), row("ada")];
    let arguments = json!({ "zone": "A" });
    let told = |subject: &str| -> Vec<(String, u64)> {
        let catalogue = with(subject).unwrap();
        let result = catalogue.tools()[0].result();
        let subjects = result.data_subjects(&rows, arguments.as_object().unwrap());
        subjects
            .named_subjects()
            .map(|it| (it.key, it.rows))
            .collect()
    };
    let owned = |names: &[(&str, u64)]| -> Vec<(String, u64)> {
        let names = names.iter();
        names
            .map(|(name, rows)| ((*name).to_owned(), *rows))
            .collect()
    };
    assert_eq!(told("owner"), owned(&[("ada", 2), ("bob", 1)]));
    assert_eq!(told("{ argument: zone }"), owned(&[("A", 3)]));
    let both = told("[owner, { argument: zone }]");
    assert_eq!(both, owned(&[("A", 0), ("ada", 2), ("bob", 1)]));
    let faults = format_faults(&with("{ argument: owner }").unwrap_err());
    assert!(
        faults.contains("`owner` is not a property of `input_schema`"),
        "{faults}"
    );
}
