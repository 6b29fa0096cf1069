//! Tests of clients without a token that hold connections, or flood the gateway with requests that cost them nothing:
//! other clients are not affected.
//!
//! With `WARDGATE_FLOOD_SECONDS=60` each flood lasts this long, between two idle periods of half this time but at most
//! 30 s each, and its results are printed. The test fails if another client's p99 is twice as long as in idle periods, if
//! the probes do not answer, or if the memory grows by 64 MiB. `WARDGATE_FLOOD_BINARY` names the gateway to measure:
//!
//! ```text
//! make release && ulimit -n 20000
//! WARDGATE_FLOOD_BINARY=$PWD/target/release/wardgate WARDGATE_FLOOD_SECONDS=60 \
//!   cargo test --workspace --test journeys floods:: -- --nocapture --test-threads 1
//! ```
//!
//! Then the gateway runs alone on processor 0 and the attackers run on processor 1. The other client runs there too,
//! with a higher priority, so that the gateway is what is measured.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream as BlockingStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedReadHalf;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use wardgate_testkit::{System, TestApp};

use super::people::{doctor, of_patient};
use crate::WARDGATE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const ENHANCE_YOUR_CALM: u32 = 0xb;
/// `GET /mcp` of host `127.0.0.1` (RFC 7541, appendices A and C), which is answered with 401.
const GET_MCP: &[u8] = b"\x82\x86\x44\x04/mcp\x41\x09127.0.0.1";

/// Returns the duration of each flood in a measurement, or `None` in a plain test.
fn seconds() -> Option<Duration> {
    let seconds = std::env::var("WARDGATE_FLOOD_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("whole seconds")))
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// Delay before an attacker replaces a lost connection. With it, 200 attackers open fewer connections than the limit of an
/// address, which is 125 per second.
const BEFORE_ANOTHER: Duration = Duration::from_secs(2);

/// A function that returns the frames of one burst on a connection. `round` is the number of bursts before it.
type Burst = fn(round: u32) -> Vec<u8>;

const FLOODS: [(&str, Burst); 6] = [
    ("SETTINGS", |_| frame(SETTINGS, 0, 0, &[]).repeat(512)),
    ("PING", |_| frame(PING, 0, 0, &[0; 8]).repeat(512)),
    ("PRIORITY", |_| frame(2, 0, 1, &[0, 0, 0, 0, 1]).repeat(512)),
    ("WINDOW_UPDATE", |_| {
        frame(8, 0, 0, &[0, 0, 0, 1]).repeat(512)
    }),
    ("RST_STREAM", |round| {
        let streams = (0..64).map(|id| 1 + 2 * (round * 64 + id));
        let reset = [0, 0, 0, 8];
        let pair = |id| [frame(HEADERS, 5, id, GET_MCP), frame(3, 0, id, &reset)].concat();
        streams.flat_map(pair).collect()
    }),
    // Each byte is a header field.
    ("header blocks", |round| {
        frame(HEADERS, 5, 1 + 2 * round, &[0x82; 16_384])
    }),
];

/// Reads frames until the connection is closed, and returns the error code of the last GOAWAY.
async fn goaway(mut reading: OwnedReadHalf) -> Option<u32> {
    let mut code = None;
    loop {
        let mut header = [0; 9];
        if reading.read_exact(&mut header).await.is_err() {
            return code;
        }
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        let mut payload = vec![0; length as usize];
        if reading.read_exact(&mut payload).await.is_err() {
            return code;
        }
        if header[3] == GOAWAY {
            code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
        }
    }
}

/// The state that attackers share.
#[derive(Default)]
struct Attack {
    end: Notify,
    /// The number of connections that were opened.
    opened: AtomicUsize,
    /// The number of connections that were closed with `ENHANCE_YOUR_CALM`.
    ended: AtomicUsize,
    /// The number of open connections that received their 401.
    held: AtomicUsize,
}

/// Attackers that run on a thread of their own.
struct RunningAttack {
    attack: Arc<Attack>,
    thread: JoinHandle<()>,
}

impl RunningAttack {
    /// Starts `attackers` attackers.
    fn start<A>(attackers: usize, attacker: impl Fn(Arc<Attack>) -> A) -> Self
    where
        A: Future<Output = ()> + Send + 'static,
    {
        let attack = Arc::new(Attack::default());
        let tasks: Vec<A> = (0..attackers)
            .map(|_| attacker(Arc::clone(&attack)))
            .collect();
        let shared = Arc::clone(&attack);
        let thread = thread::spawn(move || {
            if seconds().is_some() {
                pin_thread("1", 10);
            }
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let _attackers: JoinSet<()> = tasks.into_iter().collect();
                shared.end.notified().await;
            });
        });
        Self { attack, thread }
    }

    fn end(self) -> Arc<Attack> {
        self.attack.end.notify_one();
        self.thread.join().unwrap();
        self.attack
    }
}

impl Attack {
    async fn connect(&self, address: SocketAddr) -> Option<TcpStream> {
        let stream = TcpStream::connect(address).await.ok()?;
        self.opened.fetch_add(1, Ordering::Relaxed);
        Some(stream)
    }

    /// Sends bursts on one connection after the other.
    async fn flood(self: Arc<Self>, address: SocketAddr, burst: Burst) {
        loop {
            let Some(mut stream) = self.connect(address).await else {
                continue;
            };
            let first = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
            let _ = stream.write_all(&first).await;
            let (reading, mut writing) = stream.into_split();
            let reading = tokio::spawn(goaway(reading));
            for round in 0.. {
                let sent = writing.write_all(&burst(round)).await;
                if sent.is_err() || reading.is_finished() {
                    break;
                }
            }
            drop(writing);
            if reading.await.unwrap() == Some(ENHANCE_YOUR_CALM) {
                self.ended.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Repeatedly sends one request without a token, and then keeps the connection open by acknowledging pings.
    async fn hold_connections(self: Arc<Self>, address: SocketAddr) {
        loop {
            if let Some(stream) = self.connect(address).await {
                let mut held = false;
                let _ = self.hold_one(stream, &mut held).await;
                if held {
                    self.held.fetch_sub(1, Ordering::Relaxed);
                }
            }
            // A client that opens connections faster than its address may would keep none of them.
            tokio::time::sleep(BEFORE_ANOTHER).await;
        }
    }

    async fn hold_one(&self, mut stream: TcpStream, held: &mut bool) -> std::io::Result<()> {
        let first = [
            PREFACE,
            &frame(SETTINGS, 0, 0, &[]),
            &frame(HEADERS, 5, 1, GET_MCP),
        ];
        stream.write_all(&first.concat()).await?;
        loop {
            let mut header = [0; 9];
            stream.read_exact(&mut header).await?;
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; length as usize];
            stream.read_exact(&mut payload).await?;
            match header[3] {
                HEADERS => {
                    *held = true;
                    self.held.fetch_add(1, Ordering::Relaxed);
                }
                PING if header[4] & ACK == 0 => {
                    stream.write_all(&frame(PING, ACK, 0, &payload)).await?;
                }
                _ => {}
            }
        }
    }

    fn count(count: &AtomicUsize) -> usize {
        count.load(Ordering::Relaxed)
    }
}

/// A client that makes calls meanwhile, from another address than the attackers, on one HTTP/1.1 connection.
struct Victim {
    address: SocketAddr,
    call: Vec<u8>,
    connection: BufReader<BlockingStream>,
}

impl Victim {
    fn new(app: &TestApp) -> Self {
        let address = address(app);
        let params = json!({
            "name": "get_medical_records",
            "arguments": of_patient("NUGWI"),
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let body = body.to_string();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMCP-Method: tools/call\r\n\
             MCP-Name: get_medical_records\r\nContent-Length: {}\r\n\r\n",
            doctor(app),
            body.len()
        );
        Self {
            address,
            call: (head + &body).into_bytes(),
            connection: BufReader::new(connect(Ipv4Addr::new(127, 0, 0, 2), address).unwrap()),
        }
    }

    /// Makes one call that must succeed, and returns how long it took. The call may be repeated while the disk stalls.
    fn call(&mut self) -> Duration {
        let began = Instant::now();
        let (status, body) = loop {
            let (status, body) = send_request(&mut self.connection, &self.call).unwrap();
            if !body.contains("not_durable") || began.elapsed() > Duration::from_mins(1) {
                break (status, body);
            }
        };
        let took = began.elapsed();
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["result"]["isError"], false, "{body}");
        took
    }

    /// Makes calls until `is_so` returns true.
    fn calls_until(&mut self, what: &str, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + Duration::from_mins(2);
        while !is_so() {
            assert!(Instant::now() < deadline, "waited in vain until {what}");
            self.call();
        }
    }

    /// Makes calls for this time, up to a hundred per second, and requests the probes each second.
    fn calls_for(&mut self, time: Duration) -> Window {
        let mut window = Window::default();
        let (end, mut next_probe) = (Instant::now() + time, Instant::now());
        while Instant::now() < end {
            window.took.push(self.call());
            if next_probe <= Instant::now() {
                next_probe += Duration::from_secs(1);
                let asked = Instant::now();
                self.probes_answer();
                window.slowest_probe = window.slowest_probe.max(asked.elapsed());
            }
            thread::sleep(Duration::from_millis(10));
        }
        window
    }

    /// Checks that the probes respond, each on a new connection, from an address that makes no other requests.
    fn probes_answer(&self) {
        for path in ["/health", "/healthz", "/ready", "/readyz"] {
            let connection = connect(Ipv4Addr::new(127, 0, 0, 3), self.address).unwrap();
            let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
            let answer = send_request(&mut BufReader::new(connection), request.as_bytes());
            assert_eq!(answer.unwrap().0, 200, "{path}");
        }
    }
}

/// The latencies that the victim observed in some time.
#[derive(Default)]
struct Window {
    took: Vec<Duration>,
    slowest_probe: Duration,
}

impl Window {
    fn with(mut self, other: Self) -> Self {
        self.took.extend(other.took);
        self.slowest_probe = self.slowest_probe.max(other.slowest_probe);
        self
    }

    fn percentile(&self, percent: usize) -> Duration {
        let mut took = self.took.clone();
        took.sort();
        took[(took.len() - 1) * percent / 100]
    }
}

impl fmt::Display for Window {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} calls, p50 {:.2?}, p99 {:.2?}; probes within {:.1?}",
            self.took.len(),
            self.percentile(50),
            self.percentile(99),
            self.slowest_probe
        )
    }
}

/// Opens a connection from one of this host's addresses.
fn connect(from: Ipv4Addr, to: SocketAddr) -> std::io::Result<BlockingStream> {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build()?;
    let stream = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((from, 0).into())?;
        socket.connect(to).await?.into_std()
    })?;
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(Duration::from_mins(1)))?;
    Ok(stream)
}

/// Sends a request, and returns the status and the body of the response.
fn send_request(
    connection: &mut BufReader<BlockingStream>,
    request: &[u8],
) -> std::io::Result<(u16, String)> {
    connection.get_mut().write_all(request)?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status = status.ok_or(std::io::ErrorKind::ConnectionReset)?;
    let mut length = 0;
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    Ok((status, String::from_utf8(body).unwrap()))
}

/// Returns the resident memory of the gateway's process, in KiB.
fn rss(app: &TestApp) -> i64 {
    let status = format!("/proc/{}/status", app.process.id());
    let status = std::fs::read_to_string(status).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}

/// Starts the system under attack. In a measurement all its threads run on one processor.
fn start(environment: &[(&str, &str)]) -> (TestApp, TempDir) {
    let binary = std::env::var("WARDGATE_FLOOD_BINARY").unwrap_or(WARDGATE.to_owned());
    if seconds().is_none() {
        let dir = tempfile::tempdir().unwrap();
        return (TestApp::start_with(&binary, environment), dir);
    }
    pin_thread("1", 0);
    start_through(&format!("taskset -c 0 '{binary}'"), environment)
}

/// Starts the system through a shell command that executes it.
fn start_through(command: &str, environment: &[(&str, &str)]) -> (TestApp, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("wardgate");
    std::fs::write(&script, format!("#!/bin/sh\nexec {command} \"$@\"\n")).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let app = TestApp::start_with(&script.display().to_string(), environment);
    (app, dir)
}

/// Pins the current thread to one processor, and adds `nicer` to its niceness.
fn pin_thread(processor: &str, nicer: i32) {
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    let id = thread.file_name().unwrap().to_str().unwrap();
    let nice = Command::new("nice").output().unwrap().stdout;
    let nice: i32 = String::from_utf8(nice).unwrap().trim().parse().unwrap();
    let nice = (nice + nicer).to_string();
    for command in [
        ["taskset", "-pc", processor, id],
        ["renice", "-n", &nice, id],
    ] {
        let done = Command::new(command[0]).args(&command[1..]).output();
        assert!(done.unwrap().status.success(), "{command:?}");
    }
}

fn address(app: &TestApp) -> SocketAddr {
    let base = app.client().base();
    base.trim_start_matches("http://").parse().unwrap()
}

/// Attacks for this time, prints the effects on the victim and on the memory of the gateway, and checks them.
fn measure(
    app: &TestApp,
    victim: &mut Victim,
    name: &str,
    time: Duration,
    start: impl Fn() -> RunningAttack,
) {
    let calm_time = (time / 2).min(Duration::from_secs(30));
    let before = victim.calls_for(calm_time);
    let memory = rss(app);
    let attack = start();
    let flood = victim.calls_for(time);
    let growth = (rss(app) - memory) / 1024;
    let sockets = open_connections(app);
    victim.probes_answer();
    let attack = attack.end();
    let calm = before.with(victim.calls_for(calm_time));
    let ratio = flood.percentile(99).as_secs_f64() / calm.percentile(99).as_secs_f64();
    println!(
        "{name}: p99 {ratio:.2} x calm; RSS {growth:+} MiB\n  calm:  {calm}\n  flood: {flood}\n  \
         {} connections opened, {} ended with ENHANCE_YOUR_CALM; at the end {sockets} open",
        Attack::count(&attack.opened),
        Attack::count(&attack.ended)
    );
    assert!(growth < 64, "memory grew by {growth} MiB");
    assert!(
        ratio < 2.0,
        "p99 is {ratio:.2} times as long as without the flood"
    );
}

#[test]
fn floods_of_control_frames_end_with_goaway_and_nobody_else_notices() {
    let (app, _dir) = start(&[]);
    let address = address(&app);
    let mut victim = Victim::new(&app);
    for (name, burst) in FLOODS {
        let start = || RunningAttack::start(2, |attack| attack.flood(address, burst));
        if let Some(time) = seconds() {
            measure(&app, &mut victim, name, time, start);
            continue;
        }
        let running = start();
        victim.calls_until("two connections are ended", || {
            Attack::count(&running.attack.ended) >= 2
        });
        victim.probes_answer();
        running.end();
    }
}

#[test]
fn connections_that_are_only_held_take_nobodys_place() {
    // A measurement uses the default limit.
    let (share, connections, environment) = if seconds().is_some() {
        (1_024, 4_100, vec![])
    } else {
        let share = "WARDGATE_GATEWAY__LIMITS__LISTENER__CONNECTIONS_PER_ADDRESS";
        (32, 200, vec![(share, "32")])
    };
    let (app, _dir) = start(&environment);
    let address = address(&app);
    let mut victim = Victim::new(&app);
    let start = || RunningAttack::start(connections, |attack| attack.hold_connections(address));
    if let Some(time) = seconds() {
        measure(&app, &mut victim, "held connections", time, start);
        return;
    }
    let running = start();
    victim.calls_until("attackers hold their share", || {
        Attack::count(&running.attack.held) >= share / 2
    });
    for _ in 0..20 {
        victim.call();
        victim.probes_answer();
    }
    let open = open_connections(&app);
    // Connections that are being closed have a tenth of a second to end.
    assert!(open <= share + 256, "{open} connections are open");
    running.end();
}

#[test]
fn with_few_open_files_held_connections_leave_some_for_others() {
    let command = format!("sh -c 'ulimit -n 256; exec {WARDGATE} \"$@\"' wardgate");
    let (app, _dir) = start_through(&command, &[]);
    let address = address(&app);
    let mut victim = Victim::new(&app);
    assert!(
        app.process.log().contains("ulimit -n"),
        "{}",
        app.process.log()
    );
    let running = RunningAttack::start(200, |attack| attack.hold_connections(address));
    victim.calls_until("attackers hold some", || {
        Attack::count(&running.attack.held) >= 24
    });
    for _ in 0..20 {
        victim.call();
        victim.probes_answer();
    }
    running.end();
}

/// Returns the number of sockets that the gateway's process has open.
fn open_connections(app: &TestApp) -> usize {
    let files = std::fs::read_dir(format!("/proc/{}/fd", app.process.id())).unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    links
        .filter(|link| link.display().to_string().starts_with("socket:"))
        .count()
}
