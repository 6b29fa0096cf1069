//! The fields of a form or a query.

use bytes::Bytes;
use http::{HeaderMap, header};
use serde::{Deserialize, Serialize};

use crate::problem::Problem;

/// Maximum number of fields, which is more than any form of the console has.
const MOST: usize = 512;

/// The names and values of the fields, in the order of the request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FormFields(Vec<(String, String)>);

impl FormFields {
    pub(crate) fn of_query(query: Option<&str>) -> Result<Self, Problem> {
        Self::parse_urlencoded(query.unwrap_or_default().as_bytes())
    }

    pub(crate) fn of_form(headers: &HeaderMap, body: &Bytes) -> Result<Self, Problem> {
        let media = headers.get(header::CONTENT_TYPE);
        let media = media
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(Problem::Input(
                "Send the form as application/x-www-form-urlencoded.".to_owned(),
            ));
        }
        Self::parse_urlencoded(body)
    }

    fn parse_urlencoded(bytes: &[u8]) -> Result<Self, Problem> {
        let fields: Vec<_> = url::form_urlencoded::parse(bytes)
            .take(MOST + 1)
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        if fields.len() > MOST {
            return Err(Problem::Input(format!("Send at most {MOST} fields.")));
        }
        Ok(Self(fields))
    }

    /// Returns the value of a field, or the first one if the field occurs several times.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.0.iter().filter(|(own, _)| own == name);
        values.next().map(|(_, value)| value.as_str())
    }

    /// Returns the trimmed value of a field, or `None` if it is blank.
    pub(crate) fn get_non_blank(&self, name: &str) -> Option<&str> {
        self.get(name)
            .map(str::trim)
            .filter(|value| !value.is_empty())
    }
}

/// Encodes `pairs` as a query string, without the `?`.
pub(crate) fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    url::form_urlencoded::Serializer::new(String::new())
        .extend_pairs(pairs)
        .finish()
}

/// Encodes `text` as one segment of a path.
pub(crate) fn segment(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
