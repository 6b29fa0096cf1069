//! The service through its own client, on every database that is there.

mod arguments;
mod harness;
mod permits;
mod queries;
mod reload;
mod results;
mod rows;
mod sources;
