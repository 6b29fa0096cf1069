//! Temporary databases for tests.

use std::path::PathBuf;

use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use wardgate_domain::Ambient;

/// An empty database for one test, which is removed when the value is dropped.
#[derive(Debug)]
pub enum TestDatabase {
    /// A SQLite file.
    Sqlite {
        /// The directory of the file.
        dir: TempDir,
        /// The schema that statements name, which is removed from them because SQLite has no schemas.
        schema: &'static str,
    },
    /// A database of the PostgreSQL server that `WARDGATE_TEST_POSTGRES` names.
    Postgres {
        /// The URL of another database of the server.
        server: String,
        /// The name of the database.
        name: String,
    },
    /// A database of the MySQL server that `WARDGATE_TEST_MYSQL` names.
    Mysql {
        /// The URL of another database of the server.
        server: String,
        /// The name of the database.
        name: String,
    },
}

impl TestDatabase {
    /// Creates a database of each kind of store that is available, for statements with `schema` before each table.
    pub async fn each_store(schema: &'static str) -> Vec<Self> {
        let mut databases = vec![Self::sqlite(schema)];
        databases.extend(Self::postgres().await);
        databases
    }

    /// Creates a SQLite file, for statements with `schema` before each table. `schema` is empty if the statements name none.
    pub fn sqlite(schema: &'static str) -> Self {
        Self::Sqlite {
            dir: TempDir::new().unwrap(),
            schema,
        }
    }

    /// Creates a PostgreSQL database, or returns `None` without a server.
    pub async fn postgres() -> Option<Self> {
        let server = test_dependency("WARDGATE_TEST_POSTGRES")?;
        let name = new_name();
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        let mut connection = PgConnection::connect(&server).await.unwrap();
        connection.execute(create).await.unwrap();
        Some(Self::Postgres { server, name })
    }

    /// Copies this PostgreSQL database, and ends the connections to it. No page of the copy is in the buffers of the server.
    pub(crate) async fn copy(&self) -> Self {
        let Self::Postgres { server, name } = self else {
            panic!("only a PostgreSQL database can be copied");
        };
        let mut connection = PgConnection::connect(server).await.unwrap();
        // With a timeout, in milliseconds, the server waits until the backend has ended. Without one it only sends the signal.
        let ended = "SELECT count(pg_terminate_backend(pid, 60000)), current_setting('server_version_num')::bigint
                     FROM pg_stat_activity WHERE datname = $1";
        let ended = sqlx::query_as(ended).bind(name);
        let (_, version): (i64, i64) = ended.fetch_one(&mut connection).await.unwrap();
        let copied = new_name();
        // From version 15 on, the server by default copies through its buffers. Before, it always copies the files.
        let strategy = if version >= 150_000 {
            " STRATEGY file_copy"
        } else {
            ""
        };
        let create = AssertSqlSafe(format!(
            "CREATE DATABASE {copied} TEMPLATE {name}{strategy}"
        ));
        connection.execute(create).await.unwrap();
        Self::Postgres {
            server: server.clone(),
            name: copied,
        }
    }

    /// Creates a MySQL database, or returns `None` without a server.
    pub async fn mysql() -> Option<Self> {
        let server = test_dependency("WARDGATE_TEST_MYSQL")?;
        let name = new_name();
        let create = AssertSqlSafe(format!("CREATE DATABASE {name} CHARACTER SET utf8mb4"));
        let mut connection = MySqlConnection::connect(&server).await.unwrap();
        connection.execute(create).await.unwrap();
        Some(Self::Mysql { server, name })
    }

    /// Returns the name of the kind in configurations.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Sqlite { .. } => "sqlite",
            Self::Postgres { .. } => "postgres",
            Self::Mysql { .. } => "mysql",
        }
    }

    /// Returns whether this is a SQLite file.
    pub fn is_sqlite(&self) -> bool {
        matches!(self, Self::Sqlite { .. })
    }

    /// Returns the name of the database at its server.
    pub fn name(&self) -> &str {
        match self {
            Self::Sqlite { .. } => "main",
            Self::Postgres { name, .. } | Self::Mysql { name, .. } => name,
        }
    }

    /// Returns the URL of the database.
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

    /// Runs statements and returns their error, if any.
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

    /// Runs statements, and panics if they fail.
    pub async fn execute(&self, sql: &str) {
        self.try_execute(sql).await.unwrap();
    }

    /// Returns the integer that the query `sql` returns.
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

    /// Returns every byte of the files of a SQLite database; empty for other kinds.
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

/// A PostgreSQL role that connects with a password in a file. It owns the database for which it is made.
#[derive(Debug)]
pub struct PasswordRole {
    /// The name of the role at the server.
    pub name: String,
    /// The URL of the database for the role, without the password.
    pub url: String,
    server: String,
    file: TempDir,
}

impl PasswordRole {
    /// Creates a role for the database at `url`, on a server that `tests/postgres` starts.
    pub async fn create(url: &str) -> Self {
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

    /// Returns the path of the file that holds the password.
    pub fn password_file(&self) -> PathBuf {
        self.file.path().join("password")
    }

    /// Writes another password to the file.
    pub fn write(&self, password: &str) {
        let path = self.password_file();
        let new = path.with_extension("new");
        std::fs::write(&new, format!("{password}\n")).unwrap();
        // The file is replaced atomically, as mounted secrets are.
        std::fs::rename(new, path).unwrap();
    }

    /// Changes the password of the role at the server.
    pub async fn alter(&self, password: &str) {
        self.execute(&format!("ALTER ROLE {} PASSWORD '{password}'", self.name))
            .await;
    }

    /// Ends every connection of the role, and returns how many there were.
    pub async fn disconnect(&self) -> i64 {
        let mut connection = PgConnection::connect(&self.server).await.unwrap();
        // With a timeout, in milliseconds, the server waits until the backend has ended. Without one it only sends the signal.
        let ended = "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity WHERE usename = $1";
        let ended = sqlx::query_scalar(ended).bind(&self.name);
        ended.fetch_one(&mut connection).await.unwrap()
    }

    /// Removes the role and gives what it owns to the current user.
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

/// Returns the value of this environment variable: the URL of a database server, or the path of a program, that `make test`
/// installs. Without it a test skips its cases, but under CI it fails.
pub fn test_dependency(variable: &str) -> Option<String> {
    let value = std::env::var(variable).ok();
    if value.is_none() {
        let message = format!("{variable} is not set");
        assert!(std::env::var_os("CI").is_none(), "{message}");
        eprintln!("cases are skipped: {message}");
    }
    value
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
        // The drop runs on its own thread and runtime, because a test that panics ends its runtime.
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
