//! Whether the front door answers what a certificate authority will ask for. An authority counts failures, so it is not let look
//! before that.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc, time::Duration};

use seaway_model::{Name, acme::CertificateOrder, load_balancer::Certificate};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(5);
/// Head and body of an answer that is right have a few hundred bytes.
const LARGEST: u64 = 16 << 10;

/// At one of its addresses, as its authority comes to one of them.
pub(super) async fn answers(order: &CertificateOrder, answers: &BTreeMap<Name, Name>) -> Result<(), String> {
    let mut told = "the front door does not listen on its port for http".to_owned();
    for at in &order.answers_at {
        match all(*at, &order.host, answers).await {
            Ok(()) => return Ok(()),
            Err(why) => told = format!("http://{at}: {why}"),
        }
    }
    Err(told)
}

/// By TLS, the same.
pub(super) async fn shows(
    order: &CertificateOrder,
    certificate: Option<Arc<Certificate>>,
) -> Result<(), String> {
    let Some(certificate) = certificate else {
        return Err("there is no certificate for the challenge".to_owned());
    };
    let mut told = "the front door does not listen on its port for https".to_owned();
    for at in order.answers_at.iter().copied() {
        let (host, certificate) = (order.host.clone(), certificate.clone());
        let looking = move || seaway_proxy::shows_validation(at, &host, &certificate);
        match tokio::task::spawn_blocking(looking).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(why)) => told = format!("https://{at}: {why}"),
            Err(error) => told = error.to_string(),
        }
    }
    Err(told)
}

async fn all(at: SocketAddr, host: &Name, answers: &BTreeMap<Name, Name>) -> Result<(), String> {
    for (token, body) in answers {
        match timeout(PATIENCE, get(at, host, token)).await {
            Ok(Ok(reply)) => right(&reply, body)?,
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => return Err(format!("no answer within {PATIENCE:?}")),
        }
    }
    Ok(())
}

async fn get(at: SocketAddr, host: &Name, token: &Name) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(at).await?;
    let asked = format!(
        "GET /.well-known/acme-challenge/{token} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).await?;
    let mut reply = Vec::new();
    stream.take(LARGEST).read_to_end(&mut reply).await?;
    Ok(reply)
}

fn right(reply: &[u8], body: &Name) -> Result<(), String> {
    let text = String::from_utf8_lossy(reply);
    let (head, got) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split_whitespace().nth(1).unwrap_or("none");
    match (status, got == body.as_str()) {
        ("200", true) => Ok(()),
        ("200", false) => Err("the response is not the key authorization".into()),
        (status, _) => Err(format!("the answer has status {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_right_if_its_text_is() {
        let body = Name::from("token.print");
        for (reply, said) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\ntoken.print", Ok(())),
            ("HTTP/1.1 200 OK\r\n\r\nelse", Err("the response is not the key authorization".to_owned())),
            ("HTTP/1.1 404 Not Found\r\n\r\ntoken.print", Err("the answer has status 404".to_owned())),
            ("", Err("the answer has status none".to_owned())),
        ] {
            assert_eq!(right(reply.as_bytes(), &body), said, "{reply}");
        }
    }
}
