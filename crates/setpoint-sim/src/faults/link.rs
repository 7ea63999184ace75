//! Whether the server can be reached, and which connections have outlived it.

use setpoint_env::watch;

use crate::connection_error::ConnectionError;

/// The connection of all clients to the server.
#[derive(Debug)]
pub(crate) struct Link {
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    up: bool,
    stops: u64,
}

impl Link {
    pub(crate) fn up() -> Link {
        Link { state: watch::Sender::new(State { up: true, stops: 0 }) }
    }

    pub(crate) fn stop(&self) {
        self.state.send_modify(|state| {
            state.up = false;
            state.stops += 1;
        });
    }

    pub(crate) fn start(&self) {
        self.state.send_modify(|state| state.up = true);
    }

    pub(crate) fn connect(&self) -> Result<Connection, ConnectionError> {
        let state = self.state.subscribe();
        let State { up, stops } = *state.borrow();
        if up { Ok(Connection { state, stops }) } else { Err(ConnectionError::refused()) }
    }
}

/// A connection, from its making until the server's next stop.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    state: watch::Receiver<State>,
    stops: u64,
}

impl Connection {
    /// Waits until the server has stopped since the connection was made. A link that is gone breaks nothing.
    pub(crate) async fn broken(&mut self) {
        let stops = self.stops;
        if self.state.wait_for(|state| state.stops != stops).await.is_err() {
            std::future::pending().await
        }
    }
}
