//! The smallest proxy of Pingora that does what the other peers do: `pingora-peer LISTEN MEMBER...`, all of them IP:PORT.
//! HTTP/1.1, round robin, a TCP check of each member every 2 s, the fields that Seaway adds, one thread, no log.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use pingora_core::{
    Result,
    prelude::HttpPeer,
    server::{Server, configuration::ServerConf},
    services::background::background_service,
};
use pingora_http::RequestHeader;
use pingora_load_balancing::{LoadBalancer, health_check::TcpHealthCheck, selection::RoundRobin};
use pingora_proxy::{ProxyHttp, Session, http_proxy_service};
use uuid::Uuid;

struct Proxy {
    members: Arc<LoadBalancer<RoundRobin>>,
    port: String,
}

#[async_trait]
impl ProxyHttp for Proxy {
    type CTX = ();

    fn new_ctx(&self) {}

    async fn upstream_peer(&self, _: &mut Session, _: &mut ()) -> Result<Box<HttpPeer>> {
        let member = self.members.select(b"", 16);
        let member = member.ok_or_else(|| pingora_core::Error::new_str("no member answers"))?;
        Ok(Box::new(HttpPeer::new(member, false, String::new())))
    }

    async fn upstream_request_filter(
        &self,
        session: &mut Session,
        request: &mut RequestHeader,
        _: &mut (),
    ) -> Result<()> {
        let client = session.client_addr().and_then(|it| it.as_inet()).map(|it| it.ip().to_string());
        let host = request.headers.get("host").cloned();
        request.insert_header("X-Forwarded-For", client.unwrap_or_default())?;
        request.insert_header("X-Forwarded-Proto", "http")?;
        if let Some(host) = host {
            request.insert_header("X-Forwarded-Host", host)?;
        }
        request.insert_header("X-Forwarded-Port", &*self.port)?;
        request.insert_header("X-Request-Id", Uuid::new_v4().to_string())
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let listen = arguments.next().expect("LISTEN MEMBER...");
    let mut members =
        LoadBalancer::<RoundRobin>::try_from_iter(arguments).expect("members are IP:PORT");
    members.set_health_check(TcpHealthCheck::new());
    members.health_check_frequency = Some(Duration::from_secs(2));

    let settings = ServerConf { threads: 1, ..ServerConf::default() };
    let mut server = Server::new_with_opt_and_conf(None, settings);
    server.bootstrap();
    let checks = background_service("checks", members);
    let port = listen.rsplit(':').next().unwrap_or_default().to_owned();
    let mut proxy = http_proxy_service(&server.configuration, Proxy { members: checks.task(), port });
    proxy.add_tcp(&listen);
    server.add_service(proxy);
    server.add_service(checks);
    server.run_forever();
}
