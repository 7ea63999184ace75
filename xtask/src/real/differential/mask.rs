//! Hides what two servers cannot agree on: uids, versions, times, addresses.

use serde_json::Value;

/// The body of an answer without what is random in it.
pub(super) fn body(body: Value) -> Value {
    let uid = uid_of(&body);
    let text = body.to_string();
    let text = uid.map_or(text.clone(), |uid| text.replace(&uid, "<uid>"));
    let mut body: Value = serde_json::from_str(&text).unwrap_or(body);
    walk(&mut body);
    if body["kind"] == "Service" {
        service(&mut body["spec"]);
    }
    if body["kind"] == "Status" {
        status(&mut body);
    }
    body
}

fn uid_of(body: &Value) -> Option<String> {
    let uid = body["metadata"]["uid"].as_str().or_else(|| body["details"]["uid"].as_str());
    uid.filter(|uid| !uid.is_empty()).map(str::to_owned)
}

fn walk(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Array(entries)) = fields.get_mut("managedFields") {
                // Entries are in the order of their times.
                entries.sort_by_cached_key(|entry| {
                    ["operation", "manager", "apiVersion", "subresource", "fieldsV1"]
                        .map(|field| entry[field].to_string())
                });
            }
            if fields.contains_key("resourceVersion") {
                fields.insert("resourceVersion".to_owned(), "<version>".into());
            }
            if fields.contains_key("generateName") && fields.contains_key("name") {
                fields.insert("name".to_owned(), "<generated>".into());
            }
            fields.values_mut().for_each(walk);
        }
        Value::Array(items) => items.iter_mut().for_each(walk),
        Value::String(text) => {
            if is_recent(text) {
                *text = "<time>".to_owned();
                return;
            }
            if let Some(masked) = hide_quoted(text) {
                *text = masked;
            }
            if let Some(masked) = hide_self_type(text) {
                *text = masked;
            }
            if let Some(masked) = hide_uids(text) {
                *text = masked;
            }
        }
        _ => {}
    }
}

/// Objects of the test data are from another century.
fn is_recent(text: &str) -> bool {
    let bytes = text.as_bytes();
    text.starts_with("20")
        && text.ends_with('Z')
        && bytes.len() >= 20
        && bytes[4] == b'-'
        && bytes[10] == b'T'
}

/// The times and the version of an object that a message quotes, and its managers, which are in the order of their times.
fn hide_quoted(text: &str) -> Option<String> {
    let text = &without_managers(text);
    const VERSION: &str = "\\\"resourceVersion\\\":\\\"";
    const TIME: usize = "2026-01-01T00:00:00Z".len();
    let at = text.find(VERSION)?;
    let (before, rest) = text.split_at(at + VERSION.len());
    let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let mut out = String::new();
    let mut left = format!("{before}{rest}");
    while let Some(at) = left.find("\"20") {
        let time = left.get(at + 1..at + 1 + TIME).is_some_and(is_recent);
        out.push_str(&left[..=at]);
        left.drain(..if time { at + 1 + TIME } else { at + 1 });
    }
    Some(out + &left)
}

fn without_managers(text: &str) -> String {
    const MANAGERS: &str = "\\\"managedFields\\\":[";
    let Some(at) = text.find(MANAGERS) else { return text.to_owned() };
    let (before, rest) = text.split_at(at + MANAGERS.len());
    let mut depth = 1;
    let end = rest.find(|c: char| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        depth == 0
    });
    format!("{before}{}", &rest[end.unwrap_or_default()..])
}

/// kube-apiserver numbers the type of `self` by the clock.
fn hide_self_type(text: &str) -> Option<String> {
    const NAME: &str = "selfType";
    let mut parts = text.split(NAME);
    let first = parts.next()?.to_owned();
    Some(parts.fold(first, |before, rest| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        format!("{before}{NAME}{rest}")
    }))
}

/// The uid of an object that is in a message only.
fn hide_uids(text: &str) -> Option<String> {
    const SHAPE: [usize; 4] = [8, 13, 18, 23];
    let bytes = text.as_bytes();
    let is_uid = |at: usize| {
        let Some(part) = bytes.get(at..at + 36) else { return false };
        let dash = |index: usize| SHAPE.contains(&index);
        part.iter()
            .enumerate()
            .all(|(index, byte)| if dash(index) { *byte == b'-' } else { byte.is_ascii_hexdigit() })
    };
    let at = (0..bytes.len()).find(|at| is_uid(*at))?;
    let rest = &text[at + 36..];
    Some(format!("{}<uid>{}", &text[..at], hide_uids(rest).unwrap_or_else(|| rest.to_owned())))
}

/// Addresses and ports that the server chooses.
fn service(spec: &mut Value) {
    let hide = |value: &mut Value| {
        if value.as_str().is_some_and(|ip| ip != "None" && ip.contains('.')) {
            *value = "<ip>".into();
        }
    };
    if let Some(ip) = spec.get_mut("clusterIP") {
        hide(ip);
    }
    for ip in spec.get_mut("clusterIPs").and_then(Value::as_array_mut).into_iter().flatten() {
        hide(ip);
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(number) = port.get_mut("nodePort") {
            *number = "<port>".into();
        }
    }
    if let Some(number) = spec.get_mut("healthCheckNodePort") {
        *number = "<port>".into();
    }
}

/// Hides addresses and ports that the server chooses in what a message says.
fn hide_numbers(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let end = rest[start..].find(|c: char| !c.is_ascii_digit() && c != '.' && c != '/');
        let end = end.map_or(rest.len(), |end| start + end);
        let number = &rest[start..end];
        out.push_str(&rest[..start]);
        out.push_str(match number {
            ip if ip.starts_with("10.") && ip.matches('.').count() == 3 => "<ip>",
            port if port.len() == 5 && port.starts_with('3') => "<port>",
            other => other,
        });
        rest = &rest[end..];
    }
    out + rest
}

/// kube-apiserver checks metadata several times, and lists what it finds each time.
fn status(status: &mut Value) {
    if status["details"]["kind"] == "Service" {
        let text = hide_numbers(status["message"].as_str().unwrap_or_default());
        status["message"] = text.into();
        let causes = status["details"].get_mut("causes").and_then(Value::as_array_mut);
        for cause in causes.into_iter().flatten() {
            cause["message"] = hide_numbers(cause["message"].as_str().unwrap_or_default()).into();
        }
    }
    // The groups of the test data.
    let is_custom = status["details"]["group"].as_str().is_some_and(|group| group.ends_with(".example.com"));
    let Some(causes) = status["details"].get_mut("causes").and_then(Value::as_array_mut) else { return };
    let mut distinct: Vec<Value> = Vec::new();
    for cause in causes.drain(..) {
        if !distinct.contains(&cause) {
            distinct.push(cause);
        }
    }
    if distinct.iter().all(|cause| cause["reason"] == "FieldManagerConflict") {
        // Go keeps managers in a map.
        distinct.sort_by_key(Value::to_string);
    }
    let before = summary(&distinct);
    sort_maps(&mut distinct, is_custom);
    let after = summary(&distinct);
    *causes = distinct;
    // The message lists the causes: in the same order, that is.
    if let Some(prefix) = status["message"].as_str().and_then(|text| text.strip_suffix(&before)) {
        status["message"] = format!("{prefix}{after}").into();
    }
}

/// What a message says about causes.
fn summary(causes: &[Value]) -> String {
    let text = |cause: &Value| {
        let part = |name: &str| cause[name].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", part("field"), part("message"))
    };
    let texts: Vec<String> = causes.iter().map(text).collect();
    if let [one] = texts.as_slice() { one.clone() } else { format!("[{}]", texts.join(", ")) }
}

/// Go walks maps in random order: sorts what it found in one. A custom resource is a map of maps as a whole.
fn sort_maps(causes: &mut [Value], is_custom: bool) {
    let map = |cause: &Value| {
        let field = cause["field"].as_str().unwrap_or_default();
        match field.strip_suffix(']').and_then(|field| field.rsplit_once('[')) {
            Some((map, key)) if key.parse::<usize>().is_err() => map.to_owned(),
            _ => field.to_owned(),
        }
    };
    for run in causes.chunk_by_mut(|a, b| is_custom || map(a) == map(b)) {
        run.sort_by_key(Value::to_string);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_random_is_hidden() {
        let uid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
        let masked = body(json!({
            "metadata": {"uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"manager": "b", "time": "2026-01-01T00:00:00Z"}, {"manager": "a"}]},
            "label": format!("x-{uid}"), "old": "1999-01-01T00:00:00Z"
        }));
        assert_eq!(
            masked,
            json!({
                "metadata": {"uid": "<uid>", "creationTimestamp": "<time>",
                    "managedFields": [{"manager": "a"}, {"manager": "b", "time": "<time>"}]},
                "label": "x-<uid>", "old": "1999-01-01T00:00:00Z"
            })
        );
        let quoted = |version: &str, time: &str| {
            let managers = json!([{"time": time, "set": ["a"]}]);
            let object =
                json!({"managedFields": managers, "resourceVersion": version, "time": time, "value": "2"});
            let object = object.to_string();
            body(json!({"message": format!("{object:?} is wrong")}))
        };
        assert_eq!(quoted("17", "2026-01-01T00:00:00Z"), quoted("9", "2026-01-01T00:00:01Z"));
        let typed = |text: &str| body(json!({"message": text}));
        assert_eq!(typed("(selfType417.a, selfType418)"), typed("(selfType.a, selfType2)"));
        assert_ne!(quoted("17", "1999-01-01T00:00:00Z"), quoted("17", "1999-01-01T00:00:01Z"));
    }
}
