//! Verification of the certificates of database servers, for stores and for sources of tools.

use std::net::IpAddr;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

/// Returns a host of a URL without the brackets that enclose an IPv6 address there. The drivers keep the brackets, and
/// would look the address up as a name.
pub fn without_brackets(host: &str) -> &str {
    let inside = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    inside.unwrap_or(host)
}

/// Returns whether `host` is this machine, so that unencrypted traffic to it does not leave the machine.
pub fn is_this_machine(host: &str) -> bool {
    let is_loopback = |ip: IpAddr| ip.is_loopback();
    host == "localhost"
        || host.starts_with('/')
        || without_brackets(host).parse().is_ok_and(is_loopback)
}

/// Returns the options with a host that the driver can connect to, and with `sslmode=verify-full`, unless they name a
/// mode or the server is on this machine. By default the driver falls back to plain text if the server refuses TLS, and
/// verifies no certificate.
pub fn verify_server(options: PgConnectOptions) -> PgConnectOptions {
    let host = without_brackets(options.get_host()).to_owned();
    let options = options.host(&host);
    let is_here = options.get_socket().is_some() || is_this_machine(&host);
    match options.get_ssl_mode() {
        PgSslMode::Prefer if !is_here => options.ssl_mode(PgSslMode::VerifyFull),
        _ => options,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_address_is_connected_to_without_its_brackets() {
        for (url, host) in [
            ("postgres://u@[fd00::7]:5433/d", "fd00::7"),
            ("postgres://u@10.0.0.7/d", "10.0.0.7"),
            ("postgres://u@db.example/d", "db.example"),
        ] {
            let options = verify_server(url.parse().unwrap());
            assert_eq!(options.get_host(), host, "{url}");
        }
    }

    #[test]
    fn what_leaves_this_machine_is_encrypted_for_a_server_that_is_known() {
        for (url, verifies) in [
            ("postgres://u@localhost/d", false),
            ("postgres://u@127.0.0.1/d", false),
            ("postgres://u@[::1]/d", false),
            ("postgres://u@db.example/d?host=/run/postgresql", false),
            ("postgres://u@db.example/d", true),
            ("postgres://u@[fd00::7]/d", true),
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
