//! The ages of secrets: of passwords of stores, and of the files that sources and model providers read theirs from. The
//! ages of keys are reported with their other checks.

use std::path::{Path, PathBuf};
use std::time::Duration;

use wardgate_domain::{Ambient, Timestamp};

use super::finding::{Finding, FindingSubject};
use crate::cli::ConfigSection;
use crate::config::Settings;

const DAY: Duration = Duration::from_hours(24);
/// Age in days above which a secret should be replaced. The alert `WardgateSecretOld` has the same limit.
const OLD: u64 = 365;

/// A file with a secret that another system gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretFile {
    /// The key of the configuration that names the file, or the section whose files refer to it.
    pub(super) setting: String,
    pub(super) path: PathBuf,
}

pub(super) fn examine(files: &[SecretFile]) -> Vec<Finding> {
    files.iter().map(examine_one).collect()
}

fn examine_one(file: &SecretFile) -> Finding {
    let shown = file.path.display();
    let about = FindingSubject::new("secret", format!("{}, {shown}", file.setting));
    match age_in_days(&file.path) {
        Ok(days) if is_old(days) => about.warn(
            format!("is {days} days old"),
            "replace it at its issuer, and write the new one to the file; the file is read again without a restart",
        ),
        Ok(days) => about.ok(format!("is {days} days old")),
        Err(error) => about.fail(
            format!("cannot be read: {error}"),
            "fix its path or its permissions",
        ),
    }
}

/// Returns the number of days since the file at `path` was modified.
pub(super) fn age_in_days(path: &Path) -> std::io::Result<u64> {
    let modified = Timestamp::from(std::fs::metadata(path)?.modified()?);
    let age = Ambient::system().now().since(modified);
    Ok(age.as_secs() / DAY.as_secs())
}

/// Returns whether a secret of this age should be replaced.
pub(super) fn is_old(days: u64) -> bool {
    days > OLD
}

/// Returns the files from which the catalogue and the assistants of the configuration read secrets. `only` names the sections
/// to look at; if it is empty, all are. Faults of these files are reported by `wardgate config check`.
pub(super) fn referenced_files(settings: &Settings, only: &[ConfigSection]) -> Vec<SecretFile> {
    let is_asked = |part: ConfigSection| {
        settings.has(part.section()) && (only.is_empty() || only.contains(&part))
    };
    let mut files = Vec::new();
    let mut add = |setting: &str, paths: Vec<PathBuf>| {
        files.extend(paths.into_iter().map(|path| SecretFile {
            setting: setting.to_owned(),
            path,
        }));
    };
    if is_asked(ConfigSection::ToolRunner)
        && let Ok(config) = settings.own_settings("tool_runner", |_| {})
        && let Ok((catalogue, _)) = wardgate_tool_runner::check(&config)
    {
        let paths = catalogue.secret_files().iter();
        add(
            "tool_runner.catalogue",
            paths.map(|file| file.path().to_owned()).collect(),
        );
    }
    if is_asked(ConfigSection::Agent)
        && let Ok(config) = settings.own_settings("agent", |_| {})
        && let Ok(paths) = wardgate_agent::secret_files(&config)
    {
        add("agent.assistants", paths);
    }
    files.sort_by(|one, other| one.path.cmp(&other.path));
    files.dedup();
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::CheckStatus;

    #[test]
    fn a_secret_that_is_older_than_a_year_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        std::fs::write(&path, "secret").unwrap();
        let file = SecretFile {
            setting: "tool_runner.catalogue".to_owned(),
            path: path.clone(),
        };
        let opened = std::fs::File::options().append(true).open(&path).unwrap();
        let written = opened.metadata().unwrap().modified().unwrap();
        let verdict = |days: u32| {
            opened.set_modified(written - DAY * days).unwrap();
            examine_one(&file).verdict
        };
        assert_eq!(verdict(0), CheckStatus::Ok);
        assert_eq!(verdict(365), CheckStatus::Ok);
        assert_eq!(verdict(366), CheckStatus::Warn);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(examine_one(&file).verdict, CheckStatus::Fail);
    }

    #[test]
    fn the_files_of_a_catalogue_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("token", "secret\n");
        write(
            "tools.yaml",
            "sources:\n  api:\n    type: http\n    base_url: https://api.example\n    auth: { type: bearer, token: \"${file:token}\" }\ntools: []\n",
        );
        write("wardgate.yaml", "tool_runner:\n  catalogue: tools.yaml\n");
        let settings = Settings::load(&dir.path().join("wardgate.yaml")).unwrap();
        let file = SecretFile {
            setting: "tool_runner.catalogue".to_owned(),
            path: dir.path().join("token"),
        };
        assert_eq!(referenced_files(&settings, &[]), [file]);
        assert_eq!(referenced_files(&settings, &[ConfigSection::Audit]), []);
    }
}
