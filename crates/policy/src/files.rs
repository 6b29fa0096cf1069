//! Reading of the policy directory.

use std::io::Read;
use std::path::{Path, PathBuf};

use wardgate_domain::Digest;
use wardgate_policy_bundle::PolicyBundle;

use crate::error::{Finding, Findings, Position};
use crate::limits::CedarLanguage;
use crate::{Error, limits};

/// The schema and policy files of a directory, sorted by name and not validated yet.
#[derive(Debug)]
pub(crate) struct Files {
    dir: PathBuf,
    files: Vec<(String, Vec<u8>)>,
}

/// A text file of the directory.
#[derive(Debug)]
pub(crate) struct SourceFile<'a> {
    pub(crate) path: PathBuf,
    pub(crate) text: &'a str,
}

/// The schema files and policy files, sorted by name.
#[derive(Debug)]
pub(crate) struct SourceFiles<'a> {
    pub(crate) schemas: Vec<SourceFile<'a>>,
    pub(crate) policies: Vec<SourceFile<'a>>,
}

impl SourceFile<'_> {
    /// Checks that the file is within the limits, and returns the byte offset at which each of its statements starts.
    pub(crate) fn statements(&self, language: CedarLanguage) -> Result<Vec<usize>, Findings> {
        limits::check(self.text, language).map_err(|excess| {
            Findings(vec![Finding {
                file: self.path.clone(),
                position: Some(Position::from_offset(self.text, excess.offset)),
                problem: excess.problem,
                fix: Some("simplify it or split it into several policies".to_owned()),
            }])
        })
    }
}

impl Files {
    /// Reads every `*.cedar` and `*.cedarschema` file of `dir`. Hidden files and subdirectories are ignored.
    pub(crate) fn read_dir(dir: &Path) -> Result<Self, Error> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Unreadable { path, source }
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(unreadable(dir))? {
            let entry = entry.map_err(unreadable(dir))?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            if name.starts_with('.') || !(is_policies(&name) || is_schema(&name)) {
                continue;
            }
            let path = entry.path();
            // This follows symbolic links, because Kubernetes mounts files as links.
            if !std::fs::metadata(&path)
                .map_err(unreadable(&path))?
                .is_file()
            {
                continue;
            }
            if files.len() == limits::MAX_FILES {
                let problem = format!("contains more than {} policy files", limits::MAX_FILES);
                return Err(Findings(vec![whole(dir, problem, None)]).into());
            }
            let mut bytes = Vec::new();
            std::fs::File::open(&path)
                // One byte more than allowed is read, so that an excess is detected.
                .and_then(|file| {
                    file.take(limits::MAX_FILE_BYTES as u64 + 1)
                        .read_to_end(&mut bytes)
                })
                .map_err(unreadable(&path))?;
            files.push((name, bytes));
        }
        files.sort_unstable();
        Ok(Self {
            dir: dir.to_owned(),
            files,
        })
    }

    /// Returns the schema and policy files of a bundle. Their digest is that of the same files in a directory.
    pub(crate) fn of_bundle(bundle: &PolicyBundle) -> Self {
        let files = bundle.files().iter();
        let files = files.filter(|file| is_policies(&file.path) || is_schema(&file.path));
        let files = files.map(|file| (file.path.clone(), file.text.clone().into_bytes()));
        let mut files: Vec<_> = files.collect();
        files.sort_unstable();
        Self {
            dir: PathBuf::from(format!("bundle-{}", bundle.reference().version)),
            files,
        }
    }

    /// Returns the directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the SHA-256 digest of all names and contents in the order of the names, each preceded by its length.
    pub(crate) fn hash(&self) -> Digest {
        let lengths: Vec<_> = self
            .files
            .iter()
            .flat_map(|(name, bytes)| [name.len() as u64, bytes.len() as u64].map(u64::to_be_bytes))
            .collect();
        let parts = self.files.iter().zip(lengths.chunks_exact(2));
        Digest::of_parts(parts.flat_map(|((name, bytes), lengths)| {
            [
                lengths[0].as_slice(),
                name.as_bytes(),
                lengths[1].as_slice(),
                bytes,
            ]
        }))
    }

    /// Returns the files as text. A file that is too long or not UTF-8 is an error.
    pub(crate) fn sources(&self) -> Result<SourceFiles<'_>, Findings> {
        let mut findings = Vec::new();
        let (mut schemas, mut policies) = (Vec::new(), Vec::new());
        for (name, bytes) in &self.files {
            let path = self.dir.join(name);
            if bytes.len() > limits::MAX_FILE_BYTES {
                let problem = format!("is longer than {} bytes", limits::MAX_FILE_BYTES);
                findings.push(whole(&path, problem, Some("split it")));
                continue;
            }
            match std::str::from_utf8(bytes) {
                Ok(text) if is_schema(name) => schemas.push(SourceFile { path, text }),
                Ok(text) => policies.push(SourceFile { path, text }),
                Err(_) => {
                    findings.push(whole(&path, "is not UTF-8 text", Some("save it as UTF-8")));
                }
            }
        }
        if findings.is_empty() {
            Ok(SourceFiles { schemas, policies })
        } else {
            Err(Findings(findings))
        }
    }
}

fn whole(file: &Path, problem: impl Into<String>, fix: Option<&str>) -> Finding {
    Finding {
        file: file.to_owned(),
        position: None,
        problem: problem.into(),
        fix: fix.map(str::to_owned),
    }
}

fn has_extension(name: &str, expected: &str) -> bool {
    Path::new(name)
        .extension()
        .is_some_and(|extension| extension == expected)
}

fn is_policies(name: &str) -> bool {
    has_extension(name, "cedar")
}

fn is_schema(name: &str) -> bool {
    has_extension(name, "cedarschema")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(of: &[(&str, &str)]) -> Files {
        let files = of
            .iter()
            .map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec()));
        Files {
            dir: "d".into(),
            files: files.collect(),
        }
    }

    #[test]
    fn the_hash_tells_names_and_contents_apart() {
        let hash = |of: &[(&str, &str)]| files(of).hash();
        assert_eq!(
            hash(&[("a", "1"), ("b", "2")]),
            hash(&[("a", "1"), ("b", "2")])
        );
        assert_ne!(
            hash(&[("a", "1"), ("b", "2")]),
            hash(&[("a", "1"), ("b", "3")])
        );
        assert_ne!(hash(&[("a", "1b")]), hash(&[("a1", "b")]));
        assert_ne!(hash(&[("a", "1"), ("b", "2")]), hash(&[("a", "1b2")]));
    }

    #[test]
    fn a_file_too_long_is_named() {
        let long = " ".repeat(limits::MAX_FILE_BYTES + 1);
        let files = files(&[("a.cedar", &long), ("b.cedarschema", "")]);
        assert!(
            files
                .sources()
                .unwrap_err()
                .to_string()
                .starts_with("d/a.cedar: is longer")
        );
    }

    #[test]
    fn other_files_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "a.cedar",
            "s.cedarschema",
            "README.md",
            ".hidden.cedar",
            "a.cedar~",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        std::fs::create_dir(dir.path().join("old.cedar")).unwrap();
        let read = Files::read_dir(dir.path()).unwrap();
        let names: Vec<_> = read.files.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a.cedar", "s.cedarschema"]);
    }
}
