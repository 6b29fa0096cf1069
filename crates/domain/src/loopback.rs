//! Detection of loopback hosts in URLs.

use std::net::IpAddr;

/// Returns whether the host of a URL is this machine, so that plain text does not leave it: `localhost` or a loopback
/// address. An IPv6 address is in brackets.
pub fn is_loopback_host(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: IpAddr| address.is_loopback();
    host == "localhost" || address.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "127.0.0.1", "127.8.9.10", "[::1]", "::1"] {
            assert!(is_loopback_host(host), "{host}");
        }
        for host in [
            "",
            "localhost.example",
            "10.0.0.1",
            "[::2]",
            "0.0.0.0",
            "[]",
        ] {
            assert!(!is_loopback_host(host), "{host}");
        }
    }
}
