//! `wardgate tools import`: generates a `tools.yaml` to review from existing definitions.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;

use wardgate_catalogue_import::{
    ImportError, ImportedCatalogue, MAX_DOCUMENT, OpenapiOptions, PostgresOptions,
};

use crate::Failure;
use crate::cli::{ImportArgs, ImportFrom};

pub(crate) async fn run(arguments: ImportArgs) -> Result<(), Failure> {
    let ImportedCatalogue { yaml, notes } = match arguments.from {
        ImportFrom::Openapi {
            file,
            base_url,
            tags,
        } => wardgate_catalogue_import::openapi(
            &read_document(&file)?,
            &OpenapiOptions { base_url, tags },
        )?,
        ImportFrom::Toolbox { file } => wardgate_catalogue_import::toolbox(&read_document(&file)?)?,
        ImportFrom::McpServers { file } => {
            wardgate_catalogue_import::mcp_servers(&read_document(&file)?)?
        }
        ImportFrom::Postgres {
            url_env,
            schemas,
            tables,
        } => {
            let url = std::env::var(&url_env)
                .map_err(|_| format!("set {url_env} to the URL of the database"))?;
            let options = PostgresOptions {
                variable: url_env,
                schemas,
                tables,
            };
            wardgate_catalogue_import::postgres(&url, &options).await?
        }
    };
    match &arguments.out {
        Some(path) => write(path, &yaml, arguments.force)?,
        None => std::io::stdout().write_all(yaml.as_bytes())?,
    }
    for note in notes {
        eprintln!("{note}");
    }
    Ok(())
}

/// Reads a text file, or standard input for `-`, up to the maximum size of an import.
fn read_document(path: &Path) -> Result<String, Failure> {
    let source: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        let opened = File::open(path);
        Box::new(opened.map_err(|error| format!("{} cannot be read: {error}", path.display()))?)
    };
    let mut bytes = Vec::new();
    let limit = u64::try_from(MAX_DOCUMENT)?.saturating_add(1);
    source.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > MAX_DOCUMENT {
        return Err(ImportError::TooLarge.into());
    }
    String::from_utf8(bytes).map_err(|_| format!("{} is not UTF-8", path.display()).into())
}

fn write(path: &Path, yaml: &str, force: bool) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    options.write(true);
    if force {
        options.create(true).truncate(true);
    } else {
        options.create_new(true);
    }
    let mut file = options.open(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            format!("{} exists; use --force to replace it", path.display())
        }
        _ => format!("{} cannot be written: {error}", path.display()),
    })?;
    file.write_all(yaml.as_bytes())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command, ToolsCommand};

    const API: &str =
        "openapi: 3.0.0\nservers: [{ url: 'https://api.example' }]\npaths: { /a: { get: {} } }\n";

    async fn import(words: &[&str]) -> Result<(), String> {
        let words = ["wardgate", "tools", "import"].iter().chain(words);
        let Command::Tools(tools) = Cli::try_parse_from(words).unwrap().command else {
            panic!("another command");
        };
        let ToolsCommand::Import(import) = tools.command else {
            panic!("another command");
        };
        run(import).await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_file_that_exists_is_replaced_by_force_only() {
        let dir = std::env::temp_dir().join(format!("wardgate-import-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = |name: &str| dir.join(name).display().to_string();
        let (api, out) = (path("api.yaml"), path("tools.yaml"));
        std::fs::write(&api, API).unwrap();
        import(&["openapi", &api, "--out", &out]).await.unwrap();
        let written = std::fs::read_to_string(&out).unwrap();
        assert!(written.contains("  - name: get_a\n"), "{written}");
        std::fs::write(&out, "kept").unwrap();
        let refused = import(&["openapi", &api, "--out", &out]).await.unwrap_err();
        assert!(refused.contains("--force"), "{refused}");
        assert_eq!(std::fs::read_to_string(&out).unwrap(), "kept");
        import(&["openapi", &api, "--out", &out, "--force"])
            .await
            .unwrap();
        assert_eq!(std::fs::read_to_string(&out).unwrap(), written);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[tokio::test]
    async fn what_cannot_be_read_is_named() {
        let refused = import(&["toolbox", "/nowhere/tools.yaml"])
            .await
            .unwrap_err();
        assert!(
            refused.starts_with("/nowhere/tools.yaml cannot be read"),
            "{refused}"
        );
        let refused = import(&["postgres", "--url-env", "WARDGATE_NO_SUCH_URL"])
            .await
            .unwrap_err();
        assert_eq!(
            refused,
            "set WARDGATE_NO_SUCH_URL to the URL of the database"
        );
    }
}
