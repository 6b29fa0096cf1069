//! `wardgate token`: prints a token of the local issuer on standard output.

use wardgate_domain::Ambient;

use crate::Failure;
use crate::cli::TokenArgs;
use crate::data_dir::DataDir;
use crate::issuer::{self, TokenRequest};

pub(crate) fn run(arguments: &TokenArgs) -> Result<(), Failure> {
    let dir = DataDir::open_existing(&arguments.data_dir)?;
    let request = TokenRequest {
        subject: &arguments.sub,
        roles: &arguments.roles,
        claims: &arguments.claims,
        ttl: arguments.ttl,
    };
    println!("{}", issuer::token(&dir, &request, &Ambient::system())?);
    Ok(())
}
