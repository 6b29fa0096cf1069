//! Trusted proxies in front of a listener, and the client addresses that they state.
//!
//! ```text
//!  client ─▶ proxy ─▶ listener: PROXY protocol before the first byte ─▶ X-Forwarded-For or Forwarded of each request
//!            only proxies in trusted networks are believed; any other peer is itself the client
//! ```

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The proxies whose statements about client addresses are trusted. The default trusts none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrustedProxies {
    /// The networks of the proxies: addresses, and networks such as `10.0.0.0/8`.
    #[serde(serialize_with = "write_networks", deserialize_with = "read_networks")]
    pub networks: Vec<IpNet>,
    /// The header in which the proxies name the client.
    pub header: ForwardingHeader,
    /// Whether each connection of the proxies begins with the PROXY protocol, version 1 or 2.
    pub proxy_protocol: bool,
}

/// The header in which a proxy names its client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardingHeader {
    /// `X-Forwarded-For`: a list of addresses, of which each proxy appends that of its client.
    #[default]
    XForwardedFor,
    /// `Forwarded` (RFC 7239), of which the parameter `for` is used.
    Forwarded,
    /// No header: the address is that of the PROXY protocol or of the connection.
    None,
}

fn read_networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(deserializer)?;
    let read = |text: &String| {
        let network = text.parse::<IpNet>().ok();
        network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
    };
    let unknown = |text: &String| {
        let told = format!("`{text}` is neither an address nor a network such as 10.0.0.0/8");
        serde::de::Error::custom(told)
    };
    texts
        .iter()
        .map(|text| read(text).ok_or_else(|| unknown(text)))
        .collect()
}

fn write_networks<S: Serializer>(networks: &[IpNet], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(networks.iter().map(ToString::to_string))
}

impl TrustedProxies {
    /// Returns whether `address` belongs to a trusted proxy.
    pub(super) fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks
            .iter()
            .any(|network| network.contains(&address))
    }

    /// Returns whether a connection from `peer` begins with the PROXY protocol.
    pub(super) fn announces(&self, peer: SocketAddr) -> bool {
        self.proxy_protocol && self.contains(peer.ip())
    }

    /// Returns the client that made a request: the last address in the header that is not itself a trusted proxy. If
    /// `peer` is not trusted, it is the client, whatever the header contains. A missing port is 0.
    pub(super) fn client(&self, peer: SocketAddr, headers: &HeaderMap) -> SocketAddr {
        if !self.contains(peer.ip()) {
            return peer;
        }
        let (name, read): (HeaderName, fn(&str) -> Option<SocketAddr>) = match self.header {
            ForwardingHeader::XForwardedFor => {
                (HeaderName::from_static("x-forwarded-for"), read_address)
            }
            ForwardingHeader::Forwarded => (header::FORWARDED, read_forwarded),
            ForwardingHeader::None => return peer,
        };
        let fields: Vec<&str> = headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .collect();
        let hops = fields.iter().rev().flat_map(|field| field.rsplit(','));
        let mut client = peer;
        for hop in hops {
            // An unreadable entry may have been written by anyone, and so may all entries before it.
            let Some(address) = read(hop.trim()) else {
                break;
            };
            client = address;
            if !self.contains(address.ip()) {
                break;
            }
        }
        client
    }
}

/// Parses an address with or without a port. An IPv6 address with a port is in brackets.
fn read_address(text: &str) -> Option<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    let ip = bare.unwrap_or(text).parse::<IpAddr>().ok();
    let address = match ip {
        Some(ip) => SocketAddr::new(ip, 0),
        None => text.parse().ok()?,
    };
    Some(canonical(address))
}

/// Parses the parameter `for` of one element of `Forwarded` (RFC 7239, section 4).
fn read_forwarded(element: &str) -> Option<SocketAddr> {
    let pairs = element.split(';').map(str::trim);
    let mut named = pairs.filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        name.eq_ignore_ascii_case("for").then_some(value)
    });
    read_address(named.next()?.trim_matches('"'))
}

/// Converts an IPv4-mapped IPv6 address to IPv4, so that an IPv4 client of an IPv6 listener has its IPv4 address.
pub(super) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The signature of version 2, which is longer than the shortest header of version 1.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Maximum length of a header of version 1, including the line break, in bytes.
const LONGEST_LINE: usize = 107;

/// Reads a header of the PROXY protocol (haproxy.org, proxy-protocol.txt, versions 1 and 2), and not a byte more.
/// Returns the client that it names, or `None` if the proxy connects on its own behalf, as for health checks.
pub(super) async fn read_proxy_header(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<SocketAddr>> {
    let mut first = [0; SIGNATURE.len()];
    stream.read_exact(&mut first).await?;
    if first == SIGNATURE {
        return read_binary(stream).await;
    }
    let mut line = first.to_vec();
    while !line.ends_with(b"\r\n") {
        if line.len() == LONGEST_LINE {
            return Err(no_header());
        }
        line.push(stream.read_u8().await?);
    }
    let line = str::from_utf8(&line).map_err(|_| no_header())?;
    let words: Vec<&str> = line.trim_end().split(' ').collect();
    match words[..] {
        ["PROXY", "UNKNOWN", ..] => Ok(None),
        ["PROXY", "TCP4" | "TCP6", source, _, port, _] => {
            let ip: IpAddr = source.parse().map_err(|_| no_header())?;
            let port = port.parse().map_err(|_| no_header())?;
            Ok(Some(canonical(SocketAddr::new(ip, port))))
        }
        _ => Err(no_header()),
    }
}

async fn read_binary(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let [command, family, high, low] = stream.read_u32().await?.to_be_bytes();
    let mut body = vec![0; usize::from(u16::from_be_bytes([high, low]))];
    stream.read_exact(&mut body).await?;
    match command {
        // The command LOCAL.
        0x20 => return Ok(None),
        // The command PROXY.
        0x21 => {}
        _ => return Err(no_header()),
    }
    let address = match family >> 4 {
        1 => {
            let [a, b, c, d, _, _, _, _, high, low, ..] = body[..] else {
                return Err(no_header());
            };
            let port = u16::from_be_bytes([high, low]);
            SocketAddr::new(Ipv4Addr::new(a, b, c, d).into(), port)
        }
        2 => {
            let ip = body.first_chunk::<16>().ok_or_else(no_header)?;
            let port = body.get(32..34).ok_or_else(no_header)?;
            let port = port
                .iter()
                .fold(0, |port, byte| port << 8 | u16::from(*byte));
            SocketAddr::new(Ipv6Addr::from(*ip).into(), port)
        }
        // A Unix socket, or an unspecified address family.
        _ => return Ok(None),
    };
    Ok(Some(canonical(address)))
}

fn no_header() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "not a header of the PROXY protocol",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trusted_proxies(header: ForwardingHeader) -> TrustedProxies {
        TrustedProxies {
            networks: vec!["10.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()],
            header,
            proxy_protocol: true,
        }
    }

    fn client(header: ForwardingHeader, peer: &str, fields: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, value.parse().unwrap());
        }
        let peer = peer.parse().unwrap();
        trusted_proxies(header).client(peer, &headers).to_string()
    }

    #[test]
    fn the_client_is_the_last_address_that_no_trusted_proxy_has() {
        let via = |peer: &str, value: &str| {
            client(
                ForwardingHeader::XForwardedFor,
                peer,
                &[("x-forwarded-for", value)],
            )
        };
        assert_eq!(via("10.0.0.1:9", "192.0.2.7"), "192.0.2.7:0");
        assert_eq!(via("10.0.0.1:9", "192.0.2.7:443"), "192.0.2.7:443");
        assert_eq!(via("[fd00::1]:9", "2001:db8::7"), "[2001:db8::7]:0");
        assert_eq!(via("[fd00::1]:9", "[2001:db8::7]:5"), "[2001:db8::7]:5");
        // Addresses before the last untrusted one are ignored, because its client may have made them up.
        assert_eq!(
            via("10.0.0.1:9", "198.51.100.1, 192.0.2.7, 10.2.3.4"),
            "192.0.2.7:0"
        );
        // The header of an untrusted peer is ignored.
        assert_eq!(via("192.0.2.7:9", "198.51.100.1"), "192.0.2.7:9");
        assert_eq!(via("10.0.0.1:9", "198.51.100.1, nonsense"), "10.0.0.1:9");
        let both = [
            ("x-forwarded-for", "192.0.2.7"),
            ("x-forwarded-for", "10.2.3.4"),
        ];
        assert_eq!(
            client(ForwardingHeader::XForwardedFor, "10.0.0.1:9", &both),
            "192.0.2.7:0"
        );
    }

    #[test]
    fn only_the_header_that_is_configured_is_read() {
        let fields = [
            ("x-forwarded-for", "198.51.100.1"),
            (
                "forwarded",
                r#"proto=https;for="[2001:db8::7]:47011", for=10.9.9.9"#,
            ),
        ];
        let by = |header| client(header, "10.0.0.1:9", &fields);
        assert_eq!(by(ForwardingHeader::Forwarded), "[2001:db8::7]:47011");
        assert_eq!(by(ForwardingHeader::XForwardedFor), "198.51.100.1:0");
        assert_eq!(by(ForwardingHeader::None), "10.0.0.1:9");
        let hidden = [("forwarded", "for=_hidden")];
        assert_eq!(
            client(ForwardingHeader::Forwarded, "10.0.0.1:9", &hidden),
            "10.0.0.1:9"
        );
    }

    async fn header(bytes: &[u8]) -> (Option<String>, usize) {
        let mut left = bytes;
        let read = read_proxy_header(&mut left).await;
        let told = read.map_or_else(
            |_| Some("refused".to_owned()),
            |client| client.map(|client| client.to_string()),
        );
        (told, left.len())
    }

    fn binary(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, family], &length, body, b"GET"].concat()
    }

    #[tokio::test]
    async fn both_versions_of_the_proxy_protocol_name_the_client_and_leave_what_follows() {
        let told = |text: &str| (Some(text.to_owned()), 3);
        let line = b"PROXY TCP4 192.0.2.7 10.0.0.1 47011 443\r\nGET";
        assert_eq!(header(line).await, told("192.0.2.7:47011"));
        let line = b"PROXY TCP6 2001:db8::7 fd00::1 47011 443\r\nGET";
        assert_eq!(header(line).await, told("[2001:db8::7]:47011"));
        assert_eq!(header(b"PROXY UNKNOWN\r\nGET").await, (None, 3));
        let v4 = [192, 0, 2, 7, 10, 0, 0, 1, 0xb7, 0xa3, 1, 0xbb, 4, 0, 1, 0];
        assert_eq!(
            header(&binary(0x21, 0x11, &v4)).await,
            told("192.0.2.7:47011")
        );
        let v6 = [
            &"2001:db8::7".parse::<Ipv6Addr>().unwrap().octets()[..],
            &[0; 16],
            &[0xb7, 0xa3, 1, 0xbb],
        ];
        assert_eq!(
            header(&binary(0x21, 0x21, &v6.concat())).await,
            told("[2001:db8::7]:47011")
        );
        assert_eq!(header(&binary(0x20, 0, &[])).await, (None, 3));
    }

    #[tokio::test]
    async fn what_is_no_header_of_the_proxy_protocol_is_refused() {
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            b"PROXY TCP4 nonsense 10.0.0.1 1 2\r\n",
            b"PROXY TCP4 192.0.2.7 10.0.0.1 99999 2\r\n",
            &[&b"PROXY TCP4 "[..], &[b'1'; 200], b"\r\n"].concat(),
            &binary(0x31, 0x11, &[0; 12]),
            &binary(0x21, 0x11, &[0; 4]),
            &binary(0x21, 0x21, &[0; 20]),
            b"PROXY",
        ] {
            assert_eq!(header(bytes).await.0.as_deref(), Some("refused"));
        }
    }

    #[test]
    fn networks_are_read_from_addresses_and_prefixes() {
        let read = |text: &str| serde_json::from_str::<TrustedProxies>(text);
        let proxies = read(r#"{"networks":["10.0.0.0/8","192.0.2.1"]}"#).unwrap();
        assert!(proxies.contains([10, 1, 2, 3].into()) && proxies.contains([192, 0, 2, 1].into()));
        assert!(!proxies.contains([192, 0, 2, 2].into()));
        let refused = read(r#"{"networks":["example.org"]}"#).unwrap_err();
        assert!(refused.to_string().contains("`example.org` is neither"));
    }
}
