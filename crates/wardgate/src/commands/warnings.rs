//! Warnings about entries of a catalogue that are valid, but that nobody can reach under the policies, or that call tools
//! without an approved definition.

use wardgate_catalogue::{Catalogue, Fault, Pins, Tool};
use wardgate_policy::PolicySet;

/// Returns all warnings about `catalogue` in the order of its files. Without policies, returns only those that hold under
/// any policies, and without `pins`, the lock file, only those that hold with any.
pub(super) fn collect_warnings(
    catalogue: &Catalogue,
    policies: Option<&PolicySet>,
    pins: Option<&Pins>,
) -> Vec<Fault> {
    let mut warnings = catalogue.warnings().to_vec();
    let unclassified = wardgate_domain::ColumnClass::unclassified();
    if policies.is_none_or(|policies| !policies.shows_anyone(&unclassified)) {
        warnings.extend(catalogue.unclassified_columns());
    }
    if let Some(pins) = pins {
        warnings.extend(catalogue.unpinned_tools(pins));
    }
    for tool in catalogue.tools() {
        let of_policies = policies.map(|policies| warn_of_unreachable(tool, policies));
        warnings.extend(of_policies.unwrap_or_default());
    }
    warnings.sort_by(|a, b| (&a.file, a.line, a.column).cmp(&(&b.file, b.line, b.column)));
    warnings
}

/// Prints the warnings on standard error, so that standard output stays machine-readable.
pub(super) fn print_warnings(warnings: &[Fault]) {
    for warning in warnings {
        eprintln!("warning: {warning}");
    }
}

/// Describes the number of warnings, to be appended to a success message.
pub(super) fn describe_count(warnings: usize) -> String {
    match warnings {
        0 => String::new(),
        1 => ", 1 warning".to_owned(),
        more => format!(", {more} warnings"),
    }
}

fn warn_of_unreachable(tool: &Tool, policies: &PolicySet) -> Vec<Fault> {
    let facts = tool.facts();
    let mut found = Vec::new();
    if !policies.lets_anyone_call(facts) {
        let advice = policies.advice_on_tool(facts);
        found.extend(tool.warning(advice.problem, advice.fix));
    }
    if let Some(advice) = facts
        .entity
        .as_deref()
        .and_then(|entity| policies.advice_on_rows(entity))
    {
        found.extend(tool.warning(advice.problem, advice.fix));
    }
    for class in &facts.classes {
        let columns: Vec<_> = tool.columns_of(class).collect();
        if !columns.is_empty() && !policies.shows_anyone(class) {
            let problem = format!(
                "`{}` of tool `{}` is never shown: no policy shows the class `{class}`",
                columns.join("`, `"),
                facts.name
            );
            let fix = format!(
                "add `Class::\"{class}\"` to a policy about `show_clear` or another tier, or use a class that a policy names"
            );
            found.extend(tool.class_warning(problem, fix));
        }
    }
    found
}
