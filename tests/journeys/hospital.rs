//! Tests of what each person sees in the demo hospital.

use serde_json::{Value, json};
use wardgate_testkit::{Reply, System, TestApp};

use super::people::{auditor, billing, column, doctor, nurse, of_patient, patient};
use crate::WARDGATE;

const CLINICAL: [&str; 4] = [
    "get_patient_overview",
    "get_admissions",
    "get_appointments",
    "get_medical_records",
];
const SHIFTS: &str = "get_shifts";

/// Makes the main calls of the demo, which the tests of each kind of deployment repeat.
pub(super) async fn main_calls(system: &impl System) {
    let client = system.client();
    let records = |token: String| async move {
        client
            .call(&token, "get_medical_records", of_patient("NUGWI"))
            .await
    };
    let seen = records(doctor(system)).await.rows();
    assert_eq!(
        column(&seen, "content"),
        ["Hypertension", "Lisinopril 10mg daily"]
    );
    let seen = records(nurse(system)).await.rows();
    assert_eq!(column(&seen, "patient_id"), ["•••WI", "•••WI"]);
    assert_eq!(records(billing(system)).await.error().0, -32602);
    assert_eq!(
        client.tool_names(&billing(system)).await,
        ["get_patient_overview"]
    );
    let calls: Vec<_> = system
        .records()
        .into_iter()
        .filter(|record| record["event"] == "outcome")
        .collect();
    assert_eq!(
        column(&calls, "user"),
        ["dr.yenji", "nurse.joy", "billing.ruiz"]
    );
    assert_eq!(column(&calls, "status"), ["ok", "ok", "denied"]);
}

#[tokio::test]
async fn the_main_calls_work_in_one_process() {
    main_calls(&TestApp::start(WARDGATE)).await;
}

#[tokio::test]
async fn a_doctor_reads_the_records_of_a_patient_in_their_care_in_clear() {
    let app = TestApp::start(WARDGATE);
    let reply = app
        .client()
        .call(&doctor(&app), "get_medical_records", of_patient("NUGWI"))
        .await;
    assert_eq!(
        reply.rows(),
        [
            json!({
                "id": 1, "patient_id": "NUGWI", "record_type": "Diagnosis",
                "content": "Hypertension", "note": "Stage 2, requires management",
                "created_at": "2025-11-10T10:00:00Z", "updated_at": "2025-11-10T10:00:00Z",
                "assigned_doctor": "dr.yenji",
            }),
            json!({
                "id": 2, "patient_id": "NUGWI", "record_type": "Treatment",
                "content": "Lisinopril 10mg daily", "note": "Well tolerated, monitor BP",
                "created_at": "2025-11-09T14:30:00Z", "updated_at": "2025-11-09T14:30:00Z",
                "assigned_doctor": "dr.yenji",
            }),
        ]
    );
    // The text has the same content, for clients that do not read structured content.
    let result = reply.result();
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, result["structuredContent"]);
}

#[tokio::test]
async fn a_tool_answers_to_its_aliases_as_to_its_name() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let aliases = [
        ("get_patient_records", "get_medical_records"),
        ("get_patient_admissions", "get_admissions"),
        ("get_patient_appointments", "get_appointments"),
    ];
    for (alias, name) in aliases {
        let by_alias = app
            .client()
            .call(&token, alias, of_patient("NUGWI"))
            .await
            .rows();
        let by_name = app
            .client()
            .call(&token, name, of_patient("NUGWI"))
            .await
            .rows();
        assert_eq!(by_alias, by_name, "{alias}");
        let recorded = app.records_with(&["--tool", name]);
        assert_eq!(column(&recorded, "requested_tool"), [alias, name]);
        assert_eq!(column(&recorded, "tool"), [name, name]);
    }
    let by_alias = app
        .client()
        .call(&token, "get_my_shifts", json!({ "limit": 3 }))
        .await
        .rows();
    let by_name = app
        .client()
        .call(&token, SHIFTS, json!({ "limit": 3 }))
        .await
        .rows();
    assert_eq!(by_alias, by_name);
}

#[tokio::test]
async fn a_nurse_sees_the_patients_of_her_ward_with_identifiers_masked() {
    let app = TestApp::start(WARDGATE);
    let (doctor, nurse) = (doctor(&app), nurse(&app));
    let in_clear = app
        .client()
        .call(&doctor, "get_medical_records", of_patient("NUGWI"))
        .await
        .rows();
    let masked = app
        .client()
        .call(&nurse, "get_medical_records", of_patient("NUGWI"))
        .await
        .rows();
    assert_eq!(masked.len(), in_clear.len());
    for (masked, in_clear) in masked.iter().zip(&in_clear) {
        for same in ["id", "content", "note", "created_at", "record_type"] {
            assert_eq!(masked[same], in_clear[same], "{same}");
        }
        assert_eq!(masked["patient_id"], "•••WI");
        assert_eq!(masked["assigned_doctor"], "•••ji");
    }
    let reply = app
        .client()
        .call(&nurse, "get_patient_overview", of_patient("NUGWI"))
        .await;
    let overview = reply.rows();
    let overview = overview[0].as_object().unwrap();
    let result = reply.result();
    let dropped = &result["_meta"]["dev.wardgate/droppedColumns"];
    assert!(dropped["notPermitted"].as_u64().unwrap() >= 4, "{result}");
    assert_eq!(dropped["unclassified"], Value::Null);
    assert!(
        !result.to_string().contains("insurance_no"),
        "no names: {result}"
    );
    assert_eq!(
        overview["blood_type"].as_str().map(str::len),
        Some(2),
        "needed at the bedside"
    );
    for dropped in ["phone", "email", "address", "insurance_no"] {
        assert!(!overview.contains_key(dropped), "{dropped}");
    }
    let name = overview["full_name"].as_str().unwrap();
    assert!(
        !name.contains("Nuria") && !name.contains("Gwilym"),
        "{name}"
    );
    let recorded = app.records_with(&["--user", "nurse.joy"]);
    assert_eq!(recorded[0]["fields_redacted"], 4);
}

#[tokio::test]
async fn a_nurse_of_another_ward_gets_what_a_wrong_code_gets() {
    let app = TestApp::start(WARDGATE);
    for claims in [&[("ward", "W4")][..], &[]] {
        let nurse = app.token("nurse.hill", "Nurse", claims);
        for tool in CLINICAL {
            let reply = app.client().call(&nurse, tool, of_patient("NUGWI")).await;
            assert_eq!(reply.tool_error(), "Invalid patient_id: NUGWI", "{tool}");
        }
    }
}

#[tokio::test]
async fn billing_knows_the_overview_and_no_other_tool() {
    let app = TestApp::start(WARDGATE);
    let token = billing(&app);
    assert_eq!(
        app.client().tool_names(&token).await,
        ["get_patient_overview"]
    );
    let overview = app
        .client()
        .call(&token, "get_patient_overview", of_patient("NUGWI"))
        .await;
    assert_eq!(
        overview.rows(),
        [json!({
            "patient_id": "NUGWI",
            "full_name": "Nuria Gwilym",
            "birth_date": "1968",
            "address": "12 Alder Street, Fairhaven, WA 98104",
            "insurance_no": "HP-4711-0815",
            "status": "outpatient",
            "ward": "W2",
            "created_at": "2023",
            "updated_at": "2025",
        })]
    );
}

/// Returns a response without the parts that differ between calls.
fn shape(reply: &Reply, name: &str) -> (u16, Vec<(String, String)>, String) {
    let call = reply.call();
    let body = reply
        .body
        .replace(call["dev.wardgate/callId"].as_str().unwrap(), "CALL")
        .replace(&call["dev.wardgate/receipt"].to_string(), "RECEIPT")
        .replace(name, "NAME");
    let headers = reply
        .headers
        .iter()
        .filter(|(header, _)| !matches!(header.as_str(), "date" | "content-length"));
    let headers =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
    (reply.status, headers.collect(), body)
}

#[tokio::test]
async fn a_tool_one_may_not_call_answers_exactly_like_one_that_does_not_exist() {
    let app = TestApp::start(WARDGATE);
    let token = billing(&app);
    let hidden = [
        "get_admissions",
        "get_patient_admissions",
        "get_medical_records",
        SHIFTS,
    ];
    let bodies = |name: &str| {
        let call = json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": { "name": name, "arguments": of_patient("NUGWI") },
        });
        call.to_string()
    };
    let unknown = app
        .client()
        .call(&token, "no_such_tool", of_patient("NUGWI"))
        .await;
    let unknown_plain = app
        .client()
        .post("/message", Some(&token), &[], bodies("no_such_tool"))
        .await;
    assert_eq!(
        unknown.error(),
        (-32602, "Unknown tool: no_such_tool".to_owned())
    );
    for name in hidden {
        let reply = app.client().call(&token, name, of_patient("NUGWI")).await;
        assert_eq!(
            shape(&reply, name),
            shape(&unknown, "no_such_tool"),
            "{name}"
        );
        let reply = app
            .client()
            .post("/message", Some(&token), &[], bodies(name))
            .await;
        assert_eq!(
            shape(&reply, name),
            shape(&unknown_plain, "no_such_tool"),
            "{name}"
        );
    }
    // The record distinguishes the cases.
    let recorded = app.records();
    let expected: Vec<Value> = ["unknown_tool"; 2]
        .iter()
        .chain(&["denied"; 8])
        .map(|&it| it.into())
        .collect();
    assert_eq!(
        column(&recorded, "status"),
        expected.iter().collect::<Vec<_>>()
    );
    assert_eq!(recorded[2]["record_id"], "get_admissions");
    assert_eq!(recorded[2]["violation"], true);
    assert_eq!(recorded[0]["record_id"], "(unknown name)");
    assert_eq!(recorded[0]["violation"], false);
}

#[tokio::test]
async fn a_patient_reads_their_own_records_and_is_refused_those_of_others_with_a_reason() {
    let app = TestApp::start(WARDGATE);
    let token = patient(&app);
    assert_eq!(app.client().tool_names(&token).await, CLINICAL);
    let own = app
        .client()
        .call(&token, "get_medical_records", of_patient("NUGWI"))
        .await
        .rows();
    assert_eq!(
        column(&own, "content"),
        ["Hypertension", "Lisinopril 10mg daily"]
    );
    let staff = own[0]["assigned_doctor"].as_str().unwrap();
    assert_ne!(
        staff, "dr.yenji",
        "members of staff are tokens to a patient"
    );
    assert_eq!(
        own[0]["assigned_doctor"], own[1]["assigned_doctor"],
        "the same token for the same person"
    );

    for arguments in [of_patient("DOSRO"), json!({})] {
        let reply = app
            .client()
            .call(&token, "get_medical_records", arguments)
            .await;
        let decision = reply.call()["dev.wardgate/decisionId"]
            .as_str()
            .unwrap()
            .to_owned();
        let error = reply.tool_error();
        assert!(
            error.contains("not_permitted") && error.contains(&decision),
            "{error}"
        );
        let recorded = app.records().pop().unwrap();
        assert_eq!(recorded["decision"]["id"], decision.as_str());
        assert_eq!(recorded["status"], "denied");
        assert_eq!(recorded["reason"], "not_permitted");
        assert_eq!(recorded["violation"], true);
    }
}

#[tokio::test]
async fn an_auditor_sees_no_tool() {
    let app = TestApp::start(WARDGATE);
    let token = auditor(&app);
    assert!(app.client().tool_names(&token).await.is_empty());
    for tool in CLINICAL {
        let reply = app.client().call(&token, tool, of_patient("NUGWI")).await;
        assert_eq!(reply.error(), (-32602, format!("Unknown tool: {tool}")));
    }
    let recorded = app.records();
    assert!(
        recorded.iter().all(|record| record["status"] == "denied"),
        "{recorded:?}"
    );
}

#[tokio::test]
async fn a_role_nobody_wrote_a_rule_for_sees_no_tool() {
    let app = TestApp::start(WARDGATE);
    for role in ["Visitor", "doctor", "Doctor "] {
        let token = app.token("dr.yenji", role, &[]);
        assert!(app.client().tool_names(&token).await.is_empty(), "{role:?}");
        let reply = app
            .client()
            .call(&token, "get_medical_records", of_patient("NUGWI"))
            .await;
        assert_eq!(reply.error().0, -32602, "{role:?}");
    }
}

#[tokio::test]
async fn a_mistyped_patient_code_is_an_error_result_and_the_next_call_works() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    for tool in CLINICAL {
        let reply = app.client().call(&token, tool, of_patient("NOGWI")).await;
        assert_eq!(reply.tool_error(), "Invalid patient_id: NOGWI", "{tool}");
        let reply = app.client().call(&token, tool, of_patient("NUGWI")).await;
        assert!(!reply.rows().is_empty(), "{tool}");
    }
}

#[tokio::test]
async fn a_doctor_sees_their_own_shifts_only() {
    let app = TestApp::start(WARDGATE);
    let shifts = app
        .client()
        .call(&doctor(&app), SHIFTS, json!({ "limit": 500 }))
        .await
        .rows();
    assert!(shifts.len() > 100, "{}", shifts.len());
    assert!(shifts.iter().all(|shift| shift["staff"] == "dr.yenji"));
    let days = json!({ "from": "2026-11-16", "to": "2026-11-22" });
    let week = app.client().call(&doctor(&app), SHIFTS, days).await.rows();
    assert!((1..=7).contains(&week.len()), "{week:?}");
}

#[tokio::test]
async fn a_sealed_record_is_read_by_its_assigned_doctor_alone() {
    // Without pushdown the rows reach the tool-runner, which counts those that it withholds.
    let app = TestApp::start_with(WARDGATE, &[("WARDGATE_TOOL_RUNNER__PUSHDOWN", "false")]);
    let assigned = app.token("dr.okafor", "Doctor", &[]);
    let own = app
        .client()
        .call(&assigned, "get_medical_records", of_patient("DOSRO"))
        .await
        .rows();
    assert!(column(&own, "id").contains(&&json!(5881)));
    assert!(
        own.iter().all(|record| record.get("sealed").is_none()),
        "the seal is not shown"
    );
    for (subject, role, claims) in [
        ("nurse.adeyemi", "Nurse", ("ward", "W4")),
        ("patient.dosro", "Patient", ("patient_id", "DOSRO")),
    ] {
        let token = app.token(subject, role, &[claims]);
        let seen = app
            .client()
            .call(&token, "get_medical_records", of_patient("DOSRO"))
            .await
            .rows();
        assert_eq!(seen.len(), own.len() - 1, "{role}");
        assert!(!column(&seen, "id").contains(&&json!(5881)), "{role}");
        let recorded = app.records().pop().unwrap();
        assert_eq!(recorded["rows_withheld"], 1, "{role}");
        assert_eq!(recorded["rows"], seen.len(), "{role}");
    }
}

#[tokio::test]
async fn arguments_are_coerced_only_where_nothing_is_lost() {
    let app = TestApp::start(WARDGATE);
    let token = doctor(&app);
    let limit = |limit: Value| {
        app.client().call(
            &token,
            "get_medical_records",
            json!({ "patient_id": "NUGWI", "limit": limit }),
        )
    };
    for one in [json!(1), json!("1"), json!(1.0)] {
        assert_eq!(limit(one.clone()).await.rows().len(), 1, "{one}");
    }
    for bad in [
        json!("one"),
        json!(1.5),
        json!("1.5"),
        json!(true),
        json!(null),
        json!(0),
        json!(501),
        json!([1]),
    ] {
        let error = limit(bad.clone()).await.tool_error();
        assert!(
            error.starts_with("Invalid arguments: ") && error.contains("`limit`"),
            "{bad}: {error}"
        );
    }
}
