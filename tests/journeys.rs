//! Journeys: what people and programs do with the whole product, through the real binary.
//!
//! Each test starts a system of its own and uses it from outside, by HTTP, gRPC and the command line. A
//! test's name is a sentence that holds; `promises` has those that the design makes.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking, with the reason"
)]

/// The binary under test.
const WARDGATE: &str = env!("CARGO_BIN_EXE_wardgate");
/// The repository.
const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

mod journeys {
    mod authorization;
    mod clinic;
    mod collector;
    mod extra_tools;
    mod identifiers;
    mod people;
    mod refusals;

    mod agent;
    mod api_keys;
    mod approvals;
    mod architecture;
    mod arguments;
    mod audit_log;
    mod bad_bodies;
    mod bad_input;
    mod bad_tokens;
    mod caller_lookup;
    mod change;
    mod chat;
    mod connect;
    mod connect_route;
    mod console;
    mod cost;
    mod direct_methods;
    mod doctor;
    mod documentation;
    mod drain;
    mod examples;
    mod floods;
    mod guides;
    mod history;
    mod hops;
    mod hospital;
    mod init;
    mod limits;
    mod login;
    mod memory;
    mod migrations;
    mod oauth_clients;
    mod operators;
    mod output;
    mod passwords;
    mod policy_bundles;
    mod policy_diff;
    mod policy_replay;
    mod postgres;
    mod promises {
        mod p1_permit;
        mod p2_record;
        mod p3_rows_and_columns;
        mod p4_identifiers;
        mod p4_nothing_raw;
        mod p5_matrix;
        mod p5_visibility;
        mod p6_refusals;
        mod p7_kill;
        mod p7_standby;
        mod p8_sources;
        mod p9_pins;
    }
    mod record;
    mod revocation;
    mod samples;
    mod separate_processes;
    mod shadow;
    mod shared_limits;
    mod skills;
    mod sse;
    mod standby;
    mod start_up;
    mod stdio;
    mod subscriptions;
    mod switches;
    mod three_gateways;
    mod traces;
    mod upstream;
    mod versions;
    mod witness;
}
