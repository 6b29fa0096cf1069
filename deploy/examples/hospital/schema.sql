-- The demo hospital. Runs unchanged on SQLite (3.40 or later) and PostgreSQL (14 or later).
--
--   departments ◀── wards ◀── staff ◀── patients ◀──┬── admissions
--                     ▲         ▲                   ├── appointments
--                     └── shifts┘                   └── medical_records
--
-- Instants are text, ISO 8601 in UTC (2025-11-10T10:00:00Z): they sort by time and read the same on
-- both databases.

CREATE TABLE departments (
  department_id TEXT PRIMARY KEY,
  name          TEXT NOT NULL UNIQUE
);

CREATE TABLE wards (
  ward_id       TEXT PRIMARY KEY,
  name          TEXT NOT NULL UNIQUE,
  department_id TEXT NOT NULL REFERENCES departments (department_id),
  beds          INTEGER NOT NULL CHECK (beds > 0)
);

CREATE TABLE staff (
  -- The `sub` of the member's token.
  staff_id  TEXT PRIMARY KEY,
  full_name TEXT NOT NULL,
  role      TEXT NOT NULL CHECK (role IN ('Doctor', 'Nurse', 'Billing', 'Auditor')),
  ward      TEXT REFERENCES wards (ward_id),
  email     TEXT NOT NULL UNIQUE,
  phone     TEXT NOT NULL,
  hired_on  TEXT NOT NULL,
  CHECK (role NOT IN ('Doctor', 'Nurse') OR ward IS NOT NULL),
  UNIQUE (staff_id, ward)
);

CREATE TABLE patients (
  patient_id       TEXT PRIMARY KEY CHECK (length(patient_id) = 5),
  full_name        TEXT NOT NULL,
  birth_date       TEXT NOT NULL,
  sex              TEXT NOT NULL CHECK (sex IN ('F', 'M')),
  phone            TEXT NOT NULL,
  email            TEXT NOT NULL,
  address          TEXT NOT NULL,
  insurance_no     TEXT NOT NULL UNIQUE,
  blood_type       TEXT NOT NULL,
  allergies        TEXT NOT NULL,
  status           TEXT NOT NULL CHECK (status IN ('inpatient', 'outpatient')),
  attending_doctor TEXT NOT NULL,
  ward             TEXT NOT NULL REFERENCES wards (ward_id),
  created_at       TEXT NOT NULL,
  updated_at       TEXT NOT NULL,
  -- A patient's attending doctor works in the patient's ward.
  FOREIGN KEY (attending_doctor, ward) REFERENCES staff (staff_id, ward)
);

CREATE INDEX patients_by_attending_doctor ON patients (attending_doctor);
CREATE INDEX patients_by_ward ON patients (ward);

CREATE TABLE admissions (
  id             INTEGER PRIMARY KEY,
  patient_id     TEXT NOT NULL REFERENCES patients (patient_id),
  admitted_at    TEXT NOT NULL,
  -- NULL while the patient is in hospital.
  discharged_at  TEXT,
  admission_type TEXT NOT NULL CHECK (admission_type IN ('Emergency', 'Elective', 'Transfer')),
  -- Where the patient was admitted to, which need not be where the patient is cared for today.
  ward           TEXT NOT NULL REFERENCES wards (ward_id),
  bed            TEXT NOT NULL,
  reason         TEXT NOT NULL,
  diagnosis_code TEXT NOT NULL,
  outcome        TEXT,
  CHECK (discharged_at IS NULL OR discharged_at > admitted_at)
);

CREATE INDEX admissions_of_patient ON admissions (patient_id, admitted_at);

CREATE TABLE appointments (
  id               INTEGER PRIMARY KEY,
  patient_id       TEXT NOT NULL REFERENCES patients (patient_id),
  doctor           TEXT NOT NULL REFERENCES staff (staff_id),
  scheduled_for    TEXT NOT NULL,
  duration_minutes INTEGER NOT NULL CHECK (duration_minutes > 0),
  room             TEXT NOT NULL,
  reason           TEXT NOT NULL,
  status           TEXT NOT NULL CHECK (status IN ('scheduled', 'completed', 'cancelled', 'no-show')),
  note             TEXT,
  UNIQUE (doctor, scheduled_for)
);

CREATE INDEX appointments_of_patient ON appointments (patient_id, scheduled_for);

CREATE TABLE medical_records (
  id              INTEGER PRIMARY KEY,
  patient_id      TEXT NOT NULL REFERENCES patients (patient_id),
  created_at      TEXT NOT NULL,
  updated_at      TEXT NOT NULL,
  record_type     TEXT NOT NULL
    CHECK (record_type IN ('Diagnosis', 'Treatment', 'Lab Result', 'Investigation', 'Progress Note')),
  content         TEXT NOT NULL,
  note            TEXT,
  assigned_doctor TEXT NOT NULL REFERENCES staff (staff_id),
  -- Only the assigned doctor may read a sealed record. SQLite keeps 0 and 1; the declared type says
  -- that they are truth values.
  sealed          BOOLEAN NOT NULL DEFAULT FALSE,
  CHECK (updated_at >= created_at)
);

CREATE INDEX medical_records_of_patient ON medical_records (patient_id, created_at);

CREATE TABLE shifts (
  id        INTEGER PRIMARY KEY,
  staff     TEXT NOT NULL REFERENCES staff (staff_id),
  ward      TEXT NOT NULL REFERENCES wards (ward_id),
  starts_at TEXT NOT NULL,
  ends_at   TEXT NOT NULL,
  kind      TEXT NOT NULL CHECK (kind IN ('early', 'late', 'night', 'day', 'on call')),
  CHECK (ends_at > starts_at),
  UNIQUE (staff, starts_at)
);
