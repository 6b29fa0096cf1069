//! Promises of a turn, with a scripted model and a gateway of fakes.

mod approval;
mod caps;
mod crash;
mod errors;
mod fixture;
mod guardrail;
mod journey;
mod patience;
mod recited;
mod recorded;
mod refused;
mod summary;
