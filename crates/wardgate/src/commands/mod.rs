//! The commands, one module for each.

pub(crate) mod agent;
pub(crate) mod api_key;
pub(crate) mod approvals;
mod approver;
pub(crate) mod audit;
pub(crate) mod calls;
pub(crate) mod certs;
pub(crate) mod classes;
pub(crate) mod config;
pub(crate) mod connections;
pub(crate) mod console;
pub(crate) mod conversations;
pub(crate) mod doctor;
pub(crate) mod extract;
pub(crate) mod health;
pub(crate) mod import;
pub(crate) mod init;
pub(crate) mod limits;
pub(crate) mod login;
pub(crate) mod migrate;
mod operator;
mod output;
pub(crate) mod pins;
pub(crate) mod policy;
mod program;
mod progress;
pub(crate) mod revoke;
mod running;
pub(crate) mod serve;
pub(crate) mod shell;
pub(crate) mod stdio;
pub(crate) mod switches;
mod terminal;
pub(crate) mod token;
pub(crate) mod tools;
pub(crate) mod up;
pub(crate) mod validate;
mod warnings;

/// Environment variable with the caller's token, used unless a file is named. It is preferred to an argument, because every
/// process of the machine can read the arguments of another.
const TOKEN: &str = "WARDGATE_TOKEN";
