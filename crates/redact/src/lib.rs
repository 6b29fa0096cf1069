//! Field-level redaction by column class and tier.
//!
//! ```text
//!                        classify: column name ──▶ (class, tier)
//!                                     │
//!   rows from a source ──▶ Redactor::rows ──▶ Redacted<Vec<Row>>  +  RedactionCounts
//!                                     │
//!      clear        as stored         │ pseudonym    [NAME_7f3a9c0be1d24a58]
//!      partial      J••• D•••, •••WI  │ generalised  2025, 021, 90+
//!      dropped      nothing           │
//! ```
//!
//! What happens to a field depends on its tier, which the permit sets, and on its class, whose last dotted word
//! determines its kind:
//!
//! | kind | words | partial | generalised |
//! |---|---|---|---|
//! | identifier | `id`, `insurance`, `account`, `number`; other words of the family `id` | last two characters | `[withheld]` |
//! | name | `name` | first letter of each word of three characters or more | `[withheld]` |
//! | phone | `phone`, `fax` | last four digits | `[withheld]` |
//! | e-mail | `email` | first letter and top-level domain | `[withheld]` |
//! | date | `date`, `datetime` | year and month | year |
//! | postcode | `zip`, `postcode` | first three characters | first three characters |
//! | age | `age` | `•••` | ten years (`40-49`), `90+` |
//! | anything else | `text`, `address`, `code`, … | `[withheld]` | `[withheld]` |
//!
//! - Pseudonyms look the same for every kind: the last word of the class and 64 bits of HMAC-SHA-256 (RFC 2104) under a
//!   key of the tenant. Equal values of one class and tenant have equal pseudonyms.
//! - A partial value never shows more than two fifths of an identifier or a phone number, and nothing of a value of one
//!   to three characters. A value that does not have the format of its kind is withheld completely.
//! - A deployment can configure other [`Form`]s for classes: rounded numbers or bands, coordinates with fewer digits,
//!   dates by quarter or decade, shorter postcodes.
//! - `null` and the empty text are not changed. Numbers are masked as their JSON text, and booleans are masked
//!   completely. Generalised numbers and booleans are left out if their class has no form for numbers. In arrays and
//!   objects every leaf is masked by the class of the column; the names of members are kept.
//! - The mask has a fixed width, so it does not reveal the length of the value. Characters are Unicode scalar values,
//!   which are never split.
//!
//! ```
//! use std::sync::Arc;
//! use serde_json::json;
//! use wardgate_domain::{ColumnClass, ColumnTier};
//! use wardgate_redact::{ConfiguredForms, PseudonymKey, Redactor, Row};
//!
//! let redactor = Redactor::new(&PseudonymKey::new([7; 32]), "st-anna");
//! let rows = vec![Row::new(vec![
//!     (Arc::from("patient"), json!("NUGWI")),
//!     (Arc::from("note"), json!("seen by Dr Yenji")),
//! ])];
//! let (id, text): (ColumnClass, ColumnClass) = ("id.patient".parse()?, "phi.text".parse()?);
//!
//! let (rows, counts) = redactor.rows(rows, ConfiguredForms::NONE, |column| match column {
//!     "patient" => (&id, ColumnTier::Partial),
//!     _ => (&text, ColumnTier::Dropped),
//! });
//!
//! assert_eq!(serde_json::to_string(&rows)?, r#"[{"patient":"•••WI"}]"#);
//! assert_eq!((counts.fields_redacted, counts.phi), (2, true));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dropped;
mod form;
mod kind;
mod pseudonym;
mod redacted;
mod redactor;
mod row;
mod rows;

pub use dropped::{DropReason, DroppedColumns};
pub use form::Form;
pub use kind::{ClassForms, ConfiguredForms, Kind};
pub use pseudonym::PseudonymKey;
pub use redacted::Redacted;
pub use redactor::{RedactionCounts, Redactor};
pub use row::Row;
pub use rows::{Aggregate, FigureQuestion};
