//! Opening of PostgreSQL connections, with a password that may be replaced at any time.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{ConnectOptions, PgPool, Postgres, Transaction};
use wardgate_telemetry::{SecretKind, record_secret_file};

/// The error code `invalid_password`: the server refuses the password of the role.
const INVALID_PASSWORD: &str = "28P01";

/// A PostgreSQL server and the options to connect to it. Cheap to clone. All connections are opened through this type,
/// so that a password that was replaced in its file is used by all of them.
#[derive(Clone)]
pub struct PostgresServer {
    options: PgConnectOptions,
    password: Option<Arc<PasswordFile>>,
}

impl PostgresServer {
    pub(crate) fn new(options: PgConnectOptions, password_file: Option<&Path>) -> Self {
        let password = password_file.map(|path| Arc::new(PasswordFile::new(path)));
        Self { options, password }
    }

    pub(crate) fn options(&self) -> &PgConnectOptions {
        &self.options
    }

    /// Opens one connection with the options that `adjust` returns.
    pub async fn connect(
        &self,
        adjust: impl FnOnce(PgConnectOptions) -> PgConnectOptions,
    ) -> Result<PgConnection, sqlx::Error> {
        let options = adjust(self.options.clone());
        let Some(file) = &self.password else {
            return Box::pin(options.connect()).await;
        };
        let mut password = file.current()?;
        loop {
            let options = options.clone().password(&password);
            match Box::pin(options.connect()).await {
                Err(error) if is_refused_password(&error) => {
                    password = file.replacement(&password, error)?;
                }
                opened => return opened,
            }
        }
    }

    /// Creates a pool that opens its connections as `pool` configures, with the options that `adjust` returns.
    pub fn pool(
        &self,
        pool: PgPoolOptions,
        adjust: impl FnOnce(PgConnectOptions) -> PgConnectOptions,
    ) -> PostgresPool {
        let options = adjust(self.options.clone());
        let password = self.password.as_ref().map(|file| {
            Arc::new(PoolPassword {
                file: Arc::clone(file),
                options: options.clone(),
                used: Mutex::default(),
            })
        });
        PostgresPool {
            pool: pool.connect_lazy_with(options),
            password,
        }
    }
}

/// A pool of connections with the same options. Cheap to clone.
#[derive(Clone)]
pub struct PostgresPool {
    pool: PgPool,
    password: Option<Arc<PoolPassword>>,
}

struct PoolPassword {
    file: Arc<PasswordFile>,
    options: PgConnectOptions,
    /// The password with which the pool opens connections.
    used: Mutex<Option<Arc<str>>>,
}

impl PostgresPool {
    /// Returns an idle connection, or opens one.
    pub async fn acquire(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        // The future is boxed, here and below, because that of opening a connection is large and would be part of every
        // caller's future.
        Box::pin(self.open(|| self.pool.acquire())).await
    }

    /// Begins a transaction on a connection of the pool.
    pub async fn begin(&self) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        Box::pin(self.open(|| self.pool.begin())).await
    }

    /// Begins a transaction with `statement`.
    pub async fn begin_with(
        &self,
        statement: &'static str,
    ) -> Result<Transaction<'static, Postgres>, sqlx::Error> {
        Box::pin(self.open(|| self.pool.begin_with(statement))).await
    }

    async fn open<T, F>(&self, open: impl Fn() -> F) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        let Some(password) = &self.password else {
            return open().await;
        };
        loop {
            let used = password.give_to(&self.pool)?;
            match open().await {
                Err(error) if is_refused_password(&error) => {
                    password.file.replacement(&used, error)?;
                }
                opened => return opened,
            }
        }
    }
}

impl fmt::Debug for PostgresPool {
    /// Formats the pool without its options, which hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresPool")
            .field("connections", &self.pool.size())
            .finish_non_exhaustive()
    }
}

impl PoolPassword {
    /// Configures the pool to open connections with the current password, and returns that password.
    fn give_to(&self, pool: &PgPool) -> Result<Arc<str>, PasswordError> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.file.current()?;
        if used.as_ref() != Some(&current) {
            pool.set_connect_options(self.options.clone().password(&current));
            *used = Some(Arc::clone(&current));
        }
        Ok(current)
    }
}

fn is_refused_password(error: &sqlx::Error) -> bool {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    code.as_deref() == Some(INVALID_PASSWORD)
}

/// The reason why there is no password that the server accepts.
#[derive(Debug, thiserror::Error)]
enum PasswordError {
    #[error("the password in {} cannot be read: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the server refuses the password in {}: {source}", .path.display())]
    Refused { path: PathBuf, source: sqlx::Error },
}

impl From<PasswordError> for sqlx::Error {
    fn from(error: PasswordError) -> Self {
        Self::Configuration(error.into())
    }
}

/// The file that holds the password of a role. It is read for the first connection, and again when the server refuses
/// the password that was read. So the file may be replaced before or after the password of the role is changed, and
/// until then the old password is used.
struct PasswordFile {
    path: PathBuf,
    current: Mutex<Option<Arc<str>>>,
}

impl PasswordFile {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            current: Mutex::default(),
        }
    }

    /// Returns the password that was read last, and reads the file if there is none.
    fn current(&self) -> Result<Arc<str>, PasswordError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(password) = &*current {
            return Ok(Arc::clone(password));
        }
        let password = self.read_password()?;
        *current = Some(Arc::clone(&password));
        Ok(password)
    }

    /// Reads the file again after the server refused the password `used`, and returns the new password. Returns an
    /// error if the password is the same.
    fn replacement(&self, used: &str, refusal: sqlx::Error) -> Result<Arc<str>, PasswordError> {
        let password = self.read_password()?;
        if *password == *used {
            return Err(PasswordError::Refused {
                path: self.path.clone(),
                source: refusal,
            });
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::clone(&password));
        Ok(password)
    }

    /// Reads the file without the white space at its end. The blocking read is acceptable, because a mounted secret is
    /// in memory and is read once for each replacement.
    fn read_password(&self) -> Result<Arc<str>, PasswordError> {
        let text = std::fs::read_to_string(&self.path);
        let text = text.map_err(|source| PasswordError::Unreadable {
            path: self.path.clone(),
            source,
        })?;
        record_secret_file(SecretKind::Password, &self.path);
        Ok(text.trim_end().into())
    }
}
