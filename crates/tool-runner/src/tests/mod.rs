//! The service through its own client, on every database that is there.

mod arguments;
mod carriage;
mod commands;
mod content;
mod database;
mod derived;
mod grpc;
mod guarded;
pub(crate) mod harness;
mod imported;
mod imports;
mod kept;
mod mysql;
mod permits;
mod queries;
pub(crate) mod record;
mod relay;
mod reload;
mod results;
mod rows;
mod snapshot;
mod sources;
mod statement_log;
mod switches;
mod talks;
mod upstream_content;
mod watching;
