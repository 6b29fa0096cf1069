use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::{Catalogue, Fault, SourceKind};

const GOOD: &str = r#"
sources:
  guides:
    type: content
    tags: [guides]
    classes: { content: none }
    prompts:
      - name: summarise
        title: Summarise
        description: Asks for a summary.
        arguments:
          code: { type: string, pattern: "^[A-Z]{5}$", description: Five letters, required: true }
          tone: { enum: [plain, clinical], default: plain }
          words: { type: integer, minimum: 1 }
        messages:
          - { role: user, text: "Summarise {code} in {tone} words." }
          - { resource: "guide://triage" }
          - { role: assistant, resource: "guide://ward/{code}" }
    resources:
      - uri: guide://triage
        name: triage
        title: Triage
        mime_type: text/markdown
        text: "Triage: {not a place}"
      - uri_template: guide://ward/{ward}
        name: ward
        arguments: { ward: { type: string, maxLength: 5, enum: [ABCDE, B] } }
        text: "Ward {ward}."
      - uri_template: guide://bed/{ward}/{bed}
        name: bed
        arguments: { bed: { type: integer } }
        text: "Bed {bed} of {ward}."
      - uri: guide://picture
        name: picture
        file: picture.png
"#;

fn parse(text: &str, files: &Path) -> Result<Catalogue, Vec<Fault>> {
    let path = files.join("tools.yaml");
    std::fs::write(&path, text).unwrap();
    Catalogue::load(&path, &BTreeMap::new())
}

fn files() -> tempfile::TempDir {
    let files = tempfile::TempDir::new().unwrap();
    std::fs::write(files.path().join("picture.png"), [0x89, b'P', 0xff]).unwrap();
    std::fs::write(files.path().join("large"), vec![b'x'; 513 * 1024]).unwrap();
    files
}

fn own(text: &str, files: &Path) -> Arc<FileContent> {
    let catalogue = parse(text, files).unwrap();
    let [source] = catalogue.sources() else {
        panic!("not one source")
    };
    match &source.kind {
        SourceKind::Content(own) => Arc::clone(own),
        _ => panic!("not content"),
    }
}

#[test]
fn what_is_offered_is_listed_as_clients_see_it() {
    let files = files();
    let own = own(GOOD, files.path());
    let prompts: Vec<_> = own.prompts().collect();
    assert_eq!(prompts[0].name, "summarise");
    assert_eq!(
        prompts[0].definition,
        json!({
            "title": "Summarise",
            "description": "Asks for a summary.",
            "arguments": [
                { "name": "code", "description": "Five letters", "required": true },
                { "name": "tone", "required": false },
                { "name": "words", "required": false },
            ],
        })
    );
    let resources: Vec<_> = own
        .resources()
        .map(|listed| (listed.name, listed.definition))
        .collect();
    let triage =
        json!({ "name": "triage", "title": "Triage", "mimeType": "text/markdown", "size": 21 });
    assert_eq!(
        resources,
        [
            ("guide://triage".to_owned(), triage),
            (
                "guide://picture".to_owned(),
                json!({ "name": "picture", "size": 3 })
            ),
        ]
    );
    let templates: Vec<_> = own.templates().map(|listed| listed.name).collect();
    assert_eq!(
        templates,
        ["guide://ward/{ward}", "guide://bed/{ward}/{bed}"]
    );
}

#[test]
fn a_prompt_is_filled_in_with_checked_arguments_and_defaults() {
    let files = files();
    let own = own(GOOD, files.path());
    let got = own.get_prompt("summarise", br#"{"code":"ABCDE"}"#).unwrap();
    let triage = json!({ "uri": "guide://triage", "mimeType": "text/markdown", "text": "Triage: {not a place}" });
    assert_eq!(
        got,
        json!({
            "description": "Asks for a summary.",
            "messages": [
                { "role": "user", "content": { "type": "text", "text": "Summarise ABCDE in plain words." } },
                { "role": "user", "content": { "type": "resource", "resource": triage } },
                { "role": "assistant", "content": {
                    "type": "resource",
                    "resource": { "uri": "guide://ward/ABCDE", "text": "Ward ABCDE." },
                } },
            ],
        })
    );
    for (arguments, expected) in [
        ("{}", "`code` is required"),
        (r#"{"code":"secret-7"}"#, "`code`"),
        (r#"{"code":"ABCDE","tone":"rude"}"#, "`tone`"),
        (r#"{"code":"ABCDE","words":"0"}"#, "`words`"),
        (
            r#"{"code":"ABCDE","size":"1"}"#,
            "whose arguments are `code`, `tone`, `words`",
        ),
    ] {
        let Err(ContentError::Invalid(problem)) = own.get_prompt("summarise", arguments.as_bytes())
        else {
            panic!("{arguments}")
        };
        assert!(problem.contains(expected), "{problem}");
        assert!(!problem.contains("secret"), "{problem}");
    }
    // The last message of the prompt refers to a ward that does not exist.
    let unfit = own.get_prompt("summarise", br#"{"code":"VWXYZ"}"#);
    assert!(matches!(unfit, Err(ContentError::Invalid(_))), "{unfit:?}");
    assert_eq!(own.get_prompt("other", b"{}"), Err(ContentError::Unknown));
}

#[test]
fn a_resource_is_read_by_its_uri_or_by_one_that_fits_a_template() {
    let files = files();
    let own = own(GOOD, files.path());
    let read = |uri| own.read_resource(uri);
    assert_eq!(
        read("guide://bed/A%201/7").unwrap(),
        json!({ "contents": [{ "uri": "guide://bed/A%201/7", "text": "Bed 7 of A 1." }] })
    );
    assert_eq!(
        read("guide://picture").unwrap()["contents"][0]["blob"],
        "iVD/"
    );
    for uri in [
        "guide://triage/",
        "guide://ward/",
        "guide://nothing",
        "guide://ward/{ward}",
    ] {
        assert_eq!(read(uri), Err(ContentError::Unknown), "{uri}");
    }
    for uri in ["guide://bed/A/first", "guide://ward/C"] {
        assert!(matches!(read(uri), Err(ContentError::Invalid(_))), "{uri}");
    }
}

#[test]
fn an_argument_of_few_values_is_completed() {
    let files = files();
    let own = own(GOOD, files.path());
    let prompt = |argument, begun| own.complete_prompt("summarise", argument, begun);
    assert_eq!(prompt("tone", "").unwrap(), ["plain", "clinical"]);
    assert_eq!(prompt("tone", "CL").unwrap(), ["clinical"]);
    assert!(prompt("code", "A").unwrap().is_empty());
    assert!(matches!(prompt("size", ""), Err(ContentError::Invalid(_))));
    let ward = own.complete_template("guide://ward/{ward}", "ward", "a");
    assert_eq!(ward.unwrap(), ["ABCDE"]);
    let unknown = own.complete_template("guide://{any}", "any", "");
    assert_eq!(unknown, Err(ContentError::Unknown));
}

#[test]
fn what_changes_its_file_changes_the_source() {
    let files = files();
    let digest = |text: &str| own(text, files.path()).digest;
    let before = digest(GOOD);
    assert_eq!(digest(GOOD), before);
    assert_ne!(
        digest(&GOOD.replace("Ward {ward}.", "The ward {ward}.")),
        before
    );
    let (picture, other) = (files.path().join("picture.png"), [1_u8, 0xff]);
    std::fs::write(picture, other).unwrap();
    assert_ne!(digest(GOOD), before);
}

/// Each entry makes one change to the valid file: the text to replace, its replacement, and the expected fault.
const FAULTS: [(&str, &str, &str); 27] = [
    (
        "  guides:\n",
        "  my guides:\n",
        "3:3: `my guides` is not a valid name",
    ),
    (
        "tags: [guides]",
        "tagged: [guides]",
        "5:5: `sources.guides` has an unknown key `tagged`",
    ),
    (
        "{ content: none }",
        "{ contents: none }",
        "`contents` is not a column of prompts and resources",
    ),
    (
        "{ content: none }",
        "{ content: no ne }",
        "`no ne` is not a column class",
    ),
    (
        "- name: summarise",
        "- name: sum up",
        "8:15: the name is not accepted by every client",
    ),
    (
        "title: Summarise",
        "titel: Summarise",
        "`prompt summarise` has an unknown key `titel`",
    ),
    (
        "required: true",
        "required: yes",
        "`required` is a string, not a boolean",
    ),
    (
        "default: plain }",
        "default: rude }",
        "the default of `tone` does not match",
    ),
    (
        "default: plain }",
        "default: plain, required: true }",
        "`tone` is required and has a default",
    ),
    (
        "type: integer, minimum: 1",
        "type: object",
        "`words` does not have a single plain type",
    ),
    ("minimum: 1", "minimum: one", "not a valid JSON Schema"),
    (
        "{code} in",
        "{patient} in",
        "`{patient}` is not an argument; use one of `code`, `tone`, `words`",
    ),
    ("{code} in", "{code:sql} in", "`{code:…}` has a filter"),
    (
        "role: user",
        "role: system",
        "`role` is neither user nor assistant",
    ),
    (
        "resource: \"guide://triage\"",
        "resource: \"guide://triages\"",
        "the resource `guide://triages` does not exist in this source",
    ),
    (
        "resource: \"guide://triage\"",
        "resource: \"guide://triage\", text: x",
        "either a `text` or a `resource`",
    ),
    (
        "uri: guide://triage",
        "uri: triage",
        "`uri` is not an absolute URI",
    ),
    (
        "uri: guide://triage",
        "uri: memory://triage",
        "which is reserved for conversations",
    ),
    (
        "uri: guide://triage",
        "uri: \"guide://{triage}\"",
        "`uri` contains braces",
    ),
    (
        "uri: guide://triage",
        "uri: guide://picture",
        "has a resource `guide://picture`",
    ),
    (
        "mime_type: text/markdown",
        "mime_type: markdown",
        "`mime_type` is not a media type",
    ),
    (
        "uri_template: guide://ward/{ward}",
        "uri_template: guide://ward/{ward*}",
        "not a reversible template",
    ),
    (
        "uri_template: guide://ward/{ward}",
        "uri_template: guide://ward/{room}",
        "`ward` is not a variable",
    ),
    (
        "text: \"Ward {ward}.\"",
        "text: \"Ward {room}.\"",
        "`{room}` is not an argument",
    ),
    (
        "text: \"Ward {ward}.\"",
        "file: picture.png",
        "a `uri_template` requires a `text`",
    ),
    (
        "file: picture.png",
        "file: gone.png",
        "the file `gone.png` cannot be read",
    ),
    ("file: picture.png", "file: large", "larger than 512 KiB"),
];

#[test]
fn every_fault_names_its_line_and_the_fix() {
    let files = files();
    for (from, to, expected) in FAULTS {
        assert!(GOOD.contains(from), "{from}");
        let faults = parse(&GOOD.replacen(from, to, 1), files.path()).unwrap_err();
        let shown: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert!(
            shown.iter().any(|fault| fault.contains(expected)),
            "{to}: {shown:#?}"
        );
        assert!(
            faults
                .iter()
                .all(|fault| fault.line > 2 && !fault.fix.is_empty())
        );
    }
}

#[test]
fn two_sources_do_not_share_a_name() {
    let files = files();
    let (_, body) = GOOD.split_once("  guides:\n").unwrap();
    let faults = parse(&format!("{GOOD}  others:\n{body}"), files.path()).unwrap_err();
    let shown: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(faults.len(), 5, "{shown:#?}");
    assert!(
        shown[0].contains("source `guides` has a prompt `summarise`"),
        "{}",
        shown[0]
    );
}
