//! `wardgate policy shadow`: prints what the candidate policies of a running system would decide differently.

use serde_json::{Value, json};
use wardgate_domain::{ComparedDecision, ShadowReport};

use crate::Failure;
use crate::cli::PolicyShadow;
use crate::commands::operator::sign_in_token;
use crate::commands::output::print_document;
use crate::commands::running;
use crate::commands::terminal::cell;

pub(super) async fn run(arguments: PolicyShadow) -> Result<(), Failure> {
    let token = sign_in_token(&arguments.operator).await?;
    let report = running::policy(&arguments.system)?
        .list_shadow_flips(&token)
        .await?;
    let json = as_json(&report).to_string();
    print_document(arguments.output.format(), &json, || as_text(&report))
}

fn as_text(report: &ShadowReport) -> String {
    let mut text = String::new();
    for flip in &report.flips {
        let policies = |decision: &ComparedDecision| decision.policies.join(",");
        text += &format!(
            "{}  {:>6}  {:<16}  {:<28}  {:<25}  {} -> {}  {} -> {}\n",
            flip.last_at,
            flip.count,
            cell(&flip.subject),
            cell(&flip.tool),
            flip.change,
            flip.decided.access,
            flip.candidate.access,
            cell(&policies(&flip.decided)),
            cell(&policies(&flip.candidate)),
        );
    }
    let Some(candidate) = report.candidate_hash else {
        return match report.fault.as_str() {
            "" => "no candidate policies are configured; set policy.shadow\n".to_owned(),
            fault => format!(
                "the candidate policies are not usable and are not evaluated: {}\n",
                cell(fault)
            ),
        };
    };
    let decided = report.policy_hash.map_or_else(
        || "no call has been compared yet".to_owned(),
        |hash| {
            let flips: u64 = report.flips.iter().map(|flip| flip.count).sum();
            format!(
                "compared with {hash}: {flips} differences, {} decisions equal, {} not compared",
                report.equal, report.skipped
            )
        },
    );
    text + &format!("candidate {candidate}; {decided}\n")
}

fn as_json(report: &ShadowReport) -> Value {
    let decision = |it: &ComparedDecision| json!({ "access": it.access, "reason": it.reason, "policies": it.policies });
    let flips = report.flips.iter().map(|flip| {
        json!({
            "user": flip.subject,
            "tenant": flip.tenant,
            "action": flip.action,
            "tool": flip.tool,
            "change": flip.change.as_str(),
            "count": flip.count,
            "first_at": flip.first_at.to_string(),
            "last_at": flip.last_at.to_string(),
            "decided": decision(&flip.decided),
            "candidate": decision(&flip.candidate),
        })
    });
    json!({
        "policy_hash": report.policy_hash.map(|it| it.to_string()),
        "candidate_hash": report.candidate_hash.map(|it| it.to_string()),
        "fault": report.fault,
        "equal": report.equal,
        "skipped": report.skipped,
        "flips": flips.collect::<Vec<_>>(),
    })
}
