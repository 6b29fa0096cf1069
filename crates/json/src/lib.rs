//! JSON that every reader reads alike, kept as it was written.
//!
//! ```text
//!   bytes ──▶ scan: valid, no member twice, not too deep ──▶ &str ─┬─▶ parse_strict: a tree
//!                                                                  ├─▶ Members, MessageMembers: values unread
//!                                                                  ├─▶ replace_parts: every other byte stays
//!                                                                  └─▶ Json: exact digits, canonical form
//! ```
//!
//! JSON parsers differ in what they make of odd input, and an attacker uses the difference. Numbers keep their digits
//! everywhere: nothing here reads one as a double.

mod exact;
mod members;
mod message_members;
mod number;
mod object;
mod scan;
mod splice;
mod unique;

pub use exact::{Json, NotJson};
pub use members::Members;
pub use message_members::{AmbiguousJson, MessageMembers};
pub use number::{
    MAX_DIGITS, decimal, decimal_of, decimal_of_text, exact_number, integral, number_of,
    whole_number,
};
pub use object::{parse_object, present};
pub use scan::{ScanError, is_strict, parse_strict, scan};
pub use splice::{replace_part, replace_parts};
pub use unique::has_unique_members;
