//! Check of the caller lookup: the table or database of callers' roles answers.

use wardgate_domain::Ambient;
use wardgate_policy::{LookupConfig, probe_caller_lookup};

use super::finding::{Finding, FindingSubject};

/// Looks up a caller that does not exist.
pub(super) async fn examine(lookup: Option<&LookupConfig>) -> Option<Finding> {
    let about = FindingSubject::new("caller lookup", "policy.caller_lookup");
    let remedy = "calls are refused until it answers: check that the file can be read, or that the database runs, is reachable from here \
                  and accepts the user and the statement";
    Some(
        match probe_caller_lookup(lookup?, Ambient::system()).await {
            Ok(()) => about.ok("answers"),
            Err(cause) => about.fail(format!("does not answer: {cause}"), remedy),
        },
    )
}
