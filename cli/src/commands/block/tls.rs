//! Certificates for those who come from elsewhere.

use std::io::ErrorKind;
use std::net::SocketAddr;

use lode_nbd::{ServerError, Tls, TlsError};

use super::listen::Listen;
use super::{ServeArgs, TlsUse};
use crate::failure::{Failure, Kind, Result};
use crate::interrupt::Hangup;

/// The certificates that are to be used.
pub(super) fn tls_of(args: &ServeArgs) -> Result<Option<Tls>> {
    let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) else {
        return match args.listen.as_ref().and_then(Listen::far) {
            Some(address) => Err(far(address)),
            None => Ok(None),
        };
    };
    let tls = Tls::from_files(certificate, key, args.tls_ca.as_deref()).map_err(|error| {
        let (kind, advice) = match &error {
            TlsError::File { source, .. } if source.kind() == ErrorKind::NotFound => {
                (Kind::NotFound, "name files in PEM that are there")
            }
            TlsError::File { source, .. } if source.kind() == ErrorKind::IsADirectory => {
                (Kind::Usage, "name files in PEM: that is a directory")
            }
            TlsError::File { .. } => (Kind::Denied, "make them readable to who serves"),
            TlsError::Pair { .. } => (Kind::Usage, "--tls-key is to be the key that the certificate of --tls-cert is for"),
            _ => (Kind::Usage, "--tls-cert and --tls-ca are certificates and --tls-key is a key that no passphrase protects, all in PEM: the guide shows how to make some"),
        };
        Failure::new(kind, error.to_string()).advise(advice)
    })?;
    Ok(Some(if args.tls == TlsUse::Required { tls.required() } else { tls }))
}

/// Why this address is not listened at without TLS.
pub(super) fn far(address: SocketAddr) -> Failure {
    Failure::usage(ServerError::NotLoopback(address).to_string()).advise(
        "give --tls-cert and --tls-key (and --tls-ca, so that not everybody may come); or listen at 127.0.0.1, [::1] or a Unix socket, and reach that from elsewhere through ssh -L",
    )
}

/// Certificates that are read again when a signal asks for it.
pub(super) struct Renewed {
    tls: Tls,
    hangup: Hangup,
}

impl Renewed {
    /// Of these, from now on.
    ///
    /// # Errors
    /// Where signals can't be waited for.
    pub(super) fn new(tls: &Tls) -> Result<Self> {
        Ok(Self { tls: tls.clone(), hangup: Hangup::by_signal()? })
    }

    /// Reads them, if it was asked for. What can't be used changes nothing.
    pub(super) fn look(&self) {
        if !self.hangup.came() {
            return;
        }
        match self.tls.reload() {
            Ok(()) => tracing::info!(
                "certificates were read again: they are for clients that come from now on"
            ),
            Err(error) => {
                tracing::error!(%error, "certificates can't be read again: the last ones stay in use")
            }
        }
    }
}
