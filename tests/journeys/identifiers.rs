//! Identifiers of people, and a search for them in the data that a system leaves behind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use sqlx::{AssertSqlSafe, Column, Connection, Row, SqliteConnection, ValueRef};

/// The beginning of the values of each kind: the identifiers that HIPAA names (45 CFR 164.514(b)(2)), a card and a
/// passport. These texts occur nowhere else.
pub(super) const KINDS: [(&str, &str); 20] = [
    ("name", "Thaddeus Quillfeather"),
    ("address", "47 Bramblewick Lane"),
    ("birth_date", "1931-07-19"),
    ("telephone", "+1 206 555 0187"),
    ("fax", "+1 206 555 0943"),
    ("email", "t.quillfeather@example.net"),
    ("social_security", "219-09-9937"),
    ("medical_record", "MRN58820417"),
    ("health_plan", "HPB-6630-1955"),
    ("account", "GB33BUKB20201555558137"),
    ("licence", "DL Q7735092"),
    ("vehicle", "1HGCM82633A971537"),
    ("device", "PACE-440917X"),
    ("web_address", "https://charts.example.net/p/88231"),
    ("ip_address", "203.0.113.219"),
    ("biometric", "FMR20-9bc41e77"),
    ("photograph", "face-88231.jpg"),
    ("patient", "QZXVK-PLOMB"),
    ("card", "4929 7318 5526 0094"),
    ("passport", "X4471902K"),
];

/// Returns a value of a kind. `origin` identifies its source, in case the value is found.
pub(super) fn identifier(kind: usize, origin: &str, number: usize) -> String {
    format!("{}.{origin}.{number}", KINDS[kind].1)
}

/// One encoding of an identifier.
struct IdentifierForm {
    what: String,
    bytes: Vec<u8>,
}

/// A search for identifiers of every kind in every encoding, which also counts the bytes that it searched.
pub(super) struct IdentifierSearch {
    needles: Vec<IdentifierForm>,
    /// The indices of the needles that begin with each pair of bytes.
    by_start: Vec<Vec<usize>>,
    report: Mutex<SearchReport>,
}

#[derive(Default)]
struct SearchReport {
    /// The findings, one for each encoding and place.
    found: BTreeMap<String, String>,
    searched: BTreeMap<&'static str, u64>,
}

/// Number of bytes before and after a finding that are reported.
const CONTEXT: usize = 120;

impl IdentifierSearch {
    pub(super) fn new() -> Self {
        let mut needles = Vec::new();
        let mut by_start = vec![Vec::new(); 1 << 16];
        for (kind, stem) in KINDS {
            for (form, bytes) in forms(stem) {
                by_start[start_of(bytes[0], bytes[1])].push(needles.len());
                let what = format!("{kind} {form}");
                needles.push(IdentifierForm { what, bytes });
            }
        }
        Self {
            needles,
            by_start,
            report: Mutex::default(),
        }
    }

    fn report(&self) -> MutexGuard<'_, SearchReport> {
        self.report.lock().unwrap()
    }

    /// Searches the data of `place`.
    pub(super) fn search_bytes(&self, place: &'static str, bytes: &[u8]) {
        *self.report().searched.entry(place).or_default() += bytes.len() as u64;
        let last = bytes.len().saturating_sub(1);
        for at in 0..last {
            for needle in &self.by_start[start_of(bytes[at], bytes[at + 1])] {
                let needle = &self.needles[*needle];
                if bytes[at..].starts_with(&needle.bytes) {
                    let around = at.saturating_sub(CONTEXT)..(at + CONTEXT).min(bytes.len());
                    let around = String::from_utf8_lossy(&bytes[around]).into_owned();
                    let what = format!("{} in {place}", needle.what);
                    self.report().found.entry(what).or_insert(around);
                }
            }
        }
    }

    /// Searches every file below `directory` for whose name `is_meant` is true.
    pub(super) fn look_into_files(
        &self,
        place: &'static str,
        directory: &Path,
        is_meant: fn(&str) -> bool,
    ) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.look_into_files(place, &path, is_meant);
            } else if is_meant(path.file_name().unwrap().to_str().unwrap()) {
                self.search_bytes(place, &std::fs::read(path).unwrap());
            }
        }
    }

    /// Searches every value of every table, because in the file a value may be split across pages.
    pub(super) async fn look_into_tables(&self, place: &'static str, file: &Path) {
        let url = format!("sqlite:{}?mode=ro", file.display());
        let mut database = SqliteConnection::connect(&url).await.unwrap();
        let tables = "SELECT name FROM sqlite_schema WHERE type = 'table'";
        let tables: Vec<String> = sqlx::query_scalar(tables)
            .fetch_all(&mut database)
            .await
            .unwrap();
        for table in tables {
            let select = AssertSqlSafe(format!("SELECT * FROM {table}"));
            for row in sqlx::query(select).fetch_all(&mut database).await.unwrap() {
                for column in row.columns() {
                    let value = row.try_get_raw(column.ordinal()).unwrap();
                    if !value.is_null() {
                        let bytes: &[u8] = row.try_get_unchecked(column.ordinal()).unwrap();
                        self.search_bytes(place, bytes);
                    }
                }
            }
        }
    }

    /// Returns the findings, each with its context.
    pub(super) fn findings(&self) -> BTreeMap<String, String> {
        self.report().found.clone()
    }

    /// Returns the number of bytes that were searched in each place.
    pub(super) fn searched_bytes(&self) -> BTreeMap<&'static str, u64> {
        self.report().searched.clone()
    }
}

fn start_of(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

/// Returns the encodings of a text: unchanged, in hexadecimal, in Base64 at any offset within a longer text, and as in
/// URLs and forms.
fn forms(stem: &str) -> BTreeSet<(&'static str, Vec<u8>)> {
    let hex = hexadecimal(stem);
    let form: String = url::form_urlencoded::byte_serialize(stem.as_bytes()).collect();
    let mut forms = BTreeSet::from([
        ("in hexadecimal", hex.to_uppercase().into_bytes()),
        ("in hexadecimal", hex.into_bytes()),
        ("in a URL", form.replace('+', "%20").into_bytes()),
        ("in a URL", stem.replace(' ', "%20").into_bytes()),
        ("in a form", form.into_bytes()),
    ]);
    for before in 0..3 {
        let padded = [vec![0; before], stem.as_bytes().to_vec()].concat();
        // These are the characters that depend only on the text.
        let whole = (before * 8).div_ceil(6)..padded.len() * 8 / 6;
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let encoded = engine.encode(&padded).into_bytes();
            forms.insert(("in Base64", encoded[whole.clone()].to_vec()));
        }
    }
    // An encoding that equals the text is listed only once.
    forms.retain(|(_, bytes)| bytes != stem.as_bytes());
    forms.insert(("as it is", stem.as_bytes().to_vec()));
    forms
}

fn hexadecimal(text: &str) -> String {
    let digits: Vec<_> = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    digits.concat()
}

#[test]
fn an_identifier_is_found_in_every_form() {
    for (kind, (name, _)) in KINDS.iter().enumerate() {
        let value = identifier(kind, "test", 7);
        let hex = hexadecimal(&value);
        let base64 = |before: &str| STANDARD_NO_PAD.encode(format!("{before}{value}"));
        let url: String = url::form_urlencoded::byte_serialize(value.as_bytes()).collect();
        for written in [
            format!("{{\"a\":\"{value}\"}}"),
            hex.to_uppercase(),
            hex,
            base64(""),
            base64("{"),
            base64("{\""),
            url.replace('+', "%20"),
            url,
        ] {
            let search = IdentifierSearch::new();
            search.search_bytes("a log", format!("some words {written} and more").as_bytes());
            let found = search.findings();
            let of_kind = found.keys().filter(|what| what.starts_with(name));
            assert!(of_kind.count() > 0, "{written}: {found:?}");
        }
    }
    let search = IdentifierSearch::new();
    search.search_bytes("a log", b"1931 07 19, 219 09 9937, T. Quillfeather");
    assert!(search.findings().is_empty());
    assert_eq!(search.searched_bytes()["a log"], 40);
}
