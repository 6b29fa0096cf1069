//! Whom the demo hospital knows, and what one may ask about a patient.

use serde_json::{Value, json};
use wardgate_testkit::System;

/// Attends NUGWI, in ward W2.
pub(super) fn doctor(system: &impl System) -> String {
    system.token("dr.yenji", "Doctor", &[])
}

/// Of ward W2.
pub(super) fn nurse(system: &impl System) -> String {
    system.token("nurse.joy", "Nurse", &[("ward", "W2")])
}

pub(super) fn billing(system: &impl System) -> String {
    system.token("billing.ruiz", "Billing", &[])
}

/// NUGWI herself.
pub(super) fn patient(system: &impl System) -> String {
    system.token("patient.nugwi", "Patient", &[("patient_id", "NUGWI")])
}

pub(super) fn auditor(system: &impl System) -> String {
    system.token("auditor.lee", "Auditor", &[])
}

/// Turns tools off and on.
pub(super) fn tool_manager(system: &impl System) -> String {
    system.token("ada", "ToolManager", &[])
}

/// Decides what becomes of conversations.
pub(super) fn record_manager(system: &impl System) -> String {
    system.token("ada", "RecordManager", &[])
}

/// The arguments of a question about one patient.
pub(super) fn of_patient(code: &str) -> Value {
    json!({ "patient_id": code })
}

/// The values of one column.
pub(super) fn column<'a>(rows: &'a [Value], name: &str) -> Vec<&'a Value> {
    rows.iter().map(|row| &row[name]).collect()
}
