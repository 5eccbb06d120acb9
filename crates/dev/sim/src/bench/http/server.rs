//! The server of `bursar up`, on a free port of loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Context as _;
use bursar_ledger::store::sqlite::FILE_NAME;
use bursar_node::executor::Executor;
use bursar_server::descriptors;
use bursar_server::listen::{Listen, Listening};
use bursar_server::metrics::Metrics;
use bursar_server::{Anonymous, OwnUser, Readers, ServerInfo, Service};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::bench::world::World;

/// A running server.
pub(in crate::bench) struct Server {
    runtime: Runtime,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<()>,
}

impl Server {
    /// Serves a ledger.
    pub(in crate::bench) fn start(world: &World) -> anyhow::Result<Self> {
        Self::serve(service(world))
    }

    /// Serves a ledger and accepts executions.
    pub(in crate::bench) fn executing(
        world: &World,
        executor: Arc<dyn Executor>,
    ) -> anyhow::Result<Self> {
        Self::serve(service(world).executing(executor, OwnUser::Everyone))
    }

    fn serve(service: Service) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("http")
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        let listen = Listen {
            tcp: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))),
            socket: None,
            anonymous: Anonymous::None,
            connections_max: None,
        };
        descriptors::raise();
        let listening = runtime.block_on(Listening::bind(Arc::new(service), &listen))?;
        let address = listening.address().context("the server has no address")?;
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = runtime.spawn(listening.serve(async {
            // A dropped sender also stops the server.
            let _stopped = stopped.await;
        }));
        Ok(Self {
            runtime,
            address,
            stop,
            serving,
        })
    }

    pub(in crate::bench) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops the server gracefully.
    pub(in crate::bench) fn stop(self) -> anyhow::Result<()> {
        // If the server has already ended, the next line reports it.
        let _ended = self.stop.send(());
        self.runtime
            .block_on(self.serving)
            .context("our server panicked")
    }
}

fn service(world: &World) -> Service {
    let readers: Readers = Arc::new(world.data.readers());
    let info = ServerInfo {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        store: "sqlite".to_owned(),
        file: Some(world.data.path.join(FILE_NAME)),
        leads_since: world.ledger().now(),
        node: None,
    };
    let (ledger, keys) = (world.ledger().clone(), world.data.keys());
    Service::new(ledger, readers, keys, info, Metrics::default())
}
