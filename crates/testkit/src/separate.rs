//! The five services as five processes, linked by mTLS.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

use tempfile::TempDir;

use crate::app::{base_url, probes_url};
use crate::{Client, ProcessExit, System, WardgateProcess, run};

/// The hospital demo as the shipped example `deploy/examples/separate` runs it.
#[derive(Debug)]
pub struct SeparateProcesses {
    binary: PathBuf,
    dir: TempDir,
    environment: Vec<(String, String)>,
    /// The policy service.
    pub policy: WardgateProcess,
    /// The tool-runner.
    pub tool_runner: WardgateProcess,
    /// The audit service.
    pub audit: WardgateProcess,
    /// The memory service.
    pub memory: WardgateProcess,
    /// The gateway.
    pub gateway: WardgateProcess,
    client: Client,
    /// Where probes and metrics of the four behind the gateway are.
    probes: Vec<(String, String)>,
}

impl SeparateProcesses {
    /// Starts the five processes, each on a port of its own.
    pub async fn start(binary: &str, repository: &Path) -> Self {
        Self::start_with(binary, repository, &[]).await
    }

    /// The same, with environment variables.
    pub async fn start_with(binary: &str, repository: &Path, environment: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        copy_example(repository, dir.path());
        let binary = PathBuf::from(binary);
        make_data(&binary, &dir.path().join("separate/data"));
        let database = format!(
            "sqlite:{}/separate/data/hospital.sqlite",
            dir.path().display()
        );
        let probes = ["TOOL_RUNNER", "MEMORY", "POLICY", "AUDIT"].map(|name| {
            let at = format!("127.0.0.1:{}", free_port());
            (format!("WARDGATE_{name}__PROBES"), at)
        });
        let environment: Vec<(String, String)> = [("HOSPITAL_DB_URL", database.as_str())]
            .iter()
            .chain(environment)
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .chain(probes.clone())
            .collect();
        let start = |name| service(&binary, dir.path(), &environment, name);
        let (policy, tool_runner, audit) = (start("policy"), start("tool-runner"), start("audit"));
        let memory = start("memory");
        let gateway = start("gateway");
        let client = Client::new(&base_url(&gateway));
        let separate = Self {
            binary,
            dir,
            environment,
            policy,
            tool_runner,
            audit,
            memory,
            gateway,
            client,
            probes: probes.into(),
        };
        separate.until_ready(true).await;
        separate
    }

    /// Starts a service again, by its subcommand, with the port and the files it had.
    pub fn restart(&mut self, name: &str) {
        let place = match name {
            "policy" => &mut self.policy,
            "tool-runner" => &mut self.tool_runner,
            "audit" => &mut self.audit,
            "memory" => &mut self.memory,
            "gateway" => &mut self.gateway,
            _ => panic!("no service is called {name}"),
        };
        // The old one must be gone before the new one takes its port.
        place.kill();
        *place = service(&self.binary, self.dir.path(), &self.environment, name);
        // Connections to the old gateway are dead.
        self.client = Client::new(&base_url(&self.gateway));
    }

    /// All five, the gateway first: so they end, since each still writes to those behind it.
    pub fn processes(&mut self) -> [&mut WardgateProcess; 5] {
        [
            &mut self.gateway,
            &mut self.tool_runner,
            &mut self.memory,
            &mut self.policy,
            &mut self.audit,
        ]
    }

    /// Clients of the addresses where probes and metrics of all five are.
    pub fn all_probes(&self) -> Vec<Client> {
        let behind = self.probes.iter();
        let behind = behind.map(|(_, at)| Client::new(&format!("http://{at}")));
        behind.chain([self.probes()]).collect()
    }

    /// The configuration file of all five.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("separate/wardgate.yaml")
    }
}

impl System for SeparateProcesses {
    fn binary(&self) -> &Path {
        &self.binary
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("separate/data")
    }

    fn example_dir(&self) -> PathBuf {
        self.dir.path().join("hospital")
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn probes(&self) -> Client {
        Client::new(&probes_url(&self.gateway))
    }

    /// The record is where the configuration and the environment say.
    fn audit(&self, arguments: &[&str]) -> ProcessExit {
        let config = self.config().display().to_string();
        let arguments = [&["audit"], arguments, &["--config", &config]].concat();
        run(&self.binary, &arguments, &lent(&self.environment))
    }
}

fn lent(environment: &[(String, String)]) -> Vec<(&str, &str)> {
    let pairs = environment.iter();
    pairs.map(|(name, value)| (&**name, &**value)).collect()
}

fn service(
    binary: &Path,
    dir: &Path,
    environment: &[(String, String)],
    name: &str,
) -> WardgateProcess {
    let config = dir.join("separate/wardgate.yaml").display().to_string();
    WardgateProcess::start(binary, &[name, "--config", &config], &lent(environment))
}

/// Certificates and keys as the example's own comment says, and the database that `wardgate up` makes.
fn make_data(binary: &Path, data: &Path) {
    let dir = data.display().to_string();
    let mut up = WardgateProcess::start(
        binary,
        &["up", "--data-dir", &dir, "--listen", "127.0.0.1:0"],
        &[],
    );
    assert!(up.terminate().success(), "{}", up.log());
    run(binary, &["certs", "dev", "--data-dir", &dir], &[]).success();
}

/// Copies the example with free ports in the place of its own.
fn copy_example(repository: &Path, dir: &Path) {
    let examples = repository.join("deploy/examples");
    let config = examples.join("separate/wardgate.yaml");
    let mut text = std::fs::read_to_string(config).expect("the example");
    for port in ["8080", "7001", "7002", "7003", "7004"] {
        text = text.replace(
            &format!("127.0.0.1:{port}"),
            &format!("127.0.0.1:{}", free_port()),
        );
    }
    std::fs::create_dir_all(dir.join("separate/data")).expect("a directory");
    std::fs::write(dir.join("separate/wardgate.yaml"), text).expect("a file");
    let copied = std::process::Command::new("cp")
        .arg("-r")
        .arg(examples.join("hospital"))
        .arg(dir)
        .status();
    assert!(
        copied.is_ok_and(|status| status.success()),
        "the example could not be copied"
    );
}

/// A port below those the system gives to outgoing connections, so that it is still free when a killed
/// server comes back to it; each test process begins elsewhere.
pub fn free_port() -> u16 {
    const FIRST: u16 = 20_000;
    const COUNT: u16 = 12_000;
    static TAKEN: AtomicU16 = AtomicU16::new(0);
    let begin = u16::try_from(std::process::id() % u32::from(COUNT)).expect("less than COUNT");
    loop {
        let taken = TAKEN.fetch_add(1, Ordering::Relaxed);
        let port = FIRST + (begin + taken % COUNT) % COUNT;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
