//! Tests of pools, with a server that stops responding and with passwords that are replaced.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use wardgate_testkit::{PasswordRole, TestDatabase};

use sqlx::postgres::PgConnectOptions;

use super::*;
use crate::{Address, is_busy};

/// A proxy to the server whose connections can stop transferring data without being closed, as after a failure of the host.
struct StallingProxy {
    port: u16,
    silenced: Arc<AtomicUsize>,
}

impl StallingProxy {
    async fn start(server: &PgConnectOptions) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let silenced = Arc::new(AtomicUsize::new(0));
        let (at, now) = (
            (server.get_host().to_owned(), server.get_port()),
            Arc::clone(&silenced),
        );
        tokio::spawn(async move {
            loop {
                let (near, _) = listener.accept().await.unwrap();
                let far = TcpStream::connect(at.clone()).await.unwrap();
                let ((from_near, to_near), (from_far, to_far)) =
                    (near.into_split(), far.into_split());
                tokio::spawn(forward(from_near, to_far, Arc::clone(&now)));
                tokio::spawn(forward(from_far, to_near, Arc::clone(&now)));
            }
        });
        Self { port, silenced }
    }

    /// Stops the transfer of data on all current connections.
    fn silence(&self) {
        self.silenced.fetch_add(1, Ordering::SeqCst);
    }
}

async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, silenced: Arc<AtomicUsize>) {
    let began = silenced.load(Ordering::SeqCst);
    let mut some = vec![0; 4096];
    while let Ok(read @ 1..) = from.read(&mut some).await {
        if silenced.load(Ordering::SeqCst) != began {
            std::future::pending::<()>().await;
        }
        if to.write_all(&some[..read]).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn connections_whose_server_fell_silent_hold_no_place() {
    let Some(server) = wardgate_testkit::test_dependency("WARDGATE_TEST_POSTGRES") else {
        return;
    };
    let server: PgConnectOptions = server.parse().unwrap();
    let proxy = StallingProxy::start(&server).await;
    let pool = only_living(PgPoolOptions::new())
        .max_connections(2)
        .acquire_timeout(Duration::from_mins(1))
        .connect_lazy_with(server.host("127.0.0.1").port(proxy.port));
    let one = || sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&pool);
    let (first, second) = tokio::join!(pool.acquire(), pool.acquire());
    let (mut used, unused) = (first.unwrap(), second.unwrap());
    drop(unused);
    proxy.silence();
    // One connection has a statement whose caller gave up, and another is idle.
    let asked = timeout(Duration::from_millis(100), used.ping()).await;
    assert!(asked.is_err(), "nothing comes any more");
    drop(used);
    for _ in 0..4 {
        assert_eq!(one().await.unwrap(), 1);
    }
}

/// Returns the server as a service is configured to connect to it as `role`.
fn server_of(role: &PasswordRole) -> PostgresServer {
    let settings = DatabaseSettings {
        password_file: Some(role.password_file()),
        ..DatabaseSettings::default()
    };
    match Address::new(&role.url, &settings).unwrap() {
        Address::Postgres(server) => *server,
        Address::Sqlite(path) => panic!("{}", path.display()),
    }
}

/// Returns a pool that pings every connection before it is used. The pools of the services trust a recently used
/// connection, and repeat an operation if the server has ended the connection since.
fn pool_of(server: &PostgresServer) -> PostgresPool {
    let pool = PgPoolOptions::new().acquire_timeout(Duration::from_mins(1));
    server.pool(pool, |options| options)
}

#[tokio::test]
async fn a_password_is_replaced_while_connections_are_opened() {
    let Some(database) = TestDatabase::postgres().await else {
        return;
    };
    let role = PasswordRole::create(&database.url()).await;
    let server = server_of(&role);
    let (pool, other) = (pool_of(&server), pool_of(&server));
    let connect = async || {
        let opened = server.connect(|options| options).await.unwrap();
        opened.close().await.unwrap();
        for pool in [&pool, &other] {
            let mut transaction = pool.begin().await.unwrap();
            let one = sqlx::query_scalar::<_, i32>("SELECT 1").fetch_one(&mut *transaction);
            assert_eq!(one.await.unwrap(), 1);
            transaction.commit().await.unwrap();
        }
    };
    connect().await;

    // The file is replaced first: the old password is used as long as the server accepts it.
    role.write("second");
    assert!(role.disconnect().await > 0);
    connect().await;
    role.alter("second").await;
    role.disconnect().await;
    connect().await;

    // The role is changed first: existing connections continue to work.
    let mut open = pool.acquire().await.unwrap();
    role.alter("third").await;
    open.ping().await.unwrap();
    role.write("third");
    role.disconnect().await;
    connect().await;
    drop(open);
    role.remove().await;
}

#[tokio::test]
async fn a_password_that_the_server_refuses_is_named_by_its_file_and_tried_again() {
    let Some(database) = TestDatabase::postgres().await else {
        return;
    };
    let role = PasswordRole::create(&database.url()).await;
    let server = server_of(&role);
    let pool = pool_of(&server);
    role.write("hunter2");
    let file = role.password_file();
    for error in [
        server.connect(|options| options).await.unwrap_err(),
        pool.acquire().await.unwrap_err(),
    ] {
        let text = error.to_string();
        let expected = format!("the server refuses the password in {}", file.display());
        assert!(text.contains(&expected), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        assert!(!is_busy(&error), "a start does not wait for it");
    }
    std::fs::remove_file(&file).unwrap();
    let error = pool.acquire().await.unwrap_err().to_string();
    let expected = format!("the password in {} cannot be read", file.display());
    assert!(error.contains(&expected), "{error}");
    role.write("first");
    pool.acquire().await.unwrap();
    role.remove().await;
}
