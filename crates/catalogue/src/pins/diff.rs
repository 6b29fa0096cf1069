//! Differences between the approved definition of a tool and the definition that its upstream offers now.

use std::collections::BTreeMap;
use std::fmt;

use super::display::visible;
use super::escape::EscapedText;
use super::grade::{self, Grade, GradedTool};
use super::pointer::Pointer;
use super::suspicion::{Finding, SuspicionScan};
use serde::Serialize;
use wardgate_json::Json;
use wardgate_mcp_client::CanonicalDefinition;

/// All changes of a definition. Displayed as one line for each change, the most severe first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diff {
    /// The most severe grade of all changes.
    pub grade: Grade,
    /// The changes, the most severe first, then in the order of the definition.
    pub changes: Vec<Change>,
    /// Parts of the new and changed texts that may be meant to mislead the model.
    pub findings: Vec<Finding>,
}

/// One value that was added, removed or replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The location, as a JSON pointer.
    pub pointer: String,
    /// The grade of the change.
    pub grade: Grade,
    /// The reason for the grade.
    pub why: &'static str,
    /// The approved value, as JSON that is safe to display and truncated if it is long.
    pub was: Option<String>,
    /// The current value, in the same form.
    pub is: Option<String>,
}

impl Diff {
    /// Compares the approved definition `was` with the current definition `is`.
    pub(crate) fn between(was: &CanonicalDefinition, is: &CanonicalDefinition) -> Self {
        let mut walk = DiffWalker::default();
        walk.definition(was.json(), is.json());
        let DiffWalker { mut changes, scan } = walk;
        changes.sort_by_key(|change| std::cmp::Reverse(change.grade));
        let findings = scan.into_findings();
        let gravest = changes.iter().map(|change| change.grade).max();
        let grade = match gravest {
            _ if !findings.is_empty() => Grade::Suspicious,
            Some(grade) => grade,
            None => Grade::Harmless,
        };
        Self {
            grade,
            changes,
            findings,
        }
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "  {:<10} {finding}", Grade::Suspicious)?;
        }
        for change in &self.changes {
            writeln!(f, "  {change}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pointer,
            grade,
            why,
            was,
            is,
        } = self;
        let was = was.as_deref().unwrap_or("nothing");
        let is = is.as_deref().unwrap_or("nothing");
        write!(f, "{grade:<10} {pointer}: {was} → {is} ({why})")
    }
}

/// The rules by which changes of a schema are graded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GradingRules {
    /// Changes are graded by whether more arguments are accepted than before.
    Arguments,
    /// Every change counts as a different definition. Applies to results and to shared definitions.
    Strict,
}

impl GradingRules {
    const SOMETHING_ELSE: GradedTool = (Grade::Wider, "differs from the approved definition");

    fn apply(self, graded: GradedTool) -> GradedTool {
        match self {
            Self::Arguments => graded,
            Self::Strict => Self::SOMETHING_ELSE,
        }
    }
}

#[derive(Default)]
struct DiffWalker {
    changes: Vec<Change>,
    scan: SuspicionScan,
}

impl DiffWalker {
    fn definition(&mut self, was: &Json, is: &Json) {
        for (name, was, is) in changed_members(was, is) {
            let at = Pointer::Root.member(name);
            match (name, was, is) {
                ("title" | "description", ..) => self.change(&at, was, is, grade::of_text(was, is)),
                ("icons", ..) => self.change(&at, was, is, grade::of_icons(is)),
                ("inputSchema", Some(was), Some(is)) => {
                    self.schema(GradingRules::Arguments, &at, was, is);
                }
                ("outputSchema", Some(was), Some(is)) => {
                    self.schema(GradingRules::Strict, &at, was, is);
                }
                ("annotations", ..) => self.annotations(&at, was, is),
                _ => {
                    let graded = (Grade::Wider, "clients may depend on it");
                    self.change(&at, was, is, graded);
                }
            }
        }
    }

    fn annotations(&mut self, at: &Pointer<'_>, was: Option<&Json>, is: Option<&Json>) {
        let none = Json::Object(Vec::new());
        for (name, was, is) in changed_members(was.unwrap_or(&none), is.unwrap_or(&none)) {
            let graded = match name {
                "title" => grade::of_text(was, is),
                _ => (Grade::Wider, "rules and retries depend on it"),
            };
            self.change(&at.member(name), was, is, graded);
        }
    }

    fn schema(&mut self, rules: GradingRules, at: &Pointer<'_>, was: &Json, is: &Json) {
        let (Json::Object(_), Json::Object(_)) = (was, is) else {
            let graded = rules.apply((Grade::Wider, "may accept more"));
            return self.change(at, Some(was), Some(is), graded);
        };
        for (keyword, old, new) in changed_members(was, is) {
            let at = at.member(keyword);
            match (keyword, old, new) {
                ("title" | "description" | "$comment" | "examples", ..) => {
                    self.change(&at, old, new, grade::of_text(old, new));
                }
                ("properties", ..) => self.properties(rules, &at, was, is),
                (
                    "items" | "additionalProperties",
                    Some(old @ Json::Object(_)),
                    Some(new @ Json::Object(_)),
                ) => {
                    self.schema(rules, &at, old, new);
                }
                ("anyOf" | "allOf", Some(Json::List(old)), Some(Json::List(new)))
                    if old.len() == new.len() =>
                {
                    for (position, (old, new)) in old.iter().zip(new).enumerate() {
                        if old != new {
                            self.schema(rules, &at.item(position), old, new);
                        }
                    }
                }
                ("$defs" | "definitions", Some(old), Some(new)) => {
                    for (name, old, new) in changed_members(old, new) {
                        let at = at.member(name);
                        match (old, new) {
                            (Some(old), Some(new)) => {
                                self.schema(GradingRules::Strict, &at, old, new);
                            }
                            _ => self.change(&at, old, new, GradingRules::SOMETHING_ELSE),
                        }
                    }
                }
                _ => self.change(
                    &at,
                    old,
                    new,
                    rules.apply(grade::of_keyword(keyword, old, new)),
                ),
            }
        }
    }

    fn properties(&mut self, rules: GradingRules, at: &Pointer<'_>, was: &Json, is: &Json) {
        let none = Json::Object(Vec::new());
        let of = |schema: &Json| {
            schema
                .get("properties")
                .cloned()
                .unwrap_or_else(|| none.clone())
        };
        let (old, new) = (of(was), of(is));
        for (name, old, new) in changed_members(&old, &new) {
            let at = at.member(name);
            let graded = match (old, new) {
                (Some(old), Some(new)) => {
                    self.schema(rules, &at, old, new);
                    continue;
                }
                (_, Some(new)) => {
                    let required = is.get("required").map_or(&[][..], Json::items);
                    let required = required.iter().any(|own| own.as_text() == Some(name));
                    grade::of_new_argument(new, required)
                }
                (_, None) => {
                    let closed = is.get("additionalProperties") == Some(&Json::Boolean(false));
                    grade::of_lost_argument(closed)
                }
            };
            self.change(&at, old, new, rules.apply(graded));
        }
    }

    fn change(
        &mut self,
        at: &Pointer<'_>,
        was: Option<&Json>,
        is: Option<&Json>,
        graded: GradedTool,
    ) {
        let (grade, why) = match was.zip(is) {
            Some((was, is)) if grade::is_same_number(was, is) => {
                (Grade::Harmless, "the same number")
            }
            _ => graded,
        };
        let shown = |json: &Json| EscapedText::short(&visible(&json.canonical())).to_string();
        self.changes.push(Change {
            pointer: EscapedText::short(&at.to_string()).to_string(),
            grade,
            why,
            was: was.map(shown),
            is: is.map(shown),
        });
        match (was, is) {
            (Some(Json::List(was)), Some(Json::List(is))) => {
                for (position, item) in is
                    .iter()
                    .enumerate()
                    .filter(|(_, item)| !was.contains(item))
                {
                    self.scan.value(&at.item(position), item);
                }
            }
            (None, Some(is)) => {
                if let Some(name) = at.last_name() {
                    self.scan.text(at, name);
                }
                self.scan.value(at, is);
            }
            (_, Some(is)) => self.scan.value(at, is),
            (_, None) => {}
        }
    }
}

/// Returns the members that differ, by name.
fn changed_members<'j>(
    was: &'j Json,
    is: &'j Json,
) -> impl Iterator<Item = (&'j str, Option<&'j Json>, Option<&'j Json>)> {
    let mut members: BTreeMap<&str, (Option<&Json>, Option<&Json>)> = BTreeMap::new();
    for (name, value) in was.members() {
        members.entry(name).or_default().0 = Some(value);
    }
    for (name, value) in is.members() {
        members.entry(name).or_default().1 = Some(value);
    }
    members
        .into_iter()
        .map(|(name, (was, is))| (name, was, is))
        .filter(|(_, was, is)| was != is)
}
