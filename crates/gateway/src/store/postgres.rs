//! PostgreSQL: the schema `gateway` of any database.

use sqlx::PgPool;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use wardgate_store::postgres::Schema;

use super::LIMIT;

pub(super) const SCHEMA: Schema = Schema {
    name: "gateway",
    lock: 0x5741_5244_4741_5445,
    migrations: &[
        include_str!("postgres/0001_sessions.sql"),
        include_str!("postgres/0002_subscriptions.sql"),
    ],
};

const CONNECTIONS: u32 = 8;

/// Connects on first use.
pub(super) fn pool(options: &PgConnectOptions) -> PgPool {
    // The server gives a statement up no later than whoever waits for it.
    let limit = format!("{}ms", LIMIT.as_millis());
    let options = options
        .clone()
        .application_name("wardgate gateway")
        .options([
            ("synchronous_commit", "on"),
            ("statement_timeout", limit.as_str()),
        ]);
    PgPoolOptions::new()
        .max_connections(CONNECTIONS)
        .acquire_timeout(LIMIT)
        .connect_lazy_with(options)
}
