//! `wardgate stdio`: makes a gateway available as a stdio MCP server. Standard output carries only MCP messages; all other
//! output goes to standard error.

use wardgate_stdio::{Settings, TokenSource};
use wardgate_telemetry::Config;

use super::TOKEN;
use crate::Failure;
use crate::cli::{LogVerbosity, StdioArgs};
use crate::shutdown;

pub(crate) async fn run(arguments: StdioArgs, verbosity: LogVerbosity) -> Result<(), Failure> {
    let _telemetry = wardgate_telemetry::init(&verbosity.apply(Config::default()), "stdio")?;
    let token = match (arguments.token_file, std::env::var(TOKEN)) {
        (Some(file), _) => TokenSource::File(file),
        (None, Ok(token)) if !token.is_empty() => TokenSource::Variable(token),
        (None, _) => TokenSource::None,
    };
    let settings = Settings {
        url: arguments.url,
        token,
    };
    let stop = shutdown::signals()?;
    wardgate_stdio::run(settings, std::io::stdin(), std::io::stdout(), stop).await?;
    Ok(())
}
