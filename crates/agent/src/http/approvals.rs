//! `POST /api/chat/approvals/{id}`: decides on a pending tool call and continues its turn.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::response::Response;

use super::admission::AdmittedRequest;
use super::fields::JsonFields;
use super::{Endpoints, Problem, ndjson};
use crate::ApprovalDecision;

pub(super) async fn post(
    here: Arc<Endpoints>,
    mut request: AdmittedRequest,
) -> Result<Response, Problem> {
    let decision = parse_decision(&request.body)?;
    let Path(id) = Path::<String>::from_request_parts(&mut request.parts, &())
        .await
        .map_err(|_| Problem::not_found("No approval has this id."))?;
    let events = here
        .agent
        .decide_approval(request.caller, request.token, &id, decision);
    Ok(ndjson::reply(events))
}

fn parse_decision(body: &[u8]) -> Result<ApprovalDecision, Problem> {
    let decision = JsonFields::parse(body)?
        .only(&["decision"])?
        .text("decision")?;
    match decision.as_deref() {
        Some("approve") => Ok(ApprovalDecision::Approve),
        Some("refuse") => Ok(ApprovalDecision::Refuse),
        _ => Err(Problem::field(
            "decision",
            "Send `decision`: \"approve\" or \"refuse\".",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_one_of_two_words() {
        assert_eq!(
            parse_decision(br#"{"decision":"approve"}"#).unwrap(),
            ApprovalDecision::Approve
        );
        assert_eq!(
            parse_decision(br#"{"decision":"refuse"}"#).unwrap(),
            ApprovalDecision::Refuse
        );
        for body in [
            r#"{"decision":"yes"}"#,
            r#"{"decision":true}"#,
            "{}",
            r#"{"decision":"approve","all":true}"#,
        ] {
            assert!(parse_decision(body.as_bytes()).is_err(), "{body}");
        }
    }
}
