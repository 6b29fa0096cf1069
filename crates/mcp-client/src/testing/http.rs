//! Servers at a URL.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::HeaderMap;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use wardgate_egress::{
    AuthSettings, ClientSettings, EgressSettings, HttpSettings, PrivateAddresses,
};

use super::fixture::Fixture;
use crate::Transport;

/// Serves `router`, and returns the URL of its MCP endpoint.
pub async fn serve(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

pub fn settings(url: &str) -> Transport {
    let url: url::Url = url.parse().unwrap();
    let private = PrivateAddresses::Allowed;
    let egress = EgressSettings::for_url(&url, [], private, Duration::from_secs(20), 1 << 20);
    Transport::Http(Box::new(HttpSettings {
        url,
        listing: AuthSettings::None,
        client: ClientSettings {
            egress,
            headers: HeaderMap::new(),
            auth: AuthSettings::None,
        },
    }))
}

/// Starts a real server of that era. With `json`, it responds in JSON where possible.
pub async fn fixture(era: &str, json: bool) -> (Fixture, String) {
    let fixture = Fixture::new(era);
    let url = serve_fixture(&fixture, json).await;
    (fixture, url)
}

/// Serves `fixture`, and returns its URL.
pub async fn serve_fixture(fixture: &Fixture, json: bool) -> String {
    let server = fixture.clone();
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(!json)
        .with_json_response(json);
    let service: StreamableHttpService<Fixture, LocalSessionManager> =
        StreamableHttpService::new(move || Ok(server.clone()), Arc::default(), config);
    serve(Router::new().nest_service("/mcp", service)).await
}
