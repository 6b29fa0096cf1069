//! Tests that the documentation is correct: its commands run, its samples are valid, its links have targets, and the
//! functions that it names are in the files that it names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;
use wardgate_testkit::{ProcessExit, System, TestApp, run};

use super::people::{auditor, billing, doctor, nurse};
use crate::{REPOSITORY, WARDGATE};

/// A fenced block of a page.
struct CodeBlock {
    /// The info string of the fence: a language, followed by marks that say how the block is tested.
    info: String,
    text: String,
}

/// Returns every Markdown page below `directory` of the repository, as in a fresh clone.
fn pages(directory: &str) -> Vec<PathBuf> {
    let listed = run(
        Path::new("git"),
        &["-C", REPOSITORY, "ls-files", "--", directory],
        &[],
    );
    let listed = listed.success();
    let files = listed.lines().map(|name| Path::new(REPOSITORY).join(name));
    let is_page = |file: &PathBuf| file.extension().is_some_and(|it| it == "md");
    let pages: Vec<_> = files.filter(is_page).collect();
    assert!(!pages.is_empty(), "{directory} has pages");
    pages
}

fn read_text(page: &Path) -> String {
    fs::read_to_string(page).unwrap()
}

fn blocks(page: &str) -> Vec<CodeBlock> {
    let mut blocks = Vec::new();
    let mut open: Option<CodeBlock> = None;
    for line in page.lines() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(info), None) => {
                let (info, text) = (info.to_owned(), String::new());
                open = Some(CodeBlock { info, text });
            }
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.text += line;
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block has no end");
    blocks
}

/// Returns the blocks of a page that are marked with `info`.
fn blocks_marked(page: &Path, info: &str) -> Vec<String> {
    let blocks = blocks(&read_text(page)).into_iter();
    let marked = blocks.filter(|block| block.info == info);
    marked.map(|block| block.text).collect()
}

/// Runs `script` beside a running demo, in a directory that contains only the demo's data directory as `data`.
fn run_beside_demo(script: &str) -> ProcessExit {
    let app = TestApp::start(WARDGATE);
    let directory = tempfile::tempdir().unwrap();
    let programs = tempfile::tempdir().unwrap();
    symlink(app.data_dir(), directory.path().join("data")).unwrap();
    symlink(WARDGATE, programs.path().join("wardgate")).unwrap();
    let address = |url: &str| url.trim_start_matches("http://").to_owned();
    let script = script
        .replace("127.0.0.1:8080", &address(app.client().base()))
        .replace("127.0.0.1:9090", &address(app.probes().base()));
    // Background processes that a page starts must be killed at the end.
    let script = format!(
        "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\ncd '{}'\n{script}",
        directory.path().display()
    );
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", programs.path().display());
    let database = format!("sqlite:{}/hospital.sqlite", app.data_dir().display());
    let (doctor, nurse) = (doctor(&app), nurse(&app));
    let (billing, auditor) = (billing(&app), auditor(&app));
    let environment = [
        ("PATH", path.as_str()),
        ("HOSPITAL_DB_URL", &database),
        ("DOCTOR", &doctor),
        ("NURSE", &nurse),
        ("BILLING", &billing),
        ("AUDITOR", &auditor),
    ];
    run(Path::new("bash"), &["-c", &script], &environment)
}

#[test]
fn every_command_of_the_book_runs() {
    let mut count = 0;
    for page in pages("docs/src") {
        let script = blocks_marked(&page, "sh").concat();
        if script.is_empty() {
            continue;
        }
        count += 1;
        let ended = run_beside_demo(&script);
        assert_eq!(
            ended.code,
            Some(0),
            "{}:\n{script}\n{}\n{}",
            page.display(),
            ended.stdout,
            ended.stderr
        );
    }
    assert!(count > 5, "the blocks are found: {count}");
}

/// Writes `text` to a file `name` in a new directory.
fn write_file(name: &str, text: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join(name);
    fs::write(&file, text).unwrap();
    (directory, file.display().to_string())
}

fn check(page: &Path, text: &str, arguments: &[&str]) {
    let environment = [("HOSPITAL_DB_URL", "sqlite:hospital.sqlite")];
    let ended = run(Path::new(WARDGATE), arguments, &environment);
    assert_eq!(
        ended.code,
        Some(0),
        "{}:\n{text}\n{}{}",
        page.display(),
        ended.stdout,
        ended.stderr
    );
}

#[test]
fn every_sample_of_the_book_is_read() {
    for page in pages("docs/src") {
        for text in blocks_marked(&page, "json") {
            let read = serde_json::from_str::<Value>(&text);
            assert!(read.is_ok(), "{}: {read:?}\n{text}", page.display());
        }
        for text in blocks_marked(&page, "yaml,tools") {
            let (_directory, file) = write_file("tools.yaml", &text);
            check(&page, &text, &["tools", "check", &file]);
        }
        for text in blocks_marked(&page, "yaml,config") {
            let (_directory, file) = write_file("wardgate.yaml", &text);
            check(
                &page,
                &text,
                &["config", "check", "--alone", "--config", &file],
            );
        }
        let policies = blocks_marked(&page, "cedar").concat();
        if !policies.is_empty() {
            let (directory, _) = write_file("of_the_page.cedar", &policies);
            let schema = "deploy/examples/hospital/policies/hospital.cedarschema";
            fs::copy(
                Path::new(REPOSITORY).join(schema),
                directory.path().join("hospital.cedarschema"),
            )
            .unwrap();
            let directory = directory.path().display().to_string();
            check(&page, &policies, &["policy", "check", &directory]);
        }
    }
}

/// Returns the fragment of a link to the heading `text`, as mdBook and GitHub generate it.
fn anchor(text: &str) -> String {
    let text = text.trim().to_lowercase();
    let kept = text.chars().filter_map(|it| match it {
        ' ' => Some('-'),
        it if it.is_alphanumeric() || it == '-' || it == '_' => Some(it),
        _ => None,
    });
    kept.collect()
}

fn anchors(page: &str) -> BTreeSet<String> {
    let mut is_code = false;
    let headings = page.lines().filter(|line| {
        is_code ^= line.trim_start().starts_with("```");
        !is_code && line.starts_with('#')
    });
    headings
        .map(|line| anchor(line.trim_start_matches('#')))
        .collect()
}

/// Returns the targets of the links of a page, except in code.
fn links(page: &str) -> Vec<String> {
    let mut links = Vec::new();
    let mut is_code = false;
    for line in page.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if is_code {
            continue;
        }
        let targets = line.split("](").skip(1);
        let targets = targets.filter_map(|rest| rest.split_once(')'));
        links.extend(targets.map(|(target, _)| target.to_owned()));
    }
    links
}

#[test]
fn every_link_between_files_leads_somewhere() {
    let mut broken = Vec::new();
    for page in pages(".") {
        let text = read_text(&page);
        for link in links(&text) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let target = if path.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(path)
            };
            let is_page = target.extension().is_some_and(|it| it == "md");
            let leads = target.exists()
                && (fragment.is_empty()
                    || !is_page
                    || anchors(&read_text(&target)).contains(fragment));
            if !leads {
                broken.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Returns the walks through the source, each with its page: the pages on the architecture, and a part of the README.
fn walks() -> Vec<(PathBuf, String)> {
    let architecture = pages("docs/src/architecture").into_iter();
    let mut walks: Vec<_> = architecture
        .map(|page| (page.clone(), read_text(&page)))
        .collect();
    let readme = Path::new(REPOSITORY).join("README.md");
    let text = read_text(&readme);
    let (_, part) = text.split_once("\n## One call in eight files\n").unwrap();
    let (part, _) = part.split_once("\n## ").unwrap();
    walks.push((readme, part.to_owned()));
    walks
}

/// Returns the Rust files that a walk names: the targets of its links, and the file names in backticks that are not among them.
fn files_of_walk(text: &str) -> BTreeSet<String> {
    let is_source = |name: &str| Path::new(name).extension().is_some_and(|it| it == "rs");
    let mut files: BTreeSet<_> = links(text).into_iter().filter(|it| is_source(it)).collect();
    let named = text
        .split('`')
        .filter(|word| is_source(word) && !word.contains(char::is_whitespace));
    for name in named {
        let is_linked = |file: &String| file.ends_with(&format!("/{name}"));
        if !files.iter().any(is_linked) {
            files.insert(name.to_owned());
        }
    }
    files
}

/// A step of a walk: a Rust file, and the functions of it that the step names.
struct WalkStep<'a> {
    file: PathBuf,
    functions: Vec<&'a str>,
}

/// Returns the steps of a walk. Each begins after `](` with the target of a link, and ends at the next link.
fn steps_of_walk<'a>(page: &Path, text: &'a str) -> Vec<WalkStep<'a>> {
    let parts = text.split("](").skip(1);
    let parts = parts.filter_map(|part| part.split_once(')'));
    let parts =
        parts.filter(|(target, _)| Path::new(target).extension().is_some_and(|it| it == "rs"));
    let steps = parts.map(|(target, prose)| {
        let names = prose.split('`').filter_map(|word| word.strip_suffix("()"));
        WalkStep {
            file: page.parent().unwrap().join(target),
            functions: names
                .map(|name| name.rsplit("::").next().unwrap())
                .collect(),
        }
    });
    steps.collect()
}

#[test]
fn a_file_of_a_walk_counts_once_and_also_without_a_link() {
    let walk = "[`a/src/b.rs`](../a/src/b.rs) calls `c.rs`, and `b.rs` again `c.rs`.";
    let files = files_of_walk(walk);
    assert_eq!(
        files,
        BTreeSet::from(["../a/src/b.rs", "c.rs"].map(str::to_owned))
    );
}

#[test]
fn every_function_that_a_walk_names_is_in_the_file_that_it_names() {
    let mut count = 0;
    let mut missing = Vec::new();
    for (page, text) in walks() {
        for WalkStep { file, functions } in steps_of_walk(&page, &text) {
            let source = read_text(&file);
            for name in functions {
                count += 1;
                let is_there = ["(", "<"]
                    .iter()
                    .any(|end| source.contains(&format!("fn {name}{end}")));
                if !is_there {
                    missing.push(format!("{}: {name} in {}", page.display(), file.display()));
                }
            }
        }
        let files = files_of_walk(&text);
        assert!(files.len() <= 8, "{} takes {files:?}", page.display());
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(count >= 30, "functions are named: {count}");
}

#[test]
fn the_page_of_a_tool_call_contains_the_instruction_budget() {
    let page = read_text(&Path::new(REPOSITORY).join("docs/src/architecture/tool-call.md"));
    let budget = read_text(&Path::new(REPOSITORY).join("deploy/load/budget.json"));
    let budget: BTreeMap<String, f64> = serde_json::from_str(&budget).unwrap();
    for (stage, instructions) in budget {
        let row = format!("| {stage} | {:.0} |", instructions / 1_000.0);
        assert!(page.contains(&row), "{row} is missing");
    }
}

/// The pages that follow one `tools/call`. The other walks do not follow a single chain of calls.
const WALKS_OF_CALL: [&str; 2] = ["README.md", "tool-call.md"];

#[test]
fn every_function_of_a_tool_call_is_called_in_the_file_before_it_or_in_the_same_file() {
    let mut walks = walks();
    walks.retain(|(page, _)| WALKS_OF_CALL.iter().any(|name| page.ends_with(name)));
    let steps = walks.iter().map(|(page, text)| steps_of_walk(page, text));
    let steps: Vec<_> = steps.collect();
    for steps in &steps {
        let mut earlier: Option<String> = None;
        for WalkStep { file, functions } in steps {
            let source = read_text(file);
            let (entry, others) = functions.split_first().unwrap();
            // The router calls the entry of the first file.
            let is_entered = earlier.as_ref().is_none_or(|earlier| calls(earlier, entry));
            assert!(is_entered, "{entry} of {}", file.display());
            for name in others {
                let is_called = calls(&source, name)
                    || earlier.as_ref().is_some_and(|earlier| calls(earlier, name));
                assert!(is_called, "{name} of {}", file.display());
            }
            earlier = Some(source);
        }
    }
    let files = |walk: &[WalkStep<'_>]| -> Vec<PathBuf> {
        let files = walk.iter().map(|step| step.file.canonicalize().unwrap());
        files.collect()
    };
    assert_eq!(steps.len(), 2);
    assert_eq!(files(&steps[0]), files(&steps[1]));
}

/// Returns whether `source` calls a function `name` outside of comments.
fn calls(source: &str, name: &str) -> bool {
    let mut code = source.lines().map(|line| line.split("//").next().unwrap());
    let is_in_name = |c: char| c.is_alphanumeric() || c == '_';
    code.any(|line| {
        line.match_indices(name).any(|(start, _)| {
            let (before, after) = (&line[..start], &line[start + name.len()..]);
            let is_call = after.starts_with('(') || after.starts_with("::<");
            is_call && !before.ends_with("fn ") && !before.ends_with(is_in_name)
        })
    })
}

#[test]
fn a_call_is_told_from_a_declaration_and_from_a_longer_name() {
    assert!(calls("self.run(call)", "run"));
    assert!(calls("run::<Call>(call)", "run"));
    for source in [
        "fn run(call: Call)",
        "rerun(call)",
        "run_call(call)",
        "// run(call)",
    ] {
        assert!(!calls(source, "run"), "{source}");
    }
}

#[test]
fn the_readme_has_at_most_150_lines() {
    let lines = read_text(&Path::new(REPOSITORY).join("README.md"))
        .lines()
        .count();
    assert!(lines <= 150, "{lines}");
}
