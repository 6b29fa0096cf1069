//! Tests of what is imported into the catalogue, without any server.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};
use wardgate_domain::Timestamp;
use wardgate_mcp_client::CanonicalDefinition;
use wardgate_rpc::Peer;
use wardgate_testkit::{FakeAudit, until_true};

use super::*;
use wardgate_catalogue::FileText;
use wardgate_catalogue::plan::{McpTarget, Plan};

const ONE_SERVER: &str = "sources: { files: { type: mcp, command: [none] } }";

struct World {
    importer: Importer,
    audit: Arc<FakeAudit>,
}

impl World {
    fn new() -> Self {
        let audit = FakeAudit::new(Peer::ToolRunner);
        Self {
            importer: Importer::new(
                &PathBuf::from("tools.yaml"),
                audit.client(),
                Ambient::system(),
            ),
            audit,
        }
    }

    /// Simulates a server that answers with these tools.
    fn answers(&self, source: &str, tools: &[Value]) {
        let list = tools.iter().map(Value::to_string).collect();
        self.importer.roster.record_list(source, list);
    }

    /// Simulates a server that answers with these tools and instructions.
    fn says(&self, source: &str, tools: &[Value], text: &str) {
        let list = List {
            instructions: Some(text.into()),
            ..tools.iter().map(Value::to_string).collect()
        };
        self.importer.roster.record_list(source, list);
    }

    fn import(&self, yaml: &str, pins: &Pins) -> Catalogue {
        let lock = pins.to_text();
        self.import_with(yaml, if *pins == Pins::default() { "" } else { &lock })
            .unwrap()
    }

    fn import_with(&self, yaml: &str, lock: &str) -> Result<Catalogue, Error> {
        let mut catalogue = parse(yaml).unwrap();
        self.importer.import(&mut catalogue, lock)?;
        Ok(catalogue)
    }

    /// Waits until exactly these actions have been recorded, in this order.
    async fn has_recorded(&self, actions: &[&str]) {
        until_true("the record", || async {
            let recorded = self.audit.actions();
            let recorded: Vec<_> = recorded.iter().map(|(action, _)| action.as_str()).collect();
            recorded == actions
        })
        .await;
    }
}

fn parse(yaml: &str) -> Result<Catalogue, Vec<wardgate_catalogue::Fault>> {
    let text = FileText {
        path: PathBuf::from("tools.yaml"),
        text: yaml.to_owned(),
    };
    Catalogue::parse(&[text], &BTreeMap::new())
}

fn tool(name: &str) -> Value {
    json!({
        "description": "Reads.",
        "name": name,
        "inputSchema": {
            "type": "object",
            "properties": { "path": { "type": "string" }, "depth": { "type": "integer", "default": 1.0 } },
        },
        "annotations": { "readOnlyHint": true },
    })
}

fn changed_tool(name: &str) -> Value {
    let mut tool = tool(name);
    tool["description"] = json!("Reads and sends.");
    tool
}

fn create_pins(tools: &[Value]) -> Pins {
    let mut pins = Pins::default();
    for tool in tools {
        let definition = CanonicalDefinition::parse_tool(&tool.to_string()).unwrap();
        pins.approve("files", definition, "alice", Timestamp::from_seconds(0));
    }
    pins
}

fn names(catalogue: &Catalogue) -> Vec<&str> {
    catalogue
        .tools()
        .iter()
        .map(|tool| tool.facts().name.as_str())
        .collect()
}

#[tokio::test]
async fn p9_a_changed_tool_is_kept_out_alone_until_it_is_approved() {
    let world = World::new();
    let pins = create_pins(&[tool("read"), tool("list")]);
    world.answers("files", &[tool("read"), tool("list")]);
    let before = world.import(ONE_SERVER, &pins);
    assert_eq!(names(&before), ["files__list", "files__read"]);

    world.answers(
        "files",
        &[changed_tool("read"), tool("list"), tool("extra")],
    );
    let drifted = world.import(ONE_SERVER, &pins);
    assert_eq!(names(&drifted), ["files__list"]);
    assert_ne!(before.version(), drifted.version());

    let approved = world.import(
        ONE_SERVER,
        &create_pins(&[changed_tool("read"), tool("list")]),
    );
    assert_eq!(names(&approved), ["files__list", "files__read"]);
    let digest = |catalogue: &Catalogue| catalogue.tools()[1].facts().definition_digest;
    assert_ne!(
        digest(&before),
        digest(&approved),
        "a changed tool is a new tool"
    );
    world
        .has_recorded(&[
            "tools.lock",
            "tool.quarantined",
            "tool.quarantined",
            "tools.lock",
            "tool.approved",
        ])
        .await;
}

#[tokio::test]
async fn the_forms_of_classes_hold_for_imported_tools() {
    let world = World::new();
    world.answers("files", &[tool("read")]);
    let yaml = format!("classes: {{ phi.name: {{ partial: withheld }} }}\n{ONE_SERVER}");
    let catalogue = world.import(&yaml, &create_pins(&[tool("read")]));
    let class = "phi.name".parse().unwrap();
    let forms = catalogue.tools()[0].result().forms().for_class(&class);
    assert_eq!(forms.partial, wardgate_redact::Form::Withheld);
}

fn instructions(catalogue: &Catalogue) -> Option<&str> {
    catalogue.instructions().get("files").map(String::as_str)
}

#[tokio::test]
async fn p9_what_a_server_says_of_itself_is_kept_out_until_it_is_approved() {
    let world = World::new();
    let mut pins = create_pins(&[tool("read")]);
    world.says("files", &[tool("read")], "Read first.");
    let before = world.import(ONE_SERVER, &pins);
    assert_eq!(
        (names(&before), instructions(&before)),
        (vec!["files__read"], None)
    );
    let approved = CanonicalDefinition::of_instructions("Read first.");
    pins.approve("files", approved, "alice", Timestamp::from_seconds(0));
    let after = world.import(ONE_SERVER, &pins);
    assert_eq!(instructions(&after), Some("Read first."));
    assert_ne!(before.version(), after.version());
    world.says("files", &[tool("read")], "Read first, and send.");
    let changed = world.import(ONE_SERVER, &pins);
    assert_eq!(
        (names(&changed), instructions(&changed)),
        (vec!["files__read"], None)
    );
    world
        .has_recorded(&[
            "tools.lock",
            "tool.quarantined",
            "tools.lock",
            "tool.approved",
            "tool.quarantined",
        ])
        .await;
    // A server that has not answered is assumed to give the approved instructions.
    assert_eq!(
        instructions(&World::new().import(ONE_SERVER, &pins)),
        Some("Read first.")
    );
}

#[tokio::test]
async fn first_use_approves_instructions_that_are_not_suspicious() {
    let trusting = "sources: { files: { type: mcp, command: [none], pins: first_use } }";
    for (text, expected) in [
        ("Read first.", Some("Read first.")),
        ("Files.\u{202e}", None),
    ] {
        let world = World::new();
        world.says("files", &[tool("read")], text);
        let catalogue = world.import(trusting, &Pins::default());
        assert_eq!(
            (names(&catalogue), instructions(&catalogue)),
            (vec!["files__read"], expected)
        );
    }
}

#[tokio::test]
async fn a_server_that_has_not_answered_offers_what_was_approved_of_it() {
    let world = World::new();
    let catalogue = world.import(ONE_SERVER, &create_pins(&[tool("read")]));
    assert_eq!(names(&catalogue), ["files__read"]);
    assert!(
        catalogue.missing_sources().is_empty(),
        "nobody asked it yet"
    );
    world.importer.roster.record_failure("files");
    let catalogue = world.import(ONE_SERVER, &create_pins(&[tool("read")]));
    assert_eq!(
        (names(&catalogue), catalogue.missing_sources()),
        (vec!["files__read"], &["files".to_owned()][..])
    );
}

#[tokio::test]
async fn a_server_that_went_away_keeps_its_last_list() {
    let world = World::new();
    let pins = create_pins(&[tool("read"), tool("list")]);
    world.answers("files", &[tool("read")]);
    let there = world.import(ONE_SERVER, &pins);
    world.importer.roster.record_failure("files");
    let away = world.import(ONE_SERVER, &pins);
    assert_eq!(
        (names(&there), names(&away)),
        (vec!["files__read"], vec!["files__read"])
    );
    assert_eq!(away.missing_sources(), ["files"]);
    assert_ne!(there.version(), away.version());
    world.answers("files", &[tool("read")]);
    let back = world.import(ONE_SERVER, &pins);
    assert_eq!(
        (back.version(), back.missing_sources().len()),
        (there.version(), 0)
    );
}

#[tokio::test]
async fn an_imported_tool_is_what_the_server_defines_under_our_rules() {
    let world = World::new();
    let yaml = "sources: { files: { type: mcp, command: [none], prefix: f., tags: [disk], \
                classes: { content: file.text } } }";
    world.answers("files", &[tool("read")]);
    let catalogue = world.import(yaml, &create_pins(&[tool("read")]));
    let imported = &catalogue.tools()[0];
    let facts = imported.facts();
    assert_eq!(facts.name.as_str(), "f.read");
    assert_eq!(*facts.tags, ["disk", "upstream:files"]);
    let classes: Vec<_> = facts.classes.iter().map(ToString::to_string).collect();
    assert_eq!(classes, ["file.text", "unclassified"]);
    assert_eq!(facts.argument_defaults["depth"], "1.0");
    assert_eq!(
        imported.definition_json(),
        r#"{"description":"Reads.","inputSchema":{"type":"object","properties":{"path":{"type":"string"},"depth":{"type":"integer","default":1.0}}},"annotations":{"readOnlyHint":true}}"#
    );
    let other = world.import(
        &yaml.replace("file.text", "none"),
        &create_pins(&[tool("read")]),
    );
    assert_ne!(
        other.tools()[0].facts().definition_digest,
        facts.definition_digest,
        "its classes are part of what was decided on"
    );
}

#[tokio::test]
async fn a1_a_tool_of_a_server_may_write_unless_the_file_trusts_that_it_only_reads() {
    let world = World::new();
    let mut silent = tool("list");
    silent["annotations"] = json!({ "idempotentHint": true });
    let tools = [tool("read"), silent];
    world.answers("files", &tools);
    let mut digests = Vec::new();
    for (setting, expected) in [
        ("", [false, false]),
        (", read_only: none", [false, false]),
        (", read_only: [list]", [false, false]),
        (", read_only: [read]", [false, true]),
        (", read_only: all", [false, true]),
    ] {
        let yaml = format!("sources: {{ files: {{ type: mcp, command: [none]{setting} }} }}");
        let catalogue = world.import(&yaml, &create_pins(&tools));
        assert_eq!(names(&catalogue), ["files__list", "files__read"]);
        let tools = catalogue.tools().iter();
        let read_only: Vec<_> = tools.map(|tool| tool.facts().read_only).collect();
        assert_eq!(read_only, expected, "{setting}");
        let tools = catalogue.tools().iter();
        let repeatable: Vec<_> = tools.map(Tool::is_repeatable).collect();
        assert_eq!(repeatable, expected, "{setting}");
        digests.push(catalogue.tools()[1].facts().definition_digest);
    }
    assert_ne!(digests[0], digests[3], "it is part of what was decided on");
    assert_eq!(digests[3], digests[4]);
}

#[tokio::test]
async fn the_file_says_which_tools_are_imported() {
    let world = World::new();
    let (read, list) = (tool("read"), tool("list"));
    world.answers("files", &[read.clone(), list.clone()]);
    let pins = create_pins(&[read, list]);
    let imported = |settings: &str, tools: &str| {
        let yaml = format!(
            "sources: {{ files: {{ type: mcp, command: [none]{settings} }} }}\ntools: [{tools}]"
        );
        let catalogue = world.import(&yaml, &pins);
        names(&catalogue)
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let configured =
        "{ name: own, input_schema: {}, execute: { type: mcp, source: files, tool: read } }";
    assert_eq!(imported("", ""), ["files__list", "files__read"]);
    assert_eq!(
        imported(", tools: all", configured),
        ["own", "files__list", "files__read"]
    );
    assert_eq!(imported("", configured), ["own"]);
    assert_eq!(imported(", tools: none", ""), Vec::<String>::new());
    assert_eq!(imported(", tools: [list, other]", ""), ["files__list"]);
    let takes_a_name = configured.replace("own", "Files_read");
    assert_eq!(
        imported(", tools: all", &takes_a_name),
        ["Files_read", "files__list"]
    );
}

/// A catalogue whose tool `own` calls the tool `read` of a server of which nothing is imported.
const ONE_CALLER: &str = "sources: { files: { type: mcp, command: [none] } }\n\
    tools: [{ name: own, input_schema: {}, execute: { type: mcp, source: files, tool: read } }]";

/// Returns whether the tool `own`, the first one, calls only the approved definition.
fn is_pinned(catalogue: &Catalogue) -> bool {
    let Plan::Mcp(plan) = catalogue.tools()[0].plan() else {
        panic!("it calls no server");
    };
    matches!(&plan.target, McpTarget::Tool { pin: Some(_), .. })
}

#[tokio::test]
async fn p9_a_configured_tool_whose_upstream_tool_changed_is_kept_out_until_it_is_approved() {
    let world = World::new();
    let pins = create_pins(&[tool("read")]);
    let unanswered = world.import(ONE_CALLER, &pins);
    assert_eq!(names(&unanswered), ["own"]);
    assert!(is_pinned(&unanswered));
    assert_eq!(unanswered.followed_sources(), ["files"]);
    assert!(unanswered.imported_sources().is_empty());

    world.answers("files", &[tool("read"), tool("list")]);
    let before = world.import(ONE_CALLER, &pins);
    assert_eq!(names(&before), ["own"]);
    world.answers("files", &[changed_tool("read"), tool("list")]);
    assert!(names(&world.import(ONE_CALLER, &pins)).is_empty());
    let approved = world.import(ONE_CALLER, &create_pins(&[changed_tool("read")]));
    assert_eq!(names(&approved), ["own"]);
    world.answers("files", &[tool("list")]);
    assert!(names(&world.import(ONE_CALLER, &pins)).is_empty());
    world
        .has_recorded(&[
            "tools.lock",
            "tool.quarantined",
            "tools.lock",
            "tool.approved",
            "tools.lock",
        ])
        .await;
}

#[tokio::test]
async fn p9_a_configured_tool_without_an_entry_is_kept_out_once_its_source_has_any() {
    let world = World::new();
    let without = world.import(ONE_CALLER, &Pins::default());
    assert_eq!(names(&without), ["own"]);
    assert!(!is_pinned(&without));
    assert!(without.followed_sources().is_empty(), "nothing is compared");

    let other = create_pins(&[tool("list")]);
    assert!(names(&world.import(ONE_CALLER, &other)).is_empty());
    world.answers("files", &[tool("read"), tool("list")]);
    assert!(names(&world.import(ONE_CALLER, &other)).is_empty());
    let both = create_pins(&[tool("read"), tool("list")]);
    assert!(is_pinned(&world.import(ONE_CALLER, &both)));
}

#[tokio::test]
async fn p9_a_configured_tool_of_a_source_with_first_use_is_pinned_when_its_server_answers() {
    let world = World::new();
    let trusting = ONE_CALLER.replace("[none]", "[none], pins: first_use");
    let unanswered = world.import(&trusting, &Pins::default());
    assert_eq!(names(&unanswered), ["own"]);
    assert!(!is_pinned(&unanswered));
    assert_eq!(unanswered.followed_sources(), ["files"]);
    world.answers("files", &[tool("read")]);
    assert!(is_pinned(&world.import(&trusting, &Pins::default())));
    world.answers("files", &[changed_tool("read")]);
    assert!(names(&world.import(&trusting, &Pins::default())).is_empty());
    world.has_recorded(&["tool.quarantined"]).await;
}

#[tokio::test]
async fn a_configured_tool_may_have_the_name_of_the_imported_tool_that_it_calls() {
    let world = World::new();
    let yaml = ONE_CALLER
        .replace("[none]", "[none], tools: all")
        .replace("name: own", "name: files__read");
    world.answers("files", &[tool("read")]);
    for _ in 0..2 {
        let catalogue = world.import(&yaml, &create_pins(&[tool("read")]));
        assert_eq!(names(&catalogue), ["files__read"]);
        assert!(is_pinned(&catalogue));
    }
    // The imported tool is refused once, and not again with each list.
    world
        .has_recorded(&["tools.lock", "tool.quarantined"])
        .await;
}

#[tokio::test]
async fn without_approval_nothing_is_offered_unless_the_source_trusts_first_use() {
    let world = World::new();
    let mut poisoned = tool("note");
    poisoned["description"] = json!("Notes.\u{202e}");
    world.answers("files", &[tool("read"), poisoned.clone()]);
    assert!(names(&world.import(ONE_SERVER, &Pins::default())).is_empty());

    let trusting = "sources: { files: { type: mcp, command: [none], pins: first_use } }";
    let world = World::new();
    world.import(trusting, &Pins::default());
    world.answers("files", &[tool("read"), poisoned.clone()]);
    assert_eq!(
        names(&world.import(trusting, &Pins::default())),
        ["files__read"]
    );
    world.answers("files", &[tool("read"), poisoned, tool("later")]);
    assert_eq!(
        names(&world.import(trusting, &Pins::default())),
        ["files__read"]
    );
    world.answers("files", &[changed_tool("read"), tool("later")]);
    assert!(names(&world.import(trusting, &Pins::default())).is_empty());
    // Once a person has approved anything, only the approved tools count.
    let approved = create_pins(&[tool("later")]);
    assert_eq!(names(&world.import(trusting, &approved)), ["files__later"]);
}

#[tokio::test]
async fn an_approved_tool_whose_schema_cannot_be_checked_against_is_left_out_alone() {
    let world = World::new();
    let mut odd = tool("odd");
    odd["inputSchema"] =
        json!({ "type": "object", "properties": { "a": { "$ref": "https://x.example/s" } } });
    let pins = create_pins(&[odd, tool("read")]);
    assert_eq!(names(&world.import(ONE_SERVER, &pins)), ["files__read"]);
}

#[tokio::test]
async fn a_faulty_lock_file_is_a_fault_with_its_line() {
    let world = World::new();
    let Err(Error::Catalogue(faults)) = world.import_with(ONE_SERVER, "version: 7\n") else {
        panic!("it was taken");
    };
    assert_eq!(
        faults[0].to_string().split(';').next().unwrap(),
        "tools.lock:1:10: version 7 of tools.lock is not supported"
    );
}

#[tokio::test]
async fn a_toolset_may_name_imported_tools() {
    let toolsets =
        |name: &str| format!("{ONE_SERVER}\ntoolsets: {{ disk: {{ tools: [{name}] }} }}");
    assert!(parse(&toolsets("files__read")).is_ok());
    let faults = parse(&toolsets("other")).unwrap_err();
    assert_eq!(faults[0].problem, "the tool `other` does not exist");

    let world = World::new();
    let yaml = toolsets("files__read, files__list");
    world.answers("files", &[tool("read")]);
    let pins = create_pins(&[tool("read"), tool("list")]);
    let catalogue = world.import(&yaml, &pins);
    let toolset = &catalogue.toolsets()[0];
    assert!(toolset.holds(catalogue.tools()[0].facts()));
    assert_eq!(
        catalogue.absent().into_iter().collect::<Vec<_>>(),
        ["files__list"]
    );
    world.answers("files", &[tool("read"), tool("list")]);
    assert!(world.import(&yaml, &pins).absent().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_recorded_now_is_recorded_later() {
    let world = World::new();
    world.audit.fails();
    world.answers("files", &[tool("read")]);
    world.import(ONE_SERVER, &Pins::default());
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert!(world.audit.actions().is_empty());
    world.audit.recovers();
    world.has_recorded(&["tool.quarantined"]).await;
}
