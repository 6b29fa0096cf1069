//! Databases of a test's own.

use std::path::PathBuf;

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use wardgate_domain::Ambient;

/// An empty database of one test's own, which is removed with it.
#[derive(Debug)]
pub enum TestDatabase {
    /// A file.
    Sqlite {
        /// Where it is.
        dir: TempDir,
        /// Which schema statements name, that SQLite has none of.
        schema: &'static str,
    },
    /// On the server that `WARDGATE_TEST_POSTGRES` says.
    Postgres {
        /// The URL of another database there.
        server: String,
        /// Its name.
        name: String,
    },
    /// On the server that `WARDGATE_TEST_MYSQL` says.
    Mysql {
        /// The URL of another database there.
        server: String,
        /// Its name.
        name: String,
    },
}

impl TestDatabase {
    /// One of each kind that services keep things in and that is there, for statements with `schema` before each table.
    pub async fn each_store(schema: &'static str) -> Vec<Self> {
        let mut databases = vec![Self::sqlite(schema)];
        databases.extend(Self::postgres().await);
        databases
    }

    /// A file, for statements with `schema` before each table; an empty one where they name none.
    pub fn sqlite(schema: &'static str) -> Self {
        Self::Sqlite {
            dir: TempDir::new().unwrap(),
            schema,
        }
    }

    /// None without a server to put it on.
    pub async fn postgres() -> Option<Self> {
        let server = database_server("WARDGATE_TEST_POSTGRES")?;
        let name = new_name();
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        let mut connection = PgConnection::connect(&server).await.unwrap();
        connection.execute(create).await.unwrap();
        Some(Self::Postgres { server, name })
    }

    /// None without a server to put it on.
    pub async fn mysql() -> Option<Self> {
        let server = database_server("WARDGATE_TEST_MYSQL")?;
        let name = new_name();
        let create = AssertSqlSafe(format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"));
        let mut connection = MySqlConnection::connect(&server).await.unwrap();
        connection.execute(create).await.unwrap();
        Some(Self::Mysql { server, name })
    }

    /// What configurations call its kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "sqlite",
            Self::Postgres { .. } => "postgres",
            Self::Mysql { .. } => "mysql",
        }
    }

    /// Whether it is a file.
    pub fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite { .. })
    }

    /// What its server calls it.
    pub fn name(&self) -> &str {
        match self {
            Self::Sqlite { .. } => "main",
            Self::Postgres { name, .. } | Self::Mysql { name, .. } => name,
        }
    }

    /// Where it is.
    pub fn url(&self) -> String {
        match self {
            Self::Sqlite { dir, .. } => format!("sqlite:{}", dir.path().join("test.db").display()),
            Self::Postgres { server, name } | Self::Mysql { server, name } => {
                let (base, _) = server.rsplit_once('/').expect("a URL names a database");
                format!("{base}/{name}")
            }
        }
    }

    fn sql(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(match self {
            Self::Sqlite { schema, .. } if !schema.is_empty() => {
                sql.replace(&format!("{schema}."), "")
            }
            _ => sql.to_owned(),
        })
    }

    /// Runs statements, which may fail.
    pub async fn try_execute(&self, sql: &str) -> Result<(), sqlx::Error> {
        let (sql, url) = (sqlx::raw_sql(self.sql(sql)), self.url());
        match self {
            Self::Sqlite { .. } => {
                let url = format!("{url}?mode=rwc");
                let mut connection = SqliteConnection::connect(&url).await?;
                connection.execute(sql).await?;
                connection.close().await
            }
            Self::Postgres { .. } => {
                let mut connection = PgConnection::connect(&url).await?;
                connection.execute(sql).await?;
                connection.close().await
            }
            Self::Mysql { .. } => {
                let mut connection = MySqlConnection::connect(&url).await?;
                connection.execute(sql).await?;
                connection.close().await
            }
        }
    }

    /// Runs statements.
    pub async fn execute(&self, sql: &str) {
        self.try_execute(sql).await.unwrap();
    }

    /// The one whole number that `sql` gives.
    pub async fn number(&self, sql: &str) -> i64 {
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
            Self::Mysql { .. } => {
                let mut connection = MySqlConnection::connect(&url).await.unwrap();
                sqlx::query_scalar(sql).fetch_one(&mut connection).await
            }
        }
        .unwrap()
    }

    /// Every byte of the files, where there are some.
    pub fn files(&self) -> Vec<u8> {
        let Self::Sqlite { dir, .. } = self else {
            return Vec::new();
        };
        let files = std::fs::read_dir(dir.path()).unwrap();
        files
            .flat_map(|file| std::fs::read(file.unwrap().path()).unwrap())
            .collect()
    }
}

/// A role of PostgreSQL that connects with a password, which stands in a file. It owns the database that it is made for.
#[derive(Debug)]
pub struct PasswordRole {
    /// How the server calls it.
    pub name: String,
    /// The database of the role, without the password.
    pub url: String,
    server: String,
    file: TempDir,
}

impl PasswordRole {
    /// A role for the database at `url`, of which the server is one that `tests/postgres` starts.
    pub async fn make(url: &str) -> Self {
        let (server, database) = url.rsplit_once('/').expect("a URL names a database");
        let (scheme, _) = url.split_once("://").expect("a URL has a scheme");
        let (_, address) = server.rsplit_once('@').expect("the URL names a user");
        let name = new_name();
        let role = Self {
            url: format!("{scheme}://{name}@{address}/{database}"),
            server: url.to_owned(),
            file: TempDir::new().unwrap(),
            name,
        };
        let name = &role.name;
        role.execute(&format!(
            "DO $$ BEGIN CREATE ROLE wardgate_by_password; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
             CREATE ROLE {name} LOGIN PASSWORD 'first' IN ROLE wardgate_by_password;
             ALTER DATABASE {database} OWNER TO {name}"
        ))
        .await;
        role.write("first");
        let without = PgConnection::connect(&format!("{}?password=wrong", role.url)).await;
        assert!(
            without.is_err(),
            "any password is accepted; start the server as tests/postgres does"
        );
        role
    }

    /// Where its password stands.
    pub fn password_file(&self) -> PathBuf {
        self.file.path().join("password")
    }

    /// Writes another password to the file.
    pub fn write(&self, password: &str) {
        let path = self.password_file();
        let new = path.with_extension("new");
        std::fs::write(&new, format!("{password}\n")).unwrap();
        // At once, as mounted secrets are replaced.
        std::fs::rename(new, path).unwrap();
    }

    /// Gives the role another password at the server.
    pub async fn alter(&self, password: &str) {
        self.execute(&format!("ALTER ROLE {} PASSWORD '{password}'", self.name))
            .await;
    }

    /// Ends every connection of the role. Returns how many there were.
    pub async fn disconnect(&self) -> i64 {
        let mut connection = PgConnection::connect(&self.server).await.unwrap();
        // The server waits, in milliseconds, until each of them is gone: it only tells it to go otherwise.
        let ended = "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity WHERE usename = $1";
        let ended = sqlx::query_scalar(ended).bind(&self.name);
        ended.fetch_one(&mut connection).await.unwrap()
    }

    /// Removes it and what it owns.
    pub async fn remove(self) {
        let name = &self.name;
        self.disconnect().await;
        self.execute(&format!(
            "REASSIGN OWNED BY {name} TO CURRENT_USER; DROP ROLE {name}"
        ))
        .await;
    }

    async fn execute(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.server).await.unwrap();
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        connection.execute(sql).await.unwrap();
    }
}

/// The URL of a database server in the environment variable of that name. Without it a test skips its cases, but not
/// under CI.
pub fn database_server(variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok();
    if url.is_none() {
        let message = format!("set {variable} to a server's URL");
        assert!(std::env::var_os("CI").is_none(), "{message}");
        eprintln!("cases are skipped: {message}");
    }
    url
}

fn new_name() -> String {
    let random = u64::from_be_bytes(Ambient::system().random());
    format!("wardgate_test_{random:x}")
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let is_mysql = matches!(self, Self::Mysql { .. });
        let (Self::Postgres { server, name } | Self::Mysql { server, name }) = self else {
            return;
        };
        let how = if is_mysql { "" } else { " WITH (FORCE)" };
        let sql = AssertSqlSafe(format!("DROP DATABASE {name}{how}"));
        let url = server.clone();
        // A test may end in a panic, on a runtime that ends with it.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async {
                if is_mysql {
                    let mut connection = MySqlConnection::connect(&url).await?;
                    connection.execute(sql).await.map(drop)
                } else {
                    let mut connection = PgConnection::connect(&url).await?;
                    connection.execute(sql).await.map(drop)
                }
            })
        });
        let _ = dropping.join();
    }
}
