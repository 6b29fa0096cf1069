//! Random requests, with the meaning of each part as the generator knows it, not as the engine parses it.

use std::collections::BTreeMap;

use wardgate_domain::{
    AttributeValue, Caller, CallerClaims, ColumnClass, Digest, Timestamp, ToolFacts,
};
use wardgate_testkit::{SeededRandom, claims, tool_facts};

/// The tools: name, tag, row type, whether it only reads, and its default for the argument `limit`.
const TOOLS: [(&str, &str, &str, bool, Option<i64>); 13] = [
    ("get_patient_overview", "clinical", "Patient", true, None),
    ("get_admissions", "clinical", "Admission", true, None),
    ("get_appointments", "clinical", "Appointment", true, Some(7)),
    (
        "get_medical_records",
        "clinical",
        "MedicalRecord",
        true,
        None,
    ),
    ("get_shifts", "staff", "Shift", true, None),
    ("write_note", "clinical", "Patient", false, None),
    ("emergency_chart", "emergency", "Patient", true, None),
    ("emergency_order", "emergency", "Patient", false, None),
    ("extract", "research", "Patient", true, None),
    ("extract_some", "research", "Patient", true, Some(50)),
    ("list_day", "office", "Appointment", true, None),
    ("export", "export", "Admission", true, None),
    ("order_drug", "orders", "Patient", false, None),
];

/// The column classes of every tool.
pub(super) const CLASSES: [&str; 12] = [
    "none",
    "id.patient",
    "id.staff",
    "phi.name",
    "phi.date",
    "phi.text",
    "phi.code",
    "contact.phone",
    "contact.address",
    "finance.insurance",
    "finance",
    "unclassified",
];

/// Roles of the policies, of which those with most rules occur more often, and names that only resemble them.
const ROLES: [&str; 14] = [
    "Doctor",
    "Doctor",
    "Nurse",
    "Billing",
    "Billing",
    "Patient",
    "Patient",
    "Researcher",
    "Researcher",
    "Researcher",
    "Auditor",
    "Pharmacist",
    "doctor",
    "Nurse ",
];

const SUBJECTS: [&str; 6] = [
    "dr.yenji",
    "dr.YENJI",
    "o'brien",
    "nurse.joy",
    "研究者",
    "dr.yenji ",
];

const TENANTS: [&str; 7] = ["", "", "", "", "north", "closed", "Closed"];
const WARDS: [&str; 4] = ["W1", "W2", "w2", ""];
const PATIENTS: [&str; 6] = ["NUGWI", "DOSRO", "NÜGWI", "null", "7", ""];
const PURPOSES: [&str; 4] = ["HRESCH", "TREAT", "hresch", ""];
const REASONS: [&str; 3] = ["resuscitation in W4", " ", ""];

/// Values of the argument `patient_id`: as JSON, and the text with which policies compare.
const PATIENT_ARGUMENTS: [(&str, &str); 12] = [
    ("\"NUGWI\"", "NUGWI"),
    ("\"\\u004eUGWI\"", "NUGWI"),
    ("\"nugwi\"", "nugwi"),
    ("\"NUGWI \"", "NUGWI "),
    ("\"DOSRO\"", "DOSRO"),
    ("\"N\\u00dcGWI\"", "NÜGWI"),
    ("\"\"", ""),
    ("null", "null"),
    ("7", "7"),
    ("[\"NUGWI\"]", "[\"NUGWI\"]"),
    ("{\"a\": true}", "{\"a\":true}"),
    ("\"' OR 1 = 1 --\"", "' OR 1 = 1 --"),
];

/// The argument `limit`, which the schema declares as a whole number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LimitArgument {
    Missing,
    Null,
    Number(i64),
    /// A value of another type, or beyond 64 bits.
    Unfit,
}

const LIMIT_ARGUMENTS: [(&str, LimitArgument); 14] = [
    ("1", LimitArgument::Number(1)),
    ("99", LimitArgument::Number(99)),
    ("100", LimitArgument::Number(100)),
    ("101", LimitArgument::Number(101)),
    ("-5", LimitArgument::Number(-5)),
    ("9223372036854775807", LimitArgument::Number(i64::MAX)),
    ("null", LimitArgument::Null),
    ("9223372036854775808", LimitArgument::Unfit),
    ("1.0", LimitArgument::Unfit),
    ("1e2", LimitArgument::Unfit),
    ("\"10\"", LimitArgument::Unfit),
    ("true", LimitArgument::Unfit),
    ("[10]", LimitArgument::Unfit),
    ("{\"limit\": 10}", LimitArgument::Unfit),
];

/// Texts that are not one JSON object with distinct names.
const MALFORMED: [&str; 6] = [
    "",
    "[]",
    "limit=1",
    "{\"limit\": 1} {}",
    "{\"limit\": 1, \"limit\": 1000}",
    "{\"patient_id\": \"NUGWI\", \"patient_id\": \"DOSRO\"}",
];

/// A time: seconds since 1970, and in Berlin the day of the week from 1 (Monday), the minute, and whether it is New Year's Day.
type SampleTime = (i64, u8, u16, bool);

const TIMES: [SampleTime; 16] = [
    (1_799_996_400, 5, 480, false),
    (1_799_992_800, 5, 420, false),
    (1_799_992_740, 5, 419, false),
    (1_800_035_940, 5, 1_139, false),
    (1_800_036_000, 5, 1_140, false),
    (1_800_097_200, 6, 720, false),
    (1_800_226_740, 7, 1_439, false),
    (1_800_226_800, 1, 0, false),
    // In summer, the clocks are another hour ahead.
    (1_814_936_400, 3, 420, false),
    (1_814_936_340, 3, 419, false),
    (1_814_979_540, 3, 1_139, false),
    (1_814_979_600, 3, 1_140, false),
    (1_798_801_200, 5, 720, true),
    (1_798_758_000, 5, 0, true),
    (1_798_757_940, 4, 1_439, false),
    (1_824_980_400, 7, 720, false),
];

/// Addresses of clients, and whether each is in 10.20.0.0/16; `None` if it is not an address.
const ADDRESSES: [(&str, Option<bool>); 10] = [
    ("", Some(false)),
    ("10.20.0.0", Some(true)),
    ("10.20.1.1", Some(true)),
    ("10.20.255.255", Some(true)),
    ("::ffff:10.20.3.4", Some(true)),
    ("10.19.255.255", Some(false)),
    ("10.21.0.0", Some(false)),
    ("2001:db8::1", Some(false)),
    ("192.0.2.1", Some(false)),
    ("10.20.0.0/16", None),
];

/// Counts of earlier exports.
const EXPORTS: [u64; 5] = [0, 2, 3, 4, u64::MAX];

/// A tool, with what the oracle needs to know about it.
#[derive(Debug)]
pub(super) struct SampleTool {
    pub(super) name: &'static str,
    pub(super) tag: &'static str,
    pub(super) entity: &'static str,
    pub(super) read_only: bool,
    pub(super) default_limit: Option<i64>,
}

impl SampleTool {
    pub(super) fn create_all() -> Vec<Self> {
        let tool = |(name, tag, entity, read_only, default_limit)| Self {
            name,
            tag,
            entity,
            read_only,
            default_limit,
        };
        TOOLS.into_iter().map(tool).collect()
    }

    pub(super) fn facts(&self) -> ToolFacts {
        let classes: Vec<ColumnClass> = CLASSES.iter().map(|it| it.parse().unwrap()).collect();
        let default = self.default_limit;
        ToolFacts {
            read_only: self.read_only,
            tags: [self.tag.to_owned()].into(),
            entity: Some(self.entity.to_owned()),
            classes,
            argument_defaults: default
                .map(|limit| ("limit".to_owned(), limit.to_string()))
                .into_iter()
                .collect(),
            ..tool_facts(self.name)
        }
    }
}

/// A caller, with the claims that have the declared type.
#[derive(Debug)]
pub(super) struct SampleCaller {
    pub(super) subject: &'static str,
    pub(super) tenant: &'static str,
    pub(super) roles: Vec<&'static str>,
    pub(super) ward: Option<&'static str>,
    pub(super) patient_id: Option<&'static str>,
    pub(super) purpose: Option<&'static str>,
    pub(super) emergency_reason: Option<&'static str>,
    /// Whether claims that are `None` are in the token with another type instead of being absent.
    has_mistyped_claims: bool,
}

impl SampleCaller {
    pub(super) fn random(random: &mut SeededRandom) -> Self {
        let mut roles = Vec::new();
        for _ in 0..random.below(5) {
            let role = random.choose(&ROLES);
            if !roles.contains(&role) {
                roles.push(role);
            }
        }
        Self {
            subject: random.choose(&SUBJECTS),
            tenant: random.choose(&TENANTS),
            roles,
            ward: optional(random, &WARDS),
            patient_id: optional(random, &PATIENTS),
            purpose: optional(random, &PURPOSES),
            // Most callers are in no emergency.
            emergency_reason: optional(random, &REASONS).filter(|_| random.is_one_in(3)),
            has_mistyped_claims: random.is_one_in(4),
        }
    }

    pub(super) fn has(&self, role: &str) -> bool {
        self.roles.contains(&role)
    }

    pub(super) fn to_caller(&self) -> Caller {
        let claimed = [
            ("ward", self.ward),
            ("patient_id", self.patient_id),
            ("purpose", self.purpose),
            ("emergency_reason", self.emergency_reason),
        ];
        let attribute = |(name, value): (&str, Option<&str>)| {
            let mistyped = self
                .has_mistyped_claims
                .then_some(AttributeValue::Integer(7));
            let value = value.map(|value| AttributeValue::Text(value.to_owned()));
            Some((name.to_owned(), value.or(mistyped)?))
        };
        Caller::from_verified(CallerClaims {
            tenant: self.tenant.to_owned(),
            attributes: claimed.into_iter().filter_map(attribute).collect(),
            expires_at: Timestamp::from_seconds(4_102_444_800),
            ..claims(self.subject, &self.roles)
        })
    }
}

/// Returns one of `values` or, in one of three cases, `None`.
fn optional(random: &mut SeededRandom, values: &[&'static str]) -> Option<&'static str> {
    (!random.is_one_in(3)).then(|| random.choose(values))
}

/// The arguments and the context of a call.
#[derive(Debug)]
pub(super) struct SampleCall {
    pub(super) arguments: String,
    /// Whether the arguments are one JSON object with distinct names.
    pub(super) is_object: bool,
    /// The text of the argument `patient_id`.
    pub(super) patient_id: Option<&'static str>,
    pub(super) limit: LimitArgument,
    pub(super) time: SampleTime,
    /// The address of the client, and whether it is in the network of the policies; `None` if it is not an address.
    pub(super) address: (&'static str, Option<bool>),
    /// The number of earlier exports.
    pub(super) exports: u64,
}

impl SampleCall {
    pub(super) fn random(random: &mut SeededRandom) -> Self {
        let patient = random.choose(&PATIENT_ARGUMENTS);
        let patient = (!random.is_one_in(4)).then_some(patient);
        let limit = random.choose(&LIMIT_ARGUMENTS);
        let limit = random.is_one_in(3).then_some(limit);
        let mut members = Vec::new();
        members.extend(patient.map(|(json, _)| format!("\"patient_id\": {json}")));
        members.extend(limit.map(|(json, _)| format!("\"limit\": {json}")));
        if random.is_one_in(4) {
            members.push("\"note\": [1, {\"limit\": null}]".to_owned());
        }
        if random.is_one_in(2) {
            members.reverse();
        }
        let is_object = !random.is_one_in(20);
        let arguments = if is_object {
            format!("{{{}}}", members.join(", "))
        } else {
            random.choose(&MALFORMED).to_owned()
        };
        let address = random.choose(&ADDRESSES);
        // An invalid address ends every request, so it is rare.
        let is_valid = address.1.is_some() || random.is_one_in(8);
        Self {
            arguments,
            is_object,
            patient_id: patient.map(|(_, text)| text),
            limit: limit.map_or(LimitArgument::Missing, |(_, limit)| limit),
            time: random.choose(&TIMES),
            address: if is_valid { address } else { ADDRESSES[1] },
            exports: random.choose(&EXPORTS),
        }
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::compute(self.arguments.as_bytes())
    }
}

/// A row of a result. A column that is absent is NULL.
#[derive(Debug)]
pub(super) struct SampleRow {
    pub(super) texts: BTreeMap<&'static str, &'static str>,
    pub(super) truths: BTreeMap<&'static str, bool>,
}

impl SampleRow {
    /// Creates a row whose columns often fit `caller`.
    pub(super) fn random(random: &mut SeededRandom, caller: &SampleCaller) -> Self {
        let mut texts = BTreeMap::new();
        for name in ["attending_doctor", "assigned_doctor", "doctor", "staff"] {
            let fitting = random.is_one_in(3).then_some(caller.subject);
            texts.extend(
                fitting
                    .or_else(|| optional(random, &SUBJECTS))
                    .map(|it| (name, it)),
            );
        }
        for (name, own, others) in [
            ("ward", caller.ward, WARDS.as_slice()),
            ("patient_id", caller.patient_id, PATIENTS.as_slice()),
        ] {
            let fitting = own.filter(|_| random.is_one_in(3));
            texts.extend(
                fitting
                    .or_else(|| optional(random, others))
                    .map(|it| (name, it)),
            );
        }
        let mut truths = BTreeMap::new();
        for name in ["sealed", "research_consent"] {
            if !random.is_one_in(3) {
                truths.insert(name, random.is_one_in(2));
            }
        }
        Self { texts, truths }
    }

    pub(super) fn is(&self, column: &str, value: &str) -> bool {
        self.texts.get(column) == Some(&value)
    }

    pub(super) fn is_true(&self, column: &str) -> bool {
        self.truths.get(column) == Some(&true)
    }
}
