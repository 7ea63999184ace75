//! Quantities, times, durations and schedules: the canonical form of a text is its own canonical form and means the same.
//!
//! The first byte says which: `q` a quantity, `t` a time, `u` a time in microseconds, `c` a schedule, `z` a time zone, `p` a
//! number or a percentage, `n` a label's name, `v` its value.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};
use setpoint_fuzz::{JSON, Lab, start};
use setpoint_kinds::{canonical_quantity, conform, quantity_nanos, table};

fuzz_target!(|data: &[u8]| start(data, case));

fn case(lab: &Lab, input: &[u8]) {
    let Some((&what, rest)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match what {
        b'q' => quantity(text),
        b't' => time("apps.v1.DeploymentCondition", "lastUpdateTime", text),
        b'u' => time("coordination.v1.LeaseSpec", "renewTime", text),
        b'c' | b'z' => {
            let (schedule, zone) = if what == b'c' { (text, json!(null)) } else { ("@daily", json!(text)) };
            let job = json!({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}});
            let spec = json!({"schedule": schedule, "timeZone": zone, "jobTemplate": {"spec": job}});
            create(lab, "/apis/batch/v1/namespaces/default/cronjobs", &json!({"spec": spec}));
        }
        b'p' => {
            let spec = json!({"minAvailable": text, "selector": {"matchLabels": {"a": "b"}}});
            create(lab, "/apis/policy/v1/namespaces/default/poddisruptionbudgets", &json!({"spec": spec}));
        }
        b'n' => create(
            lab,
            "/api/v1/namespaces/default/configmaps",
            &json!({"metadata": {"labels": {text: "a"}, "annotations": {text: "a"}}}),
        ),
        b'v' => create(
            lab,
            "/api/v1/namespaces/default/configmaps",
            &json!({"metadata": {"labels": {"a": text}}}),
        ),
        _ => {}
    }
}

fn quantity(text: &str) {
    let (canonical, nanos) = (canonical_quantity(text), quantity_nanos(text));
    assert_eq!(canonical.is_ok(), nanos.is_ok(), "{text}");
    let Ok(canonical) = canonical else { return };
    let canonical = canonical.unwrap_or_else(|| text.to_owned());
    let again = canonical_quantity(&canonical).expect("what is canonical is a quantity");
    assert_eq!(again.unwrap_or_else(|| canonical.clone()), canonical, "{text}");
    // Go has no suffix for 10^21 and more, and leaves it out.
    if nanos.is_ok_and(|nanos| nanos.unsigned_abs() < 10u128.pow(30)) {
        assert_eq!(quantity_nanos(&canonical), nanos, "{text} is {canonical}");
    }
}

/// A time as kube-apiserver would have it after decoding it.
fn time(ty: &str, field: &str, text: &str) {
    let ty = table().type_named(ty).expect("the table has it");
    let mut value = json!({ field: text });
    if conform(ty, &mut value, &mut Vec::new()).is_ok() {
        if value[field].is_null() {
            // Go's zero, which it writes as null and reads as nothing.
            return;
        }
        let before = value.clone();
        conform(ty, &mut value, &mut Vec::new()).expect("what is canonical is a time");
        assert_eq!(before, value, "{text}");
    }
}

fn create(lab: &Lab, path: &str, object: &Value) {
    let mut object = object.clone();
    object["metadata"]["name"] = json!("a");
    let answer = lab.block_on(async {
        let api = lab.shared();
        api.call("POST", &format!("{path}?dryRun=All"), JSON, object.to_string()).await
    });
    assert!(matches!(answer.code, 201 | 400 | 422), "{}", answer.json());
}
