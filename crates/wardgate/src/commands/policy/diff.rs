//! `wardgate policy diff`: prints which rights callers gain and lose by a change of policies.

use serde_json::json;
use wardgate_domain::mark_invisible;
use wardgate_policy::{AccessChange, Comparison, compare};

use crate::Failure;
use crate::cli::PolicyDiff;
use crate::commands::output::print_document;

pub(super) fn run(arguments: &PolicyDiff) -> Result<(), Failure> {
    let before = super::simulator(&arguments.before)?;
    let after = super::simulator(&arguments.after)?;
    let tools = super::offers(arguments.tools.as_deref(), &arguments.before)?;
    let comparison = compare(&before, &after, &tools);
    print_document(
        arguments.output.format(),
        &as_json(&comparison).to_string(),
        || mark_invisible(&as_text(&comparison)).into_owned(),
    )?;
    let gains = comparison
        .changes
        .iter()
        .filter(|change| change.gains)
        .count();
    if arguments.fail_on_gain && gains > 0 {
        return Err(format!("the change grants new access: {gains} of the differences").into());
    }
    Ok(())
}

fn as_text(comparison: &Comparison) -> String {
    let mut text = String::new();
    for AccessChange {
        roles,
        what,
        gains,
        example,
    } in &comparison.changes
    {
        let verb = if *gains { "gains" } else { "loses" };
        let who = if roles.is_empty() {
            "(no role)".to_owned()
        } else {
            roles.join(" + ")
        };
        text += &format!("{verb}  {who:<20}  {what:<56}  {example}\n");
    }
    text += &format!(
        "{} differences in {} questions{}. The search is bounded: it tests the roles, names and constants of the policies, so its result \
         is not a proof.\n",
        comparison.changes.len(),
        comparison.questions,
        if comparison.is_cut_short {
            ", where the search stopped at its limit"
        } else {
            ""
        },
    );
    text
}

fn as_json(comparison: &Comparison) -> serde_json::Value {
    let changes = comparison.changes.iter().map(|change| {
        json!({
            "roles": change.roles,
            "gains": change.gains,
            "what": change.what,
            "example": change.example,
        })
    });
    json!({
        "method": "bounded search",
        "questions": comparison.questions,
        "cut_short": comparison.is_cut_short,
        "changes": changes.collect::<Vec<_>>(),
    })
}
