//! Databases of a test's own, all with the same rows.

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use wardgate_domain::Ambient;

/// A database of one test's own.
pub(crate) enum Database {
    Sqlite { dir: TempDir },
    Postgres { server: String, name: String },
    Mysql { server: String, name: String },
}

impl Database {
    /// One of each kind that is there. SQLite always is, PostgreSQL where `WARDGATE_TEST_POSTGRES` says, MySQL
    /// where `WARDGATE_TEST_MYSQL` does.
    pub(crate) async fn each() -> Vec<Self> {
        let mut databases = Self::each_store().await;
        databases.extend(Self::mysql().await);
        databases
    }

    /// The kinds that the service keeps things of its own in.
    pub(crate) async fn each_store() -> Vec<Self> {
        let mut databases = vec![Self::sqlite().await];
        databases.extend(Self::postgres().await);
        databases
    }

    pub(crate) async fn sqlite() -> Self {
        let database = Self::Sqlite {
            dir: TempDir::new().unwrap(),
        };
        database.execute(ROWS).await;
        database
    }

    pub(crate) async fn postgres() -> Option<Self> {
        let server = server("WARDGATE_TEST_POSTGRES")?;
        let name = new_name();
        let mut connection = PgConnection::connect(&server).await.unwrap();
        connection
            .execute(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .await
            .unwrap();
        let database = Self::Postgres { server, name };
        database.execute(ROWS).await;
        Some(database)
    }

    pub(crate) async fn mysql() -> Option<Self> {
        let server = server("WARDGATE_TEST_MYSQL")?;
        let name = new_name();
        let mut connection = MySqlConnection::connect(&server).await.unwrap();
        connection
            .execute(AssertSqlSafe(format!(
                "CREATE DATABASE {name} CHARACTER SET utf8mb4"
            )))
            .await
            .unwrap();
        let database = Self::Mysql { server, name };
        database.execute(ROWS).await;
        Some(database)
    }

    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "sqlite",
            Self::Postgres { .. } => "postgres",
            Self::Mysql { .. } => "mysql",
        }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite { .. })
    }

    /// True where SQL has a type for true and false, and is not content with 1 and 0.
    pub(crate) fn has_booleans(&self) -> bool {
        matches!(self, Self::Postgres { .. })
    }

    /// What its server calls it.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Sqlite { .. } => "main",
            Self::Postgres { name, .. } | Self::Mysql { name, .. } => name,
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite { dir } => format!("sqlite:{}", dir.path().join("rows.db").display()),
            Self::Postgres { server, name } | Self::Mysql { server, name } => {
                let (base, _) = server.rsplit_once('/').unwrap();
                format!("{base}/{name}")
            }
        }
    }

    pub(crate) async fn execute(&self, sql: &str) {
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        let url = self.url();
        match self {
            Self::Sqlite { .. } => {
                let url = format!("{url}?mode=rwc");
                let mut connection = SqliteConnection::connect(&url).await.unwrap();
                connection.execute(sql).await.unwrap();
                connection.close().await.unwrap();
            }
            Self::Postgres { .. } => {
                let mut connection = PgConnection::connect(&url).await.unwrap();
                connection.execute(sql).await.unwrap();
                connection.close().await.unwrap();
            }
            Self::Mysql { .. } => {
                let mut connection = MySqlConnection::connect(&url).await.unwrap();
                connection.execute(sql).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// The one whole number that `sql` gives.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = AssertSqlSafe(sql.to_owned());
        let url = self.url();
        match self {
            Self::Sqlite { .. } => {
                let mut connection = SqliteConnection::connect(&url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await
            }
            Self::Postgres { .. } => {
                let mut connection = PgConnection::connect(&url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await
            }
            Self::Mysql { .. } => {
                let mut connection = MySqlConnection::connect(&url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await
            }
        }
        .unwrap()
    }

    /// The harness's tools in the SQL of this database.
    pub(crate) fn translated(&self, tools: &str) -> String {
        match self {
            // A recursion of MySQL ends by itself.
            Self::Mysql { .. } => tools.replace(ENDLESS, ENDLESS_IN_MYSQL),
            _ => tools.to_owned(),
        }
    }
}

/// The URL in the variable; under CI there must be one.
fn server(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok();
    if url.is_none() {
        assert!(
            std::env::var("CI").is_err(),
            "set {variable} to a server's URL"
        );
        eprintln!("cases are skipped: {variable} is not set");
    }
    url
}

fn new_name() -> String {
    let random = u64::from_be_bytes(Ambient::system().random());
    format!("wardgate_test_{random:x}")
}

impl Drop for Database {
    fn drop(&mut self) {
        let (url, sql) = match self {
            Self::Sqlite { .. } => return,
            Self::Postgres { server, name } => {
                (server.clone(), format!("DROP DATABASE {name} WITH (FORCE)"))
            }
            Self::Mysql { server, name } => (server.clone(), format!("DROP DATABASE {name}")),
        };
        let is_mysql = matches!(self, Self::Mysql { .. });
        let sql = AssertSqlSafe(sql);
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(async {
                if is_mysql {
                    let mut connection = MySqlConnection::connect(&url).await.unwrap();
                    connection.execute(sql).await.unwrap();
                } else {
                    let mut connection = PgConnection::connect(&url).await.unwrap();
                    connection.execute(sql).await.unwrap();
                }
            });
        });
        dropping.join().unwrap();
    }
}

const ROWS: &str = "
    CREATE TABLE records (
        id INTEGER PRIMARY KEY, patient TEXT NOT NULL, doctor TEXT, ward TEXT,
        sealed BOOLEAN NOT NULL, level BIGINT, note TEXT
    );
    INSERT INTO records VALUES
        (1, 'NUGWI', 'd1', 'W1', FALSE, 1, 'first'),
        (2, 'NUGWI', 'd2', 'W1', FALSE, 2, 'second'),
        (3, 'NUGWI', NULL, 'W2', FALSE, 3, 'third'),
        (4, 'ABCDE', 'd1', 'W2', TRUE, 4, 'fourth'),
        (5, 'ABCDE', 'd2', NULL, FALSE, NULL, 'fifth'),
        (6, 'ABCDE', 'd''1', 'W1', TRUE, 9007199254740993, 'it''s the \"sixth\"'),
        (7, 'FGHIJ', 'd1', 'W3', FALSE, -1, NULL);
    CREATE TABLE written (line VARCHAR(500) NOT NULL UNIQUE);
";

/// What `endless_append` does, and a way to do it that MySQL does not end by itself.
const ENDLESS: &str = "\
        WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n)
        INSERT INTO written SELECT 'x' || max(value) FROM n";
const ENDLESS_IN_MYSQL: &str =
    "INSERT INTO written SELECT 'x' || BENCHMARK(1000000000000000, 1 + 1)";
