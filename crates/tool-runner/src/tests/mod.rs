//! Tests of the service through its own client, on every available database.

mod arguments;
mod commands;
mod connections;
mod content;
pub(crate) mod database;
mod derived;
mod exact_numbers;
mod exchanged;
mod grants;
mod grpc;
mod guarded;
pub(crate) mod harness;
mod imported;
mod imports;
mod lists;
mod mysql;
mod permits;
mod pinned;
mod postgres_types;
mod queries;
mod reload;
mod results;
mod row_oracle;
mod rows;
mod server_requests;
mod skills;
mod snapshot;
mod sources;
mod statement_log;
mod stored_results;
pub(crate) mod stores;
mod switches;
mod upstream_content;
mod watching;
mod watching_own;
mod withheld_rows;

#[test]
#[ignore = "the program that other tests start"]
fn program() {
    wardgate_mcp_client::testing::program::run();
}
