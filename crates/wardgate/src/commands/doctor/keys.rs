//! Checks of key files: they exist, hold the right kind of key, are not readable by other users, and how old they are.

use std::path::{Path, PathBuf};

use wardgate_domain::is_accessible_to_all;

use super::finding::{Finding, FindingSubject};
use super::secrets;
use crate::data_dir::{self, Error};

/// The kind of key that a file must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyKind {
    /// The private key with which the policy service signs permits.
    PermitPrivate,
    /// The public key that verifies permits.
    PermitPublic,
    /// The private key that signs the checkpoints of the record.
    LogPrivate,
    /// 32 secret bytes.
    Secret,
    /// 32 secret bytes that stay as they are: digests could not be compared under another key, and a former key is needed until
    /// its rotation ends.
    LastingSecret,
}

/// A key file of the deployment.
#[derive(Debug, Clone)]
pub(super) struct KeyFile {
    /// The key of the configuration that names the file.
    pub(super) setting: String,
    /// The path of the file, or `None` if the configuration does not name one.
    pub(super) path: Option<PathBuf>,
    pub(super) kind: KeyKind,
}

pub(super) fn examine(keys: &[KeyFile]) -> Vec<Finding> {
    let mut findings: Vec<Finding> = keys.iter().map(examine_one).collect();
    findings.extend(pair(keys));
    findings
}

fn examine_one(key: &KeyFile) -> Finding {
    let about = FindingSubject::new("key", &key.setting);
    let Some(path) = &key.path else {
        let remedy = "specify a key file, the same for every replica; `wardgate certs dev` creates one for trials";
        return about.fail("is missing", remedy);
    };
    if let Err(error) = check_key(path, key.kind) {
        return about.fail(error.to_string(), "restore it from the backup of the keys");
    }
    let shown = path.display();
    match std::fs::metadata(path) {
        Ok(file) if key.kind != KeyKind::PermitPublic && is_accessible_to_all(&file) => about.warn(
            format!("{shown} is readable by every user of this machine"),
            format!("chmod o= {shown}"),
        ),
        _ => match secrets::age_in_days(path) {
            Ok(days) if secrets::is_old(days) && key.kind != KeyKind::LastingSecret => about.warn(
                format!("{shown} can be used, and is {days} days old"),
                "replace it, as *Rotate keys* of deploy/README.md says",
            ),
            Ok(days) => about.ok(format!("{shown} can be used, and is {days} days old")),
            Err(_) => about.ok(format!("{shown} can be used")),
        },
    }
}

fn check_key(path: &Path, kind: KeyKind) -> Result<(), Error> {
    match kind {
        KeyKind::PermitPrivate => data_dir::permit_signer(path).map(drop),
        KeyKind::PermitPublic => data_dir::permit_verifier(&[path.to_owned()]).map(drop),
        KeyKind::LogPrivate => data_dir::log_key(path).map(drop),
        KeyKind::Secret | KeyKind::LastingSecret => data_dir::mac_key(path).map(drop),
    }
}

/// Checks whether the tool-runner accepts the permits that the policy service signs. Returns `None` unless both keys are
/// available.
fn pair(keys: &[KeyFile]) -> Option<Finding> {
    let of = |kind| {
        let keys = keys.iter().filter(move |key| key.kind == kind);
        keys.filter_map(|key| key.path.as_ref())
    };
    let signer = data_dir::permit_signer(of(KeyKind::PermitPrivate).next()?).ok()?;
    let mut public = of(KeyKind::PermitPublic).peekable();
    public.peek()?;
    let about = FindingSubject::new("key", "permits");
    let known = public.any(|path| {
        data_dir::read_32_bytes(path).is_ok_and(|key| key.as_slice() == signer.public_key())
    });
    Some(if known {
        about.ok("the tool-runner accepts the permits that the policy service signs")
    } else {
        let remedy =
            "add the public key of policy.permit_key_file to tool_runner.permit_public_key_files";
        about.fail(
            "the tool-runner refuses every permit of the policy service",
            remedy,
        )
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use wardgate_domain::Ambient;

    use super::*;
    use crate::commands::doctor::finding::CheckStatus;
    use crate::data_dir::DataDir;

    fn key(setting: &str, path: PathBuf, kind: KeyKind) -> KeyFile {
        KeyFile {
            setting: setting.to_owned(),
            path: Some(path),
            kind,
        }
    }

    fn verdicts(keys: &[KeyFile]) -> Vec<CheckStatus> {
        let findings = examine(keys);
        findings.iter().map(|it| it.verdict).collect()
    }

    #[test]
    fn keys_are_there_of_their_kind_and_fit_each_other() {
        let place = tempfile::tempdir().unwrap();
        let (here, other) = (place.path().join("a"), place.path().join("b"));
        let [dir, other] = [here, other].map(|path| {
            let dir = DataDir::open(&path).unwrap();
            dir.make_keys(&Ambient::system()).unwrap();
            dir
        });
        let private = key("private", dir.permit_key(), KeyKind::PermitPrivate);
        let public = key("public", dir.permit_public_key(), KeyKind::PermitPublic);
        let stranger = key("public", other.permit_public_key(), KeyKind::PermitPublic);
        assert_eq!(
            verdicts(&[private.clone(), public, stranger.clone()]),
            [CheckStatus::Ok; 4]
        );
        assert_eq!(verdicts(&[private, stranger])[2], CheckStatus::Fail);
        let wrong = key("mac", dir.permit_key(), KeyKind::Secret);
        let none = KeyFile {
            path: None,
            ..wrong.clone()
        };
        let gone = key("mac", dir.path().join("gone"), KeyKind::Secret);
        assert_eq!(verdicts(&[wrong, none, gone]), [CheckStatus::Fail; 3]);
        let mac = dir.mac_key();
        std::fs::set_permissions(&mac, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(
            verdicts(&[key("mac", mac.clone(), KeyKind::Secret)]),
            [CheckStatus::Warn]
        );
        std::fs::set_permissions(&mac, PermissionsExt::from_mode(0o600)).unwrap();
        let two_years = std::time::Duration::from_hours(2 * 365 * 24);
        let file = std::fs::File::options().append(true).open(&mac).unwrap();
        let written = file.metadata().unwrap().modified().unwrap();
        file.set_modified(written - two_years).unwrap();
        let [stays, old] = [
            ("audit.mac_key_file", KeyKind::LastingSecret),
            ("memory.master_key_file", KeyKind::Secret),
        ]
        .map(|(setting, kind)| key(setting, mac.clone(), kind));
        assert_eq!(
            verdicts(&[stays, old]),
            [CheckStatus::Ok, CheckStatus::Warn]
        );
    }
}
