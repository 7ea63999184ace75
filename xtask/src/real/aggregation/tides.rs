//! The part of the script about a server in thirty lines: `examples/extension-server/examples/tides.rs`.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use super::script::{Own, Player};
use crate::real::servers::{Server, spawn};

pub(super) const NAME: &str = "a kind in thirty lines";

const TIDE: &str = "\
apiVersion: sea.example.com/v1
kind: Tide
metadata: {name: harbour}
spec: {level: 700}
";

impl Player<'_> {
    pub(super) fn tides(&mut self, own: &Own<'_>, server: &Server) -> Result<()> {
        self.transcript.begin(NAME.to_owned());
        let folder = tempfile::TempDir::new()?;
        let mut command = Command::new(own.tides);
        command.env("KUBECONFIG", server.kubeconfig());
        let running = spawn(command, folder.path(), "tides.log")?;
        let reason = "{.status.conditions[0].reason}";
        self.until(&format!("get apiservice v1.sea.example.com -o jsonpath='{reason}'"), "Passed")?;
        self.until("explain tides.spec.level", "In centimetres.")?;
        let mut watch = self.kubectl.start("get tides --watch --output-watch-events -o name")?;
        self.expect("apply -f -", Some(TIDE), "tide.sea.example.com/harbour created")?;
        self.expect("apply -f -", Some(&TIDE.replace("700", "800")), "configured")?;
        let high = TIDE.replace("700", "5000");
        self.fails("apply -f -", Some(&high), "should be less than or equal to 2000")?;
        let other = TIDE.replace("harbour", "pier");
        self.expect("apply --server-side -f -", Some(&other), "serverside-applied")?;
        self.expect("get td", None, "LEVEL")?;
        self.expect("describe tide harbour", None, "800")?;
        for _ in 0..3 {
            let line = watch.next(Duration::from_secs(30))?;
            self.transcript.step("watch tides", line);
        }
        drop(watch);
        self.expect("delete tides --all", None, "deleted")?;
        drop(running);
        self.say("delete apiservice v1.sea.example.com")?;
        self.say("delete namespace sea --wait=false")
    }
}
