//! The people of the demo hospital, and arguments of their calls.

use serde_json::{Value, json};
use wardgate_testkit::System;

/// Returns a token of a doctor who attends NUGWI in ward W2.
pub(super) fn doctor(system: &impl System) -> String {
    system.token("dr.yenji", "Doctor", &[])
}

/// Returns a token of a nurse of ward W2.
pub(super) fn nurse(system: &impl System) -> String {
    system.token("nurse.joy", "Nurse", &[("ward", "W2")])
}

pub(super) fn billing(system: &impl System) -> String {
    system.token("billing.ruiz", "Billing", &[])
}

/// Returns a token of the patient NUGWI.
pub(super) fn patient(system: &impl System) -> String {
    system.token("patient.nugwi", "Patient", &[("patient_id", "NUGWI")])
}

pub(super) fn auditor(system: &impl System) -> String {
    system.token("auditor.lee", "Auditor", &[])
}

/// Returns a token of an operator who may disable and enable tools.
pub(super) fn tool_manager(system: &impl System) -> String {
    system.token("ada", "ToolManager", &[])
}

/// Returns a token of an operator who may manage conversations.
pub(super) fn record_manager(system: &impl System) -> String {
    system.token("ada", "RecordManager", &[])
}

/// Returns the arguments of a call about one patient.
pub(super) fn of_patient(code: &str) -> Value {
    json!({ "patient_id": code })
}

/// Returns the values of one column.
pub(super) fn column<'a>(rows: &'a [Value], name: &str) -> Vec<&'a Value> {
    rows.iter().map(|row| &row[name]).collect()
}
