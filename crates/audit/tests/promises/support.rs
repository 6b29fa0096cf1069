//! Stores for single tests, the service on them, and records.

use std::path::Path;
use std::time::Duration;

use futures::TryStreamExt;
use futures::future::join_all;
use sqlx::{Connection, PgConnection, SqliteConnection};
use tokio::sync::watch;
use wardgate_audit::{
    AuditKeys, CallingProcesses, Config, DetailsKey, Error, LogCloser, LogKey, MacKey, RecordReader,
};
use wardgate_domain::{
    AdminChange, Ambient, BearerToken, CallFacts, CallId, ConversationKey, Digest, Event,
    MemoryAccess, MemoryMethod, Outcome, Record, RefusalCount, Refusals, Status, Timestamp,
};
use wardgate_rpc::client::{
    AuditClient, AuditFilter, OperatorAuditClient, PolicyClient, QueriedRecord, StoredRecord,
};
use wardgate_rpc::link::{self, Link};
use wardgate_rpc::{Peer, Readiness};
use wardgate_store::DatabaseSettings;
use wardgate_testkit::{
    TestDatabase, copy_with_corrupt_pages, copy_with_empty_index, corrupt_sqlite_index,
    corrupt_sqlite_pages, repair_sqlite_pages, replace_sqlite_bytes,
};

/// Runs each of the named functions, which take a `&TestStore`, on both kinds of store.
macro_rules! on_both_stores {
    ($($promise:ident)*) => {$(
        mod $promise {
            use crate::support::TestStore;

            #[tokio::test(flavor = "multi_thread")]
            async fn sqlite() {
                super::$promise(&TestStore::sqlite()).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn postgres() {
                let Some(store) = TestStore::postgres().await else { return };
                super::$promise(&store).await;
            }
        }
    )*};
}
pub(crate) use on_both_stores;

/// Number of consecutive records that [`TestStore::append_calls`] appends with the same time.
pub(crate) const SAME_TIME: usize = 7;

/// An empty store for one test.
pub(crate) struct TestStore {
    pub(crate) url: String,
    database: TestDatabase,
}

impl TestStore {
    pub(crate) fn sqlite() -> Self {
        Self::from_database(TestDatabase::sqlite(""))
    }

    /// Creates a database for the store, or returns `None` if no server is configured.
    pub(crate) async fn postgres() -> Option<Self> {
        TestDatabase::postgres().await.map(Self::from_database)
    }

    fn from_database(database: TestDatabase) -> Self {
        let url = database.url();
        Self { url, database }
    }

    /// Runs `statement` directly on the store, without the service.
    pub(crate) async fn execute(&self, statement: &str) -> Result<(), sqlx::Error> {
        if self.database.is_sqlite() {
            return self.database.try_execute(statement).await;
        }
        let statement = format!("SET search_path = audit; {statement}");
        self.database.try_execute(&statement).await
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        self.database.is_sqlite()
    }

    /// Appends the outcomes of `count` new calls, and ends the service. Returns the calls in the order of their records. Each
    /// [`SAME_TIME`] consecutive records have the same time, which is a second before the time of the previous ones.
    pub(crate) async fn append_calls(&self, count: usize) -> Vec<CallFacts> {
        let TestService { audit, closer, .. } = self.service().await;
        let calls: Vec<_> = (0..count).map(|_| subject()).collect();
        let mut appended = Vec::with_capacity(count);
        for (calls, seconds) in calls.chunks(SAME_TIME).zip(0..) {
            let time = start().minus(Duration::from_secs(seconds));
            let appends = calls.iter().map(|call| {
                let record = Record {
                    time,
                    ..outcome(call, Status::Ok)
                };
                let audit = audit.clone();
                async move {
                    let receipt = audit.append(&record, false).await.unwrap();
                    (receipt.sequence(), call.clone())
                }
            });
            appended.extend(join_all(appends).await);
        }
        drop(audit);
        closer.close().await;
        appended.sort_by_key(|(sequence, _)| *sequence);
        appended.into_iter().map(|(_, call)| call).collect()
    }

    /// Makes the pages of a SQLite store that contain the records of `calls` unreadable. No service may use the store. Returns
    /// the offsets of the pages, by which [`Self::repair_pages`] makes them readable again.
    pub(crate) async fn corrupt_pages_of(&self, calls: &[CallFacts]) -> Vec<u64> {
        let records = calls.iter();
        let records = records.map(|call| format!(r#""call_id":"{}""#, call.call_id));
        let records: Vec<_> = records.collect();
        corrupt_sqlite_pages(self.sqlite_path(), &records).await
    }

    /// Makes an index of a SQLite store unreadable. No service may use the store.
    pub(crate) async fn corrupt_index(&self, index: &str) {
        corrupt_sqlite_index(self.sqlite_path(), index).await;
    }

    /// Returns a copy of a PostgreSQL store in which the page that contains the record at `sequence` is unreadable. No service may
    /// use the store.
    pub(crate) async fn copy_with_corrupt_page_of(&self, sequence: u64) -> Self {
        // Without this, the server looks up in the table whether the entry of an index belongs to a record.
        let vacuum = self.database.try_execute("VACUUM audit.record");
        vacuum.await.unwrap();
        let row = format!("sequence = {sequence}");
        Self::from_database(copy_with_corrupt_pages(&self.database, "audit.record", &row).await)
    }

    /// Returns a copy of a PostgreSQL store in which the pages of an index are empty. No service may use the store.
    pub(crate) async fn copy_with_empty_index(&self, index: &str) -> Self {
        Self::from_database(copy_with_empty_index(&self.database, index).await)
    }

    /// Changes the type of the time in the record of `call` in a SQLite store to a floating-point number, so that the time cannot
    /// be decoded. No service may use the store.
    pub(crate) async fn corrupt_time_of(&self, call: &CallFacts) {
        // The types of the columns `event`, `time` and `call_id` in the header of a row: a text of 7 bytes, a number of 8 bytes
        // and a text of 36 bytes. See https://www.sqlite.org/fileformat2.html#record_format.
        let (integer, float) = ([27, 6, 85], [27, 7, 85]);
        let record = format!(r#""call_id":"{}""#, call.call_id);
        replace_sqlite_bytes(self.sqlite_path(), &record, &integer, &float).await;
    }

    /// Makes pages readable again.
    pub(crate) fn repair_pages(&self, offsets: &[u64]) {
        repair_sqlite_pages(self.sqlite_path(), offsets);
    }

    fn sqlite_path(&self) -> &Path {
        Path::new(self.url.strip_prefix("sqlite:").unwrap())
    }

    /// Returns the wrapped key of a data subject other than the common one, from a SQLite store that has such a key.
    pub(crate) async fn newest_subject_key(&self) -> Vec<u8> {
        let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
        let keys = "SELECT wrapped FROM data_subject_key
            WHERE tag IN (SELECT tag FROM data_subject)";
        let key = sqlx::query_scalar(keys).fetch_one(&mut connection).await;
        connection.close().await.unwrap();
        key.unwrap()
    }

    /// Returns all stored bytes of the records, including their columns.
    pub(crate) async fn every_byte(&self) -> Vec<u8> {
        if self.database.is_sqlite() {
            return self.database.files();
        }
        let mut connection = PgConnection::connect(&self.url).await.unwrap();
        let rows: Vec<(Vec<u8>, Vec<u8>, String)> = sqlx::query_as(
            "SELECT leaf_hash, canonical, record::text || coalesce(encode(details, 'escape'), '') FROM audit.record
             ORDER BY sequence",
        )
        .fetch_all(&mut connection)
        .await
        .unwrap();
        rows.into_iter()
            .flat_map(|(hash, bytes, text)| [hash, bytes, text.into_bytes()].concat())
            .collect()
    }

    pub(crate) async fn service(&self) -> TestService {
        self.service_at(Ambient::system(), 60).await
    }

    pub(crate) async fn service_at(&self, ambient: Ambient, unknown_after: u64) -> TestService {
        TestService::start(&self.url, ambient, unknown_after).await
    }

    /// Returns all records, read without the service.
    pub(crate) async fn records(&self) -> Vec<StoredRecord> {
        let all = self.read_records(AuditFilter::default()).await;
        all.into_iter().map(intact).collect()
    }

    /// Returns the records that match a filter, read without the service.
    pub(crate) async fn read_records(&self, filter: AuditFilter) -> Vec<QueriedRecord> {
        let reader = RecordReader::open(&self.url, &DatabaseSettings::default())
            .await
            .unwrap();
        let records = reader.query(filter).unwrap();
        records.try_collect().await.unwrap()
    }
}

/// Returns the keys that every service in these tests uses.
pub(crate) fn keys() -> AuditKeys {
    AuditKeys {
        mac: MacKey::from_bytes(&[7; 32]),
        log: LogKey::from_pkcs8(&log_key(1)).unwrap(),
        details: DetailsKey::from_bytes(&[9; 32]).into(),
    }
}

/// Returns a private key in PKCS#8 DER: version, algorithm and seed (RFC 8410).
pub(crate) fn log_key(seed: u8) -> Vec<u8> {
    let before = b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";
    [before.as_slice(), &[seed; 32]].concat()
}

/// The audit service, with a client for each kind of caller.
pub(crate) struct TestService {
    /// The client of the gateway.
    pub(crate) audit: AuditClient,
    /// The client of the console.
    pub(crate) console: AuditClient,
    /// The client of the policy service.
    pub(crate) policy: AuditClient,
    /// The link of the console, for requests that the clients cannot express.
    pub(crate) console_link: Link,
    pub(crate) gateway_link: Link,
    /// The link of an operator.
    pub(crate) operator_link: Link,
    pub(crate) readiness: watch::Receiver<Readiness>,
    /// Signs the last checkpoint.
    pub(crate) closer: LogCloser,
}

impl TestService {
    pub(crate) async fn start(url: &str, ambient: Ambient, unknown_after: u64) -> Self {
        Self::start_for(
            CallingProcesses::OtherProcesses,
            url,
            ambient,
            unknown_after,
        )
        .await
    }

    pub(crate) async fn start_for(
        callers: CallingProcesses,
        url: &str,
        ambient: Ambient,
        unknown_after: u64,
    ) -> Self {
        let config = Config {
            unknown_after_seconds: unknown_after,
            ..Config::for_store(url)
        };
        Self::start_as(config, callers, None, ambient).await
    }

    /// Starts the service with `policy`, which decides who may read the audit log.
    pub(crate) async fn start_under(policy: PolicyClient, url: &str) -> Self {
        let callers = CallingProcesses::OtherProcesses;
        let config = Config::for_store(url);
        Self::start_as(config, callers, Some(policy), Ambient::system()).await
    }

    pub(crate) async fn start_as(
        config: Config,
        callers: CallingProcesses,
        policy: Option<PolicyClient>,
        ambient: Ambient,
    ) -> Self {
        let started = Self::start_keyed(config, keys(), callers, policy, ambient);
        Box::pin(started).await.unwrap()
    }

    /// Starts the service with `keys`, or returns the error with which it refuses them.
    pub(crate) async fn start_keyed(
        config: Config,
        keys: AuditKeys,
        callers: CallingProcesses,
        policy: Option<PolicyClient>,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        let service = wardgate_audit::service(config, keys, callers, policy, ambient);
        let (service, closer) = Box::pin(service).await?;
        let readiness = service.readiness.clone();
        let gateway_link = link::local(service.clone(), Peer::Gateway).link;
        let console_link = link::local(service.clone(), Peer::Console).link;
        let policy_link = link::local(service.clone(), Peer::Policy).link;
        let operator_link = link::local(service, Peer::Operator).link;
        let patience = Duration::from_mins(1);
        Ok(Self {
            audit: AuditClient::new(gateway_link.clone(), patience),
            console: AuditClient::new(console_link.clone(), patience),
            policy: AuditClient::new(policy_link, patience),
            console_link: console_link.transport,
            gateway_link: gateway_link.transport,
            operator_link: operator_link.transport,
            readiness,
            closer,
        })
    }

    /// Returns the client of the operator with this token.
    pub(crate) fn operator(&self, token: &str) -> OperatorAuditClient {
        OperatorAuditClient::new(self.operator_link.clone(), BearerToken::new(token))
    }

    pub(crate) async fn ready(&mut self) {
        let ready = self.readiness.wait_for(Readiness::is_ready);
        tokio::time::timeout(Duration::from_mins(1), ready)
            .await
            .expect("it recovers")
            .unwrap();
    }
}

/// 2025-11-11T13:50:00Z.
pub(crate) const NOW: i64 = 1_762_869_000;

/// Returns the time of the records below.
pub(crate) fn start() -> Timestamp {
    Timestamp::from_seconds(NOW)
}

/// Returns the facts of a new call.
pub(crate) fn subject() -> CallFacts {
    CallFacts {
        call_id: CallId::new(&Ambient::system()),
        issuer: "https://issuer.example".to_owned(),
        subject: "dr.yenji".to_owned(),
        tenant: "north".to_owned(),
        roles: vec!["Doctor".to_owned()],
        token_id: "t-1".to_owned(),
        client_ip: "192.0.2.7".to_owned(),
        protocol: "2026-07-28".to_owned(),
        requested_tool: "get_patient_records".to_owned(),
        tool: Some("get_medical_records".parse().unwrap()),
        definition_digest: Some(Digest::compute(b"definition")),
        tags: None,
        arguments_digest: Digest::compute(b"arguments"),
        decision_id: None,
        policy_hash: None,
        bundle: None,
        policies: Vec::new(),
        permit_id: None,
        method: String::new(),
        approval_id: None,
        conversation: None,
    }
}

pub(crate) fn intent(subject: &CallFacts) -> Record {
    Record {
        time: start(),
        event: Event::Intent(subject.clone()),
    }
}

pub(crate) fn outcome(subject: &CallFacts, status: Status) -> Record {
    let outcome = Outcome {
        call: subject.clone(),
        status,
        reason: String::new(),
        rows: 1,
        rows_withheld: 0,
        fields_redacted: 0,
        phi: true,
        result_digest: Some(Digest::compute(b"result")),
        duration: Duration::from_millis(1),
        details: None,
    };
    Record {
        time: start(),
        event: Event::Outcome(outcome),
    }
}

pub(crate) fn refusals(count: u64) -> Record {
    let count = RefusalCount {
        reason: "token_expired".to_owned(),
        client_ip: "192.0.2.7".to_owned(),
        subject: String::new(),
        count,
    };
    let refusals = Refusals {
        window_start: start(),
        counts: vec![count],
    };
    Record {
        time: start(),
        event: Event::Refusals(refusals),
    }
}

/// Returns the record, and panics if it is damaged.
pub(crate) fn intact(found: QueriedRecord) -> StoredRecord {
    match found {
        QueriedRecord::Intact(stored) => stored,
        QueriedRecord::Damaged(damage) => panic!("{damage}"),
    }
}

/// Returns a stored record as JSON.
pub(crate) fn json(stored: &StoredRecord) -> serde_json::Value {
    serde_json::from_slice(&stored.record).unwrap()
}

pub(crate) fn admin_change(actor: &str, failed: bool) -> Record {
    let change = AdminChange {
        actor: actor.to_owned(),
        action: "tool.disable".to_owned(),
        target: "get_shifts".to_owned(),
        scope: "role:Nurse".to_owned(),
        failed,
        ..AdminChange::default()
    };
    Record {
        time: start(),
        event: Event::AdminChange(change),
    }
}

/// Returns a record of an access to one conversation.
pub(crate) fn memory_access(conversation: ConversationKey, status: Status) -> Record {
    let access = MemoryAccess {
        call: CallFacts {
            requested_tool: String::new(),
            tool: None,
            ..subject()
        },
        method: MemoryMethod::GetContext,
        conversation: Some(conversation),
        messages: 3,
        withheld: 1,
        phi: false,
        status,
        reason: String::new(),
        duration: Duration::from_millis(1),
    };
    Record {
        time: start(),
        event: Event::MemoryAccess(access),
    }
}
