//! The sources of bundles.

use std::io::Read;
use std::path::{Path, PathBuf};

use wardgate_domain::Digest;

use crate::config::SourceLocation;
use crate::oci::OciRegistry;
use crate::remote::{FetchedBundle, WebServer};
use crate::{BundleConfig, BundleConfigError, SourceError, envelope};

/// Maximum number of bundles in a directory.
const MAX_BUNDLES: usize = 64;

/// The ending of the name of a bundle in a directory.
const ENDING: &str = "bundle";

/// A source of bundles, which remembers what it returned last.
#[derive(Debug)]
pub struct BundleSource {
    place: SourcePlace,
    /// The digest of what was returned last.
    last: Option<Digest>,
}

#[derive(Debug)]
enum SourcePlace {
    Path(PathBuf),
    Web(WebServer),
    Registry(OciRegistry),
}

impl BundleSource {
    /// Opens the source. It connects to nothing yet.
    pub fn open(config: &BundleConfig) -> Result<Self, BundleConfigError> {
        config.validate()?;
        let place = match config.location()? {
            SourceLocation::Path(path) => SourcePlace::Path(path),
            SourceLocation::Http(url) => SourcePlace::Web(WebServer::open(config, url)?),
            SourceLocation::Registry {
                base,
                repository,
                reference,
            } => SourcePlace::Registry(OciRegistry::open(config, base, &repository, &reference)?),
        };
        Ok(Self { place, last: None })
    }

    /// Returns everything that the source offers now, or `None` if that is the same as at the last call.
    pub async fn fetch(&mut self) -> Result<Option<Vec<FetchedBundle>>, SourceError> {
        let fetched = match &mut self.place {
            SourcePlace::Path(path) => {
                let path = path.clone();
                let read = tokio::task::spawn_blocking(move || read_path(&path));
                // The task is not cancelled, and a panic has no message that an operator could use.
                let ended = |_| SourceError::Io {
                    path: PathBuf::new(),
                    source: std::io::Error::other("the download did not complete"),
                };
                Some(read.await.map_err(ended)??)
            }
            SourcePlace::Web(server) => server.fetch().await?.map(|it| vec![it]),
            SourcePlace::Registry(registry) => registry.fetch().await?.map(|it| vec![it]),
        };
        let Some(fetched) = fetched else {
            return Ok(None);
        };
        let digests = fetched.iter().map(|it| Digest::of(&it.bytes).to_hex());
        let digest = Digest::of(digests.collect::<String>().as_bytes());
        if self.last.replace(digest) == Some(digest) {
            return Ok(None);
        }
        Ok(Some(fetched))
    }

    /// Forgets what was returned last, so that the next call of [`Self::fetch`] returns everything.
    pub fn forget(&mut self) {
        self.last = None;
        match &mut self.place {
            SourcePlace::Path(_) => {}
            SourcePlace::Web(server) => server.forget(),
            SourcePlace::Registry(registry) => registry.forget(),
        }
    }
}

/// Reads a file, or the bundles in a directory.
fn read_path(path: &Path) -> Result<Vec<FetchedBundle>, SourceError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SourceError::Io { path, source }
    };
    if !std::fs::metadata(path).map_err(failed(path))?.is_dir() {
        return Ok(vec![read_file(path)?]);
    }
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed(path))? {
        let entry = entry.map_err(failed(path))?.path();
        let is_hidden = entry
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        // This follows symbolic links, because Kubernetes mounts files as links.
        if entry.extension().is_some_and(|it| it == ENDING) && !is_hidden && entry.is_file() {
            paths.push(entry);
        }
    }
    if paths.is_empty() {
        return Err(SourceError::Empty(path.to_owned()));
    }
    if paths.len() > MAX_BUNDLES {
        return Err(SourceError::Crowded {
            path: path.to_owned(),
            most: MAX_BUNDLES,
        });
    }
    paths.sort_unstable();
    paths.iter().map(|path| read_file(path)).collect()
}

fn read_file(path: &Path) -> Result<FetchedBundle, SourceError> {
    let origin = path.display().to_string();
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        // One byte more than allowed is read, so that the file is refused when it is opened as a bundle. Other bundles of its
        // directory are not affected.
        .and_then(|file| {
            file.take(envelope::MAX_BYTES as u64 + 1)
                .read_to_end(&mut bytes)
        })
        .map_err(|source| SourceError::Io {
            path: path.to_owned(),
            source,
        })?;
    Ok(FetchedBundle { origin, bytes })
}
