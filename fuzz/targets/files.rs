//! Files that a user writes by hand: audit policies, token files, kubeconfigs. They are read, or refused with words that name
//! no secret.
//!
//! The first byte says which: `a` an audit policy, `t` a token file, `k` a kubeconfig, `s` a kubeconfig where the server
//! would put its own.

#![no_main]

use libfuzzer_sys::fuzz_target;
use setpoint::ClientConfig;
use setpoint_apiserver::audit::Policy;
use setpoint_apiserver::{TokenFile, kubeconfig};
use setpoint_fuzz::{Lab, start};

fuzz_target!(|data: &[u8]| start(data, case));

fn case(lab: &Lab, input: &[u8]) {
    let Some((&what, rest)) = input.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    match what {
        b'a' => {
            if let Err(error) = Policy::parse(&text) {
                assert!(!error.to_string().is_empty());
            }
        }
        b't' => tokens(&text),
        b'k' | b's' => {
            let file =
                tempfile::NamedTempFile::new_in("/dev/shm").or_else(|_| tempfile::NamedTempFile::new());
            let file = file.expect("a file can be made");
            std::fs::write(file.path(), rest).expect("there is room");
            if what == b's' {
                let is_removed = kubeconfig::remove_stale(file.path()).is_ok();
                assert_eq!(file.path().exists(), !is_removed, "what is not ours stays");
                return;
            }
            let found = lab.block_on(ClientConfig::new().kubeconfig(file.path()).find());
            if let Err(error) = found {
                assert!(!error.to_string().is_empty());
            }
        }
        _ => {}
    }
}

/// A file that is good stays good without its last line, and an error names a line that there is.
fn tokens(text: &str) {
    match TokenFile::parse(text) {
        Ok(_) => {
            let shorter = text.trim_end_matches('\n').rsplit_once('\n').map_or("", |(before, _)| before);
            TokenFile::parse(shorter).expect("each line is for itself");
        }
        Err(error) => {
            let words = error.to_string();
            let named = (1..=text.lines().count()).any(|line| words.contains(&format!("line {line}")));
            assert!(named, "{words}");
        }
    }
}
