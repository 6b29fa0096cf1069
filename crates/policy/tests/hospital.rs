//! The policies of the hospital example as tables: which tools each role may call, which rows it may read, and the tier
//! of each column class. The tests use the service in the same way as other services do.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a helper of a test fails by panicking"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use wardgate_domain::{
    Ambient, BearerToken, Caller, ColumnClass, ColumnTier, Decision, DenialReason, Digest,
    PermitTerms, PermitVerifier, ToolFacts, Verdict,
};
use wardgate_policy::{CallHistory, Config, service};
use wardgate_rpc::client::PolicyClient;
use wardgate_rpc::{Peer, link};
use wardgate_testkit::{permit_signer, permit_verifier, tool_facts};

#[path = "../src/tests/issuer.rs"]
mod issuer;
#[path = "../src/tests/samples.rs"]
mod samples;

use issuer::Issuer;
use samples::{Row, admits, caller, caller_with, row, text};

/// The policy service with the policies of the hospital example.
struct HospitalPolicy {
    client: PolicyClient,
    issuer: Issuer,
    verifier: PermitVerifier,
}

impl HospitalPolicy {
    async fn open() -> Self {
        let signer = permit_signer();
        let verifier = permit_verifier(&signer);
        let policies =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/examples/hospital/policies");
        let issuer = Issuer::new();
        let config = Config::new(policies, issuer.auth_config());
        let service = service(config, signer, CallHistory::default(), Ambient::system())
            .await
            .unwrap();
        let link = link::local(service, Peer::Gateway).link;
        Self {
            client: PolicyClient::new(link, Duration::from_mins(1)),
            issuer,
            verifier,
        }
    }

    fn with_token(&self, caller: &Caller) -> Caller {
        let token = self.issuer.token(caller, caller.expires_at());
        caller.clone().with_token(BearerToken::new(&token))
    }

    async fn decide(&self, caller: &Caller, tool: &ToolFacts, arguments: &str) -> Decision {
        let arguments = arguments.to_owned().into();
        self.client
            .authorize(&self.with_token(caller), tool, &arguments, "")
            .await
            .unwrap()
    }

    async fn permit(&self, caller: &Caller, tool: &ToolFacts, arguments: &str) -> PermitTerms {
        match self.decide(caller, tool, arguments).await.verdict {
            Verdict::Allow(signed) => {
                self.verifier.verify(&signed).unwrap();
                signed.unverified_terms().unwrap()
            }
            Verdict::NeedsApproval { approvers, .. } => panic!("needs approval: {approvers}"),
            Verdict::NeedsIntent => panic!("needs an intent"),
            Verdict::Deny { reason, .. } => panic!("denied: {reason:?}"),
        }
    }

    async fn denial(
        &self,
        caller: &Caller,
        tool: &ToolFacts,
        arguments: &str,
    ) -> (DenialReason, bool) {
        match self.decide(caller, tool, arguments).await.verdict {
            Verdict::Allow(_) | Verdict::NeedsApproval { .. } | Verdict::NeedsIntent => {
                panic!("allowed")
            }
            Verdict::Deny { reason, visible } => (reason, visible),
        }
    }
}

const TOOLS: [(&str, &str, &str); 5] = [
    ("get_patient_overview", "clinical", "Patient"),
    ("get_admissions", "clinical", "Admission"),
    ("get_appointments", "clinical", "Appointment"),
    ("get_medical_records", "clinical", "MedicalRecord"),
    ("get_shifts", "staff", "Shift"),
];

const CLASSES: [&str; 12] = [
    "none",
    "id.patient",
    "id.staff",
    "phi.name",
    "phi.date",
    "phi.text",
    "phi.code",
    "contact.phone",
    "contact.address",
    "contact.email",
    "finance.insurance",
    "unclassified",
];

fn tool(name: &str) -> ToolFacts {
    let (name, tag, entity) = TOOLS
        .into_iter()
        .find(|(known, ..)| *known == name)
        .unwrap();
    ToolFacts {
        tags: [tag.to_owned()].into(),
        entity: Some(entity.to_owned()),
        classes: CLASSES.iter().map(|class| class.parse().unwrap()).collect(),
        ..tool_facts(name)
    }
}

fn doctor() -> Caller {
    caller("dr.yenji", &["Doctor"])
}

fn nurse() -> Caller {
    caller_with("nurse.okoro", &["Nurse"], [("ward", text("W2"))])
}

fn billing() -> Caller {
    caller("billing.meyer", &["Billing"])
}

fn patient() -> Caller {
    caller_with(
        "patient.nugwi",
        &["Patient"],
        [("patient_id", text("NUGWI"))],
    )
}

fn auditor() -> Caller {
    caller("auditor.silva", &["Auditor"])
}

const OWN: &str = r#"{"patient_id": "NUGWI"}"#;
const FOREIGN: &str = r#"{"patient_id": "ABCDE"}"#;

/// Returns one letter for each tool: A allowed, v denied but visible, - denied and hidden.
async fn calls(desk: &HospitalPolicy, caller: &Caller, arguments: &str) -> String {
    let mut calls = String::new();
    for (name, ..) in TOOLS {
        calls.push(
            match desk.decide(caller, &tool(name), arguments).await.verdict {
                Verdict::Allow(_) => 'A',
                Verdict::NeedsApproval { .. } | Verdict::NeedsIntent => 'n',
                Verdict::Deny { visible: true, .. } => 'v',
                Verdict::Deny { visible: false, .. } => '-',
            },
        );
    }
    calls
}

#[tokio::test]
async fn each_role_calls_its_tools_and_no_other() {
    let desk = HospitalPolicy::open().await;
    let table = [
        ("doctor", doctor(), FOREIGN, "AAAAA"),
        ("nurse", nurse(), FOREIGN, "AAAAA"),
        ("billing", billing(), FOREIGN, "A----"),
        ("patient, own id", patient(), OWN, "AAAA-"),
        ("patient, foreign id", patient(), FOREIGN, "vvvv-"),
        ("patient, no id", patient(), "{}", "vvvv-"),
        (
            "patient whose token names none",
            caller("p", &["Patient"]),
            OWN,
            "-----",
        ),
        ("auditor", auditor(), OWN, "-----"),
        (
            "doctor and auditor",
            caller("d", &["Doctor", "Auditor"]),
            OWN,
            "-----",
        ),
        ("nobody", caller("n", &[]), OWN, "-----"),
        ("unknown role", caller("n", &["doctor"]), OWN, "-----"),
    ];
    for (name, caller, arguments, expected) in table {
        assert_eq!(calls(&desk, &caller, arguments).await, expected, "{name}");
    }
}

#[tokio::test]
async fn a_listing_shows_what_some_arguments_would_allow() {
    let desk = HospitalPolicy::open().await;
    let tools: Vec<_> = TOOLS.iter().map(|(name, ..)| tool(name)).collect();
    for (caller, expected) in [
        (doctor(), 5),
        (nurse(), 5),
        (billing(), 1),
        (patient(), 4),
        (auditor(), 0),
        (caller("n", &[]), 0),
    ] {
        let visible = desk
            .client
            .list_visible(&desk.with_token(&caller), &tools)
            .await
            .unwrap();
        let in_order: Vec<_> = TOOLS
            .iter()
            .map(|(name, ..)| *name)
            .take(expected)
            .collect();
        assert_eq!(visible, in_order, "{}", caller.subject());
    }
}

#[tokio::test]
async fn a_denial_says_its_kind_and_the_policies_that_decided() {
    let desk = HospitalPolicy::open().await;
    let records = tool("get_medical_records");
    assert_eq!(
        desk.denial(&billing(), &records, "{}").await,
        (DenialReason::NotPermitted, false)
    );
    assert_eq!(
        desk.denial(&auditor(), &records, "{}").await,
        (DenialReason::Forbidden, false)
    );
    assert_eq!(
        desk.denial(&patient(), &records, FOREIGN).await,
        (DenialReason::NotPermitted, true)
    );
    assert_eq!(
        desk.decide(&auditor(), &records, "{}").await.policies,
        ["auditor-calls-no-tool"]
    );
    assert_eq!(
        desk.decide(&doctor(), &records, "{}").await.policies,
        ["doctor-calls-clinical-and-staff-tools"]
    );
}

/// Returns one letter for each row: y admitted, . withheld.
async fn reads(desk: &HospitalPolicy, caller: &Caller, name: &str, rows: &[Row]) -> String {
    let rule = desk
        .permit(caller, &tool(name), OWN)
        .await
        .row_rule
        .unwrap();
    let admitted = |row| {
        if admits(&rule, caller.subject(), row) {
            'y'
        } else {
            '.'
        }
    };
    rows.iter().map(admitted).collect()
}

const MINE: &str = "dr.yenji";
const OTHER: &str = "dr.other";

#[tokio::test]
async fn each_role_reads_its_patients_and_admissions_and_no_other() {
    let desk = HospitalPolicy::open().await;
    let rows = [
        row([
            ("patient_id", "NUGWI"),
            ("attending_doctor", MINE),
            ("ward", "W1"),
        ]),
        row([
            ("patient_id", "ABCDE"),
            ("attending_doctor", OTHER),
            ("ward", "W2"),
        ]),
        row([
            ("patient_id", "NUGWI"),
            ("attending_doctor", OTHER),
            ("ward", "W1"),
        ]),
        row([]),
    ];
    for name in ["get_patient_overview", "get_admissions"] {
        assert_eq!(reads(&desk, &doctor(), name, &rows).await, "y...");
        assert_eq!(reads(&desk, &nurse(), name, &rows).await, ".y..");
        assert_eq!(reads(&desk, &patient(), name, &rows).await, "y.y.");
    }
    assert_eq!(
        reads(&desk, &billing(), "get_patient_overview", &rows).await,
        "yyyy"
    );
}

#[tokio::test]
async fn each_role_reads_its_appointments_and_no_other() {
    let desk = HospitalPolicy::open().await;
    let appointment = |doctor, attending, ward, patient| {
        row([
            ("doctor", doctor),
            ("attending_doctor", attending),
            ("ward", ward),
            ("patient_id", patient),
        ])
    };
    let rows = [
        appointment(MINE, OTHER, "W1", "NUGWI"),
        appointment(OTHER, MINE, "W2", "ABCDE"),
        appointment(OTHER, OTHER, "W1", "ABCDE"),
        row([("doctor", MINE)]),
    ];
    assert_eq!(
        reads(&desk, &doctor(), "get_appointments", &rows).await,
        "yy.y"
    );
    assert_eq!(
        reads(&desk, &nurse(), "get_appointments", &rows).await,
        ".y.."
    );
    assert_eq!(
        reads(&desk, &patient(), "get_appointments", &rows).await,
        "y..."
    );
}

#[tokio::test]
async fn a_sealed_record_is_read_by_the_assigned_doctor_alone() {
    let desk = HospitalPolicy::open().await;
    let record = |assigned, attending, sealed| {
        row([
            ("assigned_doctor", assigned),
            ("attending_doctor", attending),
            ("ward", "W2"),
            ("patient_id", "NUGWI"),
            ("sealed", sealed),
        ])
    };
    let rows = [
        record(MINE, OTHER, "false"),
        record(OTHER, MINE, "false"),
        record(OTHER, OTHER, "false"),
        record(MINE, OTHER, "true"),
        record(OTHER, MINE, "true"),
        row([
            ("assigned_doctor", MINE),
            ("ward", "W2"),
            ("patient_id", "NUGWI"),
        ]),
        row([
            ("attending_doctor", MINE),
            ("ward", "W2"),
            ("sealed", "true"),
        ]),
    ];
    assert_eq!(
        reads(&desk, &doctor(), "get_medical_records", &rows).await,
        "yy.y.y."
    );
    assert_eq!(
        reads(&desk, &nurse(), "get_medical_records", &rows).await,
        "yyy..y."
    );
    assert_eq!(
        reads(&desk, &patient(), "get_medical_records", &rows).await,
        "yyy..y."
    );
}

#[tokio::test]
async fn staff_read_their_own_shifts_only() {
    let desk = HospitalPolicy::open().await;
    let shift = |staff| row([("staff", staff), ("ward", "W2")]);
    let rows = [shift(MINE), shift("nurse.okoro"), row([])];
    assert_eq!(reads(&desk, &doctor(), "get_shifts", &rows).await, "y..");
    assert_eq!(reads(&desk, &nurse(), "get_shifts", &rows).await, ".y.");
}

#[tokio::test]
async fn a_nurse_whose_token_names_no_ward_reads_no_patient() {
    let desk = HospitalPolicy::open().await;
    let rule = desk
        .permit(&caller("n", &["Nurse"]), &tool("get_admissions"), "{}")
        .await
        .row_rule
        .unwrap();
    assert_eq!((rule.all, rule.policies_json.len()), (false, 0));
}

#[tokio::test]
async fn a_caller_with_two_roles_reads_the_rows_of_both() {
    let desk = HospitalPolicy::open().await;
    let both = caller_with("dr.yenji", &["Doctor", "Nurse"], [("ward", text("W2"))]);
    let rule = desk
        .permit(&both, &tool("get_admissions"), "{}")
        .await
        .row_rule
        .unwrap();
    assert!(admits(
        &rule,
        "dr.yenji",
        &row([("attending_doctor", "dr.yenji")])
    ));
    assert!(admits(&rule, "dr.yenji", &row([("ward", "W2")])));
    assert!(!admits(&rule, "dr.yenji", &row([("ward", "W1")])));
}

#[tokio::test]
async fn each_role_sees_each_column_class_in_its_tier() {
    let desk = HospitalPolicy::open().await;
    // One letter for each class, in the order of CLASSES: Clear, Partial, pSeudonym, Generalised, - dropped.
    let table = [
        (doctor(), "CCCCCCCCCCC-"),
        (nurse(), "CPPPCCC-----"),
        (billing(), "CC-CG---C-C-"),
        (patient(), "CCSCCCCCCCC-"),
    ];
    for (caller, expected) in table {
        let tiers = desk
            .permit(&caller, &tool("get_patient_overview"), OWN)
            .await
            .column_tiers;
        assert_eq!(letters(&tiers), expected, "{}", caller.subject());
    }
}

fn letters(tiers: &BTreeMap<ColumnClass, ColumnTier>) -> String {
    let letter = |class: &&str| match tiers.get(&class.parse().unwrap()) {
        Some(ColumnTier::Clear) => 'C',
        Some(ColumnTier::Partial) => 'P',
        Some(ColumnTier::Pseudonym) => 'S',
        Some(ColumnTier::Generalised) => 'G',
        Some(ColumnTier::Dropped) => 'D',
        None => '-',
    };
    CLASSES.iter().map(letter).collect()
}

#[tokio::test]
async fn only_a_patients_permit_is_bound_to_arguments() {
    let desk = HospitalPolicy::open().await;
    let records = tool("get_medical_records");
    assert_eq!(
        desk.permit(&patient(), &records, OWN)
            .await
            .arguments_digest,
        Some(Digest::compute(OWN.as_bytes()))
    );
    for caller in [doctor(), nurse()] {
        assert_eq!(
            desk.permit(&caller, &records, "not even JSON")
                .await
                .arguments_digest,
            None
        );
    }
}
