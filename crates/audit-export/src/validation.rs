//! Validation of settings beyond their types.

use std::collections::BTreeSet;

use wardgate_domain::is_label;

use crate::Error;
use crate::settings::ExportSettings;
use crate::transport::ExportTransport;

impl ExportSettings {
    /// Validates all exports together, and reads the files that they refer to.
    pub fn validate(exports: &[Self]) -> Result<(), Error> {
        let mut names = BTreeSet::new();
        for export in exports {
            if !is_label(&export.name) {
                return Err(Error::Name(export.name.clone()));
            }
            if !names.insert(&export.name) {
                return Err(Error::SameName(export.name.clone()));
            }
            if export.records.as_ref().is_some_and(BTreeSet::is_empty) {
                return Err(Error::NoRecords(export.name.clone()));
            }
            ExportTransport::open(export)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(exports: &str) -> String {
        let exports: Vec<ExportSettings> = serde_json::from_str(exports).unwrap();
        ExportSettings::validate(&exports)
            .map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn an_export_is_named_once_and_goes_to_one_place() {
        let hook = r#""webhook":{"url":"https://siem.example/in"}"#;
        assert_eq!(problem(&format!(r#"[{{"name":"a",{hook}}}]"#)), "");
        let same = problem(&format!(r#"[{{"name":"a",{hook}}},{{"name":"a",{hook}}}]"#));
        assert!(same.contains("two exports are named `a`"), "{same}");
        for (export, expected) in [
            (r#"{"name":"a"}"#.to_owned(), "exactly one of"),
            (format!(r#"{{"name":"A b",{hook}}}"#), "`A b` is not"),
            (
                format!(r#"{{"name":"a","records":[],{hook}}}"#),
                "no kind of record",
            ),
            (
                format!(r#"{{"name":"a",{hook},"otlp":{{"url":"https://c.example"}}}}"#),
                "exactly one of",
            ),
            (
                r#"{"name":"a","webhook":{"url":"http://siem.example/in"}}"#.to_owned(),
                "not a supported URL",
            ),
            (
                r#"{"name":"a","webhook":{"url":"https://u:p@siem.example/in"}}"#.to_owned(),
                "not a supported URL",
            ),
            (
                r#"{"name":"a","otlp":{"url":"https://c.example","signing_key_file":"k"}}"#
                    .to_owned(),
                "is supported only for webhooks",
            ),
            (
                r#"{"name":"a","webhook":{"url":"https://c.example","cert_file":"k"}}"#.to_owned(),
                "or neither",
            ),
            (
                r#"{"name":"a","webhook":{"url":"https://c.example","token_file":"/nowhere"}}"#
                    .to_owned(),
                "/nowhere",
            ),
            (
                r#"{"name":"a","syslog":{"address":"siem","ca_file":"/nowhere"}}"#.to_owned(),
                "not an address",
            ),
            (
                r#"{"name":"a","syslog":{"address":"siem:6514","ca_file":"/nowhere"}}"#.to_owned(),
                "/nowhere",
            ),
        ] {
            let told = problem(&format!("[{export}]"));
            assert!(told.starts_with("audit.exports: "), "{told}");
            assert!(told.contains(expected), "{export}: {told}");
            assert!(!told.contains("u:p"), "{told}");
        }
    }
}
