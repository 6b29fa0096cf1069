//! The data directory, with the keys, the record and the demo that `wardgate up` needs.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use wardgate_agent::ApprovalKey;
use wardgate_audit::{DetailsKey, DetailsKeys, LogKey, MacKey};
use wardgate_console::CookieKey;
use wardgate_domain::{
    Ambient, Digest, NewFileAccess, PermitSigner, PermitVerifier, create_private_directory,
    replace_file, restrict_to_owner,
};
use wardgate_gateway::SessionKey;
use wardgate_memory::{MasterKey, MasterKeys};
use wardgate_redact::PseudonymKey;
use wardgate_telemetry::{SecretKind, record_secret_file};
use wardgate_tool_runner::SealingKey;

/// A data directory or key file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("cannot use {}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{} is not {expected}", path.display())]
    Key {
        path: PathBuf,
        expected: &'static str,
    },
}

/// A data directory.
#[derive(Debug, Clone)]
pub(crate) struct DataDir(PathBuf);

impl DataDir {
    /// Opens the directory, and creates it if it is missing. Only its owner can access it.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let dir = Self(path.to_owned());
        for path in [dir.0.clone(), dir.keys()] {
            create_private_directory(&path).map_err(|source| Error::Io { path, source })?;
        }
        Ok(dir)
    }

    /// Returns the directory at `path`, whether or not it exists.
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Opens an existing directory. Returns an error if it is missing, so that a mistyped name does not create an empty
    /// one.
    pub(crate) fn open_existing(path: &Path) -> Result<Self, Error> {
        match fs::metadata(path) {
            Ok(_) => Ok(Self(path.to_owned())),
            Err(source) => Err(Error::Io {
                path: path.to_owned(),
                source,
            }),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Store URL of the record.
    pub(crate) fn record(&self) -> String {
        format!("sqlite:{}", self.0.join("audit.sqlite").display())
    }

    /// Store URL of the gateway's sessions.
    pub(crate) fn gateway_store(&self) -> String {
        format!("sqlite:{}", self.0.join("gateway.sqlite").display())
    }

    /// Store URL of the tool-runner's state.
    pub(crate) fn tool_runner_store(&self) -> String {
        format!("sqlite:{}", self.0.join("tool-runner.sqlite").display())
    }

    /// Store URL of the conversations.
    pub(crate) fn memory_store(&self) -> String {
        format!("sqlite:{}", self.0.join("memory.sqlite").display())
    }

    /// Store URL of the console, with its sessions and the results of calls.
    pub(crate) fn console_store(&self) -> String {
        format!("sqlite:{}", self.0.join("console.sqlite").display())
    }

    /// Path of the file with the policy bundle in force.
    pub(crate) fn policy_bundle(&self) -> String {
        self.0.join("policy.bundle").display().to_string()
    }

    /// Path of the file with the policy bundle that was the candidate last.
    pub(crate) fn candidate_bundle(&self) -> String {
        self.0.join("policy-candidate.bundle").display().to_string()
    }

    /// Path of the socket on which a running system serves operators.
    pub(crate) fn operator_socket(&self) -> PathBuf {
        self.0.join("operator.sock")
    }

    pub(crate) fn certs(&self) -> PathBuf {
        self.0.join("certs")
    }

    pub(crate) fn jwks(&self) -> PathBuf {
        self.keys().join("jwks.json")
    }

    /// Path of the file with the digests of the API keys.
    pub(crate) fn api_keys(&self) -> PathBuf {
        self.keys().join("api-keys.json")
    }

    pub(crate) fn issuer_key(&self) -> PathBuf {
        self.keys().join("issuer.pem")
    }

    pub(crate) fn permit_key(&self) -> PathBuf {
        self.keys().join("permit.pem")
    }

    pub(crate) fn permit_public_key(&self) -> PathBuf {
        self.keys().join("permit.pub")
    }

    pub(crate) fn pseudonym_key(&self) -> PathBuf {
        self.keys().join("pseudonym.key")
    }

    pub(crate) fn mac_key(&self) -> PathBuf {
        self.keys().join("audit-mac.key")
    }

    pub(crate) fn log_key(&self) -> PathBuf {
        self.keys().join("audit-log.pem")
    }

    pub(crate) fn details_key(&self) -> PathBuf {
        self.keys().join("audit-details.key")
    }

    /// Path of the key of the details of calls that the record is moved from. There is a file only meanwhile.
    pub(crate) fn former_details_key(&self) -> PathBuf {
        self.keys().join("audit-details-former.key")
    }

    /// Returns the paths of the former keys of the details of calls that there are.
    pub(crate) fn former_details_keys(&self) -> Vec<PathBuf> {
        let former = self.former_details_key();
        Vec::from_iter(former.exists().then_some(former))
    }

    pub(crate) fn approval_key(&self) -> PathBuf {
        self.keys().join("approval.key")
    }

    pub(crate) fn session_key(&self) -> PathBuf {
        self.keys().join("session.key")
    }

    pub(crate) fn console_key(&self) -> PathBuf {
        self.keys().join("console.key")
    }

    pub(crate) fn memory_key(&self) -> PathBuf {
        self.keys().join("memory.key")
    }

    /// Path of the master key that the store of conversations is moved from. There is a file only meanwhile.
    pub(crate) fn former_memory_key(&self) -> PathBuf {
        self.keys().join("memory-former.key")
    }

    /// Returns the paths of the former master keys that there are.
    pub(crate) fn former_memory_keys(&self) -> Vec<PathBuf> {
        let former = self.former_memory_key();
        Vec::from_iter(former.exists().then_some(former))
    }

    fn keys(&self) -> PathBuf {
        self.0.join("keys")
    }

    /// Creates the missing keys, and prints a line for each, so that no key is created silently.
    pub(crate) fn make_keys(&self, ambient: &Ambient) -> Result<(), Error> {
        if !self.permit_key().exists() {
            let pair = new_ed25519(&self.permit_key())?;
            write_new(
                &self.permit_public_key(),
                hex(pair.public_key().as_ref()).as_bytes(),
            )?;
        }
        if !self.log_key().exists() {
            new_ed25519(&self.log_key())?;
        }
        for path in [
            self.pseudonym_key(),
            self.mac_key(),
            self.details_key(),
            self.memory_key(),
            self.approval_key(),
            self.session_key(),
            self.console_key(),
        ] {
            if !path.exists() {
                write_new(&path, hex(&ambient.random::<32>()).as_bytes())?;
            }
        }
        Ok(())
    }
}

/// Generates an Ed25519 key and writes it as PKCS#8 PEM.
pub(crate) fn new_ed25519(path: &Path) -> Result<Ed25519KeyPair, Error> {
    let bad = || Error::Key {
        path: path.to_owned(),
        expected: "a writable path for an Ed25519 key",
    };
    let pair = Ed25519KeyPair::generate().map_err(|_| bad())?;
    let der = AsDer::<aws_lc_rs::encoding::Pkcs8V1Der<'_>>::as_der(&pair).map_err(|_| bad())?;
    let body = STANDARD.encode(der.as_ref());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
    write_new(path, pem.as_bytes())?;
    Ok(pair)
}

/// Reads the DER of a PKCS#8 PEM file.
pub(crate) fn read_pkcs8(path: &Path) -> Result<Vec<u8>, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    let body: String = text
        .trim()
        .strip_prefix("-----BEGIN PRIVATE KEY-----")
        .and_then(|rest| rest.strip_suffix("-----END PRIVATE KEY-----"))
        .map(|body| body.split_whitespace().collect())
        .unwrap_or_default();
    let der = STANDARD.decode(body).ok().filter(|der| !der.is_empty());
    let der = der.ok_or_else(|| Error::Key {
        path: path.to_owned(),
        expected: "a PKCS#8 private key in PEM",
    })?;
    record_secret_file(SecretKind::Key, path);
    Ok(der)
}

/// Reads the key with which the policy service signs permits.
pub(crate) fn permit_signer(path: &Path) -> Result<PermitSigner, Error> {
    PermitSigner::from_pkcs8(&read_pkcs8(path)?).map_err(|_| Error::Key {
        path: path.to_owned(),
        expected: "an Ed25519 private key in PEM",
    })
}

/// Reads the public keys that verify permits.
pub(crate) fn permit_verifier(paths: &[PathBuf]) -> Result<PermitVerifier, Error> {
    let keys = paths
        .iter()
        .map(|path| read_32_bytes(path))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(PermitVerifier::new(keys))
}

/// Reads the key of pseudonyms.
pub(crate) fn pseudonym_key(path: &Path) -> Result<PseudonymKey, Error> {
    read_32_bytes(path).map(PseudonymKey::new)
}

/// Reads the key that seals the results that the tool-runner keeps. It is derived from the secret of pseudonyms, which the
/// replicas share already.
pub(crate) fn sealing_key(pseudonym_key: &Path) -> Result<SealingKey, Error> {
    read_32_bytes(pseudonym_key).map(|bytes| SealingKey::derive(&bytes))
}

/// Reads the key of the record's keyed digests.
pub(crate) fn mac_key(path: &Path) -> Result<MacKey, Error> {
    read_32_bytes(path).map(|bytes| MacKey::from_bytes(&bytes))
}

/// Reads the key that wraps the keys of data subjects, and the former ones that the store is moved from.
pub(crate) fn details_keys(current: &Path, former: &[PathBuf]) -> Result<DetailsKeys, Error> {
    let read = |path: &Path| read_32_bytes(path).map(|bytes| DetailsKey::from_bytes(&bytes));
    let former = former.iter().map(|path| read(path));
    Ok(DetailsKeys::new(
        read(current)?,
        former.collect::<Result<_, _>>()?,
    ))
}

/// Reads the keys of the details of calls in a data directory.
pub(crate) fn details_keys_of_up(dir: &DataDir) -> Result<DetailsKeys, Error> {
    details_keys(&dir.details_key(), &dir.former_details_keys())
}

/// Reads the key that signs the record's checkpoints.
pub(crate) fn log_key(path: &Path) -> Result<LogKey, Error> {
    LogKey::from_pkcs8(&read_pkcs8(path)?).map_err(|_| Error::Key {
        path: path.to_owned(),
        expected: "an Ed25519 private key in PEM",
    })
}

/// Reads the key of the gateway's sessions.
pub(crate) fn session_key(path: &Path) -> Result<SessionKey, Error> {
    read_32_bytes(path).map(|bytes| SessionKey::from_bytes(&bytes))
}

/// Reads the key that seals calls waiting for an approval.
pub(crate) fn approval_key(path: &Path) -> Result<ApprovalKey, Error> {
    read_32_bytes(path).map(|bytes| ApprovalKey::from_bytes(&bytes))
}

/// Reads the key that seals the console's sessions.
pub(crate) fn cookie_key(path: &Path) -> Result<CookieKey, Error> {
    read_32_bytes(path).map(|bytes| CookieKey::from_bytes(&bytes))
}

/// Reads the key that wraps the keys of conversations, and the former ones that the store is moved from.
pub(crate) fn memory_keys(current: &Path, former: &[PathBuf]) -> Result<MasterKeys, Error> {
    let read = |path: &Path| read_32_bytes(path).map(|bytes| MasterKey::from_bytes(&bytes));
    let former = former.iter().map(|path| read(path));
    Ok(MasterKeys::new(
        read(current)?,
        former.collect::<Result<_, _>>()?,
    ))
}

/// Reads 32 bytes that are written as 64 hexadecimal digits.
pub(crate) fn read_32_bytes(path: &Path) -> Result<[u8; 32], Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Io {
        path: path.to_owned(),
        source,
    })?;
    // A digest has the same format.
    let bytes: Result<Digest, _> = text.trim().parse();
    let bytes = bytes.map_err(|_| Error::Key {
        path: path.to_owned(),
        expected: "32 bytes in hexadecimal",
    })?;
    record_secret_file(SecretKind::Key, path);
    Ok(*bytes.as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// Replaces a file atomically, so that readers see either the old file or the new one. The new file keeps the owner and the
/// permissions of the old one. If there was no file, only its owner can read the new one.
pub(crate) fn replace(path: &Path, content: &[u8], ambient: &Ambient) -> Result<(), Error> {
    // The target of a symbolic link is replaced, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let random = u64::from_be_bytes(ambient.random());
    let unfinished = target.with_extension(format!("{random:016x}"));
    let replaced = replace_file(&target, &unfinished, NewFileAccess::AsReplaced, content);
    replaced.map_err(|error| Error::Io {
        path: path.to_owned(),
        source: error.into(),
    })
}

/// Writes a new file that only its owner can read. Returns an error if the file exists.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> Result<(), Error> {
    let failed = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    let mut file = restrict_to_owner(&mut options).open(path).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.sync_all().map_err(failed)?;
    eprintln!("created {}", path.display());
    Ok(())
}
