//! An HTTP server of a test.

use std::net::SocketAddr;

use axum::Router;
use tokio::net::TcpListener;

/// Serves `router` on a free port of loopback for as long as the test's runtime lives.
pub async fn serve(router: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await;
    let listener = listener.expect("a port of loopback is free");
    let address = listener.local_addr().expect("a listener has an address");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}
