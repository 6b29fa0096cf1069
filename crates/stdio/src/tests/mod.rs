//! Tests with a client on one side and a scripted gateway on the other.

mod client;
mod endings;
mod legacy;
mod modern;
mod server;
mod tokens;
