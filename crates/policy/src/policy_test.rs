//! Policy tests in YAML files, which compare expected decisions about callers and tools with those of the engine.

mod file_format;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;
use wardgate_domain::{
    Approvers, AttributeValue, Caller, CallerClaims, ColumnClass, ColumnTier, ConversationFacts,
    Digest, OfferKind, OperatorAction, TimeZone, Timestamp, ToolFacts, ToolName, UnknownTimeZone,
};

use crate::approval::CALLER;
use crate::context::{CallContext, parse_client_ip, parse_time};
use crate::set::PolicyLocation;
use crate::simulator::{PartDecision, SimulatedAccess, SimulatedCall, Simulation, Simulator};

pub use file_format::{CallerSample, TestFile};
use file_format::{ExpectedAccess, ExpectedRelease, PolicyTest, TestedAction, ToolSample};

/// The results of all tests.
#[derive(Debug)]
pub struct TestReport {
    /// The result of each test, in the order of the files.
    pub results: Vec<TestResult>,
    /// The policies that did not determine any decision in any test, by id.
    pub untested: BTreeMap<String, PolicyLocation>,
    /// The number of policies.
    pub policies: usize,
}

/// The result of one test.
#[derive(Debug)]
pub struct TestResult {
    /// The file of the test.
    pub file: PathBuf,
    /// The name of the test.
    pub name: String,
    /// The differences from the expected result, one sentence each; empty if the test passed.
    pub differences: Vec<String>,
}

impl TestReport {
    /// Returns the number of failed tests.
    pub fn failed_count(&self) -> usize {
        let failed = |result: &&TestResult| !result.differences.is_empty();
        self.results.iter().filter(failed).count()
    }
}

/// Runs the tests of `files`. `offers` are the tools and sources of the catalogue.
pub fn run_tests(
    simulator: &Simulator,
    offers: &[ToolFacts],
    files: &[(PathBuf, TestFile)],
) -> TestReport {
    let mut results = Vec::new();
    let mut reached = BTreeSet::new();
    for (path, file) in files {
        for test in &file.tests {
            let mut run = TestRun {
                simulator,
                offers,
                file,
                test,
                differences: Vec::new(),
                reached: &mut reached,
            };
            run.check();
            results.push(TestResult {
                file: path.clone(),
                name: test.name.clone(),
                differences: run.differences,
            });
        }
    }
    let locations = simulator.set().locations();
    let untested = locations
        .iter()
        .filter(|(id, _)| !reached.contains(*id))
        .map(|(id, location)| (id.clone(), location.clone()))
        .collect();
    TestReport {
        results,
        untested,
        policies: locations.len(),
    }
}

/// Creates the caller that a sample describes.
pub fn sample_caller(sample: &CallerSample) -> Result<Caller, String> {
    let attributes = sample.attributes.iter().map(|(name, value)| {
        attribute(value)
            .map(|value| (name.clone(), value))
            .ok_or_else(|| {
                format!(
                    "attribute `{name}` is neither a string, whole number, Boolean nor list of strings"
                )
            })
    });
    Ok(Caller::from_verified(CallerClaims {
        issuer: String::new(),
        subject: sample.subject.clone(),
        tenant: sample.tenant.clone(),
        roles: sample.roles.clone(),
        attributes: attributes.collect::<Result<_, _>>()?,
        token_id: String::new(),
        expires_at: Timestamp::from_seconds(0),
    }))
}

fn attribute(value: &Value) -> Option<AttributeValue> {
    match value {
        Value::String(text) => Some(AttributeValue::Text(text.clone())),
        Value::Bool(truth) => Some(AttributeValue::Boolean(*truth)),
        Value::Number(number) => number.as_i64().map(AttributeValue::Integer),
        Value::Array(items) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<_>>().map(AttributeValue::List)
        }
        Value::Null | Value::Object(_) => None,
    }
}

/// Creates the tool that a sample describes.
fn sample_tool(name: &str, kind: OfferKind, sample: &ToolSample) -> Result<ToolFacts, String> {
    let classes = sample.classes.iter().map(|class| {
        class
            .parse::<ColumnClass>()
            .map_err(|error| error.to_string())
    });
    Ok(ToolFacts {
        kind,
        name: name
            .parse::<ToolName>()
            .map_err(|error| error.to_string())?,
        definition_digest: Digest::compute(format!("{sample:?}").as_bytes()),
        read_only: sample.read_only,
        tags: sample.tags.as_slice().into(),
        entity: sample.entity.clone(),
        classes: classes.collect::<Result<_, _>>()?,
        argument_defaults: BTreeMap::new(),
    })
}

/// One test that is being run.
struct TestRun<'a> {
    simulator: &'a Simulator,
    offers: &'a [ToolFacts],
    file: &'a TestFile,
    test: &'a PolicyTest,
    differences: Vec<String>,
    reached: &'a mut BTreeSet<String>,
}

impl TestRun<'_> {
    fn check(&mut self) {
        let test = self.test;
        let kind = match test.action {
            TestedAction::CallTool => Some(OfferKind::Tool),
            TestedAction::Connect => Some(OfferKind::Connect),
            TestedAction::ReadResource => Some(OfferKind::Resources),
            TestedAction::GetPrompt => Some(OfferKind::Prompts),
            TestedAction::ReadRecord
            | TestedAction::ReadOwnRecord
            | TestedAction::ManageRecord
            | TestedAction::RevokeAccess
            | TestedAction::ManageTools
            | TestedAction::Recall => None,
        };
        if test.callers.is_empty() || (kind.is_some() && test.tools.is_empty()) {
            self.differ("the test has no caller or no tool, so it tests nothing".to_owned());
        }
        for name in &test.callers {
            let caller = match self.caller(name) {
                Ok(caller) => caller,
                Err(problem) => {
                    self.differ(problem);
                    continue;
                }
            };
            match kind {
                Some(kind) => {
                    for tool in &test.tools {
                        if let Err(problem) = self.check_call(name, &caller, kind, tool) {
                            self.differ(format!("{name}, {tool}: {problem}"));
                        }
                    }
                }
                None => {
                    if let Err(problem) = self.check_reading(name, &caller) {
                        self.differ(format!("{name}: {problem}"));
                    }
                }
            }
        }
    }

    fn differ(&mut self, difference: String) {
        self.differences.push(difference);
    }

    fn caller(&self, name: &str) -> Result<Caller, String> {
        let sample = self.file.callers.get(name);
        let sample = sample.ok_or_else(|| format!("`callers` has no `{name}`"))?;
        sample_caller(sample).map_err(|problem| format!("{name}: {problem}"))
    }

    fn tool(&self, name: &str, kind: OfferKind) -> Result<ToolFacts, String> {
        if let Some(sample) = self.file.tools.get(name) {
            return sample_tool(name, kind, sample);
        }
        let known = self
            .offers
            .iter()
            .find(|offer| offer.kind == kind && offer.name.as_str() == name);
        known.cloned().ok_or_else(|| {
            "neither the catalogue nor `tools` of this file contains it; specify the catalogue with --tools"
                .to_owned()
        })
    }

    fn check_call(
        &mut self,
        name: &str,
        caller: &Caller,
        kind: OfferKind,
        tool: &str,
    ) -> Result<(), String> {
        let test = self.test;
        let arguments = serde_json::to_vec(&test.arguments).map_err(|error| error.to_string())?;
        let time_zone: TimeZone = match &self.file.time_zone {
            Some(name) => name
                .parse()
                .map_err(|error: UnknownTimeZone| format!("`time_zone`: {error}"))?,
            None => TimeZone::default(),
        };
        let context = CallContext {
            time: parse_time(test.time.as_deref().unwrap_or(USUAL_TIME), &time_zone)?,
            time_zone,
            client_ip: parse_client_ip(&test.client_ip).map_err(|error| error.to_string())?,
            counts: self.simulator.check_counts(&test.history)?,
        };
        let call = SimulatedCall {
            caller: caller.clone(),
            tool: self.tool(tool, kind)?,
            arguments,
            context,
        };
        let simulation = self
            .simulator
            .call(&call)
            .map_err(|error| error.to_string())?;
        self.reached.extend(simulation.policies.iter().cloned());
        let expected = match (test.expect.decision, &test.expect.approval) {
            (Some(ExpectedAccess::Allowed), _) => SimulatedAccess::Allowed,
            (Some(ExpectedAccess::NeedsApproval), _) | (None, Some(_)) => {
                SimulatedAccess::NeedsApproval
            }
            (Some(ExpectedAccess::Refused), _) => SimulatedAccess::Refused,
            (Some(ExpectedAccess::Hidden), _) => SimulatedAccess::Hidden,
            (None, None) => return Err("`expect` has no `decision`".to_owned()),
        };
        let about = format!("{name}, {tool}");
        if simulation.access != expected {
            let difference = format!(
                "{about}: expected {}, but it {}{}, {}",
                expected.as_str(),
                if simulation.access == SimulatedAccess::NeedsApproval {
                    ""
                } else {
                    "is "
                },
                simulation.access.as_str(),
                by(&simulation.policies)
            );
            self.differ(difference);
            return Ok(());
        }
        self.check_approvers(&about, &simulation);
        self.compare_policies(
            &about,
            test.expect.decided_by.as_deref(),
            &simulation.policies,
        );
        self.check_rows(&about, &simulation)?;
        self.check_columns(&about, &simulation)
    }

    fn check_approvers(&mut self, about: &str, simulation: &Simulation) {
        let Some(expected) = &self.test.expect.approval else {
            return;
        };
        let is_enough = |approvers: &Approvers| {
            let by_caller = expected == CALLER && approvers.caller;
            by_caller || approvers.roles.contains(expected)
        };
        match &simulation.approvers {
            Some(approvers) if is_enough(approvers) => {}
            Some(approvers) => self.differ(format!(
                "{about}: expected to require an approval by {expected}, but it requires one by {approvers}"
            )),
            None => self.differ(format!(
                "{about}: expected to require an approval by {expected}, but it requires none"
            )),
        }
    }

    fn check_rows(&mut self, about: &str, simulation: &Simulation) -> Result<(), String> {
        for expected in &self.test.expect.rows {
            let PartDecision { decision, policies } =
                self.simulator.row(simulation, &expected.row)?;
            let row = serde_json::to_string(&expected.row).unwrap_or_default();
            let about = format!("{about}, row {row}");
            let release = |released: bool| if released { "released" } else { "withheld" };
            let released = expected.decision == ExpectedRelease::Released;
            if decision != released {
                let difference = format!(
                    "{about}: expected {}, but it is {}, {}",
                    release(released),
                    release(decision),
                    by(&policies)
                );
                self.differ(difference);
            }
            self.compare_policies(&about, expected.decided_by.as_deref(), &policies);
            self.reached.extend(policies);
        }
        Ok(())
    }

    fn check_columns(&mut self, about: &str, simulation: &Simulation) -> Result<(), String> {
        if self.test.expect.columns.is_empty() {
            return Ok(());
        }
        let columns = self.simulator.columns(simulation)?;
        for (class, expected) in &self.test.expect.columns {
            let Some((_, decided)) = columns.iter().find(|(it, _)| it.as_str() == class) else {
                self.differ(format!(
                    "{about}: the tool has no column of the class `{class}`"
                ));
                continue;
            };
            if decided.decision != expected.tier() {
                let difference = format!(
                    "{about}, class {class}: expected {}, but it is {}, {}",
                    tier_word(expected.tier()),
                    tier_word(decided.decision),
                    by(&decided.policies)
                );
                self.differ(difference);
            }
            self.reached.extend(decided.policies.iter().cloned());
        }
        Ok(())
    }

    fn check_reading(&mut self, name: &str, caller: &Caller) -> Result<(), String> {
        let test = self.test;
        if test.expect.approval.is_some() {
            return Err("only tool calls can require approvals".to_owned());
        }
        if test.time.is_some() || !test.client_ip.is_empty() {
            return Err(
                "only decisions about tools and sources have a time and an address".to_owned(),
            );
        }
        let Some(expected) = test.expect.decision else {
            return Err("`expect` has no `decision`".to_owned());
        };
        if !(test.expect.rows.is_empty() && test.expect.columns.is_empty()) {
            return Err("only results of tools and sources have rows and columns".to_owned());
        }
        let operator = |action| self.simulator.operator(caller, action);
        let decided = match test.action {
            TestedAction::ReadRecord => operator(OperatorAction::ReadRecord),
            TestedAction::ReadOwnRecord => operator(OperatorAction::ReadOwnRecord),
            TestedAction::ManageRecord => operator(OperatorAction::ManageRecord),
            TestedAction::RevokeAccess => operator(OperatorAction::RevokeAccess),
            TestedAction::ManageTools => operator(OperatorAction::ManageTools),
            _ => {
                let owner = test.owner.as_deref();
                let owner = self.caller(
                    owner.ok_or("`owner` is missing: it names the owner of the conversation")?,
                )?;
                let conversation = ConversationFacts {
                    key: CONVERSATION
                        .parse()
                        .map_err(|_| "the sample conversation is not valid".to_owned())?,
                    owner: owner.subject().to_owned(),
                    tenant: owner.tenant().to_owned(),
                };
                self.simulator.recall(caller, &conversation)
            }
        };
        let expected = expected == ExpectedAccess::Allowed;
        if decided.decision != expected {
            let word = |allowed: bool| if allowed { "allowed" } else { "refused" };
            let difference = format!(
                "{name}: expected {}, but it is {}, {}",
                word(expected),
                word(decided.decision),
                by(&decided.policies)
            );
            self.differ(difference);
        }
        self.compare_policies(name, test.expect.decided_by.as_deref(), &decided.policies);
        self.reached.extend(decided.policies);
        Ok(())
    }

    fn compare_policies(&mut self, about: &str, expected: Option<&[String]>, decided: &[String]) {
        let Some(expected) = expected else {
            return;
        };
        let (wanted, got): (BTreeSet<_>, BTreeSet<_>) =
            (expected.iter().collect(), decided.iter().collect());
        if wanted != got {
            let difference = format!(
                "{about}: expected to be decided {}, but it is decided {}",
                by(expected),
                by(decided)
            );
            self.differ(difference);
        }
    }
}

/// The default time of a test.
const USUAL_TIME: &str = "2026-01-07T12:00";

/// The key of the conversation in a test.
const CONVERSATION: &str = "00000000-0000-0000-0000-000000000000";

/// Returns the end of a sentence that names the policies that determined a decision.
fn by(policies: &[String]) -> String {
    if policies.is_empty() {
        "by no policy".to_owned()
    } else {
        format!("by {}", policies.join(", "))
    }
}

/// Returns the name of a column tier.
pub fn tier_word(tier: ColumnTier) -> &'static str {
    match tier {
        ColumnTier::Clear => "clear",
        ColumnTier::Partial => "partial",
        ColumnTier::Pseudonym => "pseudonym",
        ColumnTier::Generalised => "generalised",
        ColumnTier::Dropped => "dropped",
    }
}

/// Returns the test files of the policies in `dir`, sorted by path: `*.test.yaml` files beside the policies, and
/// `*.yaml` files in the directory `tests`.
pub fn test_files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for (directory, suffix) in [(dir.to_owned(), ".test.yaml"), (dir.join("tests"), ".yaml")] {
        if !directory.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(directory)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if name.is_some_and(|name| name.ends_with(suffix) && !name.starts_with('.'))
                && path.is_file()
            {
                found.push(path);
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}
