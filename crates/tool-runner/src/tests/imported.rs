//! Tests of the tools of an MCP server, which runs as a separate program, through the service.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wardgate_domain::{Ambient, Timestamp};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_testkit::until_true;

use super::harness::{Answer, Harness};
use crate::tests::database;
use crate::{NotApproved, Review, Selection};
use wardgate_catalogue::{Grade, PinJudgement};

/// MCP server as a short shell script. It lists the contents of the file given as its argument, announces when the file
/// changes, and is unavailable while a file `away` exists next to it.
const SERVER: &str = r#"
dir=$(dirname "$1")
[ -e "$dir/away" ] && exit 1
(
  last=$(cat "$1")
  while sleep 0.05; do
    [ -e "$dir/away" ] && kill $$ && exit
    now=$(cat "$1")
    [ "$now" = "$last" ] || echo '{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}'
    last=$now
  done
) &
while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\("[^"]*"\|[0-9]*\).*/\1/p')
  case $line in
    *'"tools/call"'*) cat "$1" >> "$dir/ran" ;;
  esac
  case $line in
    *'"initialize"'*) result='{"protocolVersion":"2025-06-18","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) result="{\"tools\":$(cat "$1")}" ;;
    *'"tools/call"'*) result='{"content":[{"type":"text","text":"done"}]}' ;;
    *'"notifications/'*) continue ;;
    *) printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}\n' "$id"; continue ;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
kill %1
"#;

/// A service and an MCP server.
struct World {
    harness: Harness,
    dir: PathBuf,
}

impl World {
    async fn start(tools: &Value) -> Self {
        Self::with("[]", tools).await
    }

    /// Starts the service with these tools in its catalogue besides those of the server.
    async fn with(configured: &str, tools: &Value) -> Self {
        let database = database::sqlite().await;
        let source = "sources: { files: { type: mcp, command: [sh, server.sh, tools.json] } }";
        let yaml = format!("{source}\ntools: {configured}\n");
        let tools = tools.to_string();
        let harness = Harness::with(&database, &yaml, |config| {
            let dir = config.catalogue.parent().unwrap();
            std::fs::write(dir.join("server.sh"), SERVER).unwrap();
            std::fs::write(dir.join("tools.json"), tools).unwrap();
        })
        .await;
        let dir = harness.file.parent().unwrap().to_owned();
        Self { harness, dir }
    }

    fn serve(&self, tools: &Value) {
        let beside = self.dir.join("tools.json.new");
        std::fs::write(&beside, tools.to_string()).unwrap();
        std::fs::rename(&beside, self.dir.join("tools.json")).unwrap();
    }

    async fn approve(&self, selection: &Selection) -> Vec<String> {
        let mut review = review(&self.harness.file).await;
        let approved = review
            .approve(selection, "alice", Timestamp::from_seconds(0))
            .unwrap();
        review.save(&Ambient::system()).unwrap();
        approved
    }

    /// Waits until the action has been recorded the given number of times.
    async fn has_recorded(&self, action: &str, times: usize) {
        until_true(action, || async {
            let actions = self.harness.audit.actions();
            actions.iter().filter(|(own, _)| own == action).count() == times
        })
        .await;
    }

    async fn misses(&self, upstreams: &[&str]) {
        until_true("the missing ones", || async {
            self.harness.tools().await.missing_upstreams == upstreams
        })
        .await;
    }

    async fn lists(&self, names: &[&str]) {
        until_true("the list", || async {
            let list = self.harness.tools().await;
            let tools = list.tools.iter();
            let listed: Vec<_> = tools
                .map(|tool| tool.facts.as_ref().unwrap().name.as_str())
                .collect();
            listed == names
        })
        .await;
    }
}

async fn review(file: &Path) -> Review {
    Review::load(file, &std::collections::BTreeMap::new(), &Ambient::system())
        .await
        .unwrap()
}

fn tool(name: &str, description: &str) -> Value {
    json!({ "name": name, "description": description, "inputSchema": { "type": "object" } })
}

#[tokio::test]
async fn tools_appear_as_they_are_approved_and_vanish_as_they_change() {
    let world = World::start(&json!([tool("read", "Reads."), tool("write", "Writes.")])).await;
    world.has_recorded("tool.quarantined", 2).await;
    world.lists(&[]).await;
    let approved = world.approve(&Selection::Source("files".to_owned())).await;
    assert_eq!(approved, ["files__read", "files__write"]);
    world.lists(&["files__read", "files__write"]).await;
    assert_eq!(world.harness.call("files__read", "{}").await.text(), "done");
    let old = world.harness.terms("files__read").await;

    world.serve(&json!([
        tool("read", "Reads it."),
        tool("write", "Writes.")
    ]));
    world.lists(&["files__write"]).await;
    let gone = world.harness.call_with(&old, "{}").await.unwrap_err();
    assert_eq!(wardgate_rpc::reason_of(&gone), ErrorReason::UnknownTool);

    assert_eq!(
        world.approve(&Selection::AllHarmless).await,
        ["files__read"]
    );
    world.lists(&["files__read", "files__write"]).await;
    let drifted = world.harness.call_with(&old, "{}").await.unwrap_err();
    assert_eq!(
        wardgate_rpc::reason_of(&drifted),
        ErrorReason::PermitRefused
    );
    world.has_recorded("tool.quarantined", 3).await;
    world.has_recorded("tool.approved", 3).await;
}

#[tokio::test]
async fn p9_the_upstream_tool_of_a_configured_tool_is_approved_under_its_name() {
    let own =
        "[{ name: own, input_schema: {}, execute: { type: mcp, source: files, tool: read } }]";
    let offered = json!([tool("read", "Reads."), tool("write", "Writes.")]);
    let world = World::with(own, &offered).await;
    world.lists(&["own"]).await;
    let source = Selection::Source("files".to_owned());
    assert_eq!(world.approve(&source).await, ["own"]);
    let lock = std::fs::read_to_string(world.dir.join("tools.lock")).unwrap();
    assert!(lock.contains("\"read\":") && !lock.contains("\"write\":"));
    world.lists(&["own"]).await;

    world.serve(&json!([tool("read", "Reads it.")]));
    world.lists(&[]).await;
    let by_name = Selection::Tools(vec!["own".to_owned()]);
    assert_eq!(world.approve(&by_name).await, ["own"]);
    world.lists(&["own"]).await;
    assert_eq!(world.harness.call("own", "{}").await.text(), "done");

    // Nothing can be approved while the server has no such tool, so that a later one is compared with the approved one.
    world.serve(&json!([]));
    world.lists(&[]).await;
    assert!(world.approve(&source).await.is_empty());
    world.serve(&json!([tool("read", "Reads and sends.")]));
    let reviewed = review(&world.harness.file).await;
    let judged = &reviewed.upstreams()[0].tools[0].judged;
    assert!(matches!(judged, PinJudgement::Drifted { .. }), "{judged:?}");
    world.lists(&[]).await;
}

#[tokio::test]
async fn p9_a_server_that_comes_back_with_a_changed_tool_never_runs_it() {
    let world = World::start(&json!([tool("read", "Reads.")])).await;
    world.approve(&Selection::Source("files".to_owned())).await;
    world.lists(&["files__read"]).await;
    world.harness.call("files__read", "{}").await;
    let approved = world.harness.terms("files__read").await;
    std::fs::write(world.dir.join("away"), "").unwrap();
    let call = || world.harness.call_with(&approved, "{}");
    let is_away = |answer: Result<Answer, tonic::Status>| {
        answer.is_ok_and(|answer| answer.facts().error_kind == "source_unavailable")
    };
    until_true("it is away", || async { is_away(call().await) }).await;
    std::fs::remove_file(world.dir.join("ran")).unwrap();
    world.serve(&json!([tool("read", "Reads and sends.")]));
    std::fs::remove_file(world.dir.join("away")).unwrap();

    until_true("it is back", || async {
        let calls = futures::future::join_all((0..8).map(|_| call())).await;
        !calls.into_iter().all(is_away)
    })
    .await;
    world.lists(&[]).await;
    assert!(
        !world.dir.join("ran").exists(),
        "the changed tool was called"
    );
}

#[tokio::test]
async fn a_server_that_goes_away_is_missing_and_its_tools_stay_and_fail() {
    let world = World::start(&json!([tool("read", "Reads.")])).await;
    world.approve(&Selection::Source("files".to_owned())).await;
    world.lists(&["files__read"]).await;
    std::fs::write(world.dir.join("away"), "").unwrap();
    until_true("a call fails", || async {
        let answer = world.harness.call("files__read", "{}").await;
        answer.0.is_error && answer.facts().error_kind == "source_unavailable"
    })
    .await;
    world.misses(&["files"]).await;
    world.lists(&["files__read"]).await;
    std::fs::remove_file(world.dir.join("away")).unwrap();
    until_true("a call succeeds", || async {
        !world.harness.call("files__read", "{}").await.0.is_error
    })
    .await;
    world.misses(&[]).await;
}

#[tokio::test]
async fn a_dead_server_takes_nothing_down() {
    let database = database::sqlite().await;
    let yaml = super::harness::tools().replace(
        "sources:\n",
        "sources:\n  dead: { type: mcp, command: [./no-such-program], tools: all }\n",
    );
    let harness = Harness::with(&database, &yaml, |_| ()).await;
    until_true("it is missing", || async {
        harness.tools().await.missing_upstreams == ["dead"]
    })
    .await;
    assert_eq!(harness.call("plain_rows", "{}").await.column("id").len(), 7);
}

#[tokio::test]
async fn a_review_approves_by_name_what_is_suspicious_and_never_what_is_refused() {
    let poisoned = tool("odd", "Reads.\u{200b}");
    let world = World::start(&json!([
        tool("read", "Reads."),
        poisoned,
        tool(&"x".repeat(60), "Long.")
    ]))
    .await;
    let mut reviewed = review(&world.harness.file).await;
    let grades: Vec<_> = reviewed.upstreams()[0]
        .tools
        .iter()
        .map(|tool| tool.judged.grade())
        .collect();
    assert_eq!(grades, [Some(Grade::Suspicious), Some(Grade::Wider), None]);
    let now = Timestamp::from_seconds(0);
    let mut approve = |selection: &Selection| reviewed.approve(selection, "alice", now);
    let named =
        |names: &[&str]| Selection::Tools(names.iter().map(|&name| name.to_owned()).collect());
    assert_eq!(
        approve(&Selection::AllHarmless).unwrap(),
        Vec::<String>::new()
    );
    assert_eq!(
        approve(&Selection::Source("files".to_owned())).unwrap(),
        ["files__read"]
    );
    assert_eq!(approve(&named(&["files__odd"])).unwrap(), ["files__odd"]);
    let long = format!("files__{}", "x".repeat(60));
    for (selection, problem) in [
        (
            named(&["files__read", "files__none"]),
            "no reachable upstream server offers the tool `files__none`",
        ),
        (named(&[&long]), "cannot be approved: its name"),
        (
            Selection::Source("main".to_owned()),
            "no tools of a source `main` are imported or called",
        ),
    ] {
        let error: NotApproved = approve(&selection).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
    }
    reviewed.save(&Ambient::system()).unwrap();
    world.lists(&["files__odd", "files__read"]).await;

    world.serve(&json!([tool("read", "Reads.")]));
    let again = review(&world.harness.file).await;
    let states: Vec<_> = again.upstreams()[0]
        .tools
        .iter()
        .map(|tool| tool.judged.clone())
        .collect();
    assert_eq!(states, [PinJudgement::Gone, PinJudgement::Approved]);
    assert_eq!(world.approve(&named(&["files__odd"])).await, ["files__odd"]);
    std::fs::write(world.dir.join("away"), "").unwrap();
    let unreachable = review(&world.harness.file).await;
    assert!(unreachable.upstreams()[0].unreachable.is_some());
    assert!(
        unreachable.upstreams()[0].tools.is_empty(),
        "nobody knows what it offers"
    );
}
