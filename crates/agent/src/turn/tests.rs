//! Tests of turns with a scripted model and a fake gateway.

mod approval;
mod caps;
mod crash;
mod errors;
mod fixture;
mod guardrail;
mod journey;
mod quoted_calls;
mod recorded;
mod refused;
mod retrying_gateway;
mod summary;
