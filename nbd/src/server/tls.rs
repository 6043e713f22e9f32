//! Certificates, and what clients are offered with them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, ServerConfig, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConnection};

use crate::complaints::Complaints;
use crate::session::Encryption;

/// Why certificates can't be used.
#[derive(thiserror::Error, Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// A file can't be read.
    #[error("can't read {path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// A file has nothing of what is looked for in it.
    #[error("{path} has no {what} in PEM: {why}")]
    Pem {
        /// Which.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
        /// What is wrong with it.
        why: PemError,
    },
    /// A certificate and a key are not of one kind, or not to be used.
    #[error("the certificate in {certificate} can't be used with the key in {key}: {source}")]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's.
        key: PathBuf,
        /// Why not.
        source: rustls::Error,
    },
    /// Nobody can be told by these.
    #[error("clients can't be told by the certificates in {path}: {why}")]
    Authority {
        /// Their file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
}

/// What is needed to encrypt: a server's certificate and key, and perhaps by whom a client's certificate is to be
/// signed. Files are read when it is made, and by [`Tls::reload`].
#[derive(Clone, Debug)]
pub struct Tls {
    shared: Arc<Shared>,
    required: bool,
}

/// What all connections have together.
#[derive(Debug)]
pub struct Shared {
    /// For who comes next.
    config: Mutex<Arc<ServerConfig>>,
    files: Files,
    /// About clients that are refused.
    pub complaints: Complaints,
}

/// Where certificates are.
#[derive(Debug)]
struct Files {
    certificate: PathBuf,
    key: PathBuf,
    authority: Option<PathBuf>,
}

impl Tls {
    /// With the certificate (and those that lead to who signed it) and the key of these files, in PEM. With an
    /// `authority`, clients are let in only with a certificate that it has signed.
    ///
    /// # Errors
    /// What is wrong with which file.
    pub fn from_files(
        certificate: &Path,
        key: &Path,
        authority: Option<&Path>,
    ) -> Result<Self, TlsError> {
        let authority = authority.map(Path::to_owned);
        let files = Files { certificate: certificate.into(), key: key.into(), authority };
        let config = Mutex::new(Arc::new(files.read()?));
        let shared = Shared { config, files, complaints: Complaints::default() };
        Ok(Self { shared: Arc::new(shared), required: false })
    }

    /// Reads the files again: clients that come from now on are offered what is in them now, wherever this one or a clone of it is used. Those
    /// that are there go on as they are.
    ///
    /// # Errors
    /// What is wrong with which file; then all stays as it was.
    pub fn reload(&self) -> Result<(), TlsError> {
        let config = Arc::new(self.shared.files.read()?);
        *self.shared.config.lock() = config;
        Ok(())
    }

    /// Clients on Unix sockets and loopback addresses have to use it, too. (All others have to anyway.)
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// What clients of a socket are offered, which programs of this machine alone can reach or not.
    pub(super) fn offer(tls: Option<&Self>, is_local: bool) -> Offer {
        match tls {
            None => Offer::Nothing,
            Some(tls) if is_local && !tls.required => Offer::Optional(Arc::clone(&tls.shared)),
            Some(tls) => Offer::Required(Arc::clone(&tls.shared)),
        }
    }
}

impl Files {
    /// What they are now.
    fn read(&self) -> Result<ServerConfig, TlsError> {
        let Self { certificate, key, authority } = self;
        let chain = certificates(certificate)?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|why| pem(key, "key", why))?;
        let paired =
            |source| TlsError::Pair { certificate: certificate.into(), key: key.into(), source };
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(paired)?;
        let builder = match authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let wrong = |why: String| TlsError::Authority { path: path.into(), why };
                let mut roots = RootCertStore::empty();
                for root in certificates(path)? {
                    roots.add(root).map_err(|error| wrong(error.to_string()))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                builder.with_client_cert_verifier(
                    verifier.build().map_err(|error| wrong(error.to_string()))?,
                )
            }
        };
        let mut config = builder.with_single_cert(chain, secret).map_err(paired)?;
        // Nobody comes back with what an earlier connection was given: they last, and each shows its certificate.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

impl Shared {
    /// The server's end of a connection.
    pub fn accept(&self) -> Result<ServerConnection, rustls::Error> {
        let config = Arc::clone(&self.config.lock());
        ServerConnection::new(config)
    }
}

/// What clients of a socket are offered.
#[derive(Clone, Debug)]
pub enum Offer {
    /// No encryption.
    Nothing,
    /// Encryption, if they want it.
    Optional(Arc<Shared>),
    /// Nothing else.
    Required(Arc<Shared>),
}

impl Offer {
    /// The same as their conversation sees it.
    pub fn encryption(&self) -> Encryption {
        match self {
            Self::Nothing => Encryption::Impossible,
            Self::Optional(_) => Encryption::Possible,
            Self::Required(_) => Encryption::Required,
        }
    }

    /// What to encrypt with.
    pub fn shared(&self) -> Option<&Arc<Shared>> {
        match self {
            Self::Nothing => None,
            Self::Optional(shared) | Self::Required(shared) => Some(shared),
        }
    }
}

fn pem(path: &Path, what: &'static str, why: PemError) -> TlsError {
    let path = path.into();
    match why {
        PemError::Io(source) => TlsError::File { path, source },
        why => TlsError::Pem { path, what, why },
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why| pem(path, "certificate", why);
    let found = CertificateDer::pem_file_iter(path).map_err(wrong)?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    if found.is_empty() { Err(wrong(PemError::NoItemsFound)) } else { Ok(found) }
}
