//! A PostgreSQL primary and its synchronous standby, which run the programs that `tests/postgres` finds.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;
use wardgate_testkit::{free_port, until_true};

use super::postgres::DatabaseAddress;
use crate::REPOSITORY;

/// One server, which may have ended.
struct DatabaseServer {
    dir: PathBuf,
    port: u16,
}

/// A primary, a standby that has each commit before it is acknowledged, and an address that leads to the current primary.
pub(super) struct ReplicatedDatabase {
    primary: DatabaseServer,
    standby: DatabaseServer,
    pub(super) address: DatabaseAddress,
    _dir: TempDir,
}

impl ReplicatedDatabase {
    /// Starts both servers, or returns `None` if the tests have no PostgreSQL.
    pub(super) async fn start() -> Option<Self> {
        wardgate_testkit::test_dependency("WARDGATE_TEST_POSTGRES")?;
        let dir = tempfile::tempdir().unwrap();
        // PostgreSQL does not run as root.
        let owner = format!(
            "[ $(id -u) -ne 0 ] || chown nobody {}",
            dir.path().display()
        );
        shell(&owner);
        let [primary, standby] = ["first", "second"].map(|name| DatabaseServer {
            dir: dir.path().join(name),
            port: free_port(),
        });
        primary.run(
            "initdb",
            &["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
        );
        primary.start();
        let mut database = Self {
            address: DatabaseAddress::for_url(&primary.url()).await,
            primary,
            standby,
            _dir: dir,
        };
        database.add_standby().await;
        Some(database)
    }

    /// Makes the other server a standby of the primary, and makes each commit wait for it from then on.
    pub(super) async fn add_standby(&mut self) {
        let _ = std::fs::remove_dir_all(&self.standby.dir);
        let from = self.primary.url();
        let from = ["-d", &from, "-R", "-c", "fast", "--no-sync"];
        self.standby.run("pg_basebackup", &from);
        self.standby.start();
        // This is set only after the copy was made, because the copy would otherwise wait for a standby of its own once
        // it is promoted.
        self.primary
            .execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
            .await;
        self.primary.execute("SELECT pg_reload_conf()").await;
        until_true("the standby is synchronous", async || {
            let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
            self.primary.number(synchronous).await == 1
        })
        .await;
    }

    /// Kills the primary and all its processes at once, as a failure of its machine would.
    pub(super) fn kill_primary(&self) {
        self.primary.kill();
    }

    /// Promotes the standby to primary, and redirects clients to it.
    pub(super) fn promote_standby(&mut self) {
        self.standby.run("pg_ctl", &["-w", "-s", "promote"]);
        std::mem::swap(&mut self.primary, &mut self.standby);
        self.address.lead_to(Some(&self.primary.url()));
    }

    /// Kills the standby, so that no commit on the primary completes.
    pub(super) fn kill_standby(&self) {
        self.standby.kill();
    }

    /// Restarts the standby. If the primary is gone, it has the data that it received before.
    pub(super) fn restart_standby(&self) {
        self.standby.start();
    }
}

impl Drop for ReplicatedDatabase {
    fn drop(&mut self) {
        for server in [&self.primary, &self.standby] {
            server.kill();
        }
    }
}

impl DatabaseServer {
    fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// Runs one of PostgreSQL's own programs on the data of this server.
    fn run(&self, program: &str, words: &[&str]) {
        let (dir, words) = (self.dir.display(), words.join(" "));
        shell(&format!(
            ". {REPOSITORY}/tests/postgres && postgres_find && as_postgres \"$postgres_bin/{program}\" -D {dir} {words}"
        ));
    }

    fn start(&self) {
        let (port, dir) = (self.port, self.dir.display());
        // The socket is beside the data directory, because `pg_basebackup` would complain about a socket in it.
        let options = format!("'-h 127.0.0.1 -p {port} -k {dir}/.. -c max_connections=100'");
        let log = format!("{dir}/log.txt");
        let shown = format!("start || {{ cat {log} >&2; exit 1; }}");
        self.run("pg_ctl", &["-w", "-s", "-l", &log, "-o", &options, &shown]);
    }

    /// Kills every process of the server, and waits until its port is closed.
    fn kill(&self) {
        let file = self.dir.join("postmaster.pid");
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let Some(pid) = text.lines().next() else {
            return;
        };
        // Some processes may end by themselves in this moment.
        shell(&format!(
            "kill -KILL {pid} $(ps -o pid= --ppid {pid}) 2>&1 || true"
        ));
        while TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
            std::thread::yield_now();
        }
        std::fs::remove_file(file).unwrap();
        // The PID is in this file too, and is that of a process until the killed process has been reaped.
        let lock = self.dir.join(format!("../.s.PGSQL.{}.lock", self.port));
        std::fs::remove_file(lock).unwrap();
    }

    async fn execute(&self, sql: &str) {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        let sql = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        sql.execute(&mut connection).await.unwrap();
    }

    async fn number(&self, sql: &'static str) -> i64 {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        let number = sqlx::query_scalar(sql).fetch_one(&mut connection);
        number.await.unwrap()
    }
}

fn shell(script: &str) {
    let mut command = Command::new("bash");
    command.args(["-euc", script]).stdin(Stdio::null());
    // A server that keeps running must not hold the pipes of this process open.
    let done = command.stdout(Stdio::null()).status().unwrap();
    assert!(done.success(), "{script}");
}
