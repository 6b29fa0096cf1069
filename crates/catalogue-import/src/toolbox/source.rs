//! Conversion of a source of a Toolbox file to one URL, which never contains the password.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::reference::{Reference, References, TextPart};
use super::{ToolboxEntry, scalar};
use crate::draft::{Draft, SourceDraft};
use crate::text;
use wardgate_catalogue::SqlDialect;

/// Characters that are encoded in parts of a URL: all except the unreserved characters of RFC 3986.
const PART: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Characters that are encoded in a host, which may be an IPv6 address in brackets.
const HOST: &AsciiSet = &PART.remove(b'[').remove(b']').remove(b':');

/// Characters that are encoded in the path of a SQLite database.
const PATH: &AsciiSet = &PART.remove(b'/').remove(b':');

/// Types of sources, and their dialects. Sources with an `instance` are reached through a special connector.
const TYPES: [(&str, SqlDialect); 11] = [
    ("postgres", SqlDialect::Postgres),
    ("cockroachdb", SqlDialect::Postgres),
    ("cloud-sql-postgres", SqlDialect::Postgres),
    ("alloydb-postgres", SqlDialect::Postgres),
    ("mysql", SqlDialect::Mysql),
    ("mariadb", SqlDialect::Mysql),
    ("tidb", SqlDialect::Mysql),
    ("oceanbase", SqlDialect::Mysql),
    ("cloud-sql-mysql", SqlDialect::Mysql),
    ("singlestore", SqlDialect::Mysql),
    ("sqlite", SqlDialect::Sqlite),
];

/// Fields that become part of the URL, or that can be ignored.
const KNOWN: [&str; 10] = [
    "type", "kind", "name", "host", "port", "database", "user", "password", "instance", "region",
];

/// Adds the source and returns its dialect, or `None` if it cannot be carried over.
pub(super) fn import(
    name: &str,
    resource: &ToolboxEntry,
    references: &References,
    draft: &mut Draft,
) -> Option<SqlDialect> {
    let Some((_, dialect)) = TYPES.iter().find(|(kind, _)| *kind == resource.kind) else {
        draft.leave_out_source(
            name,
            &format!("`{}` is not a supported database", resource.kind),
        );
        return None;
    };
    let mut source = SourceDraft {
        name: name.to_owned(),
        ..SourceDraft::default()
    };
    let (word, scheme) = match dialect {
        SqlDialect::Postgres => ("postgres", "postgres"),
        SqlDialect::Mysql => ("mysql", "mysql"),
        SqlDialect::Sqlite => ("sqlite", "sqlite"),
    };
    let mut parts = UrlBuilder {
        name,
        resource,
        references,
        draft,
    };
    let url = match dialect {
        SqlDialect::Sqlite => parts.part("database").map(|path| format!("sqlite:{path}")),
        _ => parts.server(scheme),
    };
    let url = url.unwrap_or_else(|| {
        source
            .reviews
            .push("its address is not a host in the file: set the URL of the database".to_owned());
        let variable = format!("{}_URL", text::variable(name));
        let sample = if *dialect == SqlDialect::Sqlite {
            "sqlite:x.db"
        } else {
            scheme
        };
        let sample = format!("{sample}://user@host/database");
        draft.variable(
            &variable,
            "the URL of the database, with user and password",
            &sample,
        )
    });
    for field in resource.fields.keys() {
        if !KNOWN.contains(&field.as_str()) {
            source
                .reviews
                .push(format!("its `{field}` is not imported"));
        }
    }
    if *dialect == SqlDialect::Postgres {
        source.reviews.push(
            "for a remote database, TLS with a valid certificate is required, unless `?sslmode=…` is set otherwise"
                .to_owned(),
        );
    }
    source.fields.insert("type".to_owned(), word.into());
    source.fields.insert("url".to_owned(), url.into());
    draft.source(&source).then_some(*dialect)
}

/// A builder of the parts of a URL.
struct UrlBuilder<'a> {
    name: &'a str,
    resource: &'a ToolboxEntry,
    references: &'a References,
    draft: &'a mut Draft,
}

impl UrlBuilder<'_> {
    fn server(&mut self, scheme: &str) -> Option<String> {
        let host = self.part("host")?;
        let user = self.part("user");
        let password = self.password();
        let user_info = match (user, password) {
            (Some(user), Some(password)) => format!("{user}:{password}@"),
            (Some(user), None) => format!("{user}@"),
            _ => String::new(),
        };
        let port = self
            .part("port")
            .map_or_else(String::new, |port| format!(":{port}"));
        let database = self.part("database").unwrap_or_default();
        Some(format!("{scheme}://{user_info}{host}{port}/{database}"))
    }

    /// Returns a field with its literal text percent-encoded. The values of variables must be encoded by the person who
    /// sets them.
    fn part(&mut self, field: &str) -> Option<String> {
        let text = scalar(self.resource.fields.get(field))?;
        let encoded = match field {
            "database" if self.resource.kind == "sqlite" => PATH,
            "host" => HOST,
            _ => PART,
        };
        let mut part = String::new();
        for piece in self.references.pieces(&text) {
            match piece {
                TextPart::Text(text) => part.extend(utf8_percent_encode(text, encoded)),
                TextPart::Reference(reference) => part.push_str(&self.reference(reference, field)),
            }
        }
        (!part.is_empty()).then_some(part)
    }

    /// Returns a reference to the password. A password that is not a reference in the file is replaced by a variable,
    /// because secrets must not be written to the file.
    fn password(&mut self) -> Option<String> {
        let text = scalar(self.resource.fields.get("password")).filter(|text| !text.is_empty())?;
        let pieces = self.references.pieces(&text);
        if let [TextPart::Reference(Reference { name, .. })] = pieces.as_slice() {
            let reference = Reference {
                name: name.clone(),
                default: None,
            };
            return Some(self.reference(&reference, "password"));
        }
        let variable = format!("{}_PASSWORD", text::variable(self.name));
        let about = format!(
            "the password of source `{}`, percent-encoded; the file contained it in plain text",
            self.name
        );
        Some(self.draft.variable(&variable, &about, "1"))
    }

    fn reference(&mut self, Reference { name, default }: &Reference, field: &str) -> String {
        let about = format!("the {field} of source `{}`, percent-encoded", self.name);
        let reference = self.draft.variable(name, &about, "1");
        match default {
            // A default never contains `}`, which would end the reference.
            Some(default) => format!("${{{name}:-{default}}}"),
            None => reference,
        }
    }
}
