//! Compiles `proto/wardgate/<service>/v1/*.proto` with protox, so no system `protoc` is needed.

use std::path::{Path, PathBuf};
use std::{env, error::Error, fs};

use prost::Message;

const FILES: [&str; 5] = [
    "wardgate/common/v1/common.proto",
    "wardgate/policy/v1/policy.proto",
    "wardgate/toolrunner/v1/toolrunner.proto",
    "wardgate/audit/v1/audit.proto",
    "wardgate/memory/v1/memory.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    // Relative to this package, so that a moved or copied tree is not compiled anew.
    println!("cargo:rerun-if-changed=../../proto");
    let descriptors = protox::compile(FILES.map(|file| root.join(file)), [&root])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Reflection serves it, and the access test walks it.
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .include_file("wardgate.rs")
        // Payloads travel as reference-counted buffers, never copied field by field.
        .bytes(".")
        // A message may have many of them, and an empty one has two bytes.
        .boxed("wardgate.audit.v1.NewRecord.record")
        .compile_fds(descriptors)?;
    Ok(())
}
