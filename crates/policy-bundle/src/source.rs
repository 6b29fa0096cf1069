//! The sources of bundles.

use std::io::Read;
use std::path::{Path, PathBuf};

use wardgate_domain::Digest;

use crate::blocking::run_blocking;
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

/// Everything that a source offers at one time.
#[derive(Debug)]
pub struct OfferedBundles {
    /// The bundles, sorted by path, with at least one element. Nothing about them is verified.
    pub bundles: Vec<FetchedBundle>,
    /// The errors of the files of a directory that cannot be read. They do not affect the other files.
    pub unreadable: Vec<SourceError>,
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

    /// Returns everything that the source offers now, or `None` if that is the same as at the last call. Files are read
    /// and digests are computed on a thread for blocking work.
    pub async fn fetch(&mut self) -> Result<Option<OfferedBundles>, SourceError> {
        let fetched = match &mut self.place {
            SourcePlace::Path(path) => {
                let path = path.clone();
                Some(run_blocking(move || read_path(&path)).await??)
            }
            SourcePlace::Web(server) => server.fetch().await?.map(OfferedBundles::from),
            SourcePlace::Registry(registry) => registry.fetch().await?.map(OfferedBundles::from),
        };
        let Some(fetched) = fetched else {
            return Ok(None);
        };
        let (fetched, digest) = run_blocking(move || {
            let digest = fetched.digest();
            (fetched, digest)
        })
        .await?;
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

impl OfferedBundles {
    /// Returns a digest of all contents and errors, which changes if any of them changes.
    fn digest(&self) -> Digest {
        let digests = self
            .bundles
            .iter()
            .map(|it| Digest::compute(&it.bytes).to_hex());
        let mut text = digests.collect::<String>();
        for error in &self.unreadable {
            text += &format!("\n{error}");
        }
        Digest::compute(text.as_bytes())
    }
}

impl From<FetchedBundle> for OfferedBundles {
    fn from(bundle: FetchedBundle) -> Self {
        Self {
            bundles: vec![bundle],
            unreadable: Vec::new(),
        }
    }
}

/// Reads a file, or the bundles in a directory. A file of a directory that cannot be read is an error only if no other
/// file can be read.
fn read_path(path: &Path) -> Result<OfferedBundles, SourceError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| SourceError::Io { path, source }
    };
    if !std::fs::metadata(path).map_err(failed(path))?.is_dir() {
        return read_file(path).map(OfferedBundles::from);
    }
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(path).map_err(failed(path))? {
        let entry = entry.map_err(failed(path))?.path();
        let is_hidden = entry
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        // This follows symbolic links, because Kubernetes mounts files as links. A link that leads nowhere stays in the
        // list, so that it is reported as unreadable.
        let is_other = std::fs::metadata(&entry).is_ok_and(|it| !it.is_file());
        if entry.extension().is_some_and(|it| it == ENDING) && !is_hidden && !is_other {
            paths.push(entry);
        }
    }
    if paths.len() > MAX_BUNDLES {
        return Err(SourceError::Crowded {
            path: path.to_owned(),
            most: MAX_BUNDLES,
        });
    }
    paths.sort_unstable();
    let (mut bundles, mut unreadable) = (Vec::new(), Vec::new());
    for path in &paths {
        match read_file(path) {
            Ok(bundle) => bundles.push(bundle),
            // The file was removed after the directory was listed, which is no fault.
            Err(_) if is_removed(path) => {}
            Err(error) => unreadable.push(error),
        }
    }
    if bundles.is_empty() {
        let empty = || SourceError::Empty(path.to_owned());
        return Err(unreadable.into_iter().next().unwrap_or_else(empty));
    }
    Ok(OfferedBundles {
        bundles,
        unreadable,
    })
}

fn is_removed(path: &Path) -> bool {
    let metadata = std::fs::symlink_metadata(path);
    metadata.is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
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
