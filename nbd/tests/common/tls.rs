//! Certificates, and clients that encrypt.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lode_nbd::{Tls, TlsError};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion, version,
};

use super::{ACK, Client, STARTTLS};

/// One who signs, with its directory of certificates and keys.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    directory: tempfile::TempDir,
}

impl Authority {
    /// With a certificate of its own, and one for a server and one for a client.
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages.push(KeyUsagePurpose::KeyCertSign);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(directory.path().join("ca-cert.pem"), certificate.pem()).unwrap();
        let authority = Self { issuer: Issuer::new(params, key), directory };
        authority.sign("server");
        authority.sign("client");
        authority
    }

    /// New certificates and keys of these, in place of the last ones, are those of another.
    pub fn replace(&self, who: &str, by: &Self) {
        for what in ["cert", "key"] {
            let name = format!("{who}-{what}");
            std::fs::copy(by.file(&name), self.file(&name)).unwrap();
        }
    }

    fn sign(&self, who: &str) {
        let names = vec!["localhost".to_owned()];
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &self.issuer);
        let write = |what, pem: String| std::fs::write(self.file(&format!("{who}-{what}")), pem);
        write("cert", certificate.unwrap().pem()).unwrap();
        write("key", key.serialize_pem()).unwrap();
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(format!("{name}.pem"))
    }

    /// What a server offers; with `clients`, to those whom they have signed.
    pub fn tls(&self, clients: Option<&Self>) -> Tls {
        let clients = clients.map(|authority| authority.file("ca-cert"));
        self.try_tls("server-cert", "server-key", clients.as_deref()).unwrap()
    }

    pub fn try_tls(&self, cert: &str, key: &str, ca: Option<&Path>) -> Result<Tls, TlsError> {
        Tls::from_files(&self.file(cert), &self.file(key), ca)
    }

    /// How a client that trusts this one encrypts, and whose certificate it shows.
    pub fn client(&self, shows: Option<&Self>) -> ClientConfig {
        self.client_of(&[&version::TLS13, &version::TLS12], shows)
    }

    pub fn client_of(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        shows: Option<&Self>,
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        let certificate = |path| CertificateDer::from_pem_file(path).unwrap();
        roots.add(certificate(self.file("ca-cert"))).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_protocol_versions(versions).unwrap();
        let builder = builder.with_root_certificates(roots);
        let Some(shown) = shows else { return builder.with_no_client_auth() };
        let key = PrivateKeyDer::from_pem_file(shown.file("client-key")).unwrap();
        builder.with_client_auth_cert(vec![certificate(shown.file("client-cert"))], key).unwrap()
    }
}

pub type Encrypted<S> = Client<StreamOwned<ClientConnection, S>>;

impl<S: Read + Write> Client<S> {
    /// Asks for encryption, which is agreed to, and begins it when something is sent.
    pub fn encrypt(mut self, how: ClientConfig) -> Encrypted<S> {
        assert_eq!(self.option(STARTTLS, b"").kinds(), [ACK]);
        let name = ServerName::try_from("localhost").unwrap();
        let connection = ClientConnection::new(Arc::new(how), name).unwrap();
        Client::of(StreamOwned::new(connection, self.stream))
    }

    /// Asks for encryption; what the server, or the client, does not like about it.
    pub fn try_encrypt(self, how: ClientConfig) -> Result<Encrypted<S>, String> {
        let mut client = self.encrypt(how);
        client
            .stream
            .write_all(b"IHAVEOPT\0\0\0\x03\0\0\0\0")
            .map_err(|error| error.to_string())?;
        let mut reply = [0; 20];
        client.stream.read_exact(&mut reply).map_err(|error| error.to_string())?;
        client.take(super::number(&reply[16..]) as usize);
        assert_eq!(client.take(20)[12..16], [0, 0, 0, 1]);
        Ok(client)
    }
}
