//! `setpoint demo` as somebody runs it who has just cloned the repository.

use std::process::Command;
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
    for words in ["Everything came to what was wanted.", "delete: nothing is left of it", " requests ("] {
        assert!(text.contains(words), "{words:?} is missing:\n{text}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert!(left.is_empty(), "nothing is left behind: {left:?}");
}
