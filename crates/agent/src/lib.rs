//! Assistants: a person asks, a model decides, governed tools run, the answer uses what they gave.

#[expect(dead_code, reason = "its users are the next commits")]
mod model;
mod text_calls;

pub use text_calls::{Failed, Family, UnknownFamily, extract};
