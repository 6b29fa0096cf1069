//! `wardgate policy diff`: prints which rights callers gain and lose by a change of policies.

use std::io::ErrorKind;
use std::path::Path;

use serde_json::{Value, json};
use wardgate_domain::mark_invisible;
use wardgate_policy::{
    AccessChange, Comparison, GainProof, Simulator, UnprovedQuestion, compare, prove_no_gain,
};

use crate::Failure;
use crate::cli::PolicyDiff;
use crate::commands::output::print_document;

pub(super) async fn run(arguments: &PolicyDiff) -> Result<(), Failure> {
    let before = super::simulator(&arguments.before)?;
    let after = super::simulator(&arguments.after)?;
    let tools = super::offers(arguments.tools.as_deref(), &arguments.before)?;
    let proof = prove(&before, &after, arguments.solver.as_deref()).await?;
    let comparison = compare(&before, &after, &tools);
    print_document(
        arguments.output.format(),
        &as_json(&comparison, proof.as_ref()).to_string(),
        || mark_invisible(&as_text(&comparison, proof.as_ref())).into_owned(),
    )?;
    let gains = comparison
        .changes
        .iter()
        .filter(|change| change.gains)
        .count();
    if arguments.fail_on_gain && gains > 0 {
        return Err(format!("the change grants new access: {gains} of the differences").into());
    }
    match proof {
        None if arguments.require_proof => {
            Err("there is no solver: install cvc5, or name it with --solver".into())
        }
        Some(proof) if arguments.require_proof && !proof.unproved.is_empty() => {
            Err("it is not proved that nobody gains access".into())
        }
        _ => Ok(()),
    }
}

/// Returns what the solver proves, or `None` if none is named and none is installed.
async fn prove(
    before: &Simulator,
    after: &Simulator,
    named: Option<&Path>,
) -> Result<Option<GainProof>, Failure> {
    let solver = named.unwrap_or_else(|| "cvc5".as_ref());
    match prove_no_gain(before.set(), after.set(), solver).await {
        Ok(proof) => Ok(Some(proof)),
        Err(error) if named.is_none() && error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot run the solver {}: {error}", solver.display()).into()),
    }
}

fn as_text(comparison: &Comparison, proof: Option<&GainProof>) -> String {
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
        "{} differences in {} questions{}. The search is bounded: it tests the roles, names and constants of the policies.\n",
        comparison.changes.len(),
        comparison.questions,
        if comparison.is_cut_short {
            ", where the search stopped at its limit"
        } else {
            ""
        },
    );
    text + &proof_as_text(proof)
}

fn proof_as_text(proof: Option<&GainProof>) -> String {
    let Some(GainProof {
        questions,
        unproved,
    }) = proof
    else {
        return "Without the solver cvc5, nothing is proved.\n".to_owned();
    };
    if unproved.is_empty() {
        return format!(
            "Proved for all callers, tools, arguments, rows and contexts: nobody gains access ({questions} questions).\n"
        );
    }
    let mut text = format!(
        "Not proved that nobody gains access, in {} of {questions} questions:\n",
        unproved.len()
    );
    for UnprovedQuestion { what, reason } in unproved {
        text += &format!("{what}: {}\n", reason.replace('\n', "\n  "));
    }
    text
}

fn as_json(comparison: &Comparison, proof: Option<&GainProof>) -> Value {
    let changes = comparison.changes.iter().map(|change| {
        json!({
            "roles": change.roles,
            "gains": change.gains,
            "what": change.what,
            "example": change.example,
        })
    });
    let proof = proof.map(|proof| {
        let unproved = proof.unproved.iter();
        let unproved = unproved.map(|it| json!({ "what": it.what, "reason": it.reason }));
        json!({
            "proved": proof.unproved.is_empty(),
            "questions": proof.questions,
            "unproved": unproved.collect::<Vec<_>>(),
        })
    });
    json!({
        "method": "bounded search",
        "questions": comparison.questions,
        "cut_short": comparison.is_cut_short,
        "changes": changes.collect::<Vec<_>>(),
        "proof": proof,
    })
}
