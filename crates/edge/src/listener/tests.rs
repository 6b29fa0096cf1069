//! Tests of the listener over TCP: closing of connections, distribution of slots, and refusals.

use std::net::Ipv4Addr;
use std::num::NonZeroUsize;
use std::time::Duration;

use axum::routing::{get, post};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;
use wardgate_rpc::Drain;

use super::*;

const PING: u8 = 6;
const GOAWAY: u8 = 7;
const NO_ERROR: u32 = 0;
const ENHANCE_YOUR_CALM: u32 = 0xb;
/// The header block of `GET /health` with the host `a` (RFC 7541, appendices A and C).
const GET_HEALTH: &[u8] = b"\x82\x86\x44\x07/health\x41\x01a";
/// The header block of `GET /pending`, which gets no response.
const GET_PENDING: &[u8] = b"\x82\x86\x44\x08/pending\x41\x01a";

struct RunningListener {
    address: SocketAddr,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

fn limits() -> ConnectionLimits {
    ConnectionLimits {
        connections: 16,
        header_seconds: 30,
        listener: ListenerLimits::default(),
    }
}

async fn serve(limits: ConnectionLimits) -> RunningListener {
    serve_bound(bind().await, limits)
}

async fn bind() -> BoundListener {
    let any = (Ipv4Addr::LOCALHOST, 0).into();
    BoundListener::bind(any).await.unwrap()
}

fn serve_bound(bound: BoundListener, limits: ConnectionLimits) -> RunningListener {
    let address = bound.address();
    let client =
        |axum::Extension(client): axum::Extension<SocketAddr>| async move { client.to_string() };
    let router = Router::new()
        .route("/client", get(client))
        .route("/pending", get(std::future::pending::<()>))
        .route("/echo", post(|body: String| async move { body }))
        .merge(probes::alive());
    let stop = CancellationToken::new();
    let told = stop.clone();
    let shutdown = Shutdown::at(async move { told.cancelled().await }, Drain::at_once());
    let serving = tokio::spawn(bound.serve(router, limits, shutdown, async {}));
    RunningListener {
        address,
        stop,
        serving,
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A client that reads and writes HTTP/2 frames.
struct Http2Client(TcpStream);

impl Http2Client {
    async fn connect(address: SocketAddr) -> Self {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let settings = frame(4, 0, 0, &[]);
        stream
            .write_all(&[http2::PREFACE, &settings].concat())
            .await
            .unwrap();
        Self(stream)
    }

    async fn send(&mut self, frame: &[u8]) {
        self.0.write_all(frame).await.unwrap();
    }

    /// Returns the type, flags and payload of the next frame, or `None` if the connection is closed.
    async fn next(&mut self) -> Option<(u8, u8, Vec<u8>)> {
        let mut header = [0; 9];
        self.0.read_exact(&mut header).await.ok()?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((header[3], header[4], payload))
    }

    /// Acknowledges frames until the connection is closed. Returns the error code of the last GOAWAY.
    async fn until_closed(&mut self) -> Option<u32> {
        let mut code = None;
        while let Some((kind, flags, payload)) = self.next().await {
            match kind {
                PING if flags & 1 == 0 => {
                    let _ = self.0.write_all(&frame(PING, 1, 0, &payload)).await;
                }
                GOAWAY => code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap())),
                _ => {}
            }
        }
        code
    }

    /// Waits for the head of a response.
    async fn wait_for_response(&mut self) {
        while let Some((kind, ..)) = self.next().await {
            if kind == 1 {
                return;
            }
        }
        panic!("closed without an answer");
    }
}

/// Returns the error code of the last GOAWAY in a sequence of frames.
fn goaway(mut frames: &[u8]) -> Option<u32> {
    let mut code = None;
    while let Some((header, rest)) = frames.split_at_checked(9) {
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let (payload, rest) = rest.split_at_checked(length as usize)?;
        if header[3] == GOAWAY {
            code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
        frames = rest;
    }
    code
}

/// Sends `text` on a separate connection, and returns everything that is received.
async fn exchange(address: SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

const HEALTH: &str = "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
const PENDING: &str = "GET /pending HTTP/1.1\r\nHost: a\r\n\r\n";

fn with(listener: ListenerLimits) -> ConnectionLimits {
    ConnectionLimits {
        listener,
        ..limits()
    }
}

#[tokio::test]
async fn an_http2_connection_without_a_request_in_flight_gets_goaway_and_ends() {
    let served = serve(with(ListenerLimits {
        idle_seconds: 1,
        ..ListenerLimits::default()
    }))
    .await;
    let mut idle = Http2Client::connect(served.address).await;
    let mut busy = Http2Client::connect(served.address).await;
    busy.send(&frame(1, 5, 1, GET_PENDING)).await;
    idle.send(&frame(1, 5, 1, GET_HEALTH)).await;
    assert_eq!(idle.until_closed().await, Some(NO_ERROR));
    // This connection is as old, but it has a request in flight, so it still gets a response.
    busy.send(&frame(1, 5, 3, GET_HEALTH)).await;
    busy.wait_for_response().await;
}

#[tokio::test]
async fn an_http2_connection_that_never_asks_ends_after_the_time_of_a_header() {
    let served = serve(ConnectionLimits {
        header_seconds: 1,
        ..limits()
    })
    .await;
    let mut silent = Http2Client::connect(served.address).await;
    assert_eq!(silent.until_closed().await, Some(NO_ERROR));
}

#[tokio::test]
async fn a_connection_of_the_greatest_age_gets_goaway_and_ends_with_its_requests() {
    let served = serve(with(ListenerLimits {
        age_seconds: 1,
        ..ListenerLimits::default()
    }))
    .await;
    let mut old = Http2Client::connect(served.address).await;
    old.send(&frame(1, 5, 1, GET_PENDING)).await;
    while let Some((kind, _, payload)) = old.next().await {
        if kind == GOAWAY {
            assert_eq!(payload[4..8], NO_ERROR.to_be_bytes());
            // The request stays in flight until its client cancels it.
            old.send(&frame(3, 0, 1, &8_u32.to_be_bytes())).await;
            old.until_closed().await;
            return;
        }
    }
    panic!("closed without GOAWAY");
}

#[tokio::test]
async fn every_flood_of_control_frames_ends_its_connection_with_goaway() {
    let served = serve(limits()).await;
    let same = |frame: Vec<u8>| (0..100).map(move |_| frame.clone()).collect::<Vec<_>>();
    // Each byte is a field of the static table.
    let dense = (1..=100).map(|id| frame(1, 5, 1 + 2 * id, &[0x82; 16_384]));
    for (flood, frames) in [
        ("SETTINGS", same(frame(4, 0, 0, &[]))),
        ("PING", same(frame(PING, 0, 0, &[0; 8]))),
        ("PRIORITY", same(frame(2, 0, 1, &[0, 0, 0, 0, 1]))),
        ("WINDOW_UPDATE", same(frame(8, 0, 0, &1_u32.to_be_bytes()))),
        ("RST_STREAM", same(frame(3, 0, 1, &8_u32.to_be_bytes()))),
        ("empty DATA", same(frame(0, 0, 1, &[]))),
        ("unknown frames", same(frame(0x42, 0, 0, &[]))),
        ("header blocks", dense.collect()),
    ] {
        let mut client = Http2Client::connect(served.address).await;
        client.send(&frame(1, 4, 1, GET_PENDING)).await;
        let (mut reading, mut writing) = client.0.into_split();
        let several = frames.concat();
        // The client sends until the connection is closed.
        let sending = tokio::spawn(async move {
            for _ in 0..10_000 {
                if writing.write_all(&several).await.is_err() {
                    return;
                }
            }
        });
        let mut came = Vec::new();
        let _ = reading.read_to_end(&mut came).await;
        assert_eq!(goaway(&came), Some(ENHANCE_YOUR_CALM), "{flood}");
        sending.await.unwrap();
    }
    assert!(
        exchange(served.address, HEALTH)
            .await
            .starts_with("HTTP/1.1 200 ")
    );
}

#[tokio::test]
async fn many_requests_of_many_bytes_are_no_flood() {
    let served = serve(limits()).await;
    let mut client = Http2Client::connect(served.address).await;
    for request in 0..200_u32 {
        client.send(&frame(1, 5, 1 + request * 2, GET_HEALTH)).await;
        client.wait_for_response().await;
    }
}

#[tokio::test]
async fn after_a_flood_the_next_http2_connection_of_the_client_waits_and_http1_does_not() {
    let served = serve(limits()).await;
    let mut flood = Http2Client::connect(served.address).await;
    let pings = frame(PING, 0, 0, &[0; 8]).repeat(5_000);
    let _ = flood.0.write_all(&pings).await;
    assert_eq!(flood.until_closed().await, Some(ENHANCE_YOUR_CALM));
    let began = Instant::now();
    let mut next = Http2Client::connect(served.address).await;
    next.send(&frame(1, 5, 1, GET_HEALTH)).await;
    assert!(
        exchange(served.address, HEALTH)
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    next.wait_for_response().await;
    assert!(began.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn a_client_with_its_share_of_busy_connections_gets_503_and_its_probes_are_answered() {
    let served = serve(with(ListenerLimits {
        connections_per_address: NonZeroUsize::new(2),
        ..ListenerLimits::default()
    }))
    .await;
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(served.address).await.unwrap();
        stream.write_all(PENDING.as_bytes()).await.unwrap();
        busy.push(stream);
    }
    // Until both connections have requests in flight, one of them may still be replaced.
    let refused = loop {
        let answer = exchange(
            served.address,
            "GET /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
        )
        .await;
        if !answer.starts_with("HTTP/1.1 404 ") {
            break answer;
        }
    };
    assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    assert!(
        refused.to_lowercase().contains("retry-after: 1"),
        "{refused}"
    );
    assert!(refused.contains("Too many connections"), "{refused}");
    assert!(
        exchange(served.address, HEALTH)
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    let mut http2 = Http2Client::connect(served.address).await;
    assert_eq!(http2.until_closed().await, Some(ENHANCE_YOUR_CALM));
}

#[tokio::test]
async fn idle_connections_beyond_the_share_of_their_client_are_replaced() {
    let served = serve(with(ListenerLimits {
        connections_per_address: NonZeroUsize::new(4),
        ..ListenerLimits::default()
    }))
    .await;
    let mut held = Vec::new();
    for _ in 0..12 {
        let mut client = Http2Client::connect(served.address).await;
        client.send(&frame(1, 5, 1, GET_HEALTH)).await;
        client.wait_for_response().await;
        held.push(client);
    }
    for mut replaced in held.drain(..8) {
        assert_eq!(replaced.until_closed().await, Some(NO_ERROR));
    }
    for mut open in held {
        open.send(&frame(1, 5, 3, GET_HEALTH)).await;
        open.wait_for_response().await;
    }
}

#[tokio::test]
async fn a_message_that_can_be_read_in_two_ways_is_refused_with_400() {
    let served = serve(limits()).await;
    let echo = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\n";
    let good = format!("{echo}Content-Length: 2\r\n\r\nab");
    for (fields, told) in [
        (
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "send one of them",
        ),
        (
            "Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n",
            "send one of them",
        ),
        (
            "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            "is not `chunked`; send `chunked`, or Content-Length",
        ),
        (
            "Content-Length: 2\r\nContent-Length: 2\r\n\r\nab",
            "once, in digits",
        ),
        ("X: y\nContent-Length: 2\r\n\r\nab", "CR LF"),
    ] {
        let answer = exchange(served.address, &format!("{echo}{fields}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{fields}: {answer}");
        assert!(answer.contains(told), "{fields}: {answer}");
        // The refused message follows a valid one, whose response is sent first.
        let answers = exchange(served.address, &format!("{good}{echo}{fields}")).await;
        let (first, second) = answers.split_once("\r\n\r\nab").unwrap();
        assert!(first.starts_with("HTTP/1.1 200 "), "{fields}: {first}");
        assert!(second.starts_with("HTTP/1.1 400 "), "{fields}: {second}");
    }
}

#[tokio::test]
async fn bodies_arrive_whole_however_they_are_sent() {
    let served = serve(limits()).await;
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n";
    let long = "x".repeat(300_000);
    let chunked = format!(
        "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{long}\r\n3;a\r\nend\r\n0\r\n\r\n",
        long.len()
    );
    let answer = exchange(served.address, &format!("{head}{chunked}")).await;
    assert!(answer.ends_with(&format!("{long}end")));
    let counted = format!("Content-Length: {}\r\n\r\n{long}", long.len());
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    for piece in format!("{head}{counted}").as_bytes().chunks(7_001) {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with(&long));
}

#[tokio::test]
async fn when_the_process_stops_http2_clients_get_goaway_and_serving_ends() {
    let served = serve(limits()).await;
    let mut client = Http2Client::connect(served.address).await;
    client.send(&frame(1, 5, 1, GET_HEALTH)).await;
    client.wait_for_response().await;
    served.stop.cancel();
    assert_eq!(client.until_closed().await, Some(NO_ERROR));
    served.serving.await.unwrap();
}

/// The files of a self-signed certificate of `localhost`.
struct SelfSigned {
    dir: tempfile::TempDir,
}

impl SelfSigned {
    fn new() -> Self {
        let signed = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        signed.renew();
        signed
    }

    fn files(&self) -> HttpsFiles {
        HttpsFiles {
            cert: self.dir.path().join("cert.pem"),
            key: self.dir.path().join("key.pem"),
        }
    }

    /// Writes a new certificate and key to the same files, and returns the certificate.
    fn renew(&self) -> reqwest::Certificate {
        let signed = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (files, pem) = (self.files(), signed.cert.pem());
        std::fs::write(files.cert, &pem).unwrap();
        std::fs::write(files.key, signed.signing_key.serialize_pem()).unwrap();
        reqwest::Certificate::from_pem(pem.as_bytes()).unwrap()
    }
}

/// Returns a client that makes each request on a new connection and trusts one certificate.
fn https_client(trusted: reqwest::Certificate) -> reqwest::Client {
    reqwest::Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(0)
        .tls_certs_only([trusted])
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_check_of_a_certificate_fails_as_the_listener_does() {
    let (signed, other) = (SelfSigned::new(), SelfSigned::new());
    signed.files().check().unwrap();
    let mixed = HttpsFiles {
        key: other.files().key,
        ..signed.files()
    };
    let checked = mixed.check().unwrap_err();
    let bound = bind().await.with_certificate(Some(mixed));
    assert_eq!(checked.to_string(), bound.unwrap_err().to_string());
}

#[tokio::test]
async fn tls_is_terminated_for_both_versions_of_http_and_a_renewed_certificate_is_taken_up() {
    let signed = SelfSigned::new();
    let first = signed.renew();
    let bound = bind().await.with_certificate(Some(signed.files())).unwrap();
    assert!(bound.url().starts_with("https://127.0.0.1:"));
    let served = serve_bound(bound, limits());
    let url = format!("https://localhost:{}/echo", served.address.port());
    let post = |client: &reqwest::Client| client.post(&url).body("ab").send();
    let answer = post(&https_client(first.clone())).await.unwrap();
    assert_eq!(answer.version(), Version::HTTP_2);
    assert_eq!(answer.text().await.unwrap(), "ab");
    let old = reqwest::Client::builder().no_proxy().http1_only();
    let old = old.tls_certs_only([first.clone()]).build().unwrap();
    let answer = post(&old).await.unwrap();
    assert_eq!(answer.version(), Version::HTTP_11);
    assert_eq!(answer.text().await.unwrap(), "ab");
    // A client that sends a plain-text request by mistake gets no HTTP response.
    let mut plain = TcpStream::connect(served.address).await.unwrap();
    plain.write_all(HEALTH.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP/"));

    let second = https_client(signed.renew());
    let began = Instant::now();
    while post(&second).await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    post(&https_client(first)).await.unwrap_err();
}

#[tokio::test]
async fn the_client_is_whom_a_trusted_proxy_names_and_nobody_elses_word_counts() {
    let trusting = |networks: &str, proxy_protocol| TrustedProxies {
        networks: vec![networks.parse().unwrap()],
        proxy_protocol,
        ..TrustedProxies::default()
    };
    let get = "GET /client HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n";
    let told = |answer: String| answer.rsplit("\r\n").next().unwrap().to_owned();
    let served = serve_bound(
        bind().await.behind(trusting("127.0.0.0/8", false)),
        limits(),
    );
    assert_eq!(told(exchange(served.address, get).await), "192.0.2.7:0");
    let served = serve_bound(bind().await.behind(trusting("10.0.0.0/8", true)), limits());
    let answer = told(exchange(served.address, get).await);
    assert!(answer.starts_with("127.0.0.1:"), "{answer}");
    // The PROXY protocol is used, not the header, which this proxy passes on unchecked from its client.
    let announced = TrustedProxies {
        header: ForwardingHeader::None,
        ..trusting("127.0.0.0/8", true)
    };
    let served = serve_bound(bind().await.behind(announced), limits());
    let text = format!("PROXY TCP4 198.51.100.9 10.0.0.1 4711 443\r\n{get}");
    assert_eq!(
        told(exchange(served.address, &text).await),
        "198.51.100.9:4711"
    );
    // Without the PROXY protocol, a connection of the proxy is refused, because its client would be a guess.
    let mut stream = TcpStream::connect(served.address).await.unwrap();
    stream.write_all(get.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // The connection is closed with the request partly read, which the system may report as a reset.
    if let Err(error) = stream.read_to_end(&mut answer).await {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    assert_eq!(answer, b"");
}
