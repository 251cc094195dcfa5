//! A client of the API server that notices within ten seconds that a connection leads nowhere.
//!
//! A machine that lost its power, and a firewall that forgot a connection, send nothing that says so: whoever only reads, as a watch
//! does, waits for ever. The kernel asks for a sign of life, also while this process is suspended or has no CPU. `kube` has no setting
//! for it, so its client is put together here, as `kube::client::ClientBuilder` does it.

use std::{sync::Arc, time::Duration};

use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Builder, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ClientBuilder, ConfigExt},
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use tower::ServiceBuilder;

use super::counted::CountCallsLayer;
use crate::counts::ApiServerMetrics;

/// After so long without a packet the kernel asks, …
const IDLE: Duration = Duration::from_secs(5);
/// … so often in a row …
const PROBES: u32 = 2;
/// … this far apart: after nine seconds the connection is closed.
const INTERVAL: Duration = Duration::from_secs(2);
/// What was sent and is not acknowledged ends it as well.
const UNACKNOWLEDGED: Duration = Duration::from_secs(9);

pub(super) fn client(config: Config, counts: Arc<ApiServerMetrics>) -> kube::Result<Client> {
    let counted = CountCallsLayer(counts);
    if config.proxy_url.is_some() {
        // Its own client knows which proxies this program was built for.
        return Ok(ClientBuilder::try_from(config)?.with_layer(&counted).build());
    }
    if CryptoProvider::get_default().is_none() {
        // Whoever else was first has set one.
        let _ = aws_lc_rs::default_provider().install_default();
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(IDLE));
    tcp.set_keepalive_interval(Some(INTERVAL));
    tcp.set_keepalive_retries(Some(PROBES));
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    let service = ServiceBuilder::new()
        .layer(counted)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(tower::BoxError::from)
        .service(Builder::new(TokioExecutor::new()).build::<_, Body>(connector));
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_kernel_asks_for_a_sign_of_life_on_each_connection_to_the_api_server() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("it is bound");
        let config = Config::new(format!("http://{at}").parse().expect("a URL"));
        let client = client(config, Arc::default()).expect("a client");
        let question = tokio::spawn(async move { client.apiserver_version().await });
        let (_answers_never, from) = listener.accept().await.expect("it connects");
        // Of the kernel: local address, remote address, state, queues, and which timer runs until when (proc(5)).
        let form = format!("0100007F:{:04X} 0100007F:{:04X} 01", from.port(), at.port());
        let mut timer = None;
        while timer.is_none() {
            let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
            let line = table.lines().find(|it| it.contains(&form)).expect("it is connected");
            let word = line.split_whitespace().nth(5).expect("the timer").to_owned();
            // 01 is that of retransmissions: the request is on its way.
            timer =
                word.strip_prefix("02:").map(|ticks| u64::from_str_radix(ticks, 16).expect("hexadecimal"));
            tokio::task::yield_now().await;
        }
        let within = Duration::from_millis(10 * timer.unwrap_or_default());
        assert!(within <= IDLE, "it asks in {within:?}");
        question.abort();
    }
}
