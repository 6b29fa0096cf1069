use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::Argv;
use wardgate_catalogue::{Catalogue, Fault, Node, Template};

fn argv(words: &[&str]) -> Argv {
    let at = Node::parse("x").unwrap().at;
    Argv::new(words.iter().map(|word| Template::parse(word, at)).collect())
}

fn values(values: &Value) -> Map<String, Value> {
    values.as_object().unwrap().clone()
}

#[test]
fn each_word_stays_one_argument() {
    let argv = argv(&["log", "--max={n}", "{a} and {b}", "", "{missing}"]);
    let given = values(&json!({"n": 7, "a": "x y' \"$(z)", "b": "{n}\n;"}));
    assert_eq!(
        argv.fill(&given).unwrap(),
        ["log", "--max=7", "x y' \"$(z) and {n}\n;", "", ""]
    );
}

#[test]
fn a_dash_value_never_becomes_an_option() {
    let argv = argv(&["{a}{b}", "--x={b}", "--", "{b}"]);
    let good = values(&json!({"a": "a", "b": "-rf"}));
    assert_eq!(argv.fill(&good).unwrap(), ["a-rf", "--x=-rf", "--", "-rf"]);
    for bad in [
        json!({"a": "-", "b": ""}),
        json!({"b": "-rf"}),
        json!({"a": -1}),
    ] {
        let refused = argv.fill(&values(&bad)).unwrap_err();
        assert_eq!(refused.to_string(), "`a` must not begin with `-`");
    }
}

#[test]
fn a_list_is_an_argument_per_element() {
    let argv = argv(&["{list}", "n={list}", "--", "{list}"]);
    let good = values(&json!({"list": ["a b", 1, "", null]}));
    let text = r#"n=["a b",1,"",null]"#;
    let filled = argv.fill(&good).unwrap();
    assert_eq!(filled, ["a b", "1", "", "", text, "--", "a b", "1", "", ""]);
    let empty = argv.fill(&values(&json!({"list": []}))).unwrap();
    assert_eq!(empty, ["n=[]", "--"]);
    let refused = argv.fill(&values(&json!({"list": ["a", "-b"]})));
    assert!(refused.is_err());
}

#[test]
fn what_no_command_line_can_hold_is_refused_by_name() {
    let argv = argv(&["--x={a}"]);
    for (value, problem) in [
        ("nul\0", "must not contain a NUL character"),
        (
            &*"x".repeat(128 * 1_024 - 4),
            "exceeds the maximum length of a command line",
        ),
    ] {
        let refused = argv.fill(&values(&json!({ "a": value }))).unwrap_err();
        assert_eq!(refused.to_string(), format!("`a` {problem}"));
    }
    let longest = "x".repeat(128 * 1_024 - 5);
    assert!(argv.fill(&values(&json!({ "a": longest }))).is_ok());
}

/// Loads one command tool from a directory that contains `program` and `text`.
fn load(execute: &str) -> Result<Catalogue, Vec<Fault>> {
    let directory = TempDir::new().unwrap();
    let program = directory.path().join("program");
    fs::write(&program, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(directory.path().join("text"), "").unwrap();
    let file = directory.path().join("tools.yaml");
    let text = format!(
        "tools:
- name: t
  description: d
  input_schema: {{ type: object, properties: {{ a: {{ type: string }} }} }}
  execute: {{ type: command, {execute} }}
"
    );
    fs::write(&file, text).unwrap();
    Catalogue::load(&file, &BTreeMap::new())
}

#[test]
fn a_command_as_documented_loads() {
    for execute in [
        "argv: [./program]",
        "argv: [sh, -c, 'echo \"$1\"', sh, '{a}']",
        "argv: [program], env: { PATH: '/nowhere:/bin' }",
    ] {
        let loaded = load(execute);
        let is_missing = execute.contains("PATH");
        assert_eq!(loaded.is_err(), is_missing, "{execute}: {loaded:?}");
    }
    load(
        "argv: [sh], template: 'sql \"{a} x\" format=json', env: { K: v, A: '{a}' }, cwd: ., stdin: '{a}',
             output: json, progress: true, headers: { x-destination: network },
             sandbox: { read: [.], write: [text], network: false, required: false },
             limits: { cpu: 10s, memory: 256MiB, files: 64, processes: 32, file_size: 1GiB, output: 1MiB }",
    )
    .unwrap();
}

#[test]
fn every_fault_says_what_to_do() {
    let mut told = String::new();
    for execute in [
        "output: text",
        "argv: []",
        "argv: ['{a}']",
        "argv: [no-such-program]",
        "argv: [./text]",
        "argv: [./program, '{b}']",
        "argv: [./program], template: 'x \"y'",
        "argv: [./program], template: 'x \"{b}\"'",
        "argv: [./program], cwd: missing",
        "argv: [./program], env: { 'A=B': c }",
        "argv: [./program], headers: { 'a b': c }",
        "argv: [./program], output: yaml",
        "argv: [./program], limits: { memory: 5MB }",
        "argv: [./program], limits: { files: 0, sockets: 1 }",
        "argv: [./program], sandbox: { read: [missing], required: false }",
        "argv: [./program], shell: true",
    ] {
        for fault in load(execute).unwrap_err() {
            told.push_str(&format!("{}; {}\n", fault.problem, fault.fix));
        }
    }
    insta::assert_snapshot!(told);
}
