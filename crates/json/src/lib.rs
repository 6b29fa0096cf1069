//! JSON that every parser reads in the same way, kept as it was written.
//!
//! ```text
//!   bytes ──▶ scan: valid, no duplicate members, not too deep ──▶ &str ─┬─▶ parse_strict: a tree
//!                                                                       ├─▶ Members, MessageMembers: values not parsed
//!                                                                       ├─▶ replace_parts: every other byte unchanged
//!                                                                       └─▶ Json: exact digits, canonical form
//! ```
//!
//! JSON parsers treat unusual input differently, and an attacker can exploit the differences. Numbers keep their digits
//! everywhere: nothing in this crate rounds a number to a double.

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
    MAX_DIGITS, decimal, decimal_of, decimal_of_text, exact_double, exact_float, exact_number,
    integral, number_of, whole_number,
};
pub use object::{parse_object, present};
pub use scan::{ScanError, is_strict, parse_strict, scan};
pub use splice::{replace_part, replace_parts};
pub use unique::has_unique_members;
