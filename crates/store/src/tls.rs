//! Verification of the certificates of database servers, for stores and for sources of tools.

use std::net::IpAddr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// Returns whether `host` is this machine, so that unencrypted traffic to it does not leave the machine.
pub fn is_this_machine(host: &str) -> bool {
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    // In a URL an IPv6 address is enclosed in brackets.
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.starts_with('/') || address.parse().is_ok_and(is_loopback)
}

/// Returns the options with `sslmode=verify-full`, unless they name a mode or the server is on this machine. By default
/// the driver falls back to plain text if the server refuses TLS, and verifies no certificate.
pub fn verify_server(options: PgConnectOptions) -> PgConnectOptions {
    let is_here = options.get_socket().is_some() || is_this_machine(options.get_host());
    match options.get_ssl_mode() {
        PgSslMode::Prefer if !is_here => options.ssl_mode(PgSslMode::VerifyFull),
        _ => options,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_this_machine_is_encrypted_for_a_server_that_is_known() {
        for (url, verifies) in [
            ("postgres://u@localhost/d", false),
            ("postgres://u@127.0.0.1/d", false),
            ("postgres://u@[::1]/d", false),
            ("postgres://u@db.example/d?host=/run/postgresql", false),
            ("postgres://u@db.example/d", true),
            ("postgres://u@10.0.0.7/d?sslmode=prefer", true),
            ("postgres://u@10.0.0.7/d?sslmode=require", false),
            ("postgres://u@10.0.0.7/d?sslmode=disable", false),
        ] {
            let options = verify_server(url.parse().unwrap());
            let mode = options.get_ssl_mode();
            assert_eq!(matches!(mode, PgSslMode::VerifyFull), verifies, "{url}");
        }
    }
}
