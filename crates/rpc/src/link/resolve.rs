//! Lookup of the addresses of a service.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

/// A function that looks up the addresses of a service.
pub(super) type Lookup =
    Arc<dyn Fn() -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Looks up addresses with the system resolver: the hosts file, then DNS. A headless Service returns every pod that is ready.
pub(super) fn system(host: &str, port: u16) -> Lookup {
    // In a URL, an IPv6 address has brackets.
    let host: Arc<str> = host.trim_matches(['[', ']']).into();
    Arc::new(move || {
        let host = Arc::clone(&host);
        Box::pin(async move { Ok(tokio::net::lookup_host((&*host, port)).await?.collect()) })
    })
}
