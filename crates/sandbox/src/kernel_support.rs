//! What the kernel can enforce on programs.

use std::fmt;
use std::sync::Once;

use tracing::info;

#[cfg(target_os = "linux")]
use super::landlock_rules;

/// The restrictions that this kernel's Landlock can enforce on a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelSupport {
    /// Whether access to files can be restricted.
    pub files: bool,
    /// Whether TCP can be blocked.
    pub network: bool,
    /// Whether signals can be restricted to the program's own processes.
    pub signals: bool,
}

impl KernelSupport {
    /// Queries the kernel.
    pub fn probe() -> Self {
        #[cfg(target_os = "linux")]
        {
            Self {
                files: landlock_rules::can_restrict_files(),
                network: landlock_rules::can_restrict_network(),
                signals: landlock_rules::can_restrict_signals(),
            }
        }
        #[cfg(not(target_os = "linux"))]
        {
            Self {
                files: false,
                network: false,
                signals: false,
            }
        }
    }

    /// Logs what this kernel enforces, once per process.
    pub fn log() {
        static SAID: Once = Once::new();
        SAID.call_once(|| {
            info!(
                "the restrictions for programs of tools on this kernel are {}",
                Self::probe()
            );
        });
    }
}

impl fmt::Display for KernelSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.files {
            return f
                .write_str("limits and no new privileges; Landlock sandboxes are not supported");
        }
        f.write_str("limits, no new privileges and Landlock sandboxes")?;
        let yes = |held| if held { "yes" } else { "no" };
        write!(
            f,
            " (TCP: {}, signals: {})",
            yes(self.network),
            yes(self.signals)
        )
    }
}
