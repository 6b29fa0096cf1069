//! Assistants: a person asks, a model decides, governed tools run, the answer uses what they gave.

#[cfg_attr(
    not(test),
    expect(dead_code, reason = "its users are the next commits")
)]
mod model;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "its users are the next commits")
)]
mod provider;
