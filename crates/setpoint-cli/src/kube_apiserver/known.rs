//! The flags of kube-apiserver that mean something here, and what.

/// A flag that means something here.
pub(super) struct Known {
    pub(super) name: &'static str,
    /// What it means.
    pub(super) help: &'static str,
    /// What it is unless given.
    pub(super) default: &'static str,
    pub(super) up: Up,
}

/// What `setpoint up` has of a flag.
pub(super) enum Up {
    /// It has no such flag.
    No,
    /// The same, with the same default.
    Same,
    /// The same, with a default of its own.
    Default(&'static str),
    /// The same, also under a name of its own.
    Alias(&'static str),
}

const fn known(name: &'static str, help: &'static str) -> Known {
    Known { name, help, default: "", up: Up::No }
}

impl Known {
    const fn default(self, default: &'static str) -> Known {
        Known { default, ..self }
    }

    const fn up(self, up: Up) -> Known {
        Known { up, ..self }
    }

    pub(super) fn find(name: &str) -> Option<&'static Known> {
        KNOWN.iter().find(|known| known.name == name)
    }
}

pub(super) const KNOWN: &[Known] = &[
    known("admission-control", "The admission plugins to run, and no others"),
    known("advertise-address", "The address of this server in the endpoints of the service kubernetes")
        .up(Up::Same),
    known("allow-privileged", "Has no effect: privileged containers are always allowed"),
    known("anonymous-auth", "Accept requests without credentials, as system:anonymous")
        .default("true")
        .up(Up::Default("false")),
    known("api-audiences", "The accepted audiences of service account tokens")
        .default("the issuers")
        .up(Up::Same),
    known("audit-log-path", "The audit log: audit.k8s.io/v1 Events as JSON lines, rotated at 100 MiB")
        .up(Up::Alias("audit-log")),
    known("audit-policy-file", "The audit policy: an audit.k8s.io/v1 Policy")
        .default("the metadata of all requests")
        .up(Up::Alias("audit-policy")),
    known("authorization-mode", "RBAC, AlwaysAllow or AlwaysDeny, or several")
        .default("AlwaysAllow")
        .up(Up::Default("RBAC")),
    known("bind-address", "The address to listen on").default("0.0.0.0"),
    known(
        "cert-dir",
        "The folder of apiserver.crt and apiserver.key, which are created if they do not exist",
    ),
    known("client-ca-file", "The authorities of client certificates; `setpoint up` also trusts its own")
        .up(Up::Same),
    known("disable-admission-plugins", "Admission plugins to disable").up(Up::Same),
    known("enable-admission-plugins", "Admission plugins to enable in addition to Kubernetes' default set")
        .up(Up::Same),
    known("etcd-cafile", "The authority of a real etcd's certificates"),
    known("etcd-certfile", "The client certificate for a real etcd"),
    known("etcd-compaction-interval", "How long history is kept at least; 0: as long as there is room")
        .default("5m0s")
        .up(Up::Same),
    known("etcd-keyfile", "The key of --etcd-certfile"),
    known("etcd-prefix", "The prefix of all keys in a real etcd").default("/registry"),
    known("etcd-servers", "The URL of etcd: of this program under the name etcd, or of a real etcd"),
    known("external-hostname", "A name for the certificate, if one is created"),
    known("feature-gates", "The names are checked; the gates have no effect"),
    known(
        "proxy-client-cert-file",
        "The client certificate for the servers of APIServices; `setpoint up` has its own",
    )
    .up(Up::Same),
    known("proxy-client-key-file", "The key of --proxy-client-cert-file").up(Up::Same),
    known("requestheader-allowed-names", "The common names that certificates of front proxies may have")
        .default("any")
        .up(Up::Same),
    known("requestheader-client-ca-file", "The authorities of front proxies, which name the user in headers")
        .up(Up::Same),
    known(
        "requestheader-extra-headers-prefix",
        "The prefixes of headers with extra data of the user, such as X-Remote-Extra-",
    )
    .up(Up::Same),
    known("requestheader-group-headers", "The headers with the user's groups, such as X-Remote-Group")
        .up(Up::Same),
    known("requestheader-uid-headers", "The headers with the user's uid, such as X-Remote-Uid").up(Up::Same),
    known("requestheader-username-headers", "The headers with the user's name, such as X-Remote-User")
        .up(Up::Same),
    known("runtime-config", "The names are checked; the served APIs do not change"),
    known("secure-port", "The port to listen on").default("6443"),
    known(
        "service-account-issuer",
        "The issuer of service account tokens; if repeated, the first one issues, and all are accepted",
    )
    .up(Up::Same),
    known("service-account-key-file", "Keys or certificates that verify service account tokens").up(Up::Same),
    known("service-account-signing-key-file", "The key that signs service account tokens").up(Up::Same),
    known(
        "service-cluster-ip-range",
        "The range of cluster IPs of services: one range, or one of each IP family",
    )
    .default("10.0.0.0/24")
    .up(Up::Default("10.96.0.0/12")),
    known("storage-initialization-timeout", "How long to wait for the etcd").default("1m0s"),
    known("tls-cert-file", "The server's certificate, with those of intermediate authorities"),
    known("tls-private-key-file", "The key of --tls-cert-file"),
    known("token-auth-file", "Bearer tokens to accept: token,user,uid,\"group1,group2\"")
        .up(Up::Alias("token-file")),
    known("v", "How much to log: 0 warnings, 2 information, 4 details, 6 everything"),
];

/// Those that change nothing that a client sees: no word about them.
pub(super) const QUIET: &[&str] = &[
    "endpoint-reconciler-type",
    "event-ttl",
    "logging-format",
    "max-mutating-requests-inflight",
    "max-requests-inflight",
    "profiling",
    "shutdown-delay-duration",
    "storage-backend",
    "storage-media-type",
    "vmodule",
    "watch-cache",
];
