-- +goose Up

-- The edge's contract for custom hosts. certified_until is until when the domain is known
-- to have a certificate, 0 where it has none.
DROP VIEW custom_hosts;
CREATE VIEW custom_hosts AS
  SELECT r.host, r.site_id, r.redirect_to, r.state, r.version,
         COALESCE(CASE WHEN d.ssl_status = 'active' THEN d.cert_expires_at END, 0) AS certified_until
  FROM domain_routes r LEFT JOIN domains d ON d.name = r.host AND d.proven_at <> 0;

-- Written by package certs. One row for each name that has a certificate of an ACME
-- authority or should have one.
CREATE TABLE certificates (
  host        TEXT PRIMARY KEY,           -- A-labels, lower case; "*." in front of a wildcard
  kind        TEXT NOT NULL,              -- custom, site, control: why it should have one
  route       BIGINT NOT NULL DEFAULT 0,  -- version of the custom host's row that was seen last
  state       TEXT NOT NULL,              -- pending, active, failed, gone
  material    TEXT NOT NULL DEFAULT '',   -- prefix in acme_storage, '' while there is no certificate
  issuer      TEXT NOT NULL DEFAULT '',
  not_before  BIGINT NOT NULL DEFAULT 0,
  not_after   BIGINT NOT NULL DEFAULT 0,
  attempts    BIGINT NOT NULL DEFAULT 0,  -- times claimed for an order; also the fencing token
  failures    BIGINT NOT NULL DEFAULT 0,  -- attempts that failed since the last success
  error       TEXT NOT NULL DEFAULT '',   -- why the last one failed, in words
  next_at     BIGINT NOT NULL DEFAULT 0,  -- 0: nothing to do
  lease_until BIGINT NOT NULL DEFAULT 0,
  told_at     BIGINT NOT NULL DEFAULT 0,  -- when ssl.failed was told last
  warned      BIGINT NOT NULL DEFAULT 0,  -- days before the end that were warned of: 21, 14, 7
  version     BIGINT NOT NULL,            -- of certificate_version
  changed_at  BIGINT NOT NULL
);
CREATE INDEX certificates_due ON certificates (next_at) WHERE next_at <> 0;
CREATE INDEX certificates_version ON certificates (version);

-- Written by package certs: the counter that orders what other nodes must see.
CREATE TABLE certificate_version (
  id BIGINT PRIMARY KEY,
  n  BIGINT NOT NULL
);
INSERT INTO certificate_version (id, n) VALUES (1, 0);

-- Written by package certs. Accounts, keys and certificates, as certmagic keeps them.
CREATE TABLE acme_storage (
  key      TEXT PRIMARY KEY,
  value    TEXT NOT NULL,   -- sealed
  size     BIGINT NOT NULL, -- of what was sealed
  modified BIGINT NOT NULL
);

-- Written by package certs. Who holds a lock, until when unless it is renewed.
CREATE TABLE acme_locks (
  name   TEXT PRIMARY KEY,
  holder TEXT NOT NULL,
  until  BIGINT NOT NULL
);

-- Written by package certs. What an authority may ask this installation at the moment.
CREATE TABLE acme_challenges (
  token    TEXT PRIMARY KEY,
  host     TEXT NOT NULL,
  kind     TEXT NOT NULL, -- http-01, tls-alpn-01, dns-01
  answer   TEXT NOT NULL, -- the key authorization (RFC 8555, section 8.1)
  until    BIGINT NOT NULL
);
CREATE INDEX acme_challenges_host ON acme_challenges (host);

-- Written by package certs. What counts towards the limits of the authorities.
CREATE TABLE acme_ledger (
  id    TEXT PRIMARY KEY,
  ca    TEXT NOT NULL,
  host  TEXT NOT NULL,
  zone  TEXT NOT NULL,  -- the registrable domain
  kind  TEXT NOT NULL,  -- invalid: a failed validation; issued; renewed
  at    BIGINT NOT NULL
);
CREATE INDEX acme_ledger_host ON acme_ledger (host, ca, at);
CREATE INDEX acme_ledger_zone ON acme_ledger (zone, ca, at) WHERE kind = 'issued';
CREATE INDEX acme_ledger_at ON acme_ledger (at);
