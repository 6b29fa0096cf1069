//! The configuration files of a test system, with a catalogue and policies for any tool.

use std::path::Path;

/// Writes the files, including `wardgate.yaml`, into `dir`.
pub(super) fn configure(dir: &Path, settings: &str, catalogue: &str, policies: &str) {
    let of_policies = dir.join("policies");
    std::fs::create_dir(&of_policies).unwrap();
    std::fs::write(of_policies.join("clinic.cedar"), policies).unwrap();
    std::fs::write(dir.join("tools.yaml"), catalogue).unwrap();
    std::fs::write(dir.join("wardgate.yaml"), settings).unwrap();
}
