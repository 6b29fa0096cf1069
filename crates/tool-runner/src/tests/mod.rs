//! The service through its own client, on every database that is there.

mod arguments;
mod guarded;
mod permits;
mod queries;
mod reload;
mod results;
mod rows;
mod sources;
mod switches;
pub(crate) mod harness;
pub(crate) mod record;
