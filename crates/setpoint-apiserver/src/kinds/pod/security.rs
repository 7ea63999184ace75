//! As whom and with which rights containers run.

use std::collections::BTreeSet;

use super::super::at::At;
use super::defaults::CONTAINERS;
use crate::metadata::names;

/// What applies to all containers of a pod.
pub(super) fn pod(spec: &At) {
    let context = spec.field("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        context.field(field).user_id();
    }
    context.field("supplementalGroups").items().for_each(|group| group.user_id());
    sysctls(&context.field("sysctls"), spec);
    context.field("fsGroupChangePolicy").one_of_if_set(&["Always", "OnRootMismatch"]);
    seccomp_profile(&context.field("seccompProfile"));
    windows_options(&context.field("windowsOptions"));
    apparmor_profile(&context.field("appArmorProfile"));
    context.field("supplementalGroupsPolicy").one_of_if_set(&["Merge", "Strict"]);
    context.field("seLinuxChangePolicy").one_of_if_set(&["MountOption", "Recursive"]);
}

pub(super) fn container(context: &At, host_users: bool) {
    if !context.exists() {
        return;
    }
    context.field("runAsUser").user_id();
    context.field("runAsGroup").user_id();
    let proc_mount = context.field("procMount");
    proc_mount.one_of_if_set(&["Default", "Unmasked"]);
    if host_users && proc_mount.text() == "Unmasked" {
        proc_mount.invalid("`hostUsers` must be false to use `Unmasked`");
    }
    seccomp_profile(&context.field("seccompProfile"));
    if *context.field("allowPrivilegeEscalation").value() == false {
        if context.field("privileged").is_true() {
            context.invalid("cannot set `allowPrivilegeEscalation` to false and `privileged` to true");
        }
        for capability in context.field("capabilities").field("add").texts() {
            if capability == "CAP_SYS_ADMIN" {
                context.invalid(
                    "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN",
                );
            }
        }
    }
    windows_options(&context.field("windowsOptions"));
    apparmor_profile(&context.field("appArmorProfile"));
}

fn sysctls(sysctls: &At, spec: &At) {
    let mut seen = BTreeSet::new();
    for sysctl in sysctls.items() {
        let name = sysctl.field("name");
        if name.is_empty() {
            name.required("");
        } else if !is_sysctl(name.text()) {
            name.invalid(
                "must have at most 253 characters and match regex \
                 ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            );
        } else if seen.contains(name.text()) {
            name.duplicate();
        }
        let plain = name.text().replace('/', ".");
        let is_net = plain.starts_with("net.");
        let is_ipc = plain.starts_with("kernel.shm")
            || plain.starts_with("kernel.msg")
            || plain.starts_with("fs.mqueue.")
            || plain == "kernel.sem";
        if is_net && spec.field("hostNetwork").is_true() {
            name.invalid_text("may not be specified when 'hostNetwork' is true");
        } else if is_ipc && spec.field("hostIPC").is_true() {
            name.invalid_text("may not be specified when 'hostIPC' is true");
        }
        seen.insert(name.text());
    }
}

fn is_sysctl(name: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_segment = |segment: &str| {
        let bytes = segment.as_bytes();
        bytes.first().copied().is_some_and(is_word)
            && bytes.last().copied().is_some_and(is_word)
            && bytes.iter().all(|byte| is_word(*byte) || b"-_".contains(byte))
    };
    name.len() <= 253 && name.split(['.', '/']).all(is_segment)
}

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

fn seccomp_profile(profile: &At) {
    if !profile.exists() {
        return;
    }
    match profile.field("type").text() {
        "" => profile.field("type").required("type is required when seccompProfile is set"),
        _ => profile.field("type").one_of_if_set(&PROFILES),
    }
    let local = profile.field("localhostProfile");
    if profile.field("type").text() != "Localhost" {
        if local.exists() {
            let fields = [("Type", "type", "\"\""), ("LocalhostProfile", "localhostProfile", "null")];
            local.invalid_as(profile.in_go(&fields), "can only be set when seccomp type is Localhost");
        }
    } else if local.exists() {
        local.descending_path();
    } else {
        local.required("must be set when seccomp type is Localhost");
    }
}

fn apparmor_profile(profile: &At) {
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    if !profile.exists() {
        return;
    }
    let local = profile.field("localhostProfile");
    match profile.field("type").text() {
        "Localhost" if !local.exists() => local.required(MISSING),
        "Localhost" => {
            if local.text().trim() != local.text() {
                local.invalid("must not be padded with whitespace");
            } else if local.is_empty() {
                local.required(MISSING);
            }
            if local.text().len() > 4095 {
                local.too_long(4095);
            }
        }
        "RuntimeDefault" | "Unconfined" => {
            if local.exists() {
                local.invalid("can only be set when AppArmor type is Localhost");
            }
        }
        "" => profile.field("type").required("type is required when appArmorProfile is set"),
        _ => profile.field("type").not_supported(&PROFILES),
    }
}

fn windows_options(options: &At) {
    let name = options.field("gmsaCredentialSpecName");
    if name.exists() {
        name.has_form(names::dns1123_subdomain);
    }
    let spec = options.field("gmsaCredentialSpec");
    if spec.exists() && spec.is_empty() {
        spec.invalid("gmsaCredentialSpec cannot be an empty string");
    }
    let user = options.field("runAsUserName");
    if user.exists() && user.is_empty() {
        user.invalid("runAsUserName cannot be an empty string");
    }
}

/// A pod for Linux has no options for Windows.
pub(super) fn linux_only(spec: &At) {
    const DETAIL: &str = "windows options cannot be set for a linux pod";
    let options = |at: &At| {
        let context = at.field("securityContext");
        if context.field("windowsOptions").exists() {
            context.field("windowsOptions").forbidden(DETAIL);
        }
    };
    options(spec);
    for list in CONTAINERS {
        spec.field(list).items().for_each(|container| options(&container));
    }
}

/// A pod for Windows has nothing that only Linux has.
pub(super) fn windows_only(spec: &At) {
    const DETAIL: &str = "cannot be set for a windows pod";
    let context = spec.field("securityContext");
    let forbid = |at: &At, fields: &[&str]| {
        for field in fields.iter().filter(|field| at.field(field).exists()) {
            at.field(field).forbidden(DETAIL);
        }
    };
    forbid(
        &context,
        &[
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "fsGroup",
            "fsGroupChangePolicy",
            "sysctls",
            "runAsUser",
            "runAsGroup",
            "supplementalGroups",
            "supplementalGroupsPolicy",
            "seLinuxChangePolicy",
        ],
    );
    forbid(spec, &["hostUsers", "hostPID", "hostIPC", "shareProcessNamespace"]);
    for list in CONTAINERS {
        for container in spec.field(list).items() {
            forbid(
                &container.field("securityContext"),
                &[
                    "appArmorProfile",
                    "seLinuxOptions",
                    "seccompProfile",
                    "capabilities",
                    "readOnlyRootFilesystem",
                    "privileged",
                    "allowPrivilegeEscalation",
                    "procMount",
                    "runAsUser",
                    "runAsGroup",
                ],
            );
        }
    }
}
