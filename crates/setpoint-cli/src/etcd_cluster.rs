//! An etcd cluster to keep objects in: `--etcd` of `setpoint up`, `--etcd-servers` of kube-apiserver.

use std::path::PathBuf;

use clap::Args;
use setpoint_apiserver::{ApiServer, Builder};

/// Keep the objects in etcd
#[derive(Args, Clone, Debug, Default)]
#[cfg_attr(not(feature = "etcd"), allow(dead_code, reason = "the flags are there, to say what is missing"))]
pub(crate) struct EtcdCluster {
    /// Store the objects in etcd, in kube-apiserver's own layout: URL[,URL]
    ///
    /// Several servers can share it, including kube-apiservers. Certificates and keys stay in the folder of --data; servers
    /// that share objects need the same ones.
    #[arg(long = "etcd", value_name = "URL", value_delimiter = ',', conflicts_with = "memory")]
    pub(crate) urls: Vec<String>,

    /// The certificate authority of etcd [default: those that this machine trusts]
    #[arg(long = "etcd-cafile", value_name = "PATH", requires = "urls")]
    pub(crate) ca: Option<PathBuf>,

    /// The client certificate for etcd
    #[arg(long = "etcd-certfile", value_name = "PATH", requires = "key")]
    pub(crate) certificate: Option<PathBuf>,

    /// The key of --etcd-certfile
    #[arg(long = "etcd-keyfile", value_name = "PATH", requires = "certificate")]
    pub(crate) key: Option<PathBuf>,

    /// The prefix of all keys [default: /registry]
    #[arg(long = "etcd-prefix", value_name = "PREFIX", requires = "urls")]
    pub(crate) prefix: Option<String>,

    /// The etcd user; its password is in the environment variable SETPOINT_ETCD_PASSWORD
    #[arg(long = "etcd-user", value_name = "NAME", requires = "urls")]
    pub(crate) user: Option<String>,
}

impl EtcdCluster {
    /// Whether there is one.
    pub(crate) fn is_given(&self) -> bool {
        !self.urls.is_empty()
    }

    /// Starts a server on it.
    #[cfg(feature = "etcd")]
    pub(crate) async fn connect(&self, builder: Builder) -> anyhow::Result<ApiServer> {
        Ok(builder.connect(&self.options()?).await?)
    }

    /// Starts a server on it.
    #[cfg(not(feature = "etcd"))]
    pub(crate) async fn connect(&self, _builder: Builder) -> anyhow::Result<ApiServer> {
        anyhow::bail!("{}", self.unsupported())
    }

    /// What to do about it.
    #[cfg(not(feature = "etcd"))]
    pub(crate) fn unsupported(&self) -> String {
        let urls = self.urls.join(",");
        format!("this setpoint cannot use etcd ({urls}): build it with `--features etcd`, which takes protoc")
    }

    /// The same for the library.
    #[cfg(feature = "etcd")]
    pub(crate) fn options(&self) -> anyhow::Result<setpoint_apiserver::EtcdOptions> {
        use anyhow::Context;

        let mut options = setpoint_apiserver::EtcdOptions::new(self.urls.clone());
        if let Some(prefix) = &self.prefix {
            options = options.prefix(prefix);
        }
        if let Some(ca) = &self.ca {
            options = options.ca_file(ca)?;
        }
        if let (Some(certificate), Some(key)) = (&self.certificate, &self.key) {
            options = options.certificate_files(certificate, key)?;
        }
        if let Some(user) = &self.user {
            let password = std::env::var("SETPOINT_ETCD_PASSWORD");
            let password = password.with_context(|| {
                format!("no password for the etcd user {user}: set SETPOINT_ETCD_PASSWORD")
            })?;
            options = options.user(user, password);
        }
        Ok(options)
    }
}
