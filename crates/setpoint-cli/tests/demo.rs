//! `setpoint demo` as somebody runs it who has just cloned the repository.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use setpoint_env::Env;

#[test]
fn the_demo_converges_in_time_and_writes_plain_lines_into_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let started = env.instant();
    let output = Command::new(env!("CARGO_BIN_EXE_setpoint"))
        .arg("demo")
        .current_dir(folder.path())
        .env("TMPDIR", folder.path())
        .output()
        .expect("it starts");
    let took = env.instant() - started;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert!(!text.contains('\x1b') && !text.contains('\r'), "a pipe gets no escape codes");
    let mut stages =
        ["object", "reflector", "queue", "reconcile", "deployment", "replica set", "pod", "status"].iter();
    let first_step = text.split("\n2. ").next().unwrap();
    let mut position = 0;
    assert!(
        stages.all(|stage| {
            let found = first_step[position..].find(&format!("  {stage}  "));
            position += found.unwrap_or(0);
            found.is_some()
        }),
        "the path is shown in its order:\n{first_step}"
    );
    for words in ["All steps converged.", "delete: nothing is left", " requests ("] {
        assert!(text.contains(words), "{words:?} is missing:\n{text}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "nothing is left behind: {left:?}");
}

/// Asks the page of a demo.
fn ask(address: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_demo_on_a_page_can_be_played_with_and_ends_when_it_is_told_to() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_setpoint"))
        .args(["demo", "--web", ":0"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let lines = BufReader::new(demo.stdout.take().unwrap()).lines().map(Result::unwrap);
    let url = lines.map(|line| line.trim().to_owned()).find(|line| line.starts_with("http://")).unwrap();
    let address = url.trim_start_matches("http://").trim_end_matches('/');
    assert!(ask(address, "GET /", "").contains("<title>Setpoint: the loop</title>"));
    assert!(ask(address, "GET /api/state", "").contains("\"queue\":\"foo\""));
    let said = ask(address, "POST /api/play", r#"{"act": "crash"}"#);
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
    let said = ask(address, "POST /api/play", r#"{"act": "scale", "value": 2}"#);
    assert!(said.contains("wants 2 replicas now"), "{said}");
    assert!(ask(address, "GET /api/state", "").contains("\"rate\":1.0"));
    let said = ask(address, "POST /api/play", r#"{"act": "skip"}"#);
    assert!(said.contains("the controller begins to reconcile default/example-foo"), "{said}");
    // It ends though its time stands still.
    let said = ask(address, "POST /api/play", r#"{"act": "pause"}"#);
    assert!(said.contains("Time stands still"), "{said}");
    assert!(ask(address, "GET /api/state", "").contains("\"rate\":0.0"));
    let id = demo.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert!(demo.wait().unwrap().success());
}
