//! The service through its own client, on every database that is there.

mod arguments;
mod database;
mod derived;
mod harness;
mod mysql;
mod permits;
mod queries;
mod reload;
mod results;
mod rows;
mod sources;
mod statement_log;
