//! A real Neutron on loopback, from PyPI, over SQLite.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::real::http::Client;
use crate::real::process::{self, Running, poll};
use crate::real::servers::free_port;

const VERSION: &str = "29.0.0";
const CONSTRAINTS: &str = include_str!("../../../neutron/constraints.txt");
const CONF: &str = include_str!("../../../neutron/neutron.conf");
const INITDB: &str = include_str!("../../../neutron/initdb.py");
const APP: &str = include_str!("../../../neutron/app.py");

const INSTALL_LIMIT: Duration = Duration::from_secs(900);
const START_LIMIT: Duration = Duration::from_secs(90);

pub(crate) struct Neutron {
    venv: PathBuf,
    folder: TempDir,
    port: u16,
    running: Option<Running>,
}

impl Neutron {
    /// Installs it if it is not there, and starts it over an empty database.
    pub(crate) fn start(cache: &Path, may_install: bool) -> Result<Neutron> {
        let venv = cache.join(format!("neutron-{VERSION}")).join("venv");
        if !venv.join("bin/gunicorn").exists() {
            ensure!(may_install, "Neutron is not installed, and building is off");
            install(&venv)?;
        }
        let folder = TempDir::new()?;
        let home = folder.path();
        for name in ["state", "lock", "tmp"] {
            fs::create_dir(home.join(name))?;
        }
        let paste = venv.join("etc/neutron/api-paste.ini");
        let conf = CONF.replace("{home}", &home.display().to_string());
        fs::write(home.join("neutron.conf"), conf.replace("{paste}", &paste.display().to_string()))?;
        fs::write(home.join("initdb.py"), INITDB)?;
        fs::write(home.join("app.py"), APP)?;
        let mut initdb = Command::new(venv.join("bin/python"));
        initdb.args(["-W", "ignore", "initdb.py", "--config-file", "neutron.conf"]).current_dir(home);
        let made = process::run(initdb, None, START_LIMIT)?;
        ensure!(made.status.success(), "no database for Neutron: {}", made.stderr);
        let mut neutron = Neutron { venv, folder, port: free_port()?, running: None };
        neutron.resume()?;
        Ok(neutron)
    }

    /// Starts it again over the database that it has.
    pub(crate) fn resume(&mut self) -> Result<()> {
        let home = self.folder.path();
        let log = File::create(home.join("server.log"))?;
        let mut command = Command::new(self.venv.join("bin/gunicorn"));
        command
            // One worker and one thread: SQLite knows one writer.
            .args(["-k", "gthread", "--workers", "1", "--threads", "1", "--timeout", "120"])
            .args(["--graceful-timeout", "5", "-b", &format!("127.0.0.1:{}", self.port), "app:application"])
            .current_dir(home)
            .env("OS_NEUTRON_CONFIG_DIR", home)
            .env("OS_NEUTRON_CONFIG_FILES", "neutron.conf")
            .env("TMPDIR", home.join("tmp"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        self.running = Some(Running::start(&mut command)?);
        let client = Client::plain(&format!("127.0.0.1:{}", self.port));
        let ready = poll(START_LIMIT, || {
            let answer = client.get("/v2.0/networks?limit=1");
            Ok(answer.ok().filter(|response| response.status == 200).map(drop))
        })?;
        if ready.is_none() {
            bail!("Neutron does not start: {}", fs::read_to_string(home.join("server.log"))?);
        }
        Ok(())
    }

    /// Stops it; what it has stored stays.
    pub(crate) fn stop(&mut self) -> Result<()> {
        let running = self.running.take().context("Neutron does not run")?;
        running.terminate(Duration::from_secs(30)).map(drop)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let client = Client::plain(&format!("127.0.0.1:{}", self.port));
        let response = client.send(method, &format!("/v2.0/{path}"), "application/json", body)?;
        let status = response.status;
        let text = response.text()?;
        Ok((status, serde_json::from_str(&text).unwrap_or(Value::Null)))
    }

    pub(crate) fn networks(&self) -> Result<Vec<Value>> {
        let (_, page) = self.ask("GET", "networks", None)?;
        page["networks"].as_array().cloned().context("Neutron sends no list")
    }

    pub(crate) fn subnets(&self) -> Result<Vec<Value>> {
        let (_, page) = self.ask("GET", "subnets", None)?;
        page["subnets"].as_array().cloned().context("Neutron sends no list")
    }

    /// Somebody edits a network or a subnet by hand.
    pub(crate) fn edit(&self, kind: &str, id: &Value, changes: Value) -> Result<()> {
        let id = id.as_str().context("no id")?;
        let (status, answer) = self.ask("PUT", &format!("{kind}s/{id}"), Some(&json!({kind: changes})))?;
        ensure!(status == 200, "{status} {answer}");
        Ok(())
    }

    pub(crate) fn delete(&self, kind: &str, id: &Value) -> Result<()> {
        let id = id.as_str().context("no id")?;
        let (status, answer) = self.ask("DELETE", &format!("{kind}s/{id}"), None)?;
        ensure!(status == 204, "{status} {answer}");
        Ok(())
    }

    pub(crate) fn create_subnet(&self, network: &Value, cidr: &str) -> Result<()> {
        let body = json!({"subnet": {"network_id": network, "ip_version": 4, "cidr": cidr}});
        let (status, answer) = self.ask("POST", "subnets", Some(&body))?;
        ensure!(status == 201, "{status} {answer}");
        Ok(())
    }
}

fn install(venv: &Path) -> Result<()> {
    let home = venv.parent().context("no folder")?;
    fs::create_dir_all(home)?;
    println!("      installing Neutron {VERSION} …");
    let constraints = home.join("constraints.txt");
    fs::write(&constraints, CONSTRAINTS)?;
    let run = |command: Command| -> Result<()> {
        let done = process::run(command, None, INSTALL_LIMIT)?;
        ensure!(done.status.success(), "Neutron cannot be installed: {}", done.stderr.trim());
        Ok(())
    };
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(venv);
    run(make)?;
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "-q", "-c"]).arg(&constraints);
    pip.arg(format!("neutron=={VERSION}")).arg("gunicorn");
    run(pip)
}
