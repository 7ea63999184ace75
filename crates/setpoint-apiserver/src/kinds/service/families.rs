//! The families of a service's addresses.

use serde_json::{Value, json};

use super::super::at::{At, items};
use super::network::ServiceIpRanges;
use super::{is_headless, needs_cluster_ip};

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];

fn is_v6(ip: &str) -> bool {
    ip.contains(':')
}

/// Addresses and families fit together.
pub(super) fn validate(spec: &At, old: Option<&Value>) {
    if !needs_cluster_ip(spec.value()) {
        return;
    }
    let (ip, ips) = (spec.field("clusterIP"), spec.field("clusterIPs"));
    match (ip.is_empty(), ips.is_empty()) {
        (false, true) => ips.required(""),
        (false, false) if ips.index(0).text() != ip.text() => {
            ips.invalid("first value must match `clusterIP`")
        }
        (true, false) => ips.invalid("must be empty when `clusterIP` is not specified"),
        _ => {}
    }
    let families = spec.field("ipFamilies");
    for (index, family) in families.items().enumerate() {
        if !FAMILIES.contains(&family.text()) {
            family.not_supported(&FAMILIES);
        }
        if families.texts().take(index).any(|before| before == family.text()) {
            family.duplicate();
        }
    }
    spec.field("ipFamilyPolicy").one_of_if_set(&POLICIES);
    let before: Vec<&str> = old
        .map(|old| items(&old["clusterIPs"]).iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut wrong = false;
    for (index, ip) in ips.items().enumerate() {
        if index == 0 && ip.text() == "None" {
            if ips.len() > 1 {
                wrong = true;
                ips.invalid("'None' must be the first and only value");
            }
            continue;
        }
        wrong |= !ip.ip_address(&before);
    }
    if ips.len() > 2 {
        ips.invalid("may only hold up to 2 values");
    }
    if wrong {
        return;
    }
    if ips.len() > 1 && ips.texts().filter(|ip| is_v6(ip)).count() != 1 {
        ips.invalid("may specify no more than one IP for each IP family");
    }
    if is_headless(spec.value()) {
        return;
    }
    for (index, (ip, family)) in ips.items().zip(families.texts()).enumerate() {
        if family == "IPv4" && is_v6(ip.text()) || family == "IPv6" && !is_v6(ip.text()) {
            ip.invalid(format!("expected an {family} value as indicated by `ipFamilies[{index}]`"));
        }
    }
}

/// What an address or a family once is, it stays.
pub(super) fn validate_update(spec: &At, old: &Value) {
    if !needs_cluster_ip(spec.value()) || !needs_cluster_ip(old) {
        return;
    }
    let (was, is) = (is_headless(old), is_headless(spec.value()));
    if !(was && is) {
        addresses(spec, items(&old["clusterIPs"]));
    }
    if !was && !is {
        families(spec, items(&old["ipFamilies"]));
    }
}

fn addresses(spec: &At, old: &[Value]) {
    const CHANGED: &str = "may not change once set";
    let ips = spec.field("clusterIPs");
    let new = items(ips.value());
    let shown = || if ips.exists() { ips.value().clone() } else { Value::Null };
    if old.len() == new.len() {
        for index in (0..old.len()).filter(|index| old[*index] != new[*index]) {
            ips.index(index).invalid_as(shown(), CHANGED);
        }
        return;
    }
    if old.len() > new.len() && new.is_empty() {
        ips.index(0).invalid_as(shown(), "primary clusterIP can not be unset");
    }
    if !old.is_empty() && !new.is_empty() && old[0] != new[0] {
        ips.index(0).invalid_as(shown(), CHANGED);
    }
}

fn families(spec: &At, old: &[Value]) {
    let families = spec.field("ipFamilies");
    let new = items(families.value());
    let shown = || families.value().clone();
    if old.len() == new.len() {
        for _ in old.iter().zip(new).filter(|(old, new)| old != new) {
            families.index(0).invalid_as(shown(), "may not change once set");
        }
    } else if old.len() > new.len() && new.is_empty() {
        families.index(0).invalid_as(shown(), "primary ipFamily can not be unset");
    }
}

/// Fills in the families of a service that leaves them to the server. Problems go to `spec`'s errors.
pub(super) fn complete(spec: &At, old: Option<&Value>, ranges: &ServiceIpRanges) -> Option<(Value, Value)> {
    if !needs_cluster_ip(spec.value()) {
        return None;
    }
    let headless = spec.field("clusterIP").text() == "None";
    let has_selector = !spec.field("selector").is_empty();
    let given = spec.field("ipFamilyPolicy");
    let policy = match old.and_then(|old| old["ipFamilyPolicy"].as_str()) {
        _ if given.exists() => given.text(),
        Some(before) => before,
        None if headless && !has_selector => "RequireDualStack",
        None => "SingleStack",
    };
    let before = spec.errors().len();
    validate(spec, old);
    if spec.errors().len() > before {
        return None;
    }
    let (ips, families) = (spec.field("clusterIPs"), spec.field("ipFamilies"));
    let shown = |at: &At, detail: &str| at.invalid_as(policy, detail);
    if policy == "SingleStack" {
        if ips.len() == 2 {
            let detail =
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple cluster IPs are specified";
            shown(&given, detail);
        }
        if families.len() == 2 {
            let detail =
                "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified";
            shown(&given, detail);
        }
    }
    let mut list: Vec<Value> = items(families.value()).to_vec();
    for ip in ips.items().skip(families.len()).take_while(|ip| ip.text() != "None") {
        let family = FAMILIES[usize::from(is_v6(ip.text()))];
        if ranges.of(family).is_none() {
            ip.invalid_as(ips.value().clone(), format!("{family} is not configured on this cluster"));
        } else {
            list.push(family.into());
        }
    }
    let is_free = headless && !has_selector;
    if !is_free {
        if policy == "RequireDualStack" && !ranges.is_dual() {
            shown(&given, "this cluster is not configured for dual-stack services");
        }
        for family in families.items().filter(|family| ranges.of(family.text()).is_none()) {
            family.invalid("not configured on this cluster");
        }
    }
    if list.is_empty() {
        list.push(ranges.first().family().into());
    }
    if list.len() < 2 && policy != "SingleStack" && (is_free || ranges.is_dual()) {
        list.push(FAMILIES[usize::from(list[0] == FAMILIES[0])].into());
    }
    Some((json!(list), policy.into()))
}
