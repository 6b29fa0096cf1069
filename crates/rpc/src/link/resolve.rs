//! The addresses behind a name, as they are now.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

/// Looks the addresses of a service up.
pub(super) type Lookup =
    Arc<dyn Fn() -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> + Send + Sync>;

/// Asks the system: its hosts file, then DNS. A headless Service answers with every pod that is ready.
pub(super) fn system(host: &str, port: u16) -> Lookup {
    // As it stands in a URL, an IPv6 address has brackets.
    let host: Arc<str> = host.trim_matches(['[', ']']).into();
    Arc::new(move || {
        let host = Arc::clone(&host);
        Box::pin(async move { Ok(tokio::net::lookup_host((&*host, port)).await?.collect()) })
    })
}
