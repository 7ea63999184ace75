//! A store whose bytes have changed: it opens and has what was stored, or says why not. No panic, no object that is another
//! one, and none that is missing but the last one written.
//!
//! The input is a sequence of changes: four bytes for the place, one for how, one for the byte.

#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use setpoint_apiserver::{ApiServer, store};
use setpoint_fuzz::{Api, JSON, Lab, start};
use tokio::runtime::{Builder, Runtime};

fuzz_target!(|data: &[u8]| start(data, case));

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const COUNT: usize = 40;

/// A store, and what is in it.
struct Original {
    runtime: Runtime,
    file: Vec<u8>,
    backup: Vec<u8>,
    objects: Vec<Value>,
}

fn case(_: &Lab, input: &[u8]) {
    static ORIGINAL: OnceLock<Original> = OnceLock::new();
    let original = ORIGINAL.get_or_init(original);
    let Some((&what, changes)) = input.split_first() else { return };
    let source = if what == b'b' { &original.backup } else { &original.file };
    let mut bytes = source.clone();
    for change in changes.chunks_exact(6) {
        let place = u32::from_le_bytes([change[0], change[1], change[2], change[3]]) as usize;
        let Some(at) = place.checked_rem(bytes.len()) else { break };
        match change[4] % 8 {
            0 => bytes.truncate(at),
            1 => bytes[at] = change[5],
            // The header, which has no checksum of its own, is hit more often.
            2 | 3 => {
                let at = at % bytes.len().min(320);
                bytes[at] ^= change[5];
            }
            4 => bytes.extend(std::iter::repeat_n(change[5], at % 8192)),
            5 => {
                let page = at / 4096 * 4096;
                let end = bytes.len().min(page + 4096);
                bytes[page..end].fill(change[5]);
            }
            _ => bytes[at] ^= change[5],
        }
    }
    if bytes == *source {
        return;
    }
    let folder = folder();
    if what == b'b' {
        let file = folder.path().join("backup");
        std::fs::write(&file, &bytes).expect("there is room");
        let error = store::verify(&file).expect_err("a backup has a checksum");
        assert!(!error.to_string().is_empty());
        return;
    }
    std::fs::write(folder.path().join("objects.redb"), &bytes).expect("there is room");
    original.runtime.block_on(check(original, folder.path()));
}

async fn check(original: &Original, folder: &Path) {
    let server = match ApiServer::builder().open(folder).await {
        Ok(server) => server,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let list = Api::of(&server).get(MAPS).await.ok();
    let found = list["items"].as_array().expect("a list has items");
    let missing = original.objects.iter().filter(|object| !found.contains(object)).count();
    assert!(missing <= 1, "{missing} objects are missing, and nobody says so");
    assert!(found.iter().all(|object| original.objects.contains(object)), "an object is not what was stored");
    server.close().await;
}

fn original() -> Original {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime can be built");
    let folder = folder();
    let (objects, backup) = runtime.block_on(async {
        let server = ApiServer::builder().open(folder.path()).await.expect("a new store can be made");
        let api = Api::of(&server);
        for n in 0..COUNT {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("m{n:02}")}, "data": {"k": "v".repeat(n * 50)}});
            api.call("POST", MAPS, JSON, map.to_string()).await.ok();
        }
        let list = api.get(MAPS).await.ok();
        let backup: Vec<u8> = server.backup().flat_map(Vec::from).collect();
        server.close().await;
        (list["items"].as_array().expect("a list has items").clone(), backup)
    });
    let file = std::fs::read(folder.path().join("objects.redb")).expect("it was written");
    Original { runtime, file, backup, objects }
}

/// A folder that is gone when it is dropped; in memory where that is possible.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder can be made")
}
