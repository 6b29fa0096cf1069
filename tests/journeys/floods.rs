//! Clients without a token that hold connections, or flood the gateway with what costs them nothing: others do not notice.
//!
//! With `WARDGATE_FLOOD_SECONDS=60` each flood lasts so long, after as long a time of calm, and its figures are printed:
//!
//! ```text
//! ulimit -n 20000
//! WARDGATE_FLOOD_SECONDS=60 cargo test --release --workspace --test journeys floods -- --nocapture --test-threads 1
//! ```
//!
//! Then the gateway has one processor and this process, attackers and victim, another one.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::task::JoinSet;
use wardgate_testkit::{System, TestApp, until};

use super::people::{doctor, of_patient};
use crate::WARDGATE;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const ENHANCE_YOUR_CALM: u32 = 0xb;
/// `GET /mcp` of host `127.0.0.1` (RFC 7541, appendices A and C), which gets 401.
const GET_MCP: &[u8] = b"\x82\x86\x44\x04/mcp\x41\x09127.0.0.1";

/// How long each flood lasts when somebody measures.
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

/// The frames that are sent for the `round`th time, from 0, on one connection.
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

/// Reads frames until the connection is closed; the error code of the last GOAWAY.
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

/// What attackers share.
#[derive(Default)]
struct Attack {
    is_over: AtomicBool,
    /// Connections that were ended with `ENHANCE_YOUR_CALM`.
    ended: AtomicUsize,
    /// Connections that got their 401 and are open.
    held: AtomicUsize,
}

impl Attack {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Sends bursts on one connection after the other.
    async fn flood(self: Arc<Self>, address: String, burst: Burst) {
        while !self.is_over() {
            let Ok(mut stream) = TcpStream::connect(&address).await else {
                continue;
            };
            let first = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
            let _ = stream.write_all(&first).await;
            let (reading, mut writing) = stream.into_split();
            let reading = tokio::spawn(goaway(reading));
            for round in 0.. {
                let sent = writing.write_all(&burst(round)).await;
                if sent.is_err() || reading.is_finished() || self.is_over() {
                    break;
                }
            }
            drop(writing);
            if reading.await.unwrap() == Some(ENHANCE_YOUR_CALM) {
                self.ended.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Asks once, without a token, and then holds the connection by acknowledging pings, again and again.
    async fn hold(self: Arc<Self>, address: String) {
        while !self.is_over() {
            if let Ok(stream) = TcpStream::connect(&address).await {
                let mut held = false;
                let _ = self.hold_one(stream, &mut held).await;
                if held {
                    self.held.fetch_sub(1, Ordering::Relaxed);
                }
            }
            tokio::task::yield_now().await;
        }
    }

    async fn hold_one(&self, mut stream: TcpStream, held: &mut bool) -> std::io::Result<()> {
        let first = [
            PREFACE,
            &frame(SETTINGS, 0, 0, &[]),
            &frame(HEADERS, 5, 1, GET_MCP),
        ];
        stream.write_all(&first.concat()).await?;
        while !self.is_over() {
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
        Ok(())
    }
}

/// Somebody who works meanwhile.
struct Victim {
    token: String,
    took: Vec<Duration>,
}

impl Victim {
    fn new(app: &TestApp) -> Self {
        Self {
            token: doctor(app),
            took: Vec::new(),
        }
    }

    /// One call, which is answered.
    async fn call(&mut self, app: &TestApp) {
        let began = Instant::now();
        let called = app
            .client()
            .call(&self.token, "get_medical_records", of_patient("NUGWI"));
        let reply = called.await;
        self.took.push(began.elapsed());
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert_eq!(reply.json()["result"]["isError"], false);
    }

    /// Calls for so long, a hundred in a second at most, and asks for probes; how long most calls took.
    async fn calls_for(&mut self, app: &TestApp, time: Duration) -> String {
        self.took.clear();
        let (end, mut next_probe) = (Instant::now() + time, Instant::now());
        let mut slowest_probe = Duration::ZERO;
        while Instant::now() < end {
            self.call(app).await;
            if next_probe <= Instant::now() {
                next_probe += Duration::from_secs(1);
                let asked = Instant::now();
                probes_answer(app).await;
                slowest_probe = slowest_probe.max(asked.elapsed());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.took.sort();
        let at = |percent: usize| self.took[(self.took.len() - 1) * percent / 100];
        format!(
            "{} calls, p50 {:.1?}, p99 {:.1?}; probes within {slowest_probe:.1?}; RSS {} MiB",
            self.took.len(),
            at(50),
            at(99),
            rss(app) / 1024
        )
    }
}

/// Each on a connection of its own. They come from the address that floods, so that one of their connections may be the one
/// that makes room for others: what was lost so is asked again.
async fn probes_answer(app: &TestApp) {
    for path in ["/health", "/healthz", "/ready", "/readyz"] {
        let url = format!("{}{path}", app.client().base());
        until("the probe is answered", async || {
            let answer = reqwest::get(&url).await.ok()?;
            assert_eq!(answer.status(), 200, "{path}");
            Some(())
        })
        .await;
    }
    assert_eq!(app.probes().get("/health").await.status, 200);
}

/// Resident memory of the gateway's process, KiB.
fn rss(app: &TestApp) -> u64 {
    let status = format!("/proc/{}/status", app.process.id());
    let status = std::fs::read_to_string(status).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().nth(1));
    number.unwrap().parse().unwrap()
}

/// One processor for the gateway, another one for this process.
fn pin(app: &TestApp) {
    for (processor, id) in [("1", app.process.id()), ("0", std::process::id())] {
        let id = id.to_string();
        let pinned = Command::new("taskset")
            .args(["-apc", processor, &id])
            .output();
        assert!(pinned.is_ok_and(|output| output.status.success()));
    }
}

fn address(app: &TestApp) -> String {
    app.client().base().trim_start_matches("http://").to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_of_control_frames_end_with_goaway_and_nobody_else_notices() {
    let app = TestApp::start(WARDGATE);
    let mut victim = Victim::new(&app);
    if seconds().is_some() {
        pin(&app);
    }
    for (name, burst) in FLOODS {
        let calm = match seconds() {
            Some(time) => victim.calls_for(&app, time).await,
            None => String::new(),
        };
        let attack = Arc::new(Attack::default());
        let mut attackers = JoinSet::new();
        for _ in 0..2 {
            attackers.spawn(Arc::clone(&attack).flood(address(&app), burst));
        }
        if let Some(time) = seconds() {
            let flooded = victim.calls_for(&app, time).await;
            let ended = attack.ended.load(Ordering::Relaxed);
            println!("{name}\n  calm:  {calm}\n  flood: {flooded}; {ended} connections ended");
        } else {
            while attack.ended.load(Ordering::Relaxed) < 2 {
                victim.call(&app).await;
            }
            probes_answer(&app).await;
        }
        attack.is_over.store(true, Ordering::Relaxed);
        attackers.join_all().await;
        assert!(attack.ended.load(Ordering::Relaxed) > 0, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_only_held_take_nobodys_place() {
    // The default where it is measured.
    let (share, connections, environment) = if seconds().is_some() {
        (1_024, 4_100, vec![])
    } else {
        let share = "WARDGATE_GATEWAY__LIMITS__LISTENER__CONNECTIONS_PER_ADDRESS";
        (32, 200, vec![(share, "32")])
    };
    let app = TestApp::start_with(WARDGATE, &environment);
    let mut victim = Victim::new(&app);
    victim.call(&app).await;
    let calm = match seconds() {
        Some(time) => {
            pin(&app);
            victim.calls_for(&app, time).await
        }
        None => String::new(),
    };
    let attack = Arc::new(Attack::default());
    let mut attackers = JoinSet::new();
    for _ in 0..connections {
        attackers.spawn(Arc::clone(&attack).hold(address(&app)));
    }
    let held = || attack.held.load(Ordering::Relaxed);
    until("attackers hold their share", async || {
        (held() >= share / 2).then_some(())
    })
    .await;
    match seconds() {
        Some(time) => {
            let flooded = victim.calls_for(&app, time).await;
            println!(
                "held connections\n  calm:  {calm}\n  flood: {flooded}; {} held",
                held()
            );
        }
        None => {
            for _ in 0..20 {
                victim.call(&app).await;
                probes_answer(&app).await;
            }
        }
    }
    let open = open_connections(&app);
    // Those that are being closed have a tenth of a second for it.
    assert!(open <= share + 256, "{open} connections are open");
    attack.is_over.store(true, Ordering::Relaxed);
    attackers.abort_all();
}

/// Sockets that the gateway's process has open.
fn open_connections(app: &TestApp) -> usize {
    let files = std::fs::read_dir(format!("/proc/{}/fd", app.process.id())).unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    links
        .filter(|link| link.display().to_string().starts_with("socket:"))
        .count()
}
