//! Assistants: a person asks, a model decides, governed tools run, the answer uses what they gave.

#[expect(dead_code, reason = "its users are the next commits")]
mod model;
#[expect(dead_code, reason = "the turn is the next commit")]
mod text_calls;
