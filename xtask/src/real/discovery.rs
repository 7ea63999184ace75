//! The suite `kinds`: our discovery says exactly what kube-apiserver's says.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::http::Client;
use super::process::poll;
use super::report::Report;

pub(crate) const SUITE: &str = "kinds";

/// How long the discovery of kube-apiserver may take to be whole.
const SETTLE_LIMIT: Duration = Duration::from_secs(20);

/// Differences that are meant, each with its reason. An entry covers every
/// fact whose name starts with it.
const ALLOWED: &[(&str, &str)] = &[];

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Named facts, such as `apps/v1 deployments/scale verbs` → `get,patch,update`.
type Facts = BTreeMap<String, String>;

/// The names of the checks, for `--list`.
pub(crate) const NAMES: [&str; 3] = ["aggregated discovery", "plain discovery", "both say the same"];

/// Compares the server under test with the reference.
pub(crate) fn run(report: &mut Report, ours: &Client, theirs: &Client) {
    let [first, second, third] = NAMES;
    report.check(SUITE, first, || settled(|| compare(&aggregated(ours)?, &aggregated(theirs)?)));
    report.check(SUITE, second, || settled(|| compare(&plain(ours)?, &plain(theirs)?)));
    report.check(SUITE, third, || {
        // Only plain lists name the preferred version, only aggregated ones are sorted by priority.
        let keep = |facts: Facts| facts.into_iter().filter(|(name, _)| name.contains(' ')).collect();
        compare(&keep(aggregated(ours)?), &keep(plain(ours)?))
    });
}

/// Compares until both agree: kube-apiserver is ready before its discovery is whole.
fn settled(compare: impl Fn() -> Result<()>) -> Result<()> {
    poll(SETTLE_LIMIT, || Ok(compare().is_ok().then_some(())))?;
    compare()
}

/// `/api` and `/apis` in one document each.
fn aggregated(client: &Client) -> Result<Facts> {
    let mut facts = Facts::new();
    for path in ["/api", "/apis"] {
        let document = client.get_json(path, AGGREGATED)?;
        if document["kind"] != "APIGroupDiscoveryList" {
            bail!("{path} is not aggregated: kind {}", document["kind"]);
        }
        let groups = array(&document["items"]);
        let names: Vec<&str> = groups.iter().map(|group| text(&group["metadata"]["name"])).collect();
        facts.insert(format!("{path} groups"), names.join(","));
        for group in groups {
            let name = text(&group["metadata"]["name"]);
            let versions: Vec<&str> =
                array(&group["versions"]).iter().map(|one| text(&one["version"])).collect();
            facts.insert(format!("group {name} versions"), versions.join(","));
            for version in array(&group["versions"]) {
                aggregated_version(&mut facts, name, version);
            }
        }
    }
    Ok(facts)
}

fn aggregated_version(facts: &mut Facts, group: &str, version: &Value) {
    let group_version = group_version(group, text(&version["version"]));
    for resource in array(&version["resources"]) {
        let name = text(&resource["resource"]);
        let scope = text(&resource["scope"]);
        let subject = format!("{group_version} {name}");
        describe(facts, &subject, resource, &kind(&group_version, &resource["responseKind"]), scope);
        facts.insert(format!("{subject} singular"), text(&resource["singularResource"]).to_owned());
        for sub in array(&resource["subresources"]) {
            let subject = format!("{subject}/{}", text(&sub["subresource"]));
            describe(facts, &subject, sub, &kind(&group_version, &sub["responseKind"]), scope);
        }
    }
}

/// `/api`, `/apis`, and one document a group-version.
fn plain(client: &Client) -> Result<Facts> {
    let json = "application/json";
    let mut facts = Facts::new();
    let core = client.get_json("/api", json)?;
    let versions: Vec<&str> = array(&core["versions"]).iter().map(text).collect();
    facts.insert("group  versions".to_owned(), versions.join(","));
    plain_version(&mut facts, "v1", &client.get_json("/api/v1", json)?)?;
    let groups = client.get_json("/apis", json)?;
    let names: Vec<&str> = array(&groups["groups"]).iter().map(|group| text(&group["name"])).collect();
    facts.insert("/api groups".to_owned(), String::new());
    facts.insert("/apis groups".to_owned(), names.join(","));
    for group in array(&groups["groups"]) {
        let name = text(&group["name"]);
        let versions: Vec<&str> = array(&group["versions"]).iter().map(|one| text(&one["version"])).collect();
        facts.insert(format!("group {name} versions"), versions.join(","));
        facts
            .insert(format!("preferred:{name}"), text(&group["preferredVersion"]["groupVersion"]).to_owned());
        if client.get_json(&format!("/apis/{name}"), json)?["versions"] != group["versions"] {
            bail!("/apis/{name} differs from its entry in /apis");
        }
        for version in array(&group["versions"]) {
            let group_version = text(&version["groupVersion"]);
            let document = client.get_json(&format!("/apis/{group_version}"), json)?;
            plain_version(&mut facts, group_version, &document)?;
        }
    }
    Ok(facts)
}

fn plain_version(facts: &mut Facts, group_version: &str, document: &Value) -> Result<()> {
    if document["kind"] != "APIResourceList" || document["groupVersion"] != group_version {
        bail!("the document of {group_version} is a {} of {}", document["kind"], document["groupVersion"]);
    }
    for resource in array(&document["resources"]) {
        let name = text(&resource["name"]);
        let scope =
            if resource["namespaced"].as_bool().context("no scope")? { "Namespaced" } else { "Cluster" };
        let subject = format!("{group_version} {name}");
        describe(facts, &subject, resource, &kind(group_version, resource), scope);
        if !name.contains('/') {
            facts.insert(format!("{subject} singular"), text(&resource["singularName"]).to_owned());
        }
    }
    Ok(())
}

fn describe(facts: &mut Facts, subject: &str, resource: &Value, kind: &str, scope: &str) {
    facts.insert(format!("{subject} kind"), kind.to_owned());
    facts.insert(format!("{subject} scope"), scope.to_owned());
    for list in ["verbs", "shortNames", "categories"] {
        let mut words: Vec<&str> = array(&resource[list]).iter().map(text).collect();
        words.sort_unstable();
        facts.insert(format!("{subject} {list}"), words.join(","));
    }
}

/// A kind with its group and version, which default to those of the document.
fn kind(group_version: &str, value: &Value) -> String {
    let (own_group, own_version) = group_version.rsplit_once('/').unwrap_or(("", group_version));
    // An empty group in a plain document means "the same"; in an aggregated
    // one it is spelled out together with the version.
    let (group, version) = match (text(&value["group"]), text(&value["version"])) {
        ("", "") => (own_group, own_version),
        (group, version) => (group, version),
    };
    format!("{}/{}", self::group_version(group, version), text(&value["kind"]))
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn compare(ours: &Facts, theirs: &Facts) -> Result<()> {
    let mut differences = Vec::new();
    for name in ours.keys().chain(theirs.keys().filter(|name| !ours.contains_key(*name))) {
        let (our, their) = (ours.get(name), theirs.get(name));
        if our == their || ALLOWED.iter().any(|(start, _)| name.starts_with(start)) {
            continue;
        }
        let show = |side: Option<&String>| side.map_or("nothing".to_owned(), |text| format!("{text:?}"));
        differences.push(format!("{name}: {}, should be {}", show(our), show(their)));
    }
    if theirs.len() < 100 {
        bail!("only {} facts to compare with", theirs.len());
    }
    match differences.len() {
        0 => Ok(()),
        count => bail!("{count} of {} facts differ\n{}", theirs.len(), differences.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn facts(count: usize) -> Facts {
        (0..count).map(|n| (format!("v1 r{n} kind"), "v1/K".to_owned())).collect()
    }

    #[test]
    fn a_missing_an_extra_and_a_changed_fact_differ() {
        let theirs = facts(200);
        assert!(compare(&theirs, &theirs).is_ok());
        assert!(compare(&facts(199), &theirs).is_err());
        assert!(compare(&facts(201), &theirs).is_err());
        let mut changed = theirs.clone();
        changed.insert("v1 r7 kind".to_owned(), "v1/Other".to_owned());
        assert!(compare(&changed, &theirs).unwrap_err().to_string().contains("v1 r7 kind"));
    }

    #[test]
    fn nothing_to_compare_with_is_an_error() {
        assert!(compare(&facts(0), &facts(0)).is_err());
    }

    #[test]
    fn a_kind_has_the_group_of_its_document_unless_it_says_otherwise() {
        assert_eq!(kind("apps/v1", &json!({"kind": "Deployment"})), "apps/v1/Deployment");
        let scale = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        assert_eq!(kind("apps/v1", &scale), "autoscaling/v1/Scale");
        assert_eq!(kind("apps/v1", &json!({"group": "", "version": "v1", "kind": "Pod"})), "v1/Pod");
    }
}
