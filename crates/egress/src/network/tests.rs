//! Tests of services behind TLS and behind a proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use wardgate_testkit::TestCertificate;

use super::*;
use crate::{Egress, EgressError, EgressRequest, EgressSettings, PrivateAddresses};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok";

/// Starts a server with the certificate `own` that requires a client certificate of `client`.
async fn start_tls(own: &TestCertificate, client: &TestCertificate) -> SocketAddr {
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&client.certificate)).unwrap();
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![certificate(&own.certificate)],
            PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut connection = acceptor.accept(connection).await?;
                let mut request = [0; 4_096];
                let _ = connection.read(&mut request).await?;
                connection.write_all(OK).await?;
                connection.shutdown().await
            });
        }
    });
    address
}

/// Starts a proxy that tunnels one connection to `target`, whatever host is requested, and returns the request.
async fn start_proxy(target: SocketAddr) -> (SocketAddr, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked = tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(client.read_u8().await.unwrap());
        }
        let mut server = TcpStream::connect(target).await.unwrap();
        client
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await
            .unwrap();
        // It does not matter which side closes first, because the response has been transferred by then.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        String::from_utf8(request).unwrap()
    });
    (address, asked)
}

fn identity(of: &TestCertificate) -> ClientIdentity {
    ClientIdentity {
        certificate: of.certificate.clone(),
        key: Secret::from(of.key.clone()),
    }
}

async fn get(
    url: &str,
    private: PrivateAddresses,
    network: NetworkSettings,
) -> Result<String, EgressError> {
    let url: Url = url.parse().unwrap();
    let settings = EgressSettings {
        network,
        ..EgressSettings::for_url(&url, [], private, Duration::from_secs(20), 1_024)
    };
    let response = Egress::open(settings)?
        .send(EgressRequest::new(Method::GET, url))
        .await?;
    let body = response.body.bytes().await?;
    Ok(String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_private_authority_vouches_for_the_service_and_a_certificate_for_us() {
    let (own, client) = (TestCertificate::localhost(), TestCertificate::localhost());
    let port = start_tls(&own, &client).await.port();
    let url = format!("https://localhost:{port}/");
    let with = |ca: &TestCertificate, identity| NetworkSettings {
        tls: TlsSettings {
            ca: Some(ca.certificate.clone()),
            identity,
        },
        proxy: None,
    };
    let reached = get(
        &url,
        PrivateAddresses::Allowed,
        with(&own, Some(identity(&client))),
    )
    .await;
    assert_eq!(reached.unwrap(), "ok");
    for (wrong, network) in [
        ("another authority", with(&client, Some(identity(&client)))),
        ("no certificate of ours", with(&own, None)),
        ("a stranger's certificate", with(&own, Some(identity(&own)))),
        ("the system's authorities", NetworkSettings::default()),
    ] {
        let refused = get(&url, PrivateAddresses::Allowed, network).await;
        assert!(refused.is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn a_proxy_reaches_the_service_which_nothing_here_resolves() {
    let (own, client) = (TestCertificate::localhost(), TestCertificate::localhost());
    let target = start_tls(&own, &client).await;
    let (proxy, asked) = start_proxy(target).await;
    let network = NetworkSettings {
        tls: TlsSettings {
            ca: Some(own.certificate.clone()),
            identity: Some(identity(&client)),
        },
        // The proxy is addressed by name: it may have a private address although the service may not.
        proxy: Some(
            format!("http://me:canary@localhost:{}", proxy.port())
                .parse()
                .unwrap(),
        ),
    };
    assert!(!format!("{network:?}").contains("canary"));
    let port = target.port();
    let url = format!("https://localhost:{port}/");
    let reached = get(&url, PrivateAddresses::Refused, network).await;
    assert_eq!(reached.unwrap(), "ok");
    let asked = asked.await.unwrap();
    assert!(
        asked.starts_with(&format!("CONNECT localhost:{port} HTTP/1.1\r\n")),
        "{asked}"
    );
    assert!(
        asked
            .to_lowercase()
            .contains("proxy-authorization: basic bwu6y2fuyxj5"),
        "{asked}"
    );
}

#[tokio::test]
async fn a_host_that_is_not_the_services_is_not_reached_by_a_proxy_either() {
    let nobody: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let (proxy, _asked) = start_proxy(nobody).await;
    let network = NetworkSettings {
        tls: TlsSettings::default(),
        proxy: Some(format!("http://{proxy}").parse().unwrap()),
    };
    let settings = EgressSettings {
        network,
        ..EgressSettings::for_url(
            &"https://service.example".parse().unwrap(),
            [],
            PrivateAddresses::Refused,
            Duration::from_secs(20),
            1_024,
        )
    };
    let other = EgressRequest::new(Method::GET, "https://other.example/".parse().unwrap());
    let refused = Egress::open(settings).unwrap().send(other).await;
    assert!(matches!(refused, Err(EgressError::HostNotListed(_))));
}

#[test]
fn a_proxy_is_an_http_server_that_does_not_receive_the_client_certificate() {
    let own = TestCertificate::localhost();
    let with_proxy = |tls: &TlsSettings, proxy| NetworkSettings::new(tls.clone(), proxy);
    let none = TlsSettings::default();
    let tls = TlsSettings {
        ca: None,
        identity: Some(identity(&own)),
    };
    assert_eq!(with_proxy(&none, None), Ok(NetworkSettings::default()));
    let network = with_proxy(&tls, Some("http://proxy.example:3128")).unwrap();
    assert_eq!(network.tls, tls);
    assert_eq!(network.proxy.unwrap().port(), Some(3128));
    let invalid = |tls, proxy| with_proxy(tls, Some(proxy)).unwrap_err();
    assert_eq!(invalid(&none, "socks5://proxy"), InvalidProxy::Url);
    let https = "https://proxy.example";
    assert!(with_proxy(&none, Some(https)).is_ok());
    assert_eq!(invalid(&tls, https), InvalidProxy::ReceivesIdentity);
}

#[test]
fn another_service_gets_the_proxy_and_no_certificates() {
    let own = TestCertificate::localhost();
    let url: Url = "https://service.example/v1".parse().unwrap();
    let settings = EgressSettings {
        network: NetworkSettings {
            tls: TlsSettings {
                ca: Some(own.certificate.clone()),
                identity: Some(identity(&own)),
            },
            proxy: Some("http://proxy.example".parse().unwrap()),
        },
        ..EgressSettings::for_url(&url, [], PrivateAddresses::Refused, Duration::ZERO, 0)
    };
    let toward = |url: &str| {
        settings
            .toward(&url.parse().unwrap(), Duration::ZERO, 0)
            .network
    };
    assert_eq!(toward("https://service.example/token"), settings.network);
    let further = EgressSettings {
        hosts: vec![
            "service.example".parse().unwrap(),
            "cdn.example".parse().unwrap(),
        ],
        ..settings.clone()
    };
    let cdn = "https://cdn.example/x".parse().unwrap();
    let cdn = further.toward(&cdn, Duration::ZERO, 0).network;
    assert_eq!(cdn.tls, TlsSettings::default(), "a host of redirects");
    let other = toward("https://id.example/token");
    assert_eq!(other.tls, TlsSettings::default());
    assert_eq!(other.proxy, settings.network.proxy);
}
