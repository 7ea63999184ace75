//! Settings of a dashboard.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use setpoint::webhook::Certificates;

use crate::Stage;

/// Settings of a [`Dashboard`](crate::Dashboard).
///
/// ```
/// use setpoint_dashboard::DashboardConfig;
///
/// let config = DashboardConfig::default();
/// assert_eq!(config.address().to_string(), "127.0.0.1:6480");
/// ```
#[derive(Clone)]
#[must_use]
pub struct DashboardConfig {
    pub(crate) address: SocketAddr,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) all_kinds: bool,
    pub(crate) slow: Duration,
    pub(crate) stage: Option<Arc<dyn Stage>>,
}

impl DashboardConfig {
    /// The port, unless another is set.
    pub const PORT: u16 = 6480;

    /// Listens there; port 0 picks one. An address that is not of this machine alone needs
    /// [`DashboardConfig::certificates`].
    pub fn listen(mut self, address: SocketAddr) -> DashboardConfig {
        self.address = address;
        self
    }

    /// Serves HTTPS with this certificate. On an address that others can reach, whoever asks must also show a token.
    pub fn certificates(mut self, certificates: Certificates) -> DashboardConfig {
        self.certificates = Some(certificates);
        self
    }

    /// Shows objects of every kind that the server has. Unless set, those of the kinds that this process caches: of others
    /// it may not be allowed to read.
    pub fn all_kinds(mut self) -> DashboardConfig {
        self.all_kinds = true;
        self
    }

    /// After which time a reconcile is called slow: one second unless set.
    pub fn slow(mut self, slow: Duration) -> DashboardConfig {
        self.slow = slow;
        self
    }

    /// Lets whoever looks at the page play: a demo sets it, a controller that works for others does not. It is refused on
    /// an address that others can reach.
    pub fn stage(mut self, stage: impl Stage) -> DashboardConfig {
        self.stage = Some(Arc::new(stage));
        self
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// On this machine alone, port [`DashboardConfig::PORT`].
impl Default for DashboardConfig {
    fn default() -> DashboardConfig {
        DashboardConfig {
            address: (Ipv4Addr::LOCALHOST, DashboardConfig::PORT).into(),
            certificates: None,
            all_kinds: false,
            slow: Duration::from_secs(1),
            stage: None,
        }
    }
}

impl fmt::Debug for DashboardConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DashboardConfig").field("address", &self.address).finish_non_exhaustive()
    }
}
