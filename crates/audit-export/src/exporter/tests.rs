use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle, PrometheusRecorder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use wardgate_domain::Digest;

use super::*;
use crate::feed::SourceRecord;

const OUTCOME: &str =
    r#"{"event":"outcome","status":"ok","time":"2025-11-11T13:50:00.000042Z","version":1}"#;

/// A record in memory.
#[derive(Debug)]
struct FakeFeed {
    records: Vec<&'static str>,
    /// The position below which retention has removed all records.
    minimum_index: u64,
    /// The reported number of records, which may exceed the number of readable records.
    size: Mutex<u64>,
    position: watch::Sender<u64>,
    /// Whether the record cannot be read.
    is_unreadable: AtomicBool,
    /// The number of reads that failed.
    failed: watch::Sender<u64>,
}

impl FakeFeed {
    fn readable(&self) -> Result<(), FeedError> {
        if self.is_unreadable.load(Ordering::Relaxed) {
            self.failed.send_modify(|failed| *failed += 1);
            return Err(FeedError("the record cannot be read".to_owned()));
        }
        Ok(())
    }
}

impl RecordFeed for FakeFeed {
    async fn claim(&self, _: CursorClaim) -> Result<Option<u64>, FeedError> {
        Ok(Some(*self.position.borrow()))
    }

    async fn advance(&self, _: CursorClaim, from: u64, to: u64) -> Result<bool, FeedError> {
        assert_eq!(from, *self.position.borrow());
        self.position.send_replace(to);
        Ok(true)
    }

    async fn release(&self, _: CursorClaim) {}

    async fn size(&self) -> Result<u64, FeedError> {
        self.readable()?;
        Ok(*self.size.lock().unwrap())
    }

    async fn read_records(&self, from: u64, _: u64) -> Result<FeedPage, FeedError> {
        self.readable()?;
        let first = from.max(self.minimum_index);
        let end = self.minimum_index + self.records.len() as u64;
        let records = (self.minimum_index..end).zip(&self.records);
        let records = records.filter(|(sequence, _)| *sequence >= first);
        Ok(FeedPage {
            first,
            records: records
                .map(|(sequence, record)| SourceRecord {
                    sequence,
                    leaf_hash: Digest::compute(record.as_bytes()),
                    canonical: record.as_bytes().to_vec(),
                })
                .collect(),
            next: end,
            size: *self.size.lock().unwrap(),
            damaged: 0,
        })
    }
}

/// An export to a server whose responses are written by the test.
struct TestExport {
    feed: Arc<FakeFeed>,
    position: watch::Receiver<u64>,
    server: TcpListener,
    metrics: PrometheusHandle,
    stop: CancellationToken,
    running: JoinHandle<()>,
    /// Announces the number of records.
    grown: watch::Sender<u64>,
}

impl TestExport {
    async fn start(
        recorder: &PrometheusRecorder,
        transport: &str,
        minimum_index: u64,
        records: &[&'static str],
    ) -> Self {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let settings = format!(
            r#"{{"name":"soc","{transport}":{{"url":"http://{address}/in","private_addresses":true}}}}"#
        );
        let (sender, position) = watch::channel(0);
        let end = minimum_index + records.len() as u64;
        let feed = Arc::new(FakeFeed {
            records: records.to_vec(),
            minimum_index,
            size: Mutex::new(end),
            position: sender,
            is_unreadable: AtomicBool::new(false),
            failed: watch::Sender::new(0),
        });
        let log = ExportLog {
            origin: "example.com/audit".to_owned(),
            is_alone: true,
        };
        let stop = CancellationToken::new();
        let exporter = RecordExporter::open(
            serde_json::from_str(&settings).unwrap(),
            Arc::clone(&feed),
            log,
            Ambient::system(),
            stop.clone(),
        );
        let (grown, size) = watch::channel(end);
        Self {
            feed,
            position,
            server,
            metrics: recorder.handle(),
            stop,
            running: tokio::spawn(exporter.unwrap().run(size)),
            grown,
        }
    }

    /// Returns the next batch and the connection on which to respond to it.
    async fn batch(&self) -> (String, TcpStream) {
        let (mut stream, _) = self.server.accept().await.unwrap();
        let mut request = Vec::new();
        loop {
            let text = String::from_utf8_lossy(&request).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let head = head.to_lowercase();
                let length = head
                    .lines()
                    .find_map(|it| it.strip_prefix("content-length: "));
                let begun = request.len()
                    - request.windows(4).position(|it| it == b"\r\n\r\n").unwrap()
                    - 4;
                if begun == length.unwrap().parse::<usize>().unwrap() {
                    return (body.to_owned(), stream);
                }
            }
            assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0);
        }
    }

    async fn has_taken(&mut self, position: u64) {
        let taken = self.position.wait_for(|at| *at == position);
        timeout(Duration::from_secs(30), taken)
            .await
            .unwrap()
            .unwrap();
    }

    #[track_caller]
    fn shows(&self, line: &str) {
        let text = self.metrics.render();
        assert!(text.lines().any(|it| it == line), "{line}\n{text}");
    }

    async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

async fn answer(mut stream: TcpStream, status: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream
        .write_all(&[head.as_bytes(), body].concat())
        .await
        .unwrap();
}

fn recorder() -> PrometheusRecorder {
    PrometheusBuilder::new().build_recorder()
}

#[tokio::test]
async fn the_lag_grows_while_a_tool_takes_nothing() {
    let recorder = recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let mut export = TestExport::start(&recorder, "webhook", 0, &[OUTCOME; 2]).await;
    let (_, stream) = export.batch().await;
    export.shows(r#"wardgate_audit_export_lag_records{export="soc"} 2"#);
    *export.feed.size.lock().unwrap() = 40;
    answer(stream, "503 Service Unavailable", b"").await;
    let (_, stream) = export.batch().await;
    export.shows(r#"wardgate_audit_export_lag_records{export="soc"} 40"#);
    answer(stream, "200 OK", b"").await;
    export.has_taken(2).await;
    export.shows(r#"wardgate_audit_export_sent_total{export="soc"} 2"#);
    export.end().await;
}

#[tokio::test]
async fn the_lag_grows_while_the_record_cannot_be_read() {
    let recorder = recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let export = TestExport::start(&recorder, "webhook", 0, &[OUTCOME; 2]).await;
    let (_, stream) = export.batch().await;
    let mut failed = export.feed.failed.subscribe();
    export.feed.is_unreadable.store(true, Ordering::Relaxed);
    export.grown.send_replace(40);
    answer(stream, "503 Service Unavailable", b"").await;
    // The second failure comes after the first one was reported.
    for count in 1..=2 {
        let failure = failed.wait_for(|failed| *failed >= count);
        timeout(Duration::from_secs(30), failure)
            .await
            .unwrap()
            .unwrap();
    }
    export.shows(r#"wardgate_audit_export_lag_records{export="soc"} 40"#);
    let text = export.metrics.render();
    assert!(text.contains(r#"failures_total{export="soc",reason="store"}"#));
    // The age is that of the records, which are older than the failure.
    let age = text
        .lines()
        .find_map(|line| line.strip_prefix(r#"wardgate_audit_export_lag_seconds{export="soc"} "#));
    let age: f64 = age.unwrap().parse().unwrap();
    assert!(age > 3_600.0, "{age}");
    export.end().await;
}

#[tokio::test]
async fn what_retention_removed_is_neither_damaged_nor_behind() {
    let recorder = recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let mut export = TestExport::start(&recorder, "webhook", 256, &[OUTCOME; 2]).await;
    let (body, stream) = export.batch().await;
    assert_eq!(body.lines().count(), 2);
    export.shows(r#"wardgate_audit_export_lag_records{export="soc"} 2"#);
    answer(stream, "200 OK", b"").await;
    export.has_taken(258).await;
    assert!(!export.metrics.render().contains("failures_total"));
    export.end().await;
}

#[tokio::test]
async fn a_collector_that_rejects_events_has_taken_the_others() {
    let recorder = recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let mut export = TestExport::start(&recorder, "otlp", 0, &[OUTCOME; 3]).await;
    let (_, stream) = export.batch().await;
    // partial_success { rejected_log_records: 1 }
    answer(stream, "200 OK", &[0x0a, 2, 8, 1]).await;
    export.has_taken(3).await;
    export.shows(r#"wardgate_audit_export_sent_total{export="soc"} 2"#);
    export.shows(r#"wardgate_audit_export_failures_total{export="soc",reason="rejected"} 1"#);
    export.end().await;
}

#[tokio::test]
async fn an_answer_that_is_none_of_otlp_takes_nothing() {
    let recorder = recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let mut export = TestExport::start(&recorder, "otlp", 0, &[OUTCOME]).await;
    let (_, stream) = export.batch().await;
    answer(stream, "200 OK", b"<html>").await;
    let (_, stream) = export.batch().await;
    export.shows(r#"wardgate_audit_export_failures_total{export="soc",reason="refused"} 1"#);
    answer(stream, "200 OK", b"").await;
    export.has_taken(1).await;
    export.end().await;
}

#[tokio::test]
async fn the_answer_of_a_webhook_that_takes_a_batch_is_not_read() {
    let recorder = recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let mut export = TestExport::start(&recorder, "webhook", 0, &[OUTCOME]).await;
    let (_, mut stream) = export.batch().await;
    // The response is longer than the limit and never complete.
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n";
    stream.write_all(head).await.unwrap();
    export.has_taken(1).await;
    assert!(!export.metrics.render().contains("failures_total"));
    export.end().await;
}

#[tokio::test]
async fn a_record_that_is_not_understood_is_sent_and_counted() {
    let recorder = recorder();
    let _recording = metrics::set_default_local_recorder(&recorder);
    let other = r#"{"event":"of_later","time":"2025-11-11T13:50:00.000042Z","version":2}"#;
    let mut export = TestExport::start(&recorder, "webhook", 0, &[OUTCOME, other]).await;
    let (body, stream) = export.batch().await;
    let events = body.lines().map(serde_json::from_str);
    let events: Vec<serde_json::Value> = events.collect::<Result<_, _>>().unwrap();
    assert_eq!(events[1]["raw_data"], other);
    answer(stream, "200 OK", b"").await;
    export.has_taken(2).await;
    export.shows(r#"wardgate_audit_export_failures_total{export="soc",reason="unreadable"} 1"#);
    export.end().await;
}
