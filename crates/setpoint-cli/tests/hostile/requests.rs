//! Requests as nobody decent sends them, made from a number. Also what `cargo xtask load hostile` sends.

mod numbers;
mod patches;
mod subresources;

use std::fmt::Write as _;

pub(crate) use self::subresources::{prepared, trespass};

/// Where the hostile user may do something: it can edit this namespace.
const NAMESPACE: &str = "hostile";

/// How many kinds of requests there are.
pub(crate) const KINDS: usize = OLDER + subresources::KINDS + patches::KINDS + numbers::KINDS;
/// Those in this file.
const OLDER: usize = 58;

/// Whether it applies a value of the wrong type, which kube-apiserver answers with 500, too.
#[allow(dead_code, reason = "`cargo xtask load hostile` looks at panics instead")]
pub(crate) fn is_mistyped(n: usize) -> bool {
    n % KINDS == OLDER + subresources::KINDS + patches::MISTYPED
}

/// A request of one of the other files.
struct Attack {
    method: &'static str,
    path: String,
    media: &'static str,
    body: String,
}

impl Attack {
    fn json(method: &'static str, path: impl Into<String>, body: impl ToString) -> Attack {
        Attack { method, path: path.into(), media: "application/json", body: body.to_string() }
    }
}

/// A path in the namespace of the hostile user, whose group's root is given: `api/v1`.
fn own(root: &str, rest: &str) -> String {
    format!("/{root}/namespaces/{NAMESPACE}/{rest}")
}

/// The `n`th request of somebody with this token, as the bytes of the wire.
pub(crate) fn request(n: usize, token: &str) -> Vec<u8> {
    let own = own("api/v1", "configmaps");
    let head = |method: &str, path: &str, headers: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n{headers}\r\n"
        )
    };
    let get = |path: &str| head("GET", path, "").into_bytes();
    let send = |method: &str, path: &str, media: &str, body: &[u8]| {
        let headers = format!("Content-Type: {media}\r\nContent-Length: {}\r\n", body.len());
        [head(method, path, &headers).as_bytes(), body].concat()
    };
    let json = |body: &str| send("POST", &own, "application/json", body.as_bytes());
    let patch = |name: &str, body: &str| {
        send("PATCH", &format!("{own}/{name}"), "application/json-patch+json", body.as_bytes())
    };
    let (pods, events) = (own.replace("configmaps", "pods"), own.replace("configmaps", "events"));
    let with_token = |token: &str| {
        format!("GET /version HTTP/1.1\r\nHost: a\r\nAuthorization: {token}\r\n\r\n").into_bytes()
    };
    let attack = |attack: Attack| send(attack.method, &attack.path, attack.media, attack.body.as_bytes());
    let (kind, round) = (n % KINDS, n / KINDS);
    match kind {
        0 => vec![0xff; 300],
        1 => b"GET /\r\n\r\n".to_vec(),
        2 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        3 => head("GET", "/version", &format!("X-Long: {}\r\n", "x".repeat(200_000))).into_bytes(),
        4 => head("GET", "/version", &"X-Many: x\r\n".repeat(5_000)).into_bytes(),
        5 => get(&format!("/api/v1/{}", "x".repeat(100_000))),
        6 => get("/api/v1/namespaces/hostile/../kube-system/secrets"),
        7 => get("/api/v1/namespaces/hostile/%2e%2e/kube-system/secrets"),
        8 => get("/api/v1/namespaces/hostile%2f..%2fkube-system/secrets"),
        9 => get("//api//v1//namespaces//kube-system//secrets"),
        10 => get("/API/V1/namespaces/kube-system/secrets"),
        11 => get("/api/v1/namespaces/kube-system/secrets%00"),
        12 => get("/api/v1/namespaces/kube-system/secrets;x=/../../hostile"),
        13 => head("GET", "/version", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n").into_bytes(),
        14 => head("POST", &own, "Content-Length: 5\r\nContent-Length: 6\r\n").into_bytes(),
        15 => head("POST", &own, "Transfer-Encoding: chunked, identity\r\n").into_bytes(),
        16 => [head("POST", &own, "Transfer-Encoding: chunked\r\n").as_bytes(), b"fffffffffffffffff\r\n"].concat(),
        17 => [head("POST", &own, "Transfer-Encoding: chunked\r\n").as_bytes(), b"-1\r\nx\r\n"].concat(),
        18 => head("GET", "/version", "X-Folded: a\r\n b\r\nX Bad: c\r\n").into_bytes(),
        19 => head("POST", &own, "Content-Length: 99999999999\r\n").into_bytes(),
        20 => with_token("Bearer eyJhbGciOiJub25lIn0.eyJpc3MiOiJodHRwczovL2t1YmVybmV0ZXMuZGVmYXVsdC5zdmMifQ."),
        21 => with_token(&format!("Bearer {}", "a".repeat(60_000))),
        22 => with_token("Bearer a.b.c.d\r\nAuthorization: Bearer e"),
        23 => head("GET", "/api/v1/secrets", "Impersonate-User: admin\r\nImpersonate-Group: system:masters\r\n")
            .into_bytes(),
        24 => head("GET", "/api/v1/secrets", "X-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n")
            .into_bytes(),
        25 => json(&"[".repeat(100_000)),
        26 => json(&format!("{}1{}", "{\"a\":".repeat(50_000), "}".repeat(50_000))),
        27 => json(&format!("{{\"metadata\":{{\"name\":\"x{n}\"}},\"data\":{{{}\"z\":\"\"}}}}", "\"a\":\"b\",".repeat(20_000))),
        28 => json(&format!("{{\"data\":{{\"a\":\"{}\"}}}}", "x".repeat(3_500_000))),
        29 => send("POST", &own, "application/json", &[b'{', b'"', 0xc3, 0x28, b'"', b':', b'1', b'}']),
        30 => send("POST", &own, "application/yaml", billion_laughs().as_bytes()),
        31 => send("POST", &own, "application/vnd.kubernetes.protobuf", &[b"k8s\0".as_slice(), &[0xff; 5_000]].concat()),
        32 => send(
            "PATCH",
            &format!("{own}/none"),
            "application/json-patch+json",
            format!("[{}]", vec!["{\"op\":\"copy\",\"from\":\"\",\"path\":\"/a\"}"; 9_000].join(",")).as_bytes(),
        ),
        33 => send("PATCH", &format!("{own}/none"), "text/plain", b"x"),
        34 => send(
            "POST",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "application/json",
            br#"{"metadata":{"name":"mine"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","name":"hostile"}]}"#,
        ),
        35 => send(
            "POST",
            &format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/rolebindings"),
            "application/json",
            br#"{"metadata":{"name":"mine"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","name":"hostile"}]}"#,
        ),
        36 => get(&format!("{own}?labelSelector=a+in+({})", "b,".repeat(15_000))),
        37 => get(&format!("{own}?fieldSelector={}&limit=-1&continue=garbage", "%3D".repeat(5_000))),
        38 => get(&format!("{own}?watch=1&resourceVersion=99999999999999999999")),
        39 => get(&format!("{own}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")),
        40 => head("TRACE", "/", "").into_bytes(),
        41 => head("CONNECT", "localhost:22", "").into_bytes(),
        42 => json(&format!("{{\"metadata\":{{\"generateName\":\"x-\"}},\"data\":{{\"a\":\"{}\"}}}}", "y".repeat(10_000))),
        43 => json(&format!("{{\"metadata\":{{\"name\":\"w\",\"labels\":{{{}}}}}}}", bad_labels())),
        44 => json(r#"{"metadata":{"name":"h"},"data":{"a":"b"}}"#),
        45 => patch("h", &deep_copies()),
        46 => patch("h", &doubling_copies()),
        47 => patch("h", &format!("[{}]", vec![r#"{"op":"move","from":"/data","path":"/data"}"#; 9_000].join(","))),
        48 => send("POST", &events, "application/json", format!("{{\"metadata\":{{\"name\":\"{}\"}}}}", "n".repeat(70_000)).as_bytes()),
        49 => send("POST", &pods, "application/json", br#"{"metadata":{"name":"h"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}"#),
        50 => send("DELETE", &format!("{pods}/h"), "application/json", br#"{"gracePeriodSeconds":9223372036854775807}"#),
        51 => send("POST", &pods, "application/json", format!("{{\"metadata\":{{\"name\":\"m\"}},\"spec\":{{\"containers\":[{}{{}}]}}}}", "{},".repeat(200_000)).as_bytes()),
        52 => json(&format!("{{\"metadata\":{{\"name\":\"o\",\"ownerReferences\":[{}]}}}}", many_owners())),
        53 => send("POST", &own, "application/yaml", format!("metadata: {{name: y}}\nx: &x {}\ndata: [{}]\n", "x".repeat(100_000), "*x,".repeat(9_000)).as_bytes()),
        54 => get(&format!("{own}?limit=1&labelSelector=matches%3Dnothing")),
        55 => json(&format!("{{\"metadata\":{{\"name\":\"l\"}},\"x\":[{}0]}}", "{\"\":0},".repeat(300_000))),
        56 => [head("POST", &own, "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n").as_bytes(), &b"1\r\n \r\n".repeat(2_000_000), b"0\r\n\r\n"].concat(),
        OLDER.. => {
            let n = kind - OLDER;
            attack(match n.checked_sub(subresources::KINDS) {
                None => subresources::attack(n, round),
                Some(n) => match n.checked_sub(patches::KINDS) {
                    None => patches::attack(n, round),
                    Some(n) => numbers::attack(n),
                },
            })
        }
        _ => head("GET", &own, "Accept: application/vnd.nonsense;as=Table;v=9;g=x\r\nAccept-Encoding: bomb\r\n").into_bytes(),
    }
}

/// A deep value that is copied into its own leaf again and again.
fn deep_copies() -> String {
    let value = format!("{}1{}", "{\"a\":".repeat(90), "}".repeat(90));
    let mut patch = format!(r#"[{{"op":"add","path":"/x","value":{value}}}"#);
    let mut leaf = "/x".to_owned() + &"/a".repeat(90);
    for _ in 0..7 {
        // Writing into a text does not fail.
        let _written = write!(patch, r#",{{"op":"copy","from":"/x","path":"{leaf}"}}"#);
        leaf = leaf.clone() + &leaf[2..];
    }
    patch + "]"
}

/// A value that doubles with each operation.
fn doubling_copies() -> String {
    let copy = r#"{"op":"copy","from":"/x","path":"/x/-"}"#;
    format!(r#"[{{"op":"add","path":"/x","value":[1]}},{}]"#, vec![copy; 60].join(","))
}

/// Owners that all say that they are the only one.
fn many_owners() -> String {
    let owner =
        |n| format!(r#"{{"apiVersion":"v1","kind":"Pod","name":"p{n}","uid":"u","controller":true}}"#);
    (0..20_000).map(owner).collect::<Vec<_>>().join(",")
}

/// Very many errors in one object.
fn bad_labels() -> String {
    let labels: Vec<String> = (0..20_000).map(|n| format!("\"k{n}!\":\"v!\"")).collect();
    labels.join(",")
}

/// Few lines of YAML that would be very many.
fn billion_laughs() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let aliases = vec![format!("*a{}", n - 1); 9].join(", ");
        // Writing into a text does not fail.
        let _written = writeln!(text, "a{n}: &a{n} [{aliases}]");
    }
    text
}
