//! An HTTP server for tests.

use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;

/// Serves `router` on a free port of loopback until the runtime of the test ends.
pub async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port of loopback is free");
    let address = listener.local_addr().expect("a listener has an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}
