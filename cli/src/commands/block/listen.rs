//! Where to listen by TCP.

use std::net::{SocketAddr, ToSocketAddrs};

/// An address, or those of a name, each with the port.
#[derive(Clone, Debug)]
pub(crate) struct Listen(Vec<SocketAddr>);

impl Listen {
    /// What was said, looked up.
    ///
    /// # Errors
    /// What is wrong with it, for the user.
    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
        let parts = text.rsplit_once(':').map(|(host, port)| (host, port.parse::<u16>()));
        let Some((host, Ok(_))) = parts.filter(|(host, _)| !host.is_empty()) else {
            return Err(format!(
                "`{text}` is no address and port: write it as 127.0.0.1:10809, [::1]:10809 or localhost:10809"
            ));
        };
        let none = |why: String| {
            format!(
                "no address of `{host}` can be found ({why}): check the name, or give an address"
            )
        };
        let found: Vec<SocketAddr> =
            text.to_socket_addrs().map_err(|error| none(error.to_string()))?.collect();
        if found.is_empty() { Err(none("it has none".to_owned())) } else { Ok(Self(found)) }
    }

    /// All of them: the first that the machine has is listened at.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.0
    }

    /// One that others than this machine reach.
    pub(super) fn far(&self) -> Option<SocketAddr> {
        self.0.iter().copied().find(|address| !address.ip().is_loopback())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_taken_and_what_is_none_is_told() {
        for (text, far) in [
            ("127.0.0.1:10809", false),
            ("[::1]:0", false),
            ("localhost:0", false),
            ("192.0.2.1:0", true),
            ("[::]:1", true),
        ] {
            let listen = Listen::parse(text).unwrap();
            assert_eq!(
                (listen.far().is_some(), listen.addresses().is_empty()),
                (far, false),
                "{text}"
            );
        }
        for text in ["here", "10809", ":10809", "localhost:", "localhost:65536", "127.0.0.1"] {
            let error = Listen::parse(text).unwrap_err();
            assert!(error.contains(text) && error.contains("localhost:10809"), "{error}");
        }
        let error = Listen::parse("no such name:1").unwrap_err();
        assert!(error.contains("`no such name`"), "{error}");
    }
}
