//! Endpoints and endpoint slices.

use std::collections::BTreeSet;

use serde_json::Value;

use super::at::{At, Errors, same};
use super::fill::{default as set, default_text, each, null_if_empty};
use super::formats;
use super::rules::PROTOCOLS;
use crate::metadata::names;

pub(super) fn default(endpoints: &mut Value) {
    let Some(fields) = endpoints.as_object_mut() else { return };
    for subset in each(fields, "subsets") {
        each(subset, "ports").for_each(|port| default_text(port, "protocol", "TCP"));
    }
}

pub(super) fn validate(endpoints: &At, old: Option<&Value>) {
    // What was stored under older rules may stay.
    if old.is_some_and(|old| same(&old["subsets"], endpoints.field("subsets").value())) {
        return;
    }
    for subset in endpoints.field("subsets").items() {
        let addresses = ["addresses", "notReadyAddresses"].map(|name| subset.field(name));
        if addresses.iter().all(At::is_empty) {
            subset.required("must specify `addresses` or `notReadyAddresses`");
        }
        for address in addresses.iter().flat_map(At::items) {
            self::address(&address);
        }
        let ports = subset.field("ports");
        ports.items().for_each(|port| self::port(&port, ports.len() > 1));
    }
}

fn address(address: &At) {
    address.field("ip").ip_address(&[]);
    address.field("hostname").has_form_if_set(names::dns1123_label);
    if address.field("nodeName").exists() {
        address.field("nodeName").has_form(names::dns1123_subdomain);
    }
    address.field("ip").has_form(formats::endpoint_ip);
}

fn port(port: &At, needs_name: bool) {
    let name = port.field("name");
    if needs_name && name.is_empty() {
        name.required("");
    }
    name.has_form_if_set(names::dns1123_label);
    port.field("port").port_number();
    port.field("protocol").one_of(&PROTOCOLS);
    if port.field("appProtocol").exists() {
        port.field("appProtocol").has_form(names::label_key);
    }
}

pub(super) fn default_slice(slice: &mut Value) {
    let Some(fields) = slice.as_object_mut() else { return };
    null_if_empty(fields, "endpoints");
    null_if_empty(fields, "ports");
    for port in each(fields, "ports") {
        set(port, "name", "");
        set(port, "protocol", "TCP");
    }
}

pub(super) fn validate_slice(slice: &At, old: Option<&Value>) {
    const TYPES: [&str; 3] = ["FQDN", "IPv4", "IPv6"];
    let kind = slice.field("addressType");
    let late = Errors::default();
    ports(&slice.field("ports"));
    if old.is_none_or(|old| !same(&old["endpoints"], slice.field("endpoints").value())) {
        endpoints(&slice.field("endpoints"), kind.text(), &late);
    }
    if let Some(old) = old {
        kind.immutable_hidden(&old["addressType"]);
    }
    // These rules are younger than the others, and come last.
    kind.one_of(&TYPES);
    slice.errors().extend(late.into_vec());
}

fn ports(ports: &At) {
    if ports.len() > 20_000 {
        return ports.too_many(20_000);
    }
    let mut seen = BTreeSet::new();
    for port in ports.items() {
        let name = port.field("name");
        name.has_form_if_set(names::dns1123_label);
        if !seen.insert(name.text()) {
            name.duplicate();
        }
        port.field("protocol").one_of_if_set(&PROTOCOLS);
        if port.field("appProtocol").exists() {
            port.field("appProtocol").has_form(names::label_key);
        }
    }
}

fn endpoints(endpoints: &At, kind: &str, late: &Errors) {
    if endpoints.len() > 1000 {
        return endpoints.too_many(1000);
    }
    for endpoint in endpoints.items() {
        let addresses = endpoint.field("addresses");
        if addresses.is_empty() {
            late.push(crate::field_error::FieldError::required(addresses.path(), ""));
        } else if addresses.len() > 100 {
            addresses.too_many(100);
        }
        addresses.items().for_each(|address| endpoint_address(&address, &addresses, kind));
        if endpoint.field("nodeName").exists() {
            endpoint.field("nodeName").has_form(names::dns1123_subdomain);
        }
        let topology = endpoint.field("deprecatedTopology");
        if topology.len() > 16 {
            topology.too_many(16);
        }
        topology.labels();
        if endpoint.field("hostname").exists() {
            endpoint.field("hostname").has_form(names::dns1123_label);
        }
        hints(&endpoint.field("hints"));
    }
}

fn endpoint_address(address: &At, addresses: &At, kind: &str) {
    let text = address.text();
    match kind {
        "IPv4" if address.ip_address(&[]) => {
            if text.contains(':') {
                addresses.invalid_as(text, "must be an IPv4 address");
            }
            address.has_form(formats::endpoint_ip);
        }
        "IPv6" => {
            let problems = formats::canonical_ip(text);
            if problems.is_empty() {
                if !text.contains(':') {
                    addresses.invalid_as(text, "must be an IPv6 address");
                }
                address.has_form(formats::endpoint_ip);
            }
            problems.into_iter().for_each(|problem| address.invalid_text(problem));
        }
        "FQDN" => domain_name(address),
        _ => {}
    }
}

fn domain_name(address: &At) {
    if address.is_empty() {
        return address.required("");
    }
    let name = address.text().strip_suffix('.').unwrap_or(address.text());
    let problems = names::dns1123_subdomain(name);
    if !problems.is_empty() {
        return address.invalid_as(name, problems.join(","));
    }
    if !name.contains('.') {
        return address.invalid_as(name, "should be a domain with at least two segments separated by dots");
    }
    for label in name.split('.') {
        let problems = names::dns1123_label(label);
        if !problems.is_empty() {
            return address.invalid_as(label, problems.join(","));
        }
    }
}

fn hints(hints: &At) {
    type Form = fn(&str) -> Vec<String>;
    let lists: [(&str, Form); 2] = [("forZones", names::label_value), ("forNodes", names::dns1123_subdomain)];
    for (list, form) in lists {
        let targets = hints.field(list);
        if targets.len() > 8 {
            return targets.too_many(8);
        }
        let mut seen = BTreeSet::new();
        for target in targets.items() {
            let name = target.field("name");
            if !seen.insert(name.text()) {
                name.duplicate();
            }
            name.has_form(form);
        }
    }
}
