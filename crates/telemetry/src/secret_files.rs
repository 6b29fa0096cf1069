//! The ages of the files that hold keys, passwords and other secrets, as a metric.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use metrics::gauge;

use crate::{labels, names};

/// What the secret in a file is for, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretKind {
    /// A key of a service, such as a master key.
    Key,
    /// The password of a store's role.
    Password,
    /// A secret that Wardgate shows to another system: of a source, a model provider, an identity provider or an export.
    Credential,
}

impl SecretKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Password => "password",
            Self::Credential => "credential",
        }
    }
}

/// The users of one file in this process. Several services of a process may use the same file.
#[derive(Debug, Default)]
struct FileUsers {
    /// The number of configurations that use the file.
    configurations: usize,
    /// Whether the file is also used until the process ends.
    is_permanent: bool,
}

static USERS: Mutex<BTreeMap<(SecretKind, PathBuf), FileUsers>> = Mutex::new(BTreeMap::new());

/// Records when the file at `path`, whose secret is used until the process ends, was last modified. Call it after the file was
/// read: a file that is replaced later keeps the time of the secret in use.
pub fn record_secret_file(kind: SecretKind, path: &Path) {
    add_user(kind, path, |users| users.is_permanent = true);
}

/// The files with secrets that a configuration uses. They count as used by it for as long as this value exists.
#[derive(Debug)]
pub struct SecretFilesInUse {
    kind: SecretKind,
    paths: BTreeSet<PathBuf>,
}

impl SecretFilesInUse {
    /// Records when each file of a configuration was last modified. Call it after the files were read. If the configuration
    /// replaces another one, drop the value of the former one afterwards.
    pub fn record<'a>(kind: SecretKind, paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let paths: BTreeSet<_> = paths.into_iter().map(Path::to_owned).collect();
        for path in &paths {
            add_user(kind, path, |users| users.configurations += 1);
        }
        Self { kind, paths }
    }
}

impl Drop for SecretFilesInUse {
    fn drop(&mut self) {
        let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
        for path in std::mem::take(&mut self.paths) {
            let file = (self.kind, path);
            let Some(of_file) = users.get_mut(&file) else {
                continue;
            };
            of_file.configurations = of_file.configurations.saturating_sub(1);
            if of_file.configurations == 0 && !of_file.is_permanent {
                users.remove(&file);
                // Comparisons with this value are false, so no alert is about a file that nothing uses.
                set(file.0, &file.1, f64::NAN);
            }
        }
    }
}

fn add_user(kind: SecretKind, path: &Path, add: impl FnOnce(&mut FileUsers)) {
    let modified = std::fs::metadata(path).and_then(|found| found.modified());
    let mut users = USERS.lock().unwrap_or_else(PoisonError::into_inner);
    add(users.entry((kind, path.to_owned())).or_default());
    if let Ok(modified) = modified {
        set(kind, path, seconds_since_1970(modified));
    }
}

fn set(kind: SecretKind, path: &Path, modified: f64) {
    let file = labels::SECRET_FILES.label(&path.to_string_lossy());
    gauge!(names::SECRET_FILE_MODIFIED, "kind" => kind.as_str(), "file" => file).set(modified);
}

fn seconds_since_1970(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0.0, |since| since.as_secs_f64().floor())
}

#[cfg(test)]
mod tests {
    use std::fs::{File, write};
    use std::time::Duration;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn the_age_is_that_of_the_file_in_use_and_ends_with_its_use() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let dir =
            std::env::temp_dir().join(format!("wardgate-secret-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let [one, other] = ["one", "other"].map(|name| dir.join(name));
        for (path, seconds) in [(&one, 1_700_000_000), (&other, 1_750_000_000)] {
            write(path, "secret").unwrap();
            let modified = UNIX_EPOCH + Duration::from_secs(seconds);
            let file = File::options().append(true).open(path).unwrap();
            file.set_modified(modified).unwrap();
        }
        let value = |path: &Path| {
            let rendered = handle.render();
            let label = format!("file=\"{}\"", path.display());
            let line = rendered.lines().find(|line| line.contains(&label));
            line.and_then(|line| line.rsplit(' ').next())
                .map(str::to_owned)
        };
        metrics::with_local_recorder(&recorder, || {
            record_secret_file(SecretKind::Key, &dir.join("gone"));
            let both = [one.as_path(), other.as_path()];
            let before = SecretFilesInUse::record(SecretKind::Credential, both);
            assert_eq!(value(&one).as_deref(), Some("1700000000"));
            assert_eq!(value(&other).as_deref(), Some("1750000000"));
            let now = SecretFilesInUse::record(SecretKind::Credential, [other.as_path()]);
            drop(before);
            assert_eq!(value(&one).as_deref(), Some("NaN"));
            assert_eq!(value(&other).as_deref(), Some("1750000000"));
            assert_eq!(value(&dir.join("gone")), None);
            drop(now);
            assert_eq!(value(&other).as_deref(), Some("NaN"));
        });
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_age_of_a_file_of_two_services_ends_with_the_use_by_the_last_of_them() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let handle = recorder.handle();
        let dir =
            std::env::temp_dir().join(format!("wardgate-shared-secrets-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let [shared, permanent] = ["shared", "permanent"].map(|name| dir.join(name));
        for path in [&shared, &permanent] {
            write(path, "secret").unwrap();
        }
        let is_in_use = |path: &Path| {
            let rendered = handle.render();
            let label = format!("file=\"{}\"", path.display());
            let line = rendered.lines().find(|line| line.contains(&label));
            line.is_some_and(|line| !line.ends_with("NaN"))
        };
        metrics::with_local_recorder(&recorder, || {
            let files = [shared.as_path(), permanent.as_path(), shared.as_path()];
            let agent = SecretFilesInUse::record(SecretKind::Credential, files);
            let tool_runner = SecretFilesInUse::record(SecretKind::Credential, files);
            record_secret_file(SecretKind::Credential, &permanent);
            drop(agent);
            assert!(is_in_use(&shared) && is_in_use(&permanent));
            drop(tool_runner);
            assert!(!is_in_use(&shared) && is_in_use(&permanent));
        });
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
