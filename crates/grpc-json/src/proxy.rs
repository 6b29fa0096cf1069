//! Connections to a server through an HTTP proxy, by `CONNECT` (RFC 9110, section 9.3.6).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use tokio::net::TcpStream;
use tower::{Service, service_fn};
use url::{Host, Url};
use wardgate_egress::EgressError;

const HTTP_PORT: u16 = 80;

/// Connects to the server at `url` through `proxy`, which resolves the name of the server. TLS with the server comes on top, so
/// the proxy sees its name alone.
pub(super) async fn tunnel(url: &Url, proxy: &Url) -> Result<TokioIo<TcpStream>, EgressError> {
    let invalid = || EgressError::Unreachable("the URL of the proxy cannot be used".to_owned());
    let [server, at] = [url, proxy].map(|url| url.as_str().parse::<Uri>());
    let (server, at) = (server.map_err(|_| invalid())?, at.map_err(|_| invalid())?);
    let proxy = proxy.clone();
    let authorization = authorization(&proxy).map_err(|_| invalid())?;
    let connect = service_fn(move |_: Uri| connect(proxy.clone()));
    let mut tunnel = Tunnel::new(at, connect);
    if let Some(authorization) = authorization {
        tunnel = tunnel.with_auth(authorization);
    }
    // The causes name addresses and statuses, and no credentials.
    tunnel.call(server).await.map_err(|error| {
        let cause = std::error::Error::source(&error)
            .map_or_else(|| error.to_string(), ToString::to_string);
        EgressError::Unreachable(format!("the proxy does not connect to the server: {cause}"))
    })
}

/// Connects to the proxy, which may have any address, since an operator configured it.
async fn connect(proxy: Url) -> std::io::Result<TokioIo<TcpStream>> {
    let port = proxy.port().unwrap_or(HTTP_PORT);
    let stream = match proxy.host() {
        Some(Host::Domain(name)) => TcpStream::connect((name, port)).await?,
        Some(Host::Ipv4(address)) => TcpStream::connect((address, port)).await?,
        Some(Host::Ipv6(address)) => TcpStream::connect((address, port)).await?,
        None => return Err(std::io::ErrorKind::InvalidInput.into()),
    };
    stream.set_nodelay(true)?;
    Ok(TokioIo::new(stream))
}

/// Returns the credentials of the URL of a proxy as `Proxy-Authorization`, or `None` if it has none.
fn authorization(proxy: &Url) -> Result<Option<HeaderValue>, http::header::InvalidHeaderValue> {
    if proxy.username().is_empty() && proxy.password().is_none() {
        return Ok(None);
    }
    let mut credentials: Vec<u8> = percent_decode_str(proxy.username()).collect();
    credentials.push(b':');
    credentials.extend(percent_decode_str(proxy.password().unwrap_or_default()));
    let text = format!("Basic {}", STANDARD.encode(credentials));
    let mut value = HeaderValue::try_from(text)?;
    value.set_sensitive(true);
    Ok(Some(value))
}
