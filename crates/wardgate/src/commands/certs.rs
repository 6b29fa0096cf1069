//! `wardgate certs dev`: creates a throw-away certificate authority, to try out separate services.

use std::fs;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use wardgate_domain::Ambient;
use wardgate_rpc::Peer;

use crate::Failure;
use crate::cli::{CertsArgs, CertsCommand};
use crate::data_dir::{self, DataDir};
use crate::issuer;

pub(crate) fn run(arguments: &CertsArgs) -> Result<(), Failure> {
    let CertsCommand::Dev { data_dir } = &arguments.command;
    let dir = DataDir::open(data_dir)?;
    dir.make_keys(&Ambient::system())?;
    issuer::prepare(&dir)?;
    // New certificates beside running services would lock them out of each other at the next restart.
    if dir.certs().join("ca.pem").exists() {
        println!(
            "the certificates in {} exist already and are not replaced; remove the directory to create new ones",
            dir.certs().display()
        );
        return Ok(());
    }
    certificates(&dir.certs())?;
    println!("certificates in {}", dir.certs().display());
    Ok(())
}

/// Creates a certificate authority that signs one certificate for each service. The authority's key is never written to
/// disk.
pub(crate) fn certificates(target: &Path) -> Result<(), Failure> {
    fs::create_dir_all(target)?;
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    authority
        .distinguished_name
        .push(DnType::CommonName, "Wardgate development authority");
    let authority_key = KeyPair::generate()?;
    let root = authority.self_signed(&authority_key)?;
    let authority = Issuer::new(authority, authority_key);
    fs::write(target.join("ca.pem"), root.pem())?;
    for peer in Peer::ALL {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![peer.as_str().to_owned()])?;
        params
            .distinguished_name
            .push(DnType::CommonName, peer.as_str());
        // Every service is a server to some of the others and a client of others.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let certificate = params.signed_by(&key, &authority)?;
        let file = |ending: &str| target.join(format!("{}.{ending}", peer.as_str()));
        fs::write(file("pem"), certificate.pem())?;
        data_dir::write_new(&file("key"), key.serialize_pem().as_bytes())?;
    }
    Ok(())
}
