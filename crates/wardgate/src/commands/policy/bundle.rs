//! `wardgate policy bundle`: packs and signs a directory of policies, and verifies what was packed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::json;
use wardgate_domain::{Digest, mark_invisible};
use wardgate_policy::try_bundle;
use wardgate_policy_bundle::{
    BundleSigner, BundleVerifier, BundledFile, BundledTool, PolicyBundle, replace_file,
};

use crate::Failure;
use crate::cli::{BundleCommand, BundleCreation, BundleVerification, OutputFormat};
use crate::commands::output::print_document;
use crate::data_dir;

pub(super) fn run(command: &BundleCommand) -> Result<(), Failure> {
    match command {
        BundleCommand::Create(arguments) => create(arguments),
        BundleCommand::Verify(arguments) => verify(arguments),
    }
}

fn create(arguments: &BundleCreation) -> Result<(), Failure> {
    let directory = &arguments.directory;
    let key = &arguments.key;
    let signer = BundleSigner::from_pkcs8(&data_dir::read_pkcs8(key)?);
    let signer = signer.ok_or_else(|| {
        format!(
            "{} is not an Ed25519 private key in PEM; `openssl genpkey -algorithm ed25519` creates one",
            key.display()
        )
    })?;
    let linted = super::lint(directory, arguments.tools.as_deref(), &[])?;
    let tests = wardgate_policy::test_files(directory)?;
    if tests.is_empty() {
        eprintln!(
            "warning: {} contains no tests, so the permissions of the bundle are not tested",
            directory.display()
        );
    }
    let mut named = BTreeSet::new();
    for path in &tests {
        let file = super::test::read_test_file(path)?;
        named.extend(file.tests.into_iter().flat_map(|test| test.tools));
    }
    let offers = super::offers(arguments.tools.as_deref(), directory)?;
    let offers = offers
        .iter()
        .filter(|offer| named.contains(offer.name.as_str()));
    let tools = offers.map(BundledTool::from).collect();
    let bundle = PolicyBundle::new(arguments.version, files(directory, &tests)?, tools)?;
    let tried = try_bundle(&bundle)?;
    if tried.hash() != linted.set.hash() {
        return Err(format!("{} changed meanwhile; try again", directory.display()).into());
    }
    let out = &arguments.out;
    replace_file(out, bundle.sign(&signer)?.as_bytes())
        .map_err(|error| format!("cannot write {}: {error}", out.display()))?;
    describe(&bundle, &tried.hash(), arguments.output.format())
}

fn verify(arguments: &BundleVerification) -> Result<(), Failure> {
    let mut verifier = BundleVerifier::default();
    for path in &arguments.public_keys {
        let pem = read_text(path)?;
        if !verifier.add_pem(&pem) {
            return Err(format!("{} is not an Ed25519 public key in PEM", path.display()).into());
        }
    }
    let file = &arguments.file;
    let bytes =
        std::fs::read(file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let bundle = PolicyBundle::open(&bytes, &verifier)
        .map_err(|error| format!("{}: {error}", file.display()))?;
    let tried = try_bundle(&bundle)?;
    describe(&bundle, &tried.hash(), arguments.output.format())
}

/// Reads the policies, schemas and tests of a directory.
fn files(directory: &Path, tests: &[PathBuf]) -> Result<Vec<BundledFile>, Failure> {
    let mut paths = tests.to_vec();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let is_policy = (path.extension()).is_some_and(|it| it == "cedar" || it == "cedarschema");
        let is_hidden =
            (path.file_name()).is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if is_policy && !is_hidden && path.is_file() {
            paths.push(path);
        }
    }
    let file = |path: PathBuf| {
        let inside = path.strip_prefix(directory).unwrap_or(&path);
        let inside = inside
            .to_str()
            .ok_or_else(|| format!("the name of {} is not UTF-8; rename it", path.display()))?;
        Ok(BundledFile {
            path: inside.to_owned(),
            text: read_text(&path)?,
        })
    };
    paths.into_iter().map(file).collect()
}

fn read_text(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()).into())
}

fn describe(
    bundle: &PolicyBundle,
    policy_hash: &Digest,
    format: OutputFormat,
) -> Result<(), Failure> {
    let reference = bundle.reference();
    let files = bundle.files().iter().map(|file| {
        let digest = Digest::compute(file.text.as_bytes());
        (file.path.as_str(), digest.to_string(), file.text.len())
    });
    let files: Vec<_> = files.collect();
    let document = json!({
        "version": reference.version,
        "digest": reference.digest.to_string(),
        "policy_hash": policy_hash.to_string(),
        "files": files.iter().map(|(path, digest, bytes)| {
            json!({ "path": path, "digest": digest, "bytes": bytes })
        }).collect::<Vec<_>>(),
    });
    print_document(format, &document.to_string(), || {
        let mut text = format!(
            "version {}\ndigest sha256:{}\npolicy hash {policy_hash}\n",
            reference.version, reference.digest
        );
        for (path, digest, bytes) in &files {
            text += &format!("{digest}  {bytes:>7}  {}\n", mark_invisible(path));
        }
        text
    })
}
