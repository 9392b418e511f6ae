//! TLS 1.3 (RFC 8446) under the frames of a TCP connection, by rustls.
//!
//! A server proves its identity key as a raw public key (RFC 7250), which clients compare with the deployment file.
//! There are no certificates, names or third parties. Clients prove nothing here; the handshake in frames that follows
//! is bound to this session ([`Tls::binding`]). No tickets, no early data, no resumption: an idle connection sends
//! nothing.
//!
//! This is one end of a session without its socket: plain bytes on one side, records on the other. It holds the records
//! of one write to be sent ([`PENDING`]), [`INCOMING`] bytes of received records, and one record's plain bytes.
use penstock_wire::{KeyPair, PublicKey};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error,
    PeerMisbehaved, ServerConfig, ServerConnection, SignatureScheme,
};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::sync::{Arc, LazyLock};

/// Plain bytes that are encrypted before the socket must accept some.
const PENDING: usize = 256 << 10;
/// Most bytes of records read from the socket at once.
const INCOMING: usize = 64 << 10;
/// First byte of every session: a handshake record.
const HANDSHAKE_RECORD: u8 = 22;
/// Label of the exported channel binding (RFC 8446, section 7.5).
const LABEL: &[u8] = b"EXPORTER-penstock handshake";
/// Prefix of the 32 bytes of an Ed25519 key (RFC 8410, sections 4 and 7).
const PUBLIC_PREFIX: [u8; 12] = [0x30, 42, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 33, 0];
const PRIVATE_PREFIX: [u8; 16] = [
    0x30, 46, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 34, 4, 32,
];

static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(ring::default_provider()));

/// The server's configuration, shared by all its connections.
#[derive(Debug, Clone)]
pub(crate) struct Acceptor(Arc<ServerConfig>);

impl Acceptor {
    /// Proves the one of `identities` that the client names, otherwise the first.
    pub(crate) fn new(identities: &[&KeyPair]) -> Result<Acceptor, Error> {
        let keys = identities.iter().map(|pair| {
            let private = [&PRIVATE_PREFIX[..], &pair.seed()[..]].concat();
            let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(private))?;
            let public = CertificateDer::from(encoded(&pair.public()));
            let proven = Arc::new(CertifiedKey::new(vec![public], key));
            Ok((pair.public().server_name(), proven))
        });
        let resolver = Arc::new(Identities(keys.collect::<Result<_, Error>>()?));
        let mut config = ServerConfig::builder_with_provider(PROVIDER.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.send_tls13_tickets = 0;
        Ok(Acceptor(Arc::new(config)))
    }
}

/// The keys of a server, each under the name that clients know.
#[derive(Debug)]
struct Identities(Vec<(String, Arc<CertifiedKey>)>);

impl ResolvesServerCert for Identities {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let wanted = hello.server_name().unwrap_or_default();
        let named = self.0.iter().find(|(name, _)| name == wanted);
        named.or(self.0.first()).map(|(_, key)| key.clone())
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

fn encoded(key: &PublicKey) -> Vec<u8> {
    [&PUBLIC_PREFIX[..], &key.0[..]].concat()
}

/// One end of a session.
#[derive(Debug)]
pub(crate) struct Tls {
    session: Connection,
    /// Received records, from `start` to `end`.
    records: Vec<u8>,
    start: usize,
    end: usize,
}

impl Tls {
    /// The client's end, which accepts only the holder of `identity`.
    pub(crate) fn to(identity: PublicKey) -> Result<Tls, Error> {
        let mut config = ClientConfig::builder_with_provider(PROVIDER.clone())
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Pinned(identity)))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        let name = ServerName::try_from(identity.server_name())
            .map_err(|_| Error::General("a name that is none".into()))?;
        let session = ClientConnection::new(Arc::new(config), name)?;
        Ok(Tls::new(session.into()))
    }

    /// The server's end.
    pub(crate) fn from(acceptor: &Acceptor) -> Result<Tls, Error> {
        let session = ServerConnection::new(acceptor.0.clone())?;
        Ok(Tls::new(session.into()))
    }

    fn new(mut session: Connection) -> Tls {
        session.set_buffer_limit(Some(PENDING));
        Tls {
            session,
            records: Vec::new(),
            start: 0,
            end: 0,
        }
    }

    /// Whether the first received bytes begin no TLS session.
    pub(crate) fn is_foreign(&self) -> bool {
        self.records[..self.end]
            .first()
            .is_some_and(|b| *b != HANDSHAKE_RECORD)
    }

    /// Whether the TLS handshake is unfinished: records must be exchanged first.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.session.is_handshaking()
    }

    /// The channel binding: a value that only both ends of this session know.
    pub(crate) fn binding(&self) -> Result<[u8; 32], Error> {
        self.session.export_keying_material([0; 32], LABEL, None)
    }

    // ---- out ----

    /// Whether records are waiting to be sent.
    pub(crate) fn is_pending(&self) -> bool {
        self.session.wants_write()
    }

    /// Encrypts what there is room for; returns how many bytes of `plain` that were.
    pub(crate) fn encrypt(&mut self, plain: &[IoSlice<'_>]) -> std::io::Result<usize> {
        self.session.writer().write_vectored(plain)
    }

    /// Sends pending records by `send`, once.
    pub(crate) fn push(
        &mut self,
        send: impl FnMut(&[IoSlice<'_>]) -> std::io::Result<usize>,
    ) -> std::io::Result<()> {
        self.session.write_tls(&mut Out(send)).map(drop)
    }

    // ---- in ----

    /// Reads records by `receive`, once; returns the number of bytes.
    pub(crate) fn pull(
        &mut self,
        receive: impl FnOnce(&mut [u8]) -> std::io::Result<usize>,
    ) -> std::io::Result<usize> {
        if self.start < self.end {
            return Err(std::io::Error::other("records that nobody has read"));
        }
        (self.start, self.end) = (0, 0);
        self.records.resize(INCOMING, 0);
        self.end = receive(&mut self.records)?;
        Ok(self.end)
    }

    /// Processes the records of one read.
    fn process(&mut self) -> std::io::Result<()> {
        let mut rest = &self.records[self.start..self.end];
        let before = rest.len();
        self.session.read_tls(&mut rest)?;
        self.start += before - rest.len();
        self.session
            .process_new_packets()
            .map(drop)
            .map_err(|e| std::io::Error::new(ErrorKind::InvalidData, e))
    }

    /// Continues the TLS handshake as far as the received records allow.
    pub(crate) fn agree(&mut self) -> std::io::Result<()> {
        while self.session.is_handshaking() && self.start < self.end {
            self.process()?;
        }
        Ok(())
    }

    /// Decrypts into `plain`; 0 if more records are needed first.
    pub(crate) fn decrypt(&mut self, plain: &mut [IoSliceMut<'_>]) -> std::io::Result<usize> {
        let mut done = 0;
        for slice in plain {
            let mut at = 0;
            while at < slice.len() {
                match self.session.reader().read(&mut slice[at..]) {
                    // The other end sends nothing more (close_notify). The connection is over: half-open ones are not
                    // supported.
                    Ok(0) => return self.ended(done),
                    Ok(n) => {
                        at += n;
                        done += n;
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        if self.start == self.end {
                            return Ok(done);
                        }
                        self.process()?;
                    }
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(done)
    }

    fn ended(&self, done: usize) -> std::io::Result<usize> {
        match done {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(done),
        }
    }

    /// Frees memory; for an idle connection.
    pub(crate) fn shrink(&mut self) {
        if self.start == self.end {
            self.records = Vec::new();
            (self.start, self.end) = (0, 0);
        }
    }
}

struct Out<F>(F);

impl<F: FnMut(&[IoSlice<'_>]) -> std::io::Result<usize>> Write for Out<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        (self.0)(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, bytes: &[IoSlice<'_>]) -> std::io::Result<usize> {
        (self.0)(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A verifier that accepts one server.
#[derive(Debug)]
struct Pinned(PublicKey);

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        presented: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        // Public keys: no need to compare in constant time.
        if presented.as_ref() == encoded(&self.0) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        presented: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(presented.as_ref());
        let algorithms = &PROVIDER.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
