//! The service through its own client, on every database that is there.

mod arguments;
mod commands;
mod harness;
mod permits;
mod reload;
mod results;
mod rows;
mod sources;
