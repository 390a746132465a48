//! A SOCKS5 proxy (RFC 1928): connects to the API server by its name, which the proxy resolves.

use std::net::IpAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const VERSION: u8 = 5;
/// Methods of authentication: none, and user and password (RFC 1929).
const NO_AUTH: u8 = 0;
const PASSWORD: u8 = 2;
const NONE_FITS: u8 = 0xff;
/// Kinds of addresses.
const IPV4: u8 = 1;
const NAME: u8 = 3;
const IPV6: u8 = 4;

/// User and password of a proxy.
pub(super) type Login<'a> = Option<(&'a str, &'a str)>;

/// Requests a connection to a server of the proxy at the other end.
pub(super) async fn connect(
    tcp: &mut TcpStream,
    (host, port): &(String, u16),
    login: Login<'_>,
) -> Result<(), String> {
    let lost = |error: std::io::Error| error.to_string();
    let methods: &[u8] =
        if login.is_some() { &[VERSION, 2, NO_AUTH, PASSWORD] } else { &[VERSION, 1, NO_AUTH] };
    tcp.write_all(methods).await.map_err(lost)?;
    let mut answer = [0; 2];
    tcp.read_exact(&mut answer).await.map_err(lost)?;
    match (answer, login) {
        ([VERSION, NO_AUTH], _) => {}
        ([VERSION, PASSWORD], Some(login)) => log_in(tcp, login).await?,
        ([VERSION, NONE_FITS], Some(_)) => {
            return Err("it accepts neither a password nor anonymous access".to_owned());
        }
        ([VERSION, NONE_FITS | PASSWORD], None) => {
            return Err("it wants a user and a password; name them in the proxy's URL".to_owned());
        }
        _ => return Err("it does not speak SOCKS5".to_owned()),
    }
    let mut request = vec![VERSION, 1, 0];
    match host.parse() {
        Ok(IpAddr::V4(address)) => {
            request.push(IPV4);
            request.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            request.push(IPV6);
            request.extend(address.octets());
        }
        Err(_) => {
            request.push(NAME);
            request.extend(counted(host, "name of the API server")?);
        }
    }
    request.extend(port.to_be_bytes());
    tcp.write_all(&request).await.map_err(lost)?;
    let mut head = [0; 4];
    tcp.read_exact(&mut head).await.map_err(lost)?;
    let [version, result, _, kind] = head;
    if version != VERSION {
        return Err("it does not speak SOCKS5".to_owned());
    }
    if result != 0 {
        return Err(format!("it does not connect to {host}:{port}: {}", meaning(result)));
    }
    // The address it is connected from: of no use, but it has to be read.
    let length = match kind {
        IPV4 => 4,
        IPV6 => 16,
        NAME => usize::from(tcp.read_u8().await.map_err(lost)?),
        _ => return Err("it does not speak SOCKS5".to_owned()),
    };
    let mut rest = vec![0; length + 2];
    tcp.read_exact(&mut rest).await.map(drop).map_err(lost)
}

async fn log_in(tcp: &mut TcpStream, (user, password): (&str, &str)) -> Result<(), String> {
    let lost = |error: std::io::Error| error.to_string();
    let parts = [vec![1], counted(user, "user")?, counted(password, "password")?];
    tcp.write_all(&parts.concat()).await.map_err(lost)?;
    let mut answer = [0; 2];
    tcp.read_exact(&mut answer).await.map_err(lost)?;
    let [_, refused] = answer;
    if refused == 0 { Ok(()) } else { Err("it refuses the user or the password of its URL".to_owned()) }
}

/// Returns a text behind its length.
fn counted(text: &str, what: &str) -> Result<Vec<u8>, String> {
    let length = u8::try_from(text.len()).map_err(|_| format!("the {what} is longer than 255 bytes"))?;
    Ok([&[length], text.as_bytes()].concat())
}

fn meaning(result: u8) -> String {
    let text = match result {
        1 => "it failed",
        2 => "its rules do not allow it",
        3 => "the network is unreachable",
        4 => "the host is unreachable",
        5 => "connection refused",
        6 => "it took too long",
        _ => return format!("error {result}"),
    };
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::kube::proxy::Proxy;
    use tokio::net::TcpListener;

    /// Numbers of bytes, and the answers to them.
    type Script = Vec<(usize, Vec<u8>)>;

    /// A proxy that gives its answers one after the other, each after as many bytes as it expects; returns the bytes
    /// read.
    async fn proxy(script: Script) -> (std::net::SocketAddr, tokio::task::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let mut all = Vec::new();
            for (length, answer) in script {
                let mut bytes = vec![0; length];
                tcp.read_exact(&mut bytes).await.unwrap();
                all.extend(bytes);
                tcp.write_all(&answer).await.unwrap();
            }
            all
        });
        (address, task)
    }

    const CONNECTED: [u8; 10] = [5, 0, 0, 1, 127, 0, 0, 1, 0, 80];

    #[tokio::test]
    async fn server_is_asked_for_by_name_with_user_and_password() {
        let script = vec![(4, vec![5, 2]), (13, vec![1, 0]), (15, [&CONNECTED[..], b"hello"].concat())];
        let (address, task) = proxy(script).await;
        let proxy = Proxy::parse(&format!("socks5://us%65r:geheim@{address}"), "kubeconfig").unwrap();
        let mut tcp = proxy.connect(&("api.test".to_owned(), 6443), &[]).await.ok().unwrap();
        let mut hello = [0; 5];
        tcp.read_exact(&mut hello).await.unwrap();
        assert_eq!(&hello, b"hello", "not a byte of the server's is lost");
        let read = task.await.unwrap();
        assert_eq!(read[4..17], *b"\x01\x04user\x06geheim");
        assert_eq!(read[17..], *b"\x05\x01\x00\x03\x08api.test\x19\x2b");
        assert!(!format!("{proxy:?} {proxy}").contains("geheim"));
    }

    #[tokio::test]
    async fn refusals_are_named() {
        let rows: [(&str, Script, &str); 6] = [
            ("", vec![(3, vec![5, 0xff])], "wants a user and a password"),
            ("", vec![(3, b"HT".to_vec())], "does not speak SOCKS5"),
            ("", vec![(3, vec![5, 0]), (15, vec![5, 5, 0, 1])], "api.test:6443: connection refused"),
            ("", vec![(3, vec![5, 0]), (15, vec![5, 0])], "eof"),
            ("u:geheim@", vec![(4, vec![5, 2]), (10, vec![1, 1])], "refuses the user"),
            ("u:geheim@", vec![(4, vec![5, 0xff])], "accepts neither"),
        ];
        for (login, script, expected) in rows {
            let (address, task) = proxy(script).await;
            let proxy = Proxy::parse(&format!("socks5h://{login}{address}"), "kubeconfig").unwrap();
            let error = proxy.connect(&("api.test".to_owned(), 6443), &[]).await.err().unwrap();
            assert!(error.contains(&format!("the proxy {address}: ")), "{error}");
            assert!(error.contains(expected) && !error.contains("geheim"), "{expected}: {error}");
            task.await.unwrap();
        }
    }
}
