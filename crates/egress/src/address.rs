//! The network addresses at which a source may be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// The addresses outside the public internet that a source may use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum PrivateAddresses {
    /// No such addresses.
    #[default]
    Refused,
    /// All such addresses.
    Allowed,
    /// The addresses in these networks.
    Listed(Vec<IpNet>),
}

impl From<bool> for PrivateAddresses {
    /// Returns all such addresses if `is_allowed`, and otherwise none.
    fn from(is_allowed: bool) -> Self {
        if is_allowed {
            Self::Allowed
        } else {
            Self::Refused
        }
    }
}

impl PrivateAddresses {
    /// Returns whether a connection to `address` may be made.
    pub(super) fn admit(&self, address: IpAddr) -> bool {
        let address = delivery_address(address);
        is_public(address)
            || match self {
                Self::Refused => false,
                Self::Allowed => true,
                Self::Listed(networks) => networks.iter().any(|network| network.contains(&address)),
            }
    }
}

const V4_NOT_PUBLIC: [Ipv4Net; 17] = [
    Ipv4Net::new_assert(Ipv4Addr::UNSPECIFIED, 8), // this network; 0.0.0.0 reaches this host
    Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 8), // private
    Ipv4Net::new_assert(Ipv4Addr::new(100, 64, 0, 0), 10), // carrier-grade NAT
    Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8), // loopback
    Ipv4Net::new_assert(Ipv4Addr::new(168, 63, 129, 16), 32), // a cloud's host agent on a public address
    Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16),   // link-local, cloud metadata
    Ipv4Net::new_assert(Ipv4Addr::new(172, 16, 0, 0), 12),    // private
    Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 0, 0), 24),     // protocol assignments
    Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 0), 24),     // documentation
    Ipv4Net::new_assert(Ipv4Addr::new(192, 88, 99, 0), 24),   // 6to4 relays
    Ipv4Net::new_assert(Ipv4Addr::new(192, 168, 0, 0), 16),   // private
    Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15),    // benchmarks
    Ipv4Net::new_assert(Ipv4Addr::new(198, 51, 100, 0), 24),  // documentation
    Ipv4Net::new_assert(Ipv4Addr::new(203, 0, 113, 0), 24),   // documentation
    Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4),      // multicast
    Ipv4Net::new_assert(Ipv4Addr::new(240, 0, 0, 0), 4),      // reserved
    Ipv4Net::new_assert(Ipv4Addr::BROADCAST, 32),
];

/// The addresses that are assigned for use on the internet. Loopback, unique local, link-local, multicast, unspecified,
/// IPv4-compatible and local NAT64 addresses are all outside of this network.
const V6_PUBLIC: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

const V6_NOT_PUBLIC: [Ipv6Net; 4] = [
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // protocol assignments, Teredo
    Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    Ipv6Net::new_assert(Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4, which carries an IPv4 address
    Ipv6Net::new_assert(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

const NAT64: Ipv6Net = Ipv6Net::new_assert(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Returns the IPv4 address to which packets to an IPv4-mapped or NAT64 address are delivered, or else the address
/// itself.
fn delivery_address(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let [.., a, b, c, d] = v6.octets();
    if v6.to_ipv4_mapped().is_some() || NAT64.contains(&v6) {
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    } else {
        address
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !V4_NOT_PUBLIC.iter().any(|network| network.contains(&v4)),
        IpAddr::V6(v6) => {
            V6_PUBLIC.contains(&v6) && !V6_NOT_PUBLIC.iter().any(|network| network.contains(&v6))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn public_addresses_are_admitted_and_all_others_only_when_allowed() {
        for public in [
            "1.1.1.1",
            "9.255.255.255",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2001:200::1",
            "2606:4700::1111",
            "64:ff9b::101:101",
            "::ffff:1.1.1.1",
        ] {
            assert!(PrivateAddresses::Refused.admit(address(public)), "{public}");
        }
        for other in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.170",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.1.1",
            "198.18.0.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1.1.1.1",
            "100::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!PrivateAddresses::Refused.admit(address(other)), "{other}");
            assert!(PrivateAddresses::Allowed.admit(address(other)), "{other}");
        }
    }

    #[test]
    fn a_listed_network_admits_its_own_addresses_however_they_are_wrapped() {
        let listed = PrivateAddresses::Listed(vec!["10.1.0.0/16".parse().unwrap()]);
        for inside in ["10.1.0.1", "::ffff:10.1.255.255", "64:ff9b::a01:1"] {
            assert!(listed.admit(address(inside)), "{inside}");
        }
        for outside in ["10.2.0.1", "127.0.0.1", "::ffff:10.2.0.1", "fd00::1"] {
            assert!(!listed.admit(address(outside)), "{outside}");
        }
    }
}
