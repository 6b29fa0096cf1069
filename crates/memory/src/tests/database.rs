//! Databases of a test's own.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};
use tempfile::TempDir;
use wardgate_domain::Ambient;

/// A database of one test's own.
pub(crate) enum Database {
    Sqlite { dir: TempDir },
    Postgres { server: String, name: String },
}

impl Database {
    /// One of each kind that is there. SQLite always is, PostgreSQL where `WARDGATE_TEST_POSTGRES` says.
    pub(crate) async fn each() -> Vec<Self> {
        let mut databases = vec![Self::sqlite()];
        databases.extend(Self::postgres().await);
        databases
    }

    pub(crate) fn sqlite() -> Self {
        Self::Sqlite {
            dir: TempDir::new().unwrap(),
        }
    }

    async fn postgres() -> Option<Self> {
        let server = std::env::var("WARDGATE_TEST_POSTGRES").ok();
        let Some(server) = server else {
            let message = "set WARDGATE_TEST_POSTGRES to a server's URL";
            assert!(std::env::var("CI").is_err(), "{message}");
            eprintln!("cases are skipped: {message}");
            return None;
        };
        let random = u64::from_be_bytes(Ambient::system().random());
        let name = format!("wardgate_test_{random:x}");
        let mut connection = PgConnection::connect(&server).await.unwrap();
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        connection.execute(create).await.unwrap();
        Some(Self::Postgres { server, name })
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite { .. })
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite { dir } => format!("sqlite:{}", dir.path().join("memory.db").display()),
            Self::Postgres { server, name } => {
                let (base, _) = server.rsplit_once('/').unwrap();
                format!("{base}/{name}")
            }
        }
    }

    /// A statement with the schema before each table, which SQLite has none of.
    fn sql(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(if self.is_sqlite() {
            sql.replace("memory.", "")
        } else {
            sql.to_owned()
        })
    }

    pub(crate) async fn execute(&self, sql: &str) {
        let (sql, url) = (sqlx::raw_sql(self.sql(sql)), self.url());
        match self {
            Self::Sqlite { .. } => {
                let mut connection = SqliteConnection::connect(&url).await.unwrap();
                connection.execute(sql).await.unwrap();
                connection.close().await.unwrap();
            }
            Self::Postgres { .. } => {
                let mut connection = PgConnection::connect(&url).await.unwrap();
                connection.execute(sql).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// The one whole number that `sql` gives.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let (sql, url) = (self.sql(sql), self.url());
        match self {
            Self::Sqlite { .. } => {
                let mut connection = SqliteConnection::connect(&url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await
            }
            Self::Postgres { .. } => {
                let mut connection = PgConnection::connect(&url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await
            }
        }
        .unwrap()
    }

    /// Every byte of the files, where there are some.
    pub(crate) fn files(&self) -> Vec<u8> {
        let Self::Sqlite { dir } = self else {
            return Vec::new();
        };
        let files = std::fs::read_dir(dir.path()).unwrap();
        files
            .flat_map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .collect()
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Self::Postgres { server, name } = self else {
            return;
        };
        let (url, sql) = (server.clone(), format!("DROP DATABASE {name} WITH (FORCE)"));
        // A test may end in a panic, on a runtime that ends with it.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                let mut connection = PgConnection::connect(&url).await?;
                connection.execute(AssertSqlSafe(sql)).await
            })
        });
        let _ = dropping.join();
    }
}
