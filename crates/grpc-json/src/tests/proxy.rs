//! Calls through an HTTP proxy.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use wardgate_egress::{NetworkSettings, TlsSettings};
use wardgate_testkit::TestCertificate;

use super::*;

/// Starts a proxy that answers one request with `answer`, and tunnels to `target` whatever host was requested. Returns the
/// request.
async fn start_proxy(target: SocketAddr, answer: &'static str) -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(client.read_u8().await.unwrap());
        }
        let head = format!("HTTP/1.1 {answer}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        if answer.starts_with("200") {
            let mut server = TcpStream::connect(target).await.unwrap();
            let tunnelled = tokio::spawn(async move {
                // Either side may end the connection first.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
            drop(tunnelled);
        }
        String::from_utf8(request).unwrap().to_ascii_lowercase()
    });
    (port, asked)
}

fn through(url: &Url, proxy: &str, tls: TlsSettings) -> GrpcServer {
    let mut settings = settings(url, Some(descriptors()));
    settings.egress.private = PrivateAddresses::Refused;
    settings.egress.network = NetworkSettings {
        tls,
        proxy: Some(proxy.parse().unwrap()),
    };
    open(&settings)
}

fn routes() -> axum::Router {
    methods(pool(), answers(vec![parcel(&json!({"parcelId": "p1"}))]))
}

#[tokio::test]
async fn a_server_whose_name_only_the_proxy_resolves_is_called_through_it() {
    let server = TestServer::start(routes()).await;
    let (port, asked) = start_proxy(server.address, "200 OK").await;
    let url: Url = "http://parcels.example:7000".parse().unwrap();
    let proxy = format!("http://me:can%61ry@localhost:{port}");
    let client = through(&url, &proxy, TlsSettings::default());
    assert_eq!(get(&client).await.unwrap()["parcelId"], "p1");
    let asked = asked.await.unwrap();
    assert!(
        asked.starts_with("connect parcels.example:7000 "),
        "{asked}"
    );
    assert!(
        asked.contains("proxy-authorization: basic bwu6y2fuyxj5"),
        "{asked}"
    );
}

#[tokio::test]
async fn a_certificate_is_verified_through_the_proxy_too() {
    let certificate = TestCertificate::localhost();
    let server = TestServer::start_tls(&certificate.certificate, &certificate.key, routes()).await;
    let trusted = TlsSettings {
        ca: Some(certificate.certificate.clone()),
        identity: None,
    };
    for (tls, is_called) in [(trusted, true), (TlsSettings::default(), false)] {
        let (port, _asked) = start_proxy(server.address, "200 OK").await;
        let url: Url = "https://localhost:7001".parse().unwrap();
        let client = through(&url, &format!("http://127.0.0.1:{port}"), tls);
        assert_eq!(get(&client).await.is_ok(), is_called);
    }
}

#[tokio::test]
async fn a_refusal_of_the_proxy_is_told_without_its_password() {
    let server = TestServer::start(routes()).await;
    for answer in ["403 Forbidden", "407 Proxy Authentication Required"] {
        let (port, _asked) = start_proxy(server.address, answer).await;
        let url: Url = "http://parcels.example:7000".parse().unwrap();
        let proxy = format!("http://me:canary@127.0.0.1:{port}");
        let client = through(&url, &proxy, TlsSettings::default());
        let error = get(&client).await.unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(!text.contains("canary"), "{text}");
    }
}
