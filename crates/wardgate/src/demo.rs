//! Demos: example directories of `deploy/examples`, embedded in the binary.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};

use crate::Failure;
use crate::cli::Demo;
use crate::data_dir::DataDir;

/// Embeds one file of a demo.
macro_rules! file {
    ($path:literal) => {
        (
            $path,
            include_str!(concat!("../../../deploy/examples/hospital/", $path)),
        )
    };
}

const HOSPITAL: [(&str, &str); 14] = [
    file!("wardgate.yaml"),
    file!("assistants.yaml"),
    file!("tools.yaml"),
    file!("people.yaml"),
    file!("guides/triage.md"),
    file!("schema.sql"),
    file!("seed.sql"),
    file!("policies/hospital.cedarschema"),
    file!("policies/doctor.cedar"),
    file!("policies/nurse.cedar"),
    file!("policies/billing.cedar"),
    file!("policies/patient.cedar"),
    file!("policies/auditor.cedar"),
    file!("policies/everyone.cedar"),
];

/// A demo whose files are unpacked.
#[derive(Debug)]
pub(crate) struct UnpackedDemo {
    /// The path of the demo's configuration file.
    pub(crate) config: PathBuf,
    /// The values of the variables of the demo's catalogue.
    pub(crate) variables: Vec<(String, String)>,
    /// The people for whom tokens are printed, and an example of a call.
    pub(crate) people: DemoPeople,
}

/// The people of a demo, and an example of a call.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DemoPeople {
    /// Some people of the demo. The first one makes the first call.
    pub(crate) people: Vec<DemoPerson>,
    /// The call that is printed as an example.
    pub(crate) first_call: FirstCall,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DemoPerson {
    pub(crate) sub: String,
    pub(crate) role: String,
    #[serde(default)]
    pub(crate) claims: std::collections::BTreeMap<String, String>,
    /// A short description of the data that the person may see.
    pub(crate) sees: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FirstCall {
    pub(crate) tool: String,
    pub(crate) arguments: serde_json::Value,
}

/// Unpacks `demo` into the data directory and creates its database. Existing files are kept, because a user may have
/// changed them.
pub(crate) async fn unpack(demo: Demo, dir: &DataDir) -> Result<UnpackedDemo, Failure> {
    let Demo::Hospital = demo;
    let target = dir.path().join("hospital");
    for (name, content) in HOSPITAL {
        let path = target.join(name);
        if !path.exists() {
            fs::create_dir_all(path.parent().unwrap_or(&target))?;
            fs::write(&path, content)?;
        }
    }
    let people = serde_saphyr::from_str(&fs::read_to_string(target.join("people.yaml"))?)
        .map_err(|error| format!("{}: {error}", target.join("people.yaml").display()))?;
    // A database that the user names is filled by hand; see the demo's README.
    let variables = if std::env::var_os("HOSPITAL_DB_URL").is_some() {
        Vec::new()
    } else {
        let database = dir.path().join("hospital.sqlite");
        if !database.exists() {
            let scripts = ["schema.sql", "seed.sql"].map(|name| target.join(name));
            fill(&database, &scripts).await?;
        }
        vec![(
            "HOSPITAL_DB_URL".to_owned(),
            format!("sqlite:{}", database.display()),
        )]
    };
    Ok(UnpackedDemo {
        config: target.join("wardgate.yaml"),
        variables,
        people,
    })
}

/// Creates the database of `scripts` under a temporary name and renames it when it is complete, so that a crash leaves no
/// partly filled one.
pub(crate) async fn fill(database: &Path, scripts: &[PathBuf]) -> Result<(), Failure> {
    let unfinished = database.with_extension("sqlite.new");
    if unfinished.exists() {
        fs::remove_file(&unfinished)?;
    }
    let options = SqliteConnectOptions::new()
        .filename(&unfinished)
        .create_if_missing(true);
    let mut connection = options.connect().await?;
    wardgate_store::sqlite::restrict_access(&unfinished);
    // One transaction needs one flush to disk instead of one for each statement.
    let mut filling = connection.begin().await?;
    for script in scripts {
        let sql = fs::read_to_string(script)?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
            .execute(&mut *filling)
            .await?;
    }
    filling.commit().await?;
    connection.close().await?;
    fs::rename(&unfinished, database)?;
    Ok(())
}
