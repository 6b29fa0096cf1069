//! The demo with PostgreSQL, both for the hospital's database and for the record.

use std::path::{Path, PathBuf};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use wardgate_domain::Ambient;
use wardgate_testkit::{Client, ProcessExit, System, TestApp, run};

use super::hospital::main_calls;
use crate::{REPOSITORY, WARDGATE};

/// The shipped configuration for separate services.
pub(super) const SEPARATE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../deploy/examples/separate/wardgate.yaml"
);

/// A database for one test.
pub(super) struct Database {
    server: String,
    name: String,
    pub(super) url: String,
}

impl Database {
    /// Creates an empty database, or returns `None` without a server.
    pub(super) async fn create() -> Option<Self> {
        let Ok(server) = std::env::var("WARDGATE_TEST_POSTGRES") else {
            let in_ci = std::env::var_os("CI").is_some();
            assert!(!in_ci, "set WARDGATE_TEST_POSTGRES to a server URL");
            eprintln!("skipped: WARDGATE_TEST_POSTGRES names no PostgreSQL server");
            return None;
        };
        let name = format!(
            "journey_{:032x}",
            u128::from_be_bytes(Ambient::system().random())
        );
        let (base, _) = server.rsplit_once('/').expect("the URL names a database");
        let url = format!("{base}/{name}");
        let database = Self { server, name, url };
        database.on_server("CREATE DATABASE").await;
        Some(database)
    }

    /// Creates a database with the data of the demo hospital, from the shipped scripts.
    pub(super) async fn hospital() -> Option<Self> {
        let database = Self::create().await?;
        let mut connection = PgConnection::connect(&database.url).await.unwrap();
        for script in ["schema.sql", "seed.sql"] {
            let path = format!("{REPOSITORY}/deploy/examples/hospital/{script}");
            let sql = AssertSqlSafe(std::fs::read_to_string(path).unwrap());
            sqlx::raw_sql(sql).execute(&mut connection).await.unwrap();
        }
        Some(database)
    }

    pub(super) async fn remove(self) {
        self.on_server("DROP DATABASE").await;
    }

    async fn on_server(&self, verb: &str) {
        let force = if verb.starts_with("DROP") {
            " WITH (FORCE)"
        } else {
            ""
        };
        let mut connection = PgConnection::connect(&self.server).await.unwrap();
        let statement = AssertSqlSafe(format!("{verb} {}{force}", self.name));
        sqlx::raw_sql(statement)
            .execute(&mut connection)
            .await
            .unwrap();
    }
}

/// A proxy to a database server, like a load balancer. It can be redirected to another server or to none, which closes
/// the existing connections.
pub(super) struct DatabaseAddress {
    pub(super) url: String,
    server: watch::Sender<Option<String>>,
}

impl DatabaseAddress {
    /// Creates a proxy to the server of the database at `url`.
    pub(super) async fn for_url(url: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().to_string();
        let server = server_of(url);
        let own = url.replace(&server, &own);
        let (sender, leads_to) = watch::channel(Some(server));
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut leads_to = leads_to.clone();
                tokio::spawn(async move {
                    let server = leads_to.borrow_and_update().clone();
                    let Some(server) = server else { return };
                    let Ok(mut server) = TcpStream::connect(server).await else {
                        return;
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut client, &mut server) => {}
                        _ = leads_to.changed() => {}
                    }
                });
            }
        });
        Self {
            url: own,
            server: sender,
        }
    }

    /// Redirects the proxy to the server of this URL.
    pub(super) fn lead_to(&self, url: Option<&str>) {
        self.server.send_replace(url.map(server_of));
    }
}

/// Returns the host and the port of a URL.
fn server_of(url: &str) -> String {
    let (_, address) = url.rsplit_once('@').expect("the URL names a user");
    let (server, _) = address.split_once('/').expect("the URL names a database");
    server.to_owned()
}

/// Returns the environment variables with which `wardgate up` uses a hospital database on PostgreSQL.
pub(super) fn on(hospital: &Database) -> [(&'static str, &str); 2] {
    [
        ("HOSPITAL_DB_TYPE", "postgres"),
        ("HOSPITAL_DB_URL", &hospital.url),
    ]
}

/// A system whose record is in PostgreSQL, so that its data directory alone does not identify the record.
pub(super) struct RecordElsewhere<S> {
    pub(super) system: S,
    pub(super) store: String,
}

impl<S: System> System for RecordElsewhere<S> {
    fn binary(&self) -> &Path {
        self.system.binary()
    }

    fn data_dir(&self) -> PathBuf {
        self.system.data_dir()
    }

    fn example_dir(&self) -> PathBuf {
        self.system.example_dir()
    }

    fn client(&self) -> &Client {
        self.system.client()
    }

    fn probes(&self) -> Client {
        self.system.probes()
    }

    fn audit(&self, arguments: &[&str]) -> ProcessExit {
        // Of the shipped configuration only the store and the log's key are used here.
        let arguments = [&["audit"], arguments, &["--config", SEPARATE]].concat();
        let key = self.data_dir().join("keys/audit-log.pem");
        let of_system = [
            ("WARDGATE_AUDIT__STORE", self.store.as_str()),
            ("WARDGATE_AUDIT__LOG_KEY_FILE", key.to_str().unwrap()),
        ];
        run(self.binary(), &arguments, &of_system)
    }
}

#[tokio::test]
async fn the_main_calls_work_with_everything_on_postgresql() {
    let Some(hospital) = Database::hospital().await else {
        return;
    };
    let Some(record) = Database::create().await else {
        return;
    };
    let [kind, url] = on(&hospital);
    let store = record.url.clone();
    let app = TestApp::start_with(WARDGATE, &[kind, url, ("WARDGATE_AUDIT__STORE", &store)]);
    let system = RecordElsewhere { system: app, store };
    main_calls(&system).await;
    assert!(!system.data_dir().join("audit.sqlite").exists());
    assert!(!system.data_dir().join("hospital.sqlite").exists());
    drop(system);
    record.remove().await;
    hospital.remove().await;
}
