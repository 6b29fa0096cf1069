//! `wardgate policy diff`: prints which rights callers gain and lose by a change of policies.

use std::io::ErrorKind;

use serde_json::{Value, json};
use wardgate_domain::mark_invisible;
use wardgate_policy::{
    AccessChange, Comparison, NoGainProof, Simulator, UnprovedQuestion, compare, prove_no_gain,
};

use crate::Failure;
use crate::cli::PolicyDiff;
use crate::commands::output::print_document;

/// What the solver proved.
struct ProofResult {
    proof: NoGainProof,
    /// Whether the search found a gain although the solver proved that there is none.
    is_contradicted: bool,
}

impl ProofResult {
    fn is_proved(&self) -> bool {
        self.proof.unproved.is_empty() && !self.is_contradicted
    }
}

pub(super) fn run(arguments: &PolicyDiff) -> Result<(), Failure> {
    let before = super::simulator(&arguments.before)?;
    let after = super::simulator(&arguments.after)?;
    let tools = super::offers(arguments.tools.as_deref(), &arguments.before)?;
    let proof = prove(&before, &after, arguments)?;
    let comparison = compare(&before, &after, &tools);
    let gains = comparison
        .changes
        .iter()
        .filter(|change| change.gains)
        .count();
    // The search asks the real decision procedure, which the formulas of a proof describe only for requests that fit the schema.
    let proof = proof.map(|proof| ProofResult {
        is_contradicted: proof.unproved.is_empty() && gains > 0,
        proof,
    });
    print_document(
        arguments.output.format(),
        &as_json(&comparison, proof.as_ref()).to_string(),
        || mark_invisible(&as_text(&comparison, proof.as_ref())).into_owned(),
    )?;
    if arguments.fail_on_gain && gains > 0 {
        return Err(format!("the change grants new access: {gains} of the differences").into());
    }
    if arguments.require_proof && !proof.is_some_and(|it| it.is_proved()) {
        return Err("it is not proved that nobody gains access".into());
    }
    Ok(())
}

/// Returns what the solver proves. Without a named solver, a missing or unusable one only means that there is no proof.
fn prove(
    before: &Simulator,
    after: &Simulator,
    arguments: &PolicyDiff,
) -> Result<Option<NoGainProof>, Failure> {
    let named = arguments.solver.as_deref();
    let solver = named.unwrap_or_else(|| "cvc5".as_ref());
    match prove_no_gain(before.set(), after.set(), solver) {
        Ok(proof) => Ok(Some(proof)),
        Err(error) if named.is_some() || arguments.require_proof => {
            Err(format!("cannot use the solver {}: {error}", solver.display()).into())
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            eprintln!("note: the solver cvc5 is not used: {error}");
            Ok(None)
        }
    }
}

fn as_text(comparison: &Comparison, proof: Option<&ProofResult>) -> String {
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

fn proof_as_text(proof: Option<&ProofResult>) -> String {
    let Some(result) = proof else {
        return "Without the solver cvc5, nothing is proved.\n".to_owned();
    };
    let NoGainProof {
        questions,
        unproved,
    } = &result.proof;
    if result.is_contradicted {
        return "Not proved that nobody gains access: the search found a gain, with a request that does not fit the schema or in \
                a list of tools.\n"
            .to_owned();
    }
    if result.is_proved() {
        return format!(
            "Proved ({questions} questions): the new policies allow nothing that the old ones deny, for all callers, tools, arguments and \
             rows that fit the schema, with the same counts of earlier calls.\n"
        );
    }
    let mut text = format!(
        "Not proved that nobody gains access, in {} of {questions} questions:\n",
        unproved.len()
    );
    for UnprovedQuestion { what, obstacle } in unproved {
        let reason = obstacle.to_string().replace('\n', "\n  ");
        text += &format!("{what}: {reason}\n");
    }
    text
}

fn as_json(comparison: &Comparison, proof: Option<&ProofResult>) -> Value {
    let changes = comparison.changes.iter().map(|change| {
        json!({
            "roles": change.roles,
            "gains": change.gains,
            "what": change.what,
            "example": change.example,
        })
    });
    let proof = proof.map(|result| {
        let unproved = result.proof.unproved.iter().map(|it| {
            json!({
                "what": it.what,
                "obstacle": it.obstacle.kind(),
                "reason": it.obstacle.to_string(),
            })
        });
        json!({
            "proved": result.is_proved(),
            "contradicted": result.is_contradicted,
            "questions": result.proof.questions,
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
