//! A request and its answer, by UDP and, where that brings none, by TCP.

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
    time::timeout,
};

use super::{
    error::DnsError,
    message::{Reply, Request},
    tsig::TsigKey,
};

const BY_UDP: Duration = Duration::from_secs(2);
const BY_TCP: Duration = Duration::from_secs(5);
/// More does not come by UDP to who does not say that he takes more (RFC 1035), and what comes is cut.
const LARGEST_BY_UDP: usize = 4096;

/// With a key: what is not signed with it is as if it had not come, for anybody can send that.
pub(super) async fn exchange(
    at: SocketAddr,
    request: &Request,
    key: Option<&TsigKey>,
) -> Result<Reply, DnsError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (bytes, mac) = match key {
        Some(key) => key.sign(request.bytes(), now)?,
        None => (request.bytes().to_vec(), Vec::new()),
    };
    let asked = SentRequest { at, request, key, mac, now };
    if let Ok(Ok(reply)) = timeout(BY_UDP, asked.by_udp(&bytes)).await
        && !reply.is_truncated
    {
        return Ok(reply);
    }
    let unreachable = |why: String| DnsError::Unreachable { server: at, why };
    let answered = timeout(BY_TCP, by_tcp(at, &bytes)).await;
    let answered =
        answered.map_err(|_| unreachable(format!("no answer by UDP, nor by TCP within {BY_TCP:?}")))?;
    let answered = answered.map_err(|error| unreachable(format!("no answer by UDP; by TCP: {error}")))?;
    asked.believed(&answered)
}

struct SentRequest<'r> {
    at: SocketAddr,
    request: &'r Request,
    key: Option<&'r TsigKey>,
    mac: Vec<u8>,
    now: u64,
}

impl SentRequest<'_> {
    fn believed(&self, bytes: &[u8]) -> Result<Reply, DnsError> {
        let unbelievable = |why: String| DnsError::Unbelievable { server: self.at, why };
        let reply = Reply::read(bytes).map_err(|_| unbelievable("the answer is not a DNS message".into()))?;
        if !self.request.is_answered_by(&reply) {
            return Err(unbelievable("the answer of the name server belongs to another query".into()));
        }
        if let Some(key) = self.key {
            let verified = key.verify(bytes, reply.tsig.as_ref(), &self.mac, self.now);
            verified.map_err(|why| unbelievable(why.message(key)))?;
        }
        Ok(reply)
    }

    async fn by_udp(&self, request: &[u8]) -> io::Result<Reply> {
        let any = match self.at {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any).await?;
        // The kernel then takes packets of nobody else.
        socket.connect(self.at).await?;
        socket.send(request).await?;
        let mut bytes = vec![0; LARGEST_BY_UDP];
        loop {
            let length = socket.recv(&mut bytes).await?;
            // Anybody may send such; the true one may still come, and TCP tells what is wrong with it.
            if let Ok(reply) = self.believed(bytes.get(..length).unwrap_or_default()) {
                return Ok(reply);
            }
        }
    }
}

async fn by_tcp(at: SocketAddr, request: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(at).await?;
    let length = u16::try_from(request.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes(), request].concat()).await?;
    let length = stream.read_u16().await?;
    let mut bytes = vec![0; usize::from(length)];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::{
        super::{
            message::{SOA, WireName},
            tsig::{TsigKey, tests as tsig},
        },
        *,
    };

    /// What answers that request: as it is, and signed with that key.
    fn answers(request: &[u8], key: &TsigKey) -> [Vec<u8>; 2] {
        let read = Reply::read(request).expect("a request");
        let signature = read.tsig.expect("it is signed");
        let mut plain = request[..signature.begins_at].to_vec();
        (plain[2], plain[11]) = (0x84, 0);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
        [plain.clone(), tsig::signed(key, plain, &signature.mac, now, 0, &[])]
    }

    /// By UDP it sends these, and by TCP this.
    async fn server(
        by_udp: impl Fn(&[u8]) -> Vec<Vec<u8>> + Send + 'static,
        by_tcp: impl Fn(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let at = listener.local_addr().expect("an address");
        let socket = UdpSocket::bind(at).await.expect("the same port is free");
        tokio::spawn(async move {
            let mut request = vec![0; 512];
            let (length, from) = socket.recv_from(&mut request).await.expect("asked");
            for answer in by_udp(&request[..length]) {
                socket.send_to(&answer, from).await.expect("sent");
            }
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let mut request = vec![0; usize::from(stream.read_u16().await.expect("a length"))];
            stream.read_exact(&mut request).await.expect("a request");
            let answer = by_tcp(&request);
            stream.write_u16(u16::try_from(answer.len()).expect("short")).await.expect("sent");
            stream.write_all(&answer).await.expect("sent");
        });
        at
    }

    fn ours() -> TsigKey {
        tsig::key("seaway", "c2VjcmV0")
    }

    async fn ask(at: SocketAddr) -> Result<Reply, DnsError> {
        let name = WireName::parse("shop.example").expect("a name");
        exchange(at, &Request::query(&name, SOA)?, Some(&ours())).await
    }

    #[tokio::test]
    async fn what_others_send_is_as_if_it_had_not_come() {
        let theirs = tsig::key("seaway", "b3RoZXI=");
        let all = move |request: &[u8]| {
            let [plain, signed] = answers(request, &ours());
            vec![plain, b"nonsense".to_vec(), answers(request, &theirs)[1].clone(), signed]
        };
        let at = server(all, |_| panic!("the answer by UDP is enough")).await;
        let reply = ask(at).await.expect("the last one is believed");
        assert!(reply.tsig.is_some());
    }

    #[tokio::test]
    async fn an_answer_that_was_cut_is_asked_for_again_by_tcp() {
        let cut = |request: &[u8]| {
            let [mut plain, _] = answers(request, &ours());
            plain[2] |= 0x02;
            let signature = Reply::read(request).expect("a request").tsig.expect("it is signed");
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs();
            vec![tsig::signed(&ours(), plain, &signature.mac, now, 0, &[])]
        };
        let at = server(cut, |request| answers(request, &ours())[1].clone()).await;
        let reply = ask(at).await.expect("an answer");
        assert!(!reply.is_truncated);
    }

    #[tokio::test]
    async fn where_none_is_signed_it_is_said_why_it_is_not_believed() {
        let at = server(|_| Vec::new(), |request| answers(request, &ours())[0].clone()).await;
        let error = ask(at).await.err().expect("it is not signed");
        assert!(matches!(error, DnsError::Unbelievable { .. }) && !error.is_transient());
        assert!(error.to_string().ends_with("the answer is not signed with the key seaway"), "{error}");
    }
}
