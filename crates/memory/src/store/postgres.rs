//! The PostgreSQL backend, which uses the schema `memory`.

use wardgate_store::postgres::{Rights, Schema};

pub(super) const SCHEMA: Schema = Schema {
    name: "memory",
    lock: 0x5741_5244_4d45_4d4f,
    migrations: &[
        include_str!("postgres/0001_conversations.sql"),
        include_str!("postgres/0002_changes.sql"),
        include_str!("postgres/0003_rekeying.sql"),
    ],
    rights: Rights::Rows,
};
