//! The five services as separate processes, linked by mTLS.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};

use tempfile::TempDir;

use crate::app::{base_url, probes_url};
use crate::{Client, ProcessExit, System, WardgateProcess, run};

/// The hospital demo as the example `deploy/examples/separate` runs it.
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
    /// The names of the four services behind the gateway and the addresses of their probes and metrics.
    probes: Vec<(String, String)>,
}

impl SeparateProcesses {
    /// Starts the five processes, each on a port of its own.
    pub async fn start(binary: &str, repository: &Path) -> Self {
        Self::start_with(binary, repository, &[]).await
    }

    /// Starts the five processes with these environment variables.
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

    /// Restarts the service with this subcommand, on the same port and with the same files.
    pub fn restart(&mut self, name: &str) {
        let place = match name {
            "policy" => &mut self.policy,
            "tool-runner" => &mut self.tool_runner,
            "audit" => &mut self.audit,
            "memory" => &mut self.memory,
            "gateway" => &mut self.gateway,
            _ => panic!("no service is called {name}"),
        };
        // The old process must have ended before the new one binds its port.
        place.kill();
        *place = service(&self.binary, self.dir.path(), &self.environment, name);
        // Connections to the old gateway are closed.
        self.client = Client::new(&base_url(&self.gateway));
    }

    /// Returns all five processes, the gateway first. They are stopped in this order because each still writes to those
    /// after it.
    pub fn processes(&mut self) -> [&mut WardgateProcess; 5] {
        [
            &mut self.gateway,
            &mut self.tool_runner,
            &mut self.memory,
            &mut self.policy,
            &mut self.audit,
        ]
    }

    /// Returns a client for the probes and metrics of each of the five processes.
    pub fn all_probes(&self) -> Vec<Client> {
        let behind = self.probes.iter();
        let behind = behind.map(|(_, at)| Client::new(&format!("http://{at}")));
        behind.chain([self.probes()]).collect()
    }

    /// Returns the path of the configuration file of all five processes.
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

    /// Runs `audit` with the configuration and the environment, which name the store of the records.
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

/// Creates the certificates and keys as the comment in the example describes, and the database that `wardgate up` creates.
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

/// Copies the example and replaces its ports by free ports.
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

/// Returns a free port below the range of ephemeral ports, so that it is still free when a killed server is restarted
/// on it. Each test process begins with a different port.
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
