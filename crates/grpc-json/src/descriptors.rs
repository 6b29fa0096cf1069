//! Descriptor files, which come from a file or from reflection and are checked and linked into a pool.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use prost::Message;
use prost_reflect::DescriptorPool;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use wardgate_domain::Digest;

use super::bad_descriptors::{BadDescriptors, MAX_FILE_NAME};
use super::trim::DescriptorTrimmer;

/// Maximum number of files that are linked together.
pub(super) const MAX_FILES: usize = 1000;
/// Maximum size of all files together, in bytes as received.
pub(super) const MAX_BYTES: usize = 8 << 20;
const MAX_IMPORTS: usize = 20_000;

/// A `FileDescriptorSet` that was read and linked. Two values are equal if they have the same bytes.
#[derive(Clone)]
pub struct DescriptorFile {
    digest: Digest,
    pool: DescriptorPool,
}

impl PartialEq for DescriptorFile {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for DescriptorFile {}

/// Shows only the digest, because descriptors that refer to each other would be formatted without end.
impl fmt::Debug for DescriptorFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DescriptorFile").field(&self.digest).finish()
    }
}

impl DescriptorFile {
    /// Decodes a file that `protoc --descriptor_set_out` wrote.
    pub fn decode(set: &[u8]) -> Result<Self, BadDescriptors> {
        if set.len() > MAX_BYTES {
            return Err(BadDescriptors::TooMany("bytes", MAX_BYTES));
        }
        let digest = Digest::compute(set);
        let set = FileDescriptorSet::decode(set).map_err(|_| BadDescriptors::NotDescriptors)?;
        let pool = link(set.file)?;
        Ok(Self { digest, pool })
    }

    /// Returns the types that the file describes.
    pub fn pool(&self) -> &DescriptorPool {
        &self.pool
    }
}

/// Returns whether `file` is that of a well-known type. Every pool has these files, always in our own version.
pub(super) fn is_well_known(file: &str) -> bool {
    file.starts_with("google/protobuf/")
        && DescriptorPool::global().get_file_by_name(file).is_some()
}

/// Checks the name of a file.
pub(super) fn check_file_name(name: &str) -> Result<(), BadDescriptors> {
    if name.is_empty() || name.len() > MAX_FILE_NAME {
        return Err(BadDescriptors::FileName);
    }
    Ok(())
}

/// Links `files` and the well-known types into one pool. The order does not matter, and a second file of the same name
/// is ignored.
pub(super) fn link(files: Vec<FileDescriptorProto>) -> Result<DescriptorPool, BadDescriptors> {
    if files.len() > MAX_FILES {
        return Err(BadDescriptors::TooMany("files", MAX_FILES));
    }
    let mut trimmer = DescriptorTrimmer::new();
    let mut trimmed = Vec::new();
    for file in files {
        check_file_name(file.name())?;
        if !is_well_known(file.name()) {
            trimmed.push(trimmer.file(file)?);
        }
    }
    let sorted = ImportGraph::from_files(&trimmed)?.resolve()?;
    let names: Vec<_> = trimmed.iter().map(|file| file.name().to_owned()).collect();
    let mut pool = DescriptorPool::global();
    let well_known: Vec<_> = pool.files().map(|file| file.name().to_owned()).collect();
    let mut files: Vec<_> = trimmed.into_iter().map(Some).collect();
    let sorted = sorted.into_iter().filter_map(|resolved| {
        let mut file = files[resolved.file].take()?;
        let seen = resolved.sees.into_iter().map(|seen| names[seen].clone());
        file.dependency = seen.chain(well_known.iter().cloned()).collect();
        file.public_dependency.clear();
        Some(file)
    });
    pool.add_file_descriptor_protos(sorted)
        .map_err(|error| BadDescriptors::Misfit(error.to_string()))?;
    Ok(pool)
}

/// The imports between files, which are identified by their positions.
struct ImportGraph {
    files: Vec<FileImports>,
}

struct FileImports {
    name: String,
    imports: Vec<usize>,
    /// The `imports` that are public, so that importers of this file see them too.
    public: Vec<usize>,
}

/// A file and all other files that it sees, including the public imports of its imports. The linker follows public
/// imports only one step, and follows cycles of them forever.
struct ResolvedFiles {
    file: usize,
    sees: BTreeSet<usize>,
}

impl ImportGraph {
    fn from_files(files: &[FileDescriptorProto]) -> Result<Self, BadDescriptors> {
        let mut positions = HashMap::new();
        for (position, file) in files.iter().enumerate() {
            positions.entry(file.name()).or_insert(position);
        }
        let files = files.iter().map(|file| {
            let (mut imports, mut public) = (Vec::new(), Vec::new());
            for (number, import) in (0..).zip(&file.dependency) {
                match positions.get(import.as_str()) {
                    Some(&position) => {
                        imports.push(position);
                        if file.public_dependency.contains(&number) {
                            public.push(position);
                        }
                    }
                    None if is_well_known(import) => {}
                    None => {
                        let (file, import) = (
                            file.name().to_owned(),
                            import.chars().take(MAX_FILE_NAME).collect(),
                        );
                        return Err(BadDescriptors::Missing { file, import });
                    }
                }
            }
            Ok(FileImports {
                name: file.name().to_owned(),
                imports,
                public,
            })
        });
        Ok(Self {
            files: files.collect::<Result<_, _>>()?,
        })
    }

    /// Sorts the files so that each comes after those that it imports.
    fn resolve(&self) -> Result<Vec<ResolvedFiles>, BadDescriptors> {
        let mut sorted: Vec<ResolvedFiles> = Vec::new();
        // The files that importers of a file see, which are known once those of all its imports are.
        let mut exports: HashMap<usize, BTreeSet<usize>> = HashMap::new();
        let mut on_the_way = vec![false; self.files.len()];
        let mut seen = 0;
        for start in 0..self.files.len() {
            // The files on the path from `start`, each with the number of its imports that were followed.
            let mut way = vec![(start, 0)];
            while let Some((file, followed)) = way.pop() {
                if exports.contains_key(&file) {
                    continue;
                }
                let imports = &self.files[file];
                if let Some(&next) = imports.imports.get(followed) {
                    on_the_way[file] = true;
                    if on_the_way[next] {
                        return Err(BadDescriptors::Cycle(self.files[next].name.clone()));
                    }
                    way.extend([(file, followed + 1), (next, 0)]);
                    continue;
                }
                let all = |of: &[usize]| -> BTreeSet<usize> {
                    of.iter()
                        .filter_map(|import| exports.get(import))
                        .flatten()
                        .copied()
                        .collect()
                };
                let sees = all(&imports.imports);
                let mut exported = all(&imports.public);
                exported.insert(file);
                seen += sees.len() + exported.len();
                if seen > MAX_IMPORTS {
                    return Err(BadDescriptors::TooMany("imports", MAX_IMPORTS));
                }
                on_the_way[file] = false;
                exports.insert(file, exported);
                sorted.push(ResolvedFiles { file, sees });
            }
        }
        Ok(sorted)
    }
}
