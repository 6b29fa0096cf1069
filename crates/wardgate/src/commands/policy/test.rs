//! `wardgate policy test`: runs the table tests of a directory of policies.

use std::path::PathBuf;

use serde_json::{Value, json};
use wardgate_domain::mark_invisible;
use wardgate_policy::{TestFile, TestReport, run_tests, test_files};

use crate::Failure;
use crate::cli::PolicyTestRun;
use crate::commands::output::print_document;

pub(super) fn run(arguments: &PolicyTestRun) -> Result<(), Failure> {
    let simulator = super::simulator(&arguments.directory)?;
    let offers = super::offers(arguments.tools.as_deref(), &arguments.directory)?;
    let mut files = Vec::new();
    for path in test_files(&arguments.directory)? {
        let file = read_test_file(&path)?;
        files.push((path, file));
    }
    if files.is_empty() {
        let directory = arguments.directory.display();
        return Err(format!(
            "{directory} contains no tests; write {directory}/tests/*.yaml as docs/src/write-a-policy.md shows"
        )
        .into());
    }
    let report = run_tests(&simulator, &offers, &files);
    print_document(
        arguments.output.format(),
        &as_json(&report).to_string(),
        || mark_invisible(&as_text(&report)).into_owned(),
    )?;
    let (failed, untested) = (report.failed_count(), report.untested.len());
    if failed > 0 {
        return Err(format!("{failed} of {} tests failed", report.results.len()).into());
    }
    if arguments.require_coverage && untested > 0 {
        return Err(format!("{untested} of {} policies decide no test", report.policies).into());
    }
    Ok(())
}

pub(super) fn read_test_file(path: &PathBuf) -> Result<TestFile, Failure> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    wardgate_yaml::parse(&text)
        .map_err(|fault| format!("{}:{}: {}", path.display(), fault.at, fault.problem).into())
}

fn as_text(report: &TestReport) -> String {
    let mut text = String::new();
    for result in &report.results {
        let word = if result.differences.is_empty() {
            "ok  "
        } else {
            "FAIL"
        };
        text += &format!("{word}  {}: {}\n", result.file.display(), result.name);
        for difference in &result.differences {
            text += &format!("      {difference}\n");
        }
    }
    let reached = report.policies - report.untested.len();
    text += &format!(
        "{} tests, {} failed; {reached} of {} policies decided something\n",
        report.results.len(),
        report.failed_count(),
        report.policies
    );
    for (id, location) in &report.untested {
        text += &format!(
            "untested: {}:{}: {id}\n",
            location.file.display(),
            location.line
        );
    }
    text
}

fn as_json(report: &TestReport) -> Value {
    let results = report.results.iter().map(|result| {
        json!({
            "file": result.file,
            "name": result.name,
            "passed": result.differences.is_empty(),
            "differences": result.differences,
        })
    });
    let untested = report.untested.iter().map(
        |(id, location)| json!({ "policy": id, "file": location.file, "line": location.line }),
    );
    json!({
        "tests": report.results.len(),
        "failed": report.failed_count(),
        "results": results.collect::<Vec<_>>(),
        "policies": report.policies,
        "untested": untested.collect::<Vec<_>>(),
    })
}
