//! `wardgate api-key`: creates, lists and revokes the API keys of a key file.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use wardgate_domain::{Ambient, Digest};
use wardgate_edge::{ApiKeyEntry, ApiKeyFile, generate_api_key};

use crate::Failure;
use crate::cli::{ApiKeyArgs, ApiKeyCommand, KeyFilePath, NewApiKey, OutputFormat};
use crate::commands::output::RowPrinter;
use crate::commands::terminal::cell;
use crate::data_dir::{self, DataDir};

const DAY: Duration = Duration::from_hours(24);

pub(crate) fn run(arguments: ApiKeyArgs) -> Result<(), Failure> {
    let ambient = Ambient::system();
    match arguments.command {
        ApiKeyCommand::Create(new) => create(new, &ambient),
        ApiKeyCommand::List { file, output } => list(&path(&file)?, output.format()),
        ApiKeyCommand::Revoke { name, file } => revoke(&path(&file)?, &name, &ambient),
    }
}

/// Returns the path of the named file, or of the key file in an existing data directory if no file is named.
fn path(file: &KeyFilePath) -> Result<PathBuf, Failure> {
    match &file.file {
        Some(path) => Ok(path.clone()),
        None => Ok(DataDir::open_existing(&file.data_dir)?.api_keys()),
    }
}

fn create(new: NewApiKey, ambient: &Ambient) -> Result<(), Failure> {
    let path = path(&new.file)?;
    let key = generate_api_key(ambient);
    let attributes = new.attributes.into_iter().map(|(name, text)| {
        let value = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text));
        (name, value)
    });
    let lifetime = new.days.map(|days| DAY * days);
    let entry = ApiKeyEntry {
        sha256: Digest::compute(key.as_bytes()).to_string(),
        subject: new.sub.unwrap_or_else(|| new.name.clone()),
        name: new.name,
        roles: new.roles,
        tenant: new.tenant,
        attributes: attributes.collect(),
        scopes: new.scopes,
        expires_at: lifetime.map(|lifetime| ambient.now().plus(lifetime).to_string()),
    };
    change(&path, ambient, |file| {
        if file.keys.iter().any(|it| it.name == entry.name) {
            return Err(format!(
                "a key with the name `{}` exists already; revoke it first, or choose another name",
                cell(&entry.name)
            )
            .into());
        }
        file.keys.push(entry);
        Ok(())
    })?;
    eprintln!(
        "the digest of the key is stored in {}; the key itself is shown only once",
        path.display()
    );
    println!("{key}");
    Ok(())
}

/// Heading of the columns of the list.
const HEADING: &str = "NAME                  SUBJECT               ROLES                 EXPIRES";

fn list(path: &Path, format: OutputFormat) -> Result<(), Failure> {
    let file = read_key_file(path)?;
    let mut rows = RowPrinter::stdout(format, Some(HEADING))?;
    for key in &file.keys {
        rows.print(&serde_json::to_string(key)?, || {
            format!(
                "{:<20}  {:<20}  {:<20}  {}",
                cell(&key.name),
                cell(&key.subject),
                cell(&key.roles.join(",")),
                cell(key.expires_at.as_deref().unwrap_or("never")),
            )
        })?;
    }
    rows.finish()
}

fn revoke(path: &Path, name: &str, ambient: &Ambient) -> Result<(), Failure> {
    change(path, ambient, |file| {
        let before = file.keys.len();
        file.keys.retain(|key| key.name != name);
        if file.keys.len() == before {
            return Err(format!("{} has no key `{}`", path.display(), cell(name)).into());
        }
        Ok(())
    })?;
    println!("{} is revoked", cell(name));
    Ok(())
}

fn read_key_file(path: &Path) -> Result<ApiKeyFile, Failure> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    match fs::read(path) {
        Ok(bytes) => Ok(ApiKeyFile::parse(&bytes).map_err(|error| named(&error))?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(ApiKeyFile::default()),
        Err(error) => Err(named(&error).into()),
    }
}

/// Changes the key file and replaces it atomically, so that services read either the old file or the new one. A lock on the
/// directory makes concurrent commands wait for each other.
fn change(
    path: &Path,
    ambient: &Ambient,
    change: impl FnOnce(&mut ApiKeyFile) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    let lock = File::open(directory).map_err(named)?;
    lock.lock().map_err(named)?;
    let mut file = read_key_file(path)?;
    change(&mut file)?;
    let mut text = serde_json::to_vec_pretty(&file)?;
    text.push(b'\n');
    ApiKeyFile::parse(&text)?;
    Ok(data_dir::replace(path, &text, ambient)?)
}
