//! A manager that shows itself.

use setpoint::Manager;

use crate::{Dashboard, DashboardConfig};

/// Lets a [`Manager`] serve a dashboard. A trait, so that a program without a page has none of it.
pub trait ManagerExt {
    /// Serves a page about its caches, queues and controllers, from before the caches have synced. From this call on the
    /// page listens to the manager's facts, so it knows what happened before it was opened.
    #[must_use = "a manager does nothing until it runs"]
    fn dashboard(self, config: DashboardConfig) -> Manager;
}

impl ManagerExt for Manager {
    fn dashboard(self, config: DashboardConfig) -> Manager {
        let dashboard = Dashboard::new(self.facts(), self.client(), self.env().clone(), config);
        self.early_runnable("dashboard", async move |cx| {
            let listening = dashboard.listen().await?;
            tracing::info!(url = listening.url(), "serving the dashboard");
            listening.serve(cx.stopping().clone()).await?;
            Ok(())
        })
    }
}
