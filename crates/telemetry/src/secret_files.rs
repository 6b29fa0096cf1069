//! The ages of the files that hold keys, passwords and other secrets, as a metric.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use metrics::gauge;

use crate::{labels, names};

/// What the secret in a file is for, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// Records when the file at `path`, whose secret is used from now on, was last modified. Call it after the file was read: a
/// file that is replaced later keeps the time of the secret in use.
pub fn record_secret_file(kind: SecretKind, path: &Path) {
    let modified = std::fs::metadata(path).and_then(|found| found.modified());
    if let Ok(modified) = modified {
        set(kind, path, seconds_since_1970(modified));
    }
}

/// Records the files of a configuration that was loaded again: those of `now` are in use, and those of `before` that are not
/// among them are no longer.
pub fn record_secret_files<'a>(
    kind: SecretKind,
    before: impl IntoIterator<Item = &'a Path>,
    now: impl IntoIterator<Item = &'a Path> + Clone,
) {
    for path in before {
        if !now.clone().into_iter().any(|used| used == path) {
            // Comparisons with this value are false, so no alert is about a file that nothing uses.
            set(kind, path, f64::NAN);
        }
    }
    for path in now {
        record_secret_file(kind, path);
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
            let (none, both) = ([], [one.as_path(), other.as_path()]);
            record_secret_files(SecretKind::Credential, none, both);
            assert_eq!(value(&one).as_deref(), Some("1700000000"));
            assert_eq!(value(&other).as_deref(), Some("1750000000"));
            record_secret_files(SecretKind::Credential, both, [other.as_path()]);
            assert_eq!(value(&one).as_deref(), Some("NaN"));
            assert_eq!(value(&other).as_deref(), Some("1750000000"));
            assert_eq!(value(&dir.join("gone")), None);
        });
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
