//! The part of the script about servers and clients that do what they should not, and about what streams through.

use std::collections::BTreeSet;
use std::io::{BufReader, Read, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;

use super::script::Player;
use super::stranger::{GROUP, LARGE, Stranger};
use crate::real::http::Response;
use crate::real::servers::Server;

pub(super) const NAMES: [&str; 3] = [TRUST, CONDUCT, STREAMS];
const TRUST: &str = "certificates of a server that is not to be trusted, and of one that is";
const CONDUCT: &str = "a server that misbehaves, and a client that lies";
const STREAMS: &str = "what streams through";

/// How long an answer may take that was limited to two seconds.
const PROMPT: Duration = Duration::from_secs(20);

/// How much memory of its own a server may take for answers that nobody reads: sockets have their buffers, and Go's collector has
/// its own time.
const MOST_KIB: u64 = 128 << 10;

impl Player<'_> {
    pub(super) fn attacks(&mut self, server: &Server) -> Result<()> {
        self.transcript.begin(TRUST.to_owned());
        let other = Stranger::start("other.strange.svc")?;
        let stranger = Stranger::start("api.strange.svc")?;
        self.say("create namespace strange")?;
        let service = "apiVersion: v1\nkind: Service\nmetadata: {name: api}\nspec: {type: ExternalName, externalName: localhost}\n";
        self.say_given("create -n strange -f -", Some(service))?;
        let object = format!(
            "apiVersion: apiregistration.k8s.io/v1\nkind: APIService\nmetadata: {{name: v1.{GROUP}}}\nspec:\n  group: {GROUP}\n  \
             version: v1\n  groupPriorityMinimum: 100\n  versionPriority: 1\n  \
             service: {{name: api, namespace: strange, port: {}}}\n  caBundle: {}\n",
            other.port, other.authority
        );
        self.say_given("create -f -", Some(&object))?;
        self.refused("x509: certificate is valid for other.strange.svc, not api.strange.svc")?;
        self.answered("its certificate is for another host", "echo")?;
        drop(other);
        let port = stranger.port;
        self.change(&json!({"service": {"port": port}, "caBundle": null, "insecureSkipTLSVerify": true}))?;
        self.trusted("Passed")?;
        self.answered("anybody's certificate is good enough", "echo")?;
        let foreign = Stranger::start("api.strange.svc")?.authority.clone();
        self.change(&json!({"insecureSkipTLSVerify": null, "caBundle": foreign}))?;
        self.refused("x509: certificate signed by unknown authority")?;
        self.answered("its authority is another one", "echo")?;
        self.change(&json!({"caBundle": stranger.leaf}))?;
        self.trusted("Passed")?;
        self.answered("the bundle is its certificate itself", "echo")?;
        self.change(&json!({"caBundle": stranger.authority}))?;
        self.conduct(server)?;
        self.streams(stranger)?;
        self.say(&format!("delete apiservice v1.{GROUP}"))?;
        self.say("delete namespace strange --wait=false")
    }

    fn change(&mut self, spec: &serde_json::Value) -> Result<()> {
        let patch = json!({"spec": spec});
        self.kubectl.ok(&format!("patch apiservice v1.{GROUP} --type=merge -p '{patch}'"))?;
        Ok(())
    }

    /// Waits until the APIService says why its server is not trusted. Go may say more, which is no step.
    fn refused(&mut self, why: &str) -> Result<()> {
        self.until(
            &format!("get apiservice v1.{GROUP} -o jsonpath='{{.status.conditions[0].message}}'"),
            why,
        )?;
        self.transcript.keep_last(why);
        self.trusted("FailedDiscoveryCheck")
    }

    /// Waits until the APIService has this reason.
    fn trusted(&mut self, reason: &str) -> Result<()> {
        let path = "{.status.conditions[0].status}|{.status.conditions[0].reason}";
        self.until(&format!("get apiservice v1.{GROUP} -o jsonpath='{path}'"), reason)
    }

    fn things(name: &str) -> String {
        format!("/apis/{GROUP}/v1/namespaces/default/things{name}")
    }

    /// How an object is answered: code and text, but for who asks.
    fn answered(&mut self, step: &str, name: &str) -> Result<()> {
        let response = self.client.get(&Self::things(&format!("/{name}")))?;
        let status = response.status;
        let text = if name == "echo" && status == 200 { "heard".to_owned() } else { response.text()? };
        self.transcript.step(step, format!("{status} {text}"));
        Ok(())
    }

    fn conduct(&mut self, server: &Server) -> Result<()> {
        self.transcript.begin(CONDUCT.to_owned());
        let liar = self.client.clone().with_headers(
            "X-Remote-User: root\r\nX-Remote-Group: system:masters\r\nX-Remote-Uid: 0\r\nX-Remote-Extra-Scopes: all",
        );
        let text = liar.get(&Self::things("/echo"))?.text()?;
        ensure!(!text.contains("root"), "a client says who it is: {text}");
        let said: Vec<String> = serde_json::from_str(&text)?;
        // Administrators have other names there, and kube-apiserver also tells which certificate they have.
        let names: BTreeSet<&str> = said
            .iter()
            .filter_map(|line| line.split(':').next())
            .filter(|name| !name.ends_with("credential-id"))
            .collect();
        self.transcript.step("a client says that it is somebody else", format!("{names:?}"));
        self.answered("a redirect", "redirect")?;
        self.answered("two lengths", "two-lengths")?;
        self.answered("a switch of protocols that nobody asked for", "switches")?;
        // The words are those of each server's library: the code counts, and how they begin.
        for name in ["garbage", "hangs-up", "endless-head"] {
            self.answered(name, name)?;
            self.transcript.shorten_last("503 error trying to reach service: ".len());
        }
        for name in ["nothing", "drips"] {
            let begun = Instant::now();
            let status = self.client.get(&Self::things(&format!("/{name}?timeout=2s")))?.status;
            ensure!(begun.elapsed() < PROMPT, "{name} takes {:?}", begun.elapsed());
            ensure!(matches!(status, 503 | 504), "{name} is answered with {status}");
        }
        // Some servers hand on what there is, others nothing.
        let broken = self.client.get(&Self::things("/breaks-off")).and_then(Response::text);
        ensure!(broken.is_err(), "an answer that breaks off is taken for a whole one: {broken:?}");
        let before = server.own()?;
        let unread: Vec<Response> =
            (0..20).map(|_| self.client.get(&Self::things("/endless"))).collect::<Result<_>>()?;
        std::thread::sleep(Duration::from_secs(2));
        let grown = server.own()?.saturating_sub(before);
        ensure!(grown < MOST_KIB, "20 answers that nobody reads take {grown} KiB");
        drop(unread);
        self.answered("and afterwards", "echo")
    }

    fn streams(&mut self, stranger: Stranger) -> Result<()> {
        self.transcript.begin(STREAMS.to_owned());
        let down = self.client.get(&Self::things("/download"))?.text()?.len();
        ensure!(down == LARGE, "{down} of {LARGE} bytes come down");
        self.upload()?;
        self.exec()?;
        let mut watch = self.client.get(&Self::things("?watch=true"))?;
        for number in 0..3 {
            let event = watch.event()?;
            self.transcript.step(&format!("event {number}"), event.to_string());
        }
        drop(stranger);
        let begun = Instant::now();
        while watch.event().is_ok() {
            if begun.elapsed() > PROMPT {
                bail!("a watch goes on when its server is gone");
            }
        }
        self.trusted("FailedDiscoveryCheck")?;
        self.answered("its server is gone", "echo")
    }

    fn upload(&mut self) -> Result<()> {
        let mut stream = self.client.connect()?;
        let path = Self::things("/upload");
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {LARGE}\r\nconnection: close\r\n\r\n"
        )?;
        for _ in 0..LARGE >> 16 {
            stream.write_all(&[b'x'; 1 << 16])?;
        }
        stream.flush()?;
        let answer = Response::read(BufReader::new(stream))?;
        let status = answer.status;
        let text = format!("{status} {}", answer.text()?);
        self.transcript.step("a large body goes up", text);
        Ok(())
    }

    fn exec(&mut self) -> Result<()> {
        let mut stream = self.client.connect()?;
        let path = Self::things("/exec");
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nhost: x\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\ncontent-length: 0\r\n\r\n"
        )?;
        stream.flush()?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).context("an upgrade is answered")?;
            head.extend(byte);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let first = head.lines().next().unwrap_or_default().to_owned();
        ensure!(head.to_lowercase().contains("upgrade: spdy/3.1"), "{head}");
        self.transcript.step("an upgrade", first);
        let mut heard = [0; 5];
        for word in [b"hello", b"there"] {
            stream.write_all(word)?;
            stream.flush()?;
            stream.read_exact(&mut heard).context("a tunnel goes both ways")?;
            self.transcript.step("through the tunnel", String::from_utf8_lossy(&heard).into_owned());
        }
        Ok(())
    }
}
