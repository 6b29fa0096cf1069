//! Tests of `wardgate init` as a new user runs it: the printed commands unchanged, one more column and one more tool.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use wardgate_testkit::{ProcessExit, System, TestApp, WardgateProcess, run, until};

use super::extra_tools::LOOK_OFTEN;
use super::people::doctor;
use crate::{REPOSITORY, WARDGATE};

/// The directory that `init` created, and its output.
struct Project {
    parent: TempDir,
    printed: String,
}

impl Project {
    fn create() -> Self {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("shop").display().to_string();
        let printed = run(Path::new(WARDGATE), &["init", &directory], &[]).success();
        Self { parent, printed }
    }

    fn path(&self) -> PathBuf {
        self.parent.path().join("shop")
    }

    fn change(&self, file: &str, from: &str, to: &str) {
        let path = self.path().join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{file} has no {from:?}");
        std::fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    /// Runs the printed `wardgate up` on a port that the system chooses.
    fn up(&self) -> (WardgateProcess, String) {
        let line = format!(
            "cd '{}' && exec {} --listen 127.0.0.1:0",
            self.path().display(),
            self.printed_line("wardgate up")
        );
        let process = WardgateProcess::start(Path::new("sh"), &["-c", &line], &[]);
        let url = process.ready_line().split_whitespace().nth(1).unwrap();
        let url = url.trim_end_matches("/mcp").to_owned();
        (process, url)
    }

    /// Returns the printed line that contains these words.
    fn printed_line(&self, words: &str) -> &str {
        let mut lines = self.printed.lines();
        lines.find(|line| line.contains(words)).unwrap().trim()
    }

    /// Runs a line in the project's directory, as a user who pastes it.
    fn shell(&self, line: &str) -> ProcessExit {
        let line = format!("cd '{}' && {line}", self.path().display());
        run(Path::new("sh"), &["-c", &line], &[])
    }

    /// Runs the printed token command and then a printed call against `url`. It calls again if the error says so: a tool can
    /// change between the permit and the run.
    fn call(&self, url: &str, call: &str) -> Value {
        let token = self.printed_line("export WARDGATE_TOKEN");
        loop {
            let ended = self.shell(&format!("{token} && {call} --url {url}"));
            if !ended
                .stderr
                .contains("refused the call's permit. Try again")
            {
                return serde_json::from_str(&ended.success()).unwrap();
            }
        }
    }

    /// Returns the printed definition of one more tool.
    fn printed_tool(&self) -> String {
        let lines = self.printed.lines();
        let lines = lines.skip_while(|line| !line.starts_with("  - name:"));
        let lines: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
        lines.join("\n") + "\n"
    }
}

fn rows(result: &Value) -> &Vec<Value> {
    result["structuredContent"]["data"].as_array().unwrap()
}

const DROPPED: &str = "dev.wardgate/droppedColumns";

#[tokio::test]
async fn a_newcomer_gets_data_from_the_first_call_and_from_a_column_and_a_tool_of_their_own() {
    let project = Project::create();
    assert_eq!(
        project.shell("ls").stdout,
        "policies\nshop.sql\nshop.sqlite\ntools.yaml\nwardgate.yaml\n"
    );
    let checked = project.shell(project.printed_line("tools check"));
    assert_eq!(
        (checked.stdout.as_str(), checked.stderr.as_str()),
        ("ok: 1 tools\n", "")
    );
    let policies = project.path().join("policies").display().to_string();
    let test = ["policy", "test", "--require-coverage", &policies];
    let tested = run(Path::new(WARDGATE), &test, &[]).success();
    assert!(tested.contains("6 tests, 0 failed"), "{tested}");

    let (process, url) = project.up();
    let first = project.printed_line("call list_orders --args").to_owned();
    let answer = project.call(&url, &first);
    assert_eq!(rows(&answer)[0]["customer"], "Chi Nguyen", "{answer}");
    assert_eq!(answer["_meta"][DROPPED], Value::Null);
    let as_clerk = project.printed_line("--role Clerk");
    let answer: Value =
        serde_json::from_str(&project.shell(&format!("{as_clerk} --url {url}")).success()).unwrap();
    assert_eq!(rows(&answer)[0]["customer"], "E••• F•••", "{answer}");
    let token = project.printed_line("export WARDGATE_TOKEN");
    let query = project.printed_line("audit query");
    let recorded = project.shell(&format!("{token} && {query}")).success();
    assert!(
        recorded.contains("ann") && recorded.contains("bob"),
        "{recorded}"
    );

    // Only the column is added: it is not released, and all outputs report this.
    project.change("tools.yaml", "customer, item", "customer, email, item");
    let answer = until("the column is known", async || {
        let answer = project.call(&url, &first);
        (answer["_meta"][DROPPED] == json!({ "unclassified": 1 })).then_some(answer)
    })
    .await;
    assert_eq!(rows(&answer)[0].get("email"), None);
    let line = std::fs::read_to_string(project.path().join("tools.yaml")).unwrap();
    let line = line
        .lines()
        .position(|line| line.contains("classes:"))
        .unwrap()
        + 2;
    let says = format!(
        "tools.yaml:{line}:9: column `email` of tool `list_orders` has no class and is never shown"
    );
    assert!(
        process.log().contains(&says),
        "no {says:?} in {}",
        process.log()
    );
    let checked = project.shell(project.printed_line("tools check"));
    assert!(
        checked.stderr.contains(&says) && checked.stderr.contains("`email: none`"),
        "{}",
        checked.stderr
    );
    assert_eq!(checked.stdout, "ok: 1 tools, 1 warning\n");

    // With its class the column is released.
    project.change(
        "tools.yaml",
        "        customer: contact.name\n",
        "        customer: contact.name\n        email: contact.email\n",
    );
    let answer = until("the column is shown", async || {
        let answer = project.call(&url, &first);
        rows(&answer)[0].get("email").is_some().then_some(answer)
    })
    .await;
    assert_eq!(rows(&answer)[0]["email"], "chi@example.org");

    // First the tool lacks the tag that a policy permits, and then it is added as it is printed.
    let catalogue = project.path().join("tools.yaml");
    let before = std::fs::read_to_string(&catalogue).unwrap();
    let tool = project.printed_tool();
    std::fs::write(
        &catalogue,
        format!("{before}\n{}", tool.replace("    tags: [shop]\n", "")),
    )
    .unwrap();
    let second = project.printed_line("call count_orders").to_owned();
    let says = "no policy lets anyone call the tool `count_orders`; add a tag that a policy permits (`tags: [shop]`)";
    until("the missing policy is logged", async || {
        let token = project.printed_line("export WARDGATE_TOKEN");
        let refused = project.shell(&format!("{token} && {second} --url {url}"));
        assert_eq!(refused.code, Some(1));
        process.log().contains(says).then_some(())
    })
    .await;
    let checked = project.shell(project.printed_line("tools check"));
    assert!(checked.stderr.contains(says), "{}", checked.stderr);
    std::fs::write(&catalogue, format!("{before}\n{tool}")).unwrap();
    let answer = until("the tool is there", async || {
        let token = project.printed_line("export WARDGATE_TOKEN");
        let ended = project.shell(&format!("{token} && {second} --url {url}"));
        (ended.code == Some(0)).then(|| serde_json::from_str::<Value>(&ended.stdout).unwrap())
    })
    .await;
    assert_eq!(rows(&answer), &[json!({ "orders": 2, "cents": 7200 })]);
}

#[test]
fn nothing_that_is_there_is_overwritten() {
    let project = Project::create();
    project.change("tools.yaml", "The newest orders", "My orders");
    let directory = project.path().display().to_string();
    let again = run(Path::new(WARDGATE), &["init", &directory], &[]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("is not empty"), "{}", again.stderr);
    let kept = std::fs::read_to_string(project.path().join("tools.yaml")).unwrap();
    assert!(kept.contains("My orders"));
    let file = project.parent.path().join("file");
    std::fs::write(&file, "").unwrap();
    let on_file = run(
        Path::new(WARDGATE),
        &["init", &file.display().to_string()],
        &[],
    );
    assert_eq!(on_file.code, Some(1));
}

/// Returns the changes of a catalogue that the book shows under *Add a tool*, each as the key that it extends and the
/// added lines.
fn changes_of_the_book() -> Vec<Vec<(String, String)>> {
    let page = std::fs::read_to_string(format!("{REPOSITORY}/docs/src/get-started.md")).unwrap();
    let (_, section) = page.split_once("\n## Add a tool\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let blocks = section.split("```diff\n").skip(1);
    let blocks = blocks.map(|block| block.split_once("```").unwrap().0);
    let change = |block: &str| {
        let mut change: Vec<(String, String)> = Vec::new();
        for line in block.lines() {
            match line.strip_prefix('+') {
                Some(added) => change.last_mut().unwrap().1 += &format!("{added}\n"),
                None => change.push((line.trim().to_owned(), String::new())),
            }
        }
        change
    };
    blocks.map(change).collect()
}

fn with(catalogue: &str, change: &[(String, String)]) -> String {
    let mut text = catalogue.to_owned();
    for (key, added) in change {
        assert!(text.contains(&format!("\n{key}\n")), "{key}");
        text = text.replacen(&format!("\n{key}\n"), &format!("\n{key}\n{added}"), 1);
    }
    text
}

#[tokio::test]
async fn what_the_book_adds_to_the_demo_works_as_it_stands() {
    let app = TestApp::start_with(WARDGATE, &[LOOK_OFTEN]);
    let catalogue = app.example_dir().join("tools.yaml");
    let before = std::fs::read_to_string(&catalogue).unwrap();
    let changes = changes_of_the_book();
    // The last change calls an API that the reader has to write first.
    let (_, known) = changes.split_last().unwrap();
    assert!(known.len() >= 3);
    for change in known {
        std::fs::write(&catalogue, with(&before, change)).unwrap();
        let file = catalogue.display().to_string();
        let environment = [("HOSPITAL_DB_URL", "sqlite:hospital.sqlite")];
        let needs_secret = change
            .iter()
            .any(|(_, added)| added.contains("weather.token"));
        if needs_secret {
            std::fs::write(app.example_dir().join("weather.token"), "t").unwrap();
        }
        let ended = run(app.binary(), &["tools", "check", &file], &environment);
        assert_eq!(ended.code, Some(0), "{}", ended.stderr);
        assert_eq!(ended.stderr, "", "{change:?}");
    }
    std::fs::write(&catalogue, with(&before, &known[0])).unwrap();
    let token = doctor(&app);
    let rows = until("the tool is there", async || {
        let reply = app
            .client()
            .call(&token, "count_admissions", json!({ "ward": "W2" }))
            .await;
        let reply = reply.json();
        reply["result"]["structuredContent"]["data"]
            .as_array()
            .cloned()
    })
    .await;
    assert!(rows[0]["admissions"].as_i64().unwrap() > 0, "{rows:?}");
}
