//! The suite `helm`: a small chart is installed, upgraded, rolled back and uninstalled.

pub(crate) mod shapes;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::http::Client;
use super::process;
use super::report::Report;
use super::servers::Server;

pub(crate) const SUITE: &str = "helm";

/// The names of the checks, for `--list`.
pub(crate) const NAMES: [&str; 4] = ["install", "upgrade", "rollback", "uninstall"];

const CHART: &str = "apiVersion: v2\nname: small\nversion: 0.1.0\n";
const VALUES: &str = "replicas: 1\ngreeting: hello\n";
const TEMPLATE: &str = "\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  greeting: {{ .Values.greeting | quote }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
spec:
  replicas: {{ .Values.replicas }}
  selector:
    matchLabels: {app: {{ .Release.Name }}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
    spec:
      containers:
      - name: web
        image: nginx
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .Release.Name }}
spec:
  selector: {app: {{ .Release.Name }}}
  ports:
  - port: 80
";

struct Helm<'a> {
    program: &'a Path,
    kubeconfig: &'a Path,
    client: Client,
    folder: TempDir,
}

/// Runs the life of a release.
pub(crate) fn run(report: &mut Report, program: &Path, server: &Server) {
    let helm = match Helm::new(program, server) {
        Ok(helm) => helm,
        Err(error) => return report.record(SUITE, "the chart is written", Duration::ZERO, Err(error)),
    };
    let [install, upgrade, rollback, uninstall] = NAMES;
    report.check(SUITE, install, || {
        helm.run(&["install", "demo", "chart"], "STATUS: deployed")?;
        helm.expect(1, "hello")
    });
    report.check(SUITE, upgrade, || {
        let arguments = ["upgrade", "demo", "chart", "--set", "replicas=3,greeting=moin"];
        helm.run(&arguments, "REVISION: 2")?;
        helm.expect(3, "moin")
    });
    report.check(SUITE, rollback, || {
        helm.run(&["rollback", "demo", "1"], "success")?;
        helm.expect(1, "hello")?;
        helm.run(&["history", "demo"], "Rollback to 1")
    });
    report.check(SUITE, uninstall, || {
        helm.run(&["uninstall", "demo"], "uninstalled")?;
        for path in
            ["/apis/apps/v1/namespaces/default/deployments/demo", "/api/v1/namespaces/default/services/demo"]
        {
            let status = helm.client.get(path)?.status;
            ensure!(status == 404, "{path} is still there: {status}");
        }
        Ok(())
    });
}

impl<'a> Helm<'a> {
    fn new(program: &'a Path, server: &'a Server) -> Result<Self> {
        let folder = TempDir::new()?;
        let chart = folder.path().join("chart");
        fs::create_dir_all(chart.join("templates"))?;
        fs::write(chart.join("Chart.yaml"), CHART)?;
        fs::write(chart.join("values.yaml"), VALUES)?;
        fs::write(chart.join("templates/all.yaml"), TEMPLATE)?;
        Ok(Self { program, kubeconfig: server.kubeconfig(), client: server.client()?, folder })
    }

    fn run(&self, arguments: &[&str], expect: &str) -> Result<()> {
        let mut command = Command::new(self.program);
        command.args(arguments).current_dir(self.folder.path()).env("KUBECONFIG", self.kubeconfig);
        for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(folder, self.folder.path().join(folder));
        }
        let done = process::run(command, None, Duration::from_secs(60))?;
        let text = format!("{}{}", done.stdout, done.stderr);
        ensure!(
            done.status.success() && text.to_lowercase().contains(&expect.to_lowercase()),
            "helm {arguments:?} ended with {} and said:\n{text}",
            done.status
        );
        Ok(())
    }

    /// What the chart has made.
    fn expect(&self, replicas: i64, greeting: &str) -> Result<()> {
        let get = |path: &str| self.client.get_json(path, "application/json");
        let deployment: Value = get("/apis/apps/v1/namespaces/default/deployments/demo")?;
        ensure!(deployment["spec"]["replicas"] == replicas, "replicas: {}", deployment["spec"]["replicas"]);
        let map = get("/api/v1/namespaces/default/configmaps/demo")?;
        ensure!(map["data"]["greeting"] == greeting, "{}", map["data"]);
        get("/api/v1/namespaces/default/services/demo").map(drop)
    }
}
