//! A TLS configuration that is rebuilt when its files change.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use metrics::{counter, gauge};
use tokio::time::MissedTickBehavior;
use tokio_util::task::AbortOnDropHandle;
use wardgate_telemetry::names;

use crate::identity::{Error, FileContents, Files, Identity};

/// Interval at which the files are read. They are polled because they are small, and because Kubernetes replaces them
/// through symbolic links, which file watches do not notice.
const EVERY: Duration = Duration::from_secs(1);

/// The connections for which a certificate is used, as named in metrics and messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndOfTls {
    /// The connections of a gRPC listener.
    GrpcServer,
    /// The connections to other services.
    GrpcClient,
    /// The connections of an HTTP listener.
    HttpServer,
}

impl EndOfTls {
    fn as_str(self) -> &'static str {
        match self {
            Self::GrpcServer => "grpc_server",
            Self::GrpcClient => "grpc_client",
            Self::HttpServer => "http_server",
        }
    }
}

/// A configuration that is built from the newest valid files. Cheap to clone. The files are followed until the last
/// clone is dropped.
#[derive(Debug)]
pub struct LiveConfig<C> {
    current: Arc<ArcSwap<C>>,
    following: Arc<AbortOnDropHandle<()>>,
}

impl<C> Clone for LiveConfig<C> {
    fn clone(&self) -> Self {
        Self {
            current: Arc::clone(&self.current),
            following: Arc::clone(&self.following),
        }
    }
}

impl<C: Send + Sync + 'static> LiveConfig<C> {
    /// Reads `files`, so that errors in them are reported at startup, and follows them from then on. Must be called in
    /// a Tokio runtime.
    pub fn open(
        files: Files,
        end: EndOfTls,
        build: impl Fn(&Identity) -> Result<C, Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let contents = files.read_contents()?;
        let identity = files.parse(&contents)?;
        let current = Arc::new(ArcSwap::from_pointee(build(&identity)?));
        measure(end, &identity);
        let follower = Follower {
            files,
            end,
            build,
            current: Arc::clone(&current),
            contents,
            fault: None,
        };
        Ok(Self {
            current,
            following: Arc::new(AbortOnDropHandle::new(tokio::spawn(follower.follow()))),
        })
    }

    /// Returns the configuration for the next handshake.
    pub fn current(&self) -> Arc<C> {
        self.current.load_full()
    }
}

struct Follower<C, B> {
    files: Files,
    end: EndOfTls,
    build: B,
    current: Arc<ArcSwap<C>>,
    /// The contents that were read last, valid or not.
    contents: FileContents,
    /// The error of the last reading, so that it is logged only once.
    fault: Option<String>,
}

impl<C, B> Follower<C, B>
where
    C: Send + Sync + 'static,
    B: Fn(&Identity) -> Result<C, Error> + Send + Sync + 'static,
{
    async fn follow(mut self) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // The files of a mounted secret are in memory, but a disk that hangs must not block the runtime.
            let read = tokio::task::spawn_blocking(move || {
                self.reload();
                self
            });
            match read.await {
                Ok(after) => self = after,
                Err(_) => return,
            }
        }
    }

    fn reload(&mut self) {
        let contents = match self.files.read_contents() {
            Ok(contents) if contents == self.contents => return,
            Ok(contents) => contents,
            Err(error) => return self.refuse(&error),
        };
        let built = self
            .files
            .parse(&contents)
            .and_then(|identity| Ok(((self.build)(&identity)?, identity)));
        self.contents = contents;
        match built {
            Ok((config, identity)) => {
                self.current.store(Arc::new(config));
                self.fault = None;
                measure(self.end, &identity);
                self.count("swapped");
                tracing::info!(chain = %self.files.chain.display(), "a renewed certificate is in use");
            }
            Err(error) => self.refuse(&error),
        }
    }

    fn refuse(&mut self, error: &Error) {
        let fault = error.to_string();
        if self.fault.as_ref() == Some(&fault) {
            return;
        }
        self.count("refused");
        tracing::warn!(%error, "the changed certificates cannot be used; the previous ones stay in use");
        self.fault = Some(fault);
    }

    fn count(&self, outcome: &'static str) {
        counter!(names::CERTIFICATE_RELOADS, "end" => self.end.as_str(), "outcome" => outcome)
            .increment(1);
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seconds since 1970 are exact in a double for 285 million years"
)]
fn measure(end: EndOfTls, identity: &Identity) {
    let end = end.as_str();
    gauge!(names::CERTIFICATE_ISSUED, "end" => end).set(identity.issued as f64);
    gauge!(names::CERTIFICATE_ENDS, "end" => end).set(identity.ends as f64);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use rcgen::{CertificateParams, Issuer, KeyPair};
    use tempfile::TempDir;

    use super::*;

    /// A certificate authority, and a directory for the files that it signs.
    struct Authority {
        dir: TempDir,
        issuer: Issuer<'static, KeyPair>,
    }

    impl Authority {
        fn new() -> Self {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::default();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            let dir = tempfile::tempdir().unwrap();
            let root = params.self_signed(&key).unwrap();
            fs::write(dir.path().join("ca.pem"), root.pem()).unwrap();
            Self {
                dir,
                issuer: Issuer::new(params, key),
            }
        }

        fn files(&self) -> Files {
            let at = |name: &str| self.dir.path().join(name);
            Files {
                authority: Some(at("ca.pem")),
                chain: at("cert.pem"),
                key: at("key.pem"),
            }
        }

        /// Returns a certificate that expires on 1 January of `year`, and its key.
        fn sign(&self, year: i32) -> (String, String) {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["audit".to_owned()]).unwrap();
            params.not_after = rcgen::date_time_ymd(year, 1, 1);
            let certificate = params.signed_by(&key, &self.issuer).unwrap();
            (certificate.pem(), key.serialize_pem())
        }

        fn write(&self, (certificate, key): &(String, String)) {
            fs::write(self.files().chain, certificate).unwrap();
            fs::write(self.files().key, key).unwrap();
        }

        fn open(&self) -> LiveConfig<i64> {
            LiveConfig::open(self.files(), EndOfTls::GrpcServer, |identity| {
                identity.server_config(&[b"h2"])?;
                identity.client_config(&[b"h2"])?;
                Ok(identity.ends)
            })
            .unwrap()
        }
    }

    fn year(year: i32) -> i64 {
        rcgen::date_time_ymd(year, 1, 1).unix_timestamp()
    }

    async fn becomes(live: &LiveConfig<i64>, ends: i64) {
        let waiting = async {
            while *live.current() != ends {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, waiting).await.unwrap();
    }

    #[tokio::test]
    async fn renewed_files_are_in_use_within_seconds() {
        let authority = Authority::new();
        authority.write(&authority.sign(2040));
        let live = authority.open();
        assert_eq!(*live.current(), year(2040));
        authority.write(&authority.sign(2041));
        becomes(&live, year(2041)).await;
    }

    #[tokio::test]
    async fn files_that_do_not_belong_together_leave_the_earlier_ones_in_use() {
        let authority = Authority::new();
        let first = authority.sign(2040);
        authority.write(&first);
        let mut follower = Follower {
            files: authority.files(),
            end: EndOfTls::GrpcServer,
            build: |identity: &Identity| Ok(identity.ends),
            current: Arc::new(ArcSwap::from_pointee(year(2040))),
            contents: authority.files().read_contents().unwrap(),
            fault: None,
        };
        let second = authority.sign(2041);
        // The replacement is incomplete: the new certificate is beside the old key.
        authority.write(&(second.0.clone(), first.1));
        follower.reload();
        assert_eq!(**follower.current.load(), year(2040));
        assert!(follower.fault.as_ref().unwrap().contains("key.pem"));
        fs::remove_file(authority.files().key).unwrap();
        follower.reload();
        assert_eq!(**follower.current.load(), year(2040));
        authority.write(&second);
        follower.reload();
        assert_eq!(**follower.current.load(), year(2041));
        assert_eq!(follower.fault, None);
    }

    #[tokio::test]
    async fn files_that_cannot_be_used_at_start_are_named() {
        let authority = Authority::new();
        let open = |files: &Files| {
            let opened = LiveConfig::open(files.clone(), EndOfTls::HttpServer, |identity| {
                Ok(identity.ends)
            });
            opened.unwrap_err().to_string()
        };
        let files = authority.files();
        assert!(open(&files).contains("cert.pem"));
        let (certificate, key) = authority.sign(2040);
        authority.write(&(certificate.clone(), "no key".to_owned()));
        assert!(open(&files).contains("key.pem contains no PEM private key"));
        authority.write(&(key.clone(), key.clone()));
        assert!(open(&files).contains("cert.pem contains no PEM certificate"));
        authority.write(&(certificate, authority.sign(2040).1));
        assert!(open(&files).contains("cannot be used together"));
        let lost = Files {
            authority: Some(Path::new("/nowhere/ca.pem").to_owned()),
            ..files
        };
        authority.write(&authority.sign(2040));
        assert!(open(&lost).contains("/nowhere/ca.pem"));
    }
}
