//! Network policies.

use serde_json::{Value, json};

use super::at::{At, items};
use super::fill::{default as set, each, part_or_new};
use super::formats::{self, Cidr};

const TYPES: [&str; 2] = ["Ingress", "Egress"];

pub(super) fn default(policy: &mut Value) {
    let Some(fields) = policy.as_object_mut() else { return };
    let spec = part_or_new(fields, "spec");
    for direction in ["ingress", "egress"] {
        for rule in each(spec, direction) {
            each(rule, "ports").for_each(|port| set(port, "protocol", "TCP"));
        }
    }
    if spec.get("policyTypes").map(items).unwrap_or_default().is_empty() {
        let both = !spec.get("egress").map(items).unwrap_or_default().is_empty();
        spec.insert("policyTypes".to_owned(), if both { json!(TYPES) } else { json!(["Ingress"]) });
    }
}

pub(super) fn validate(policy: &At, old: Option<&Value>) {
    let spec = policy.field("spec");
    let known = old.map(ranges).unwrap_or_default();
    spec.field("podSelector").label_selector();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.field(direction).items() {
            rule.field("ports").items().for_each(|port| self::port(&port));
            rule.field(peers).items().for_each(|peer| self::peer(&peer, &known));
        }
    }
    let types = spec.field("policyTypes");
    if types.len() > 2 {
        return types.invalid("may not specify more than two policyTypes");
    }
    types.items().for_each(|kind| kind.one_of_if_set(&TYPES));
}

/// The ranges of addresses that were there before: they are taken as they are.
fn ranges(old: &Value) -> Vec<&str> {
    let mut found = Vec::new();
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for peer in items(&old["spec"][direction]).iter().flat_map(|rule| items(&rule[peers])) {
            found.extend(peer["ipBlock"]["cidr"].as_str());
            found.extend(items(&peer["ipBlock"]["except"]).iter().filter_map(Value::as_str));
        }
    }
    found
}

fn port(entry: &At) {
    entry.field("protocol").one_of_if_set(&["TCP", "UDP", "SCTP"]);
    let (port, end) = (entry.field("port"), entry.field("endPort"));
    match port.value() {
        Value::Null if end.exists() => end.invalid("may not be specified when `port` is not specified"),
        Value::Null => {}
        Value::String(_) => {
            if end.exists() {
                end.invalid("may not be specified when `port` is non-numeric");
            }
            port.has_form(formats::port_name);
        }
        _ => {
            port.port_number();
            if let Some(last) = end.number() {
                if last < port.number().unwrap_or(0) {
                    end.invalid("must be greater than or equal to `port`");
                }
                end.port_number();
            }
        }
    }
}

fn peer(peer: &At, known: &[&str]) {
    let selectors = ["podSelector", "namespaceSelector"].map(|name| peer.field(name));
    selectors.iter().for_each(At::label_selector);
    let block = peer.field("ipBlock");
    let selects = selectors.iter().any(At::exists);
    if block.exists() {
        ip_block(&block, known);
        if selects {
            peer.forbidden("may not specify both ipBlock and another peer");
        }
    } else if !selects {
        peer.required("must specify a peer");
    }
}

fn ip_block(block: &At, known: &[&str]) {
    let range = block.field("cidr");
    if range.is_empty() {
        return range.required("");
    }
    range.cidr(known);
    let Some(outer) = Cidr::parse_sloppy(range.text()) else { return };
    for except in block.field("except").items() {
        except.cidr(known);
        let Some(inner) = Cidr::parse_sloppy(except.text()) else { continue };
        if !outer.contains(inner.address) || outer.prefix >= inner.prefix {
            except.invalid("must be a strict subset of `cidr`");
        }
    }
}
