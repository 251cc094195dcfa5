use std::time::Duration;

use k8s_openapi::{api::core::v1::Probe, apimachinery::pkg::util::intstr::IntOrString};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{interval, sleep, timeout},
};

use super::program::Program;

/// Asks as often as the probe says, and tells each time that the answer has settled otherwise; first of all, `false`.
pub(super) async fn watch(program: Program<'_>, probe: &Probe, mut settled: impl FnMut(bool)) {
    let seconds = |it: Option<i32>, otherwise| Duration::from_secs(it.unwrap_or(otherwise).max(0) as u64);
    sleep(seconds(probe.initial_delay_seconds, 0)).await;
    let mut clock = interval(seconds(probe.period_seconds, 10).max(Duration::from_millis(100)));
    let within = seconds(probe.timeout_seconds, 1);
    let (rise, fall) = (probe.success_threshold.unwrap_or(1), probe.failure_threshold.unwrap_or(3));
    let (mut told, mut last, mut run) = (None, None, 0);
    loop {
        clock.tick().await;
        let good = timeout(within, ask(program, probe)).await.unwrap_or(false);
        run = if last == Some(good) { run + 1 } else { 1 };
        last = Some(good);
        if told != Some(good) && run >= if good { rise } else { fall } {
            told = Some(good);
            settled(good);
        }
    }
}

async fn ask(program: Program<'_>, probe: &Probe) -> bool {
    let host = |given: &Option<String>| {
        given.clone().unwrap_or_else(|| program.sandbox.addresses.first().cloned().unwrap_or_default())
    };
    if let Some(http) = &probe.http_get {
        let Some(port) = port_of(program, &http.port) else { return false };
        return asked_over_http(&host(&http.host), port, http.path.as_deref().unwrap_or("/")).await;
    }
    if let Some(tcp) = &probe.tcp_socket {
        let Some(port) = port_of(program, &tcp.port) else { return false };
        return TcpStream::connect((host(&tcp.host), port)).await.is_ok();
    }
    if let Some(line) = probe.exec.as_ref().and_then(|it| it.command.as_ref()) {
        return exec(program, line).await;
    }
    // A kind that this does not know must not pass for healthy.
    false
}

/// If a command in there ends well.
pub(super) async fn exec(program: Program<'_>, line: &[String]) -> bool {
    let mut command = program.inside(line);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.status().await.is_ok_and(|it| it.success())
}

async fn asked_over_http(host: &str, port: u16, path: &str) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect((host, port)).await?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: kube-probe/1.36\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.take(1 << 16).read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer)
    };
    let Ok(answer) = asked.await else { return false };
    let status = answer.split(|it| *it == b' ').nth(1).and_then(|it| std::str::from_utf8(it).ok());
    status.and_then(|it| it.parse::<u16>().ok()).is_some_and(|it| (200..400).contains(&it))
}

fn port_of(program: Program<'_>, port: &IntOrString) -> Option<u16> {
    match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => {
            let mut ports = program.container.ports.iter().flatten();
            let named = ports.find(|it| it.name.as_deref() == Some(name))?;
            u16::try_from(named.container_port).ok()
        }
    }
}
