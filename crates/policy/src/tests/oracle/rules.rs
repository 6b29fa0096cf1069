//! The rules of the hospital and of the supplement, written a second time in plain Rust from their descriptions. Nothing
//! here uses Cedar or the engine.

use wardgate_domain::{ColumnTier, DenialReason};

use super::requests::{LimitArgument, SampleCall, SampleCaller, SampleRow, SampleTool};

/// The result of a request, as the gateway and the tool-runner see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ExpectedOutcome {
    /// The request cannot be decided, because it is malformed.
    Invalid,
    /// The call may run. `is_bound` tells whether its permit is for these arguments only.
    Allowed { is_bound: bool },
    /// The call may run once a person with one of these roles has approved it.
    NeedsApproval { roles: Vec<String> },
    /// The call may not run. `visible` tells whether the caller may learn that the tool exists.
    Denied { reason: DenialReason, visible: bool },
}

/// A rule that applies to a caller and a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DecidingRule {
    /// It holds for every call.
    Always,
    /// It depends on arguments, time, address or earlier calls, and holds for this call or does not.
    ForThisCall(bool),
}

/// The rules about calls that apply to a caller and a tool.
#[derive(Debug, Default)]
struct CallRules {
    permits: Vec<DecidingRule>,
    /// The permits that require the approval of a pharmacist.
    permits_with_approval: Vec<DecidingRule>,
    forbids: Vec<DecidingRule>,
}

/// Returns the expected result of a request.
pub(super) fn decide(
    caller: &SampleCaller,
    tool: &SampleTool,
    call: &SampleCall,
) -> ExpectedOutcome {
    if call.address.1.is_none() {
        return ExpectedOutcome::Invalid;
    }
    let CallRules {
        permits,
        permits_with_approval,
        forbids,
    } = rules(caller, tool, call);
    let with_approval = [permits.as_slice(), permits_with_approval.as_slice()].concat();
    let visible = is_visible(&with_approval, &forbids);
    let mut is_bound = false;
    for (permits, is_approved) in [(&permits, false), (&with_approval, true)] {
        if depends_on_call(permits, &forbids) {
            is_bound = true;
            if !call.is_object {
                return ExpectedOutcome::Invalid;
            }
            // A forbid that reads the argument could not be evaluated.
            if limit(tool, call) == LimitArgument::Unfit {
                let reason = DenialReason::PolicyError;
                return ExpectedOutcome::Denied { reason, visible };
            }
        }
        match (answer(permits, &forbids), is_approved) {
            (Ok(()), false) => return ExpectedOutcome::Allowed { is_bound },
            (Ok(()), true) => {
                let roles = vec!["Pharmacist".to_owned()];
                return ExpectedOutcome::NeedsApproval { roles };
            }
            (Err(reason @ DenialReason::Forbidden), _) | (Err(reason), true) => {
                return ExpectedOutcome::Denied { reason, visible };
            }
            (Err(_), false) => {}
        }
    }
    unreachable!("the last round returns")
}

/// Returns whether some call of the tool could be allowed, so that the tool is listed.
pub(super) fn lists(caller: &SampleCaller, tool: &SampleTool, call: &SampleCall) -> bool {
    let rules = rules(caller, tool, call);
    let permits = [rules.permits, rules.permits_with_approval].concat();
    is_visible(&permits, &rules.forbids)
}

fn is_visible(permits: &[DecidingRule], forbids: &[DecidingRule]) -> bool {
    !permits.is_empty() && !forbids.contains(&DecidingRule::Always)
}

/// Returns whether the answer is not the same for every call.
fn depends_on_call(permits: &[DecidingRule], forbids: &[DecidingRule]) -> bool {
    let is_settled = permits.contains(&DecidingRule::Always) && forbids.is_empty();
    is_visible(permits, forbids) && !is_settled
}

fn answer(permits: &[DecidingRule], forbids: &[DecidingRule]) -> Result<(), DenialReason> {
    let holds = |rules: &[DecidingRule]| {
        rules
            .iter()
            .any(|rule| *rule != DecidingRule::ForThisCall(false))
    };
    // Without any permit, nobody needs to know what a forbid would have said about these arguments.
    if permits.is_empty() && !forbids.contains(&DecidingRule::Always) {
        return Err(DenialReason::NotPermitted);
    }
    if holds(forbids) {
        return Err(DenialReason::Forbidden);
    }
    if holds(permits) {
        return Ok(());
    }
    Err(DenialReason::NotPermitted)
}

/// Returns the argument `limit` as policies see it, with the tool's default.
fn limit(tool: &SampleTool, call: &SampleCall) -> LimitArgument {
    match (call.limit, tool.default_limit) {
        (LimitArgument::Missing, Some(limit)) => LimitArgument::Number(limit),
        (given, _) => given,
    }
}

/// Returns the reason of an emergency. An empty reason is none.
fn emergency(caller: &SampleCaller) -> Option<&str> {
    caller.emergency_reason.filter(|reason| !reason.is_empty())
}

fn is_clinician(caller: &SampleCaller) -> bool {
    caller.has("Doctor") || caller.has("Nurse")
}

fn is_research(caller: &SampleCaller) -> bool {
    caller.has("Researcher") && caller.purpose == Some("HRESCH")
}

fn rules(caller: &SampleCaller, tool: &SampleTool, call: &SampleCall) -> CallRules {
    let mut rules = CallRules::default();
    let permits = &mut rules.permits;
    let names_own_id = |own: &str| DecidingRule::ForThisCall(call.patient_id == Some(own));
    match tool.tag {
        "clinical" => {
            if is_clinician(caller) {
                permits.push(DecidingRule::Always);
            }
            if caller.has("Billing") && tool.name == "get_patient_overview" {
                permits.push(DecidingRule::Always);
            }
            if let Some(own) = caller.patient_id.filter(|_| caller.has("Patient")) {
                permits.push(names_own_id(own));
            }
        }
        "staff" if is_clinician(caller) => permits.push(DecidingRule::Always),
        "emergency" if is_clinician(caller) && emergency(caller).is_some() => {
            permits.push(DecidingRule::Always);
        }
        "research" => {
            let limit = match limit(tool, call) {
                LimitArgument::Number(limit) => Some(limit),
                _ => None,
            };
            if is_research(caller) {
                permits.push(DecidingRule::ForThisCall(
                    limit.is_some_and(|limit| limit <= 100),
                ));
            }
            rules
                .forbids
                .push(DecidingRule::ForThisCall(limit.is_none()));
        }
        "office" => {
            let (_, weekday, minute, is_new_year) = call.time;
            let is_open = weekday <= 5 && (420..1_140).contains(&minute);
            if caller.has("Billing") {
                let is_inside = call.address.1 == Some(true);
                permits.push(DecidingRule::ForThisCall(is_open && is_inside));
            }
            rules.forbids.push(DecidingRule::ForThisCall(is_new_year));
        }
        "export" if caller.has("Billing") => {
            permits.push(DecidingRule::ForThisCall(call.exports < 3));
        }
        "orders" => {
            if caller.has("Pharmacist") {
                permits.push(DecidingRule::ForThisCall(call.patient_id.is_some()));
            }
            if caller.has("Doctor") {
                rules.permits_with_approval.push(DecidingRule::Always);
            }
            rules.forbids.extend(caller.patient_id.map(names_own_id));
        }
        _ => {}
    }
    let is_change_in_emergency = caller.emergency_reason.is_some() && !tool.read_only;
    if caller.tenant == "closed" || caller.has("Auditor") || is_change_in_emergency {
        rules.forbids.push(DecidingRule::Always);
    }
    rules
}

/// Returns whether the caller may read a row of this type.
pub(super) fn may_read(caller: &SampleCaller, entity: &str, row: &SampleRow) -> bool {
    let is_mine = |column: &str| row.is(column, caller.subject);
    if entity == "MedicalRecord" && row.is_true("sealed") && !is_mine("assigned_doctor") {
        return false;
    }
    let is_in_care = match entity {
        "Patient" | "Admission" => is_mine("attending_doctor"),
        "Appointment" => is_mine("doctor") || is_mine("attending_doctor"),
        "MedicalRecord" => is_mine("assigned_doctor") || is_mine("attending_doctor"),
        _ => false,
    };
    let is_of_ward = caller.ward.is_some_and(|ward| row.is("ward", ward));
    let is_about_caller = caller.patient_id.is_some_and(|id| row.is("patient_id", id));
    let is_shift = entity == "Shift";
    let is_patient = entity == "Patient";
    (caller.has("Doctor") && is_in_care)
        || (caller.has("Nurse") && !is_shift && is_of_ward)
        || (is_clinician(caller) && is_shift && is_mine("staff"))
        || (caller.has("Billing") && is_patient)
        // The row type `Shift` has no `patient_id`.
        || (caller.has("Patient") && !is_shift && is_about_caller)
        || (is_patient && is_clinician(caller) && emergency(caller).is_some())
        || (is_patient && is_research(caller) && row.is_true("research_consent"))
}

/// Returns the tier in which the caller sees a column class; `None` if it is dropped.
pub(super) fn tier(caller: &SampleCaller, class: &str) -> Option<ColumnTier> {
    // The roles, and the families of classes that each shows.
    let shown: [(bool, ColumnTier, &[&str]); 10] = [
        (
            caller.has("Doctor"),
            ColumnTier::Clear,
            &["none", "id", "phi", "contact", "finance"],
        ),
        (
            caller.has("Nurse"),
            ColumnTier::Clear,
            &["none", "phi.date", "phi.text", "phi.code"],
        ),
        (
            caller.has("Billing"),
            ColumnTier::Clear,
            &[
                "none",
                "id.patient",
                "phi.name",
                "contact.address",
                "finance",
            ],
        ),
        (
            caller.has("Patient"),
            ColumnTier::Clear,
            &["none", "id.patient", "phi", "contact", "finance"],
        ),
        (
            is_research(caller),
            ColumnTier::Clear,
            &["none", "phi.code"],
        ),
        (
            caller.has("Nurse"),
            ColumnTier::Partial,
            &["id", "phi.name"],
        ),
        (caller.has("Patient"), ColumnTier::Pseudonym, &["id.staff"]),
        (is_research(caller), ColumnTier::Pseudonym, &["id"]),
        (
            caller.has("Billing"),
            ColumnTier::Generalised,
            &["phi.date"],
        ),
        (is_research(caller), ColumnTier::Generalised, &["phi.date"]),
    ];
    let is_in = |family: &&str| {
        let rest = class.strip_prefix(*family);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    // The mildest tier wins, and they are listed mildest first.
    let mut found = shown.iter();
    let found = found.find(|(applies, _, families)| *applies && families.iter().any(is_in));
    found.map(|(_, tier, _)| *tier)
}
