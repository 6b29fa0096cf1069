//! Tests of the guarded client with misbehaving servers and with names that resolve to forbidden addresses.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use axum::response::Redirect;
use axum::routing::get;
use futures::future::BoxFuture;
use http::header::{ACCEPT, AUTHORIZATION, HeaderValue};
use http::{HeaderName, Method, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use url::Url;
use wardgate_testkit::serve;

use super::guard::{DnsResolver, SystemDns};
use super::*;

const LIMIT: usize = 64 * 1024;

/// Reads the request of the first connection and then passes the connection to `answer`.
async fn serve_once<F>(answer: impl FnOnce(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut connection, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        let read = connection.read(&mut request).await.unwrap();
        assert!(request[..read].ends_with(b"\r\n\r\n"));
        answer(connection).await;
    });
    address
}

fn url(address: SocketAddr, path: &str) -> Url {
    Url::parse(&format!("http://{address}{path}")).unwrap()
}

fn get_request(url: Url) -> EgressRequest {
    EgressRequest::new(Method::GET, url)
}

/// Opens a client that reaches `hosts` on this machine.
fn egress(hosts: &[SocketAddr], timeout: Duration) -> Egress {
    Egress::open(EgressSettings {
        hosts: hosts
            .iter()
            .map(|address| address.to_string().parse().unwrap())
            .collect(),
        private: PrivateAddresses::Allowed,
        network: NetworkSettings::default(),
        timeout,
        max_response_bytes: LIMIT,
    })
    .unwrap()
}

fn quick(host: SocketAddr) -> Egress {
    egress(&[host], Duration::from_secs(20))
}

/// Returns the error of an exchange, whether in its headers or its body.
async fn failure(egress: &Egress, request: EgressRequest) -> EgressError {
    match egress.send(request).await {
        Ok(response) => response.body.bytes().await.unwrap_err(),
        Err(error) => error,
    }
}

/// Asserts that nobody connected.
fn assert_untouched(listener: TcpListener) {
    let waiting = listener.into_std().unwrap().accept();
    assert_eq!(waiting.unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// A resolver that answers each lookup with the next list, and repeats the last one.
struct ScriptedDns {
    answers: Mutex<Vec<Vec<IpAddr>>>,
    lookups: AtomicUsize,
}

impl ScriptedDns {
    fn new(answers: &[&[&str]]) -> Arc<Self> {
        let answers = answers
            .iter()
            .rev()
            .map(|answer| answer.iter().map(|text| text.parse().unwrap()).collect());
        Arc::new(Self {
            answers: Mutex::new(answers.collect()),
            lookups: AtomicUsize::new(0),
        })
    }
}

impl DnsResolver for ScriptedDns {
    fn lookup(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        self.lookups.fetch_add(1, Ordering::SeqCst);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 {
            answers.pop().unwrap()
        } else {
            answers[0].clone()
        };
        Box::pin(async move { Ok(answer) })
    }
}

fn create_egress(host: &str, private: PrivateAddresses, dns: Arc<dyn DnsResolver>) -> Egress {
    let guard = AddressGuard::with_dns(vec![host.parse().unwrap()], private, dns);
    Egress::with_guard(
        guard,
        &NetworkSettings::default(),
        Duration::from_secs(20),
        LIMIT,
    )
    .unwrap()
}

#[tokio::test]
async fn no_spelling_of_an_inner_address_is_reached() {
    for host in [
        "127.0.0.1",
        "127.0.0.1.",
        "127.1",
        "127.0.1",
        "127.255.255.254",
        "2130706433",
        "2130706433.",
        "017700000001",
        "0x7f000001",
        "0X7F000001",
        "0x7f.1",
        "0x7f.0x0.0x0.0x1",
        "0177.0.0.1",
        "0177.0x0.0.01",
        "00000177.0.0.1",
        "%31%32%37.0.0.1",
        "127%2e0%2e0%2e1",
        "127\u{3002}0\u{3002}0\u{3002}1",
        "\u{ff11}\u{ff12}\u{ff17}.\u{ff10}.\u{ff10}.\u{ff11}",
        "\u{2460}\u{2461}\u{2466}.\u{24ea}.\u{24ea}.\u{2460}",
        "0",
        "0.0.0.0",
        "0x0",
        "10.0.0.1",
        "10.1",
        "167772161",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "0251.0376.0251.0376",
        "255.255.255.255",
        "[::1]",
        "[0:0:0:0:0:0:0:1]",
        "[::]",
        "[::127.0.0.1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:127.0.0.1]",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
        "[fe80::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
    ] {
        let url = Url::parse(&format!("http://{host}/")).unwrap();
        let listed = AllowedHost::from_url(&url).unwrap();
        let settings = EgressSettings {
            hosts: vec![listed],
            private: PrivateAddresses::Refused,
            network: NetworkSettings::default(),
            timeout: Duration::from_secs(20),
            max_response_bytes: LIMIT,
        };
        let error = failure(&Egress::open(settings).unwrap(), get_request(url)).await;
        assert!(
            matches!(error, EgressError::AddressRefused(_)),
            "{host}: {error}"
        );
    }
}

#[test]
fn what_only_looks_like_a_host_is_none() {
    for host in [
        "127.0.0.1.5",
        "256.0.0.1",
        "0x100000000",
        "4294967296",
        "[fe80::1%25eth0]",
        "[::1",
        "127.0.0.1\u{0}",
        "a b",
    ] {
        assert!(Url::parse(&format!("http://{host}/")).is_err(), "{host}");
        assert!(host.parse::<AllowedHost>().is_err(), "{host}");
    }
    for text in [
        "",
        "https://api.example.com",
        "api.example.com/path",
        "user@api.example.com",
        "*.example.com",
        "api.example.com:99999",
        " api.example.com",
        "api.example.com?x",
        "api.example.com#x",
    ] {
        assert!(text.parse::<AllowedHost>().is_err(), "{text}");
    }
}

#[tokio::test]
async fn a_name_for_an_inner_address_is_not_connected_to() {
    let inner = [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "::1",
        "::ffff:127.0.0.1",
        "fd00::1",
    ];
    for address in inner {
        let dns = ScriptedDns::new(&[&[address]]);
        let egress = create_egress("api.test", PrivateAddresses::Refused, dns);
        let request = get_request(Url::parse("http://api.test/").unwrap());
        let error = failure(&egress, request).await;
        assert!(
            matches!(error, EgressError::AddressRefused(_)),
            "{address}: {error}"
        );
    }
    // Names that the operating system resolves are checked as well.
    let guard = AddressGuard::with_dns(Vec::new(), PrivateAddresses::Refused, Arc::new(SystemDns));
    for name in ["localhost", "localhost.", "127.1", "2130706433", "0x7f.1"] {
        let refused = guard.resolve(name).await.unwrap_err();
        assert!(
            matches!(
                refused,
                EgressError::AddressRefused(_) | EgressError::Unreachable(_)
            ),
            "{name}: {refused}"
        );
    }
}

#[tokio::test]
async fn of_several_addresses_only_admitted_ones_are_tried() {
    let server = serve(Router::new().route("/", get(async || "here"))).await;
    // Nothing listens at the first address, so the request would fail if it were tried.
    let dns = ScriptedDns::new(&[&["127.0.0.2", "127.0.0.1"]]);
    let private = PrivateAddresses::Listed(vec!["127.0.0.1/32".parse().unwrap()]);
    let host = format!("api.test:{}", server.port());
    let egress = create_egress(&host, private, dns.clone());
    let request = get_request(Url::parse(&format!("http://{host}/")).unwrap());
    let body = egress.send(request).await.unwrap().body;
    assert_eq!(body.bytes().await.unwrap(), "here");
    assert_eq!(dns.lookups.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_name_that_turns_to_an_inner_address_is_refused_from_then_on() {
    let inner = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let port = inner.local_addr().unwrap().port();
    let outer = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .await
        .unwrap();
    let closing = get(async || ([("connection", "close")], "here"));
    let router = Router::new().route("/", closing);
    tokio::spawn(async move { axum::serve(outer, router).await });

    let dns = ScriptedDns::new(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let private = PrivateAddresses::Listed(vec!["127.0.0.1/32".parse().unwrap()]);
    let host = format!("api.test:{port}");
    let egress = create_egress(&host, private, dns);
    let url = Url::parse(&format!("http://{host}/")).unwrap();

    let first = egress.send(get_request(url.clone())).await.unwrap();
    assert_eq!(first.body.bytes().await.unwrap(), "here");
    let second = failure(&egress, get_request(url)).await;
    assert!(matches!(second, EgressError::AddressRefused(_)), "{second}");
    assert_untouched(inner);
}

#[tokio::test]
async fn user_info_and_other_schemes_are_refused() {
    let server = serve(Router::new()).await;
    let egress = quick(server);
    for text in [
        format!("http://user@{server}/"),
        format!("http://user:secret@{server}/"),
        format!("ftp://{server}/"),
        format!("ws://{server}/"),
        "file:///etc/passwd".to_owned(),
        "data:text/plain,x".to_owned(),
    ] {
        let error = failure(&egress, get_request(Url::parse(&text).unwrap())).await;
        assert!(matches!(error, EgressError::NotHttp), "{text}: {error}");
        assert!(!error.to_string().contains("secret"));
    }
}

#[tokio::test]
async fn a_redirect_to_a_host_that_is_not_listed_is_not_followed() {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}/", other.local_addr().unwrap());
    let server =
        serve(Router::new().route("/", get(async move || Redirect::temporary(&target)))).await;
    let error = failure(&quick(server), get_request(url(server, "/"))).await;
    assert!(matches!(error, EgressError::HostNotListed(_)), "{error}");
    assert_untouched(other);
}

#[tokio::test]
async fn a_redirect_to_a_listed_host_takes_no_credentials_along() {
    let echo = get(async |headers: HeaderMap| {
        let mut names: Vec<_> = headers.keys().map(HeaderName::to_string).collect();
        names.sort_unstable();
        names.join(" ")
    });
    let other = serve(Router::new().route("/there", echo.clone())).await;
    let away = url(other, "/there").to_string();
    let server = serve(
        Router::new()
            .route("/away", get(async move || Redirect::temporary(&away)))
            .route("/near", get(async || Redirect::permanent("/there")))
            .route("/there", echo),
    )
    .await;
    let egress = egress(&[server, other], Duration::from_secs(20));
    let seen = async |path| {
        let request = get_request(url(server, path))
            .header(AUTHORIZATION, HeaderValue::from_static("Bearer secret"))
            .header(
                HeaderName::from_static("x-api-key"),
                HeaderValue::from_static("secret"),
            )
            .header(ACCEPT, HeaderValue::from_static("application/json"));
        let response = egress.send(request).await.unwrap();
        assert_eq!(response.status, StatusCode::OK);
        let body = response.body.bytes().await.unwrap();
        String::from_utf8(body.to_vec()).unwrap()
    };
    assert_eq!(
        seen("/near").await,
        "accept authorization host user-agent x-api-key"
    );
    assert_eq!(seen("/away").await, "accept host user-agent");
}

#[tokio::test]
async fn a_circle_of_redirects_ends() {
    let server = serve(Router::new().route("/", get(async || Redirect::temporary("/")))).await;
    let error = failure(&quick(server), get_request(url(server, "/"))).await;
    assert!(matches!(error, EgressError::TooManyRedirects(_)), "{error}");
}

/// Sends a body of 10 GiB for as long as it is read, and returns how much was sent.
async fn serve_endless(head: &'static str) -> (SocketAddr, oneshot::Receiver<usize>) {
    let (tell, told) = oneshot::channel();
    let address = serve_once(async move |mut connection| {
        connection.write_all(head.as_bytes()).await.unwrap();
        let chunk = [b"1000\r\n".as_slice(), &[b'x'; 0x1000], b"\r\n"].concat();
        let mut sent = 0;
        while sent < 10 << 30 && connection.write_all(&chunk).await.is_ok() {
            sent += chunk.len();
        }
        tell.send(sent).unwrap();
    })
    .await;
    (address, told)
}

#[tokio::test]
async fn an_endless_body_is_left_at_the_limit() {
    for head in [
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 10737418240\r\n\r\n",
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
    ] {
        let (server, sent) = serve_endless(head).await;
        let error = failure(&quick(server), get_request(url(server, "/"))).await;
        assert!(matches!(error, EgressError::TooLarge(LIMIT)), "{error}");
        // Only what the kernel buffers was sent.
        let sent = sent.await.unwrap();
        assert!(sent < 64 << 20, "{head}: {sent}");
    }
}

#[tokio::test]
async fn a_body_of_just_the_limit_is_read() {
    let server = serve(
        Router::new()
            .route("/fits", get(async || "x".repeat(LIMIT)))
            .route("/large", get(async || "x".repeat(LIMIT + 1))),
    )
    .await;
    let egress = quick(server);
    let fits = egress
        .send(get_request(url(server, "/fits")))
        .await
        .unwrap();
    assert_eq!(fits.body.bytes().await.unwrap().len(), LIMIT);
    let error = failure(&egress, get_request(url(server, "/large"))).await;
    assert!(matches!(error, EgressError::TooLarge(LIMIT)), "{error}");
}

#[tokio::test]
async fn one_byte_a_second_ends_at_the_time_limit() {
    for head in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3600\r\n\r\n",
        // The response ends within its headers.
        "HTTP/1.1 200 OK\r\nx: ",
    ] {
        let server = serve_once(async move |mut connection| {
            connection.write_all(head.as_bytes()).await.unwrap();
            let mut second = tokio::time::interval(Duration::from_secs(1));
            while connection.write_all(b"x").await.is_ok() {
                second.tick().await;
            }
        })
        .await;
        let limit = Duration::from_millis(300);
        let began = std::time::Instant::now();
        let error = failure(&egress(&[server], limit), get_request(url(server, "/"))).await;
        assert!(matches!(error, EgressError::Timeout(_)), "{head}: {error}");
        assert!(began.elapsed() < Duration::from_mins(1));
    }
}

#[tokio::test]
async fn a_reset_in_the_middle_of_a_body_is_a_broken_connection() {
    let server = serve_once(async |mut connection| {
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf";
        connection.write_all(head.as_bytes()).await.unwrap();
        connection.set_zero_linger().unwrap();
    })
    .await;
    let error = failure(&quick(server), get_request(url(server, "/"))).await;
    assert!(matches!(error, EgressError::Broken(_)), "{error}");
}

#[tokio::test]
async fn a_port_where_nothing_listens_is_unreachable_and_named_without_the_path() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    drop(listener);
    let error = failure(&quick(server), get_request(url(server, "/p?q=secret"))).await;
    assert!(matches!(error, EgressError::Unreachable(_)), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}

#[tokio::test]
async fn what_is_no_http_is_a_broken_connection() {
    let server = serve_once(async |mut connection| {
        connection.write_all(b"SSH-2.0-x\r\n\r\n").await.unwrap();
    })
    .await;
    let error = failure(&quick(server), get_request(url(server, "/"))).await;
    assert!(matches!(error, EgressError::Broken(_)), "{error}");
}

#[tokio::test]
async fn a_compressed_body_is_refused_because_none_was_asked_for() {
    let gzip = get(async |headers: HeaderMap| {
        assert!(!headers.contains_key("accept-encoding"));
        ([("content-encoding", "gzip")], "xxxx")
    });
    let server = serve(Router::new().route("/", gzip)).await;
    let error = failure(&quick(server), get_request(url(server, "/"))).await;
    assert!(matches!(error, EgressError::Encoded), "{error}");
}

#[tokio::test]
async fn an_open_ended_response_outlives_time_limit_and_size_but_is_not_kept_whole() {
    let (server, sent) =
        serve_endless("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let request = get_request(url(server, "/")).open_ended();
    let response = quick(server).send(request).await.unwrap();
    let mut body = response.body;
    let mut read = 0;
    while read < 10 * LIMIT {
        read += body.chunk().await.unwrap().unwrap().len();
    }
    drop(body);
    assert!(sent.await.unwrap() >= 10 * LIMIT);

    let (server, _sent) =
        serve_endless("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
    let request = get_request(url(server, "/")).open_ended();
    let error = failure(&quick(server), request).await;
    assert!(matches!(error, EgressError::TooLarge(LIMIT)), "{error}");
}

#[tokio::test]
async fn connections_are_kept_for_the_next_request() {
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let listener = axum::serve::ListenerExt::tap_io(listener, move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
    });
    let router = Router::new().route("/", get(async || "here"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    let egress = quick(server);
    for _ in 0..5 {
        let response = egress.send(get_request(url(server, "/"))).await.unwrap();
        assert_eq!(response.body.bytes().await.unwrap(), "here");
    }
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}
