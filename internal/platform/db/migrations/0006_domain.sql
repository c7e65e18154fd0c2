-- +goose Up

-- Written by package domain.
CREATE TABLE domains (
  id              TEXT PRIMARY KEY,
  owner_id        TEXT NOT NULL,
  site_id         TEXT NOT NULL,
  name            TEXT NOT NULL,              -- A-labels, lower case; "*." in front of a wildcard
  zone            TEXT NOT NULL,              -- the registrable name it lies in
  status          TEXT NOT NULL,              -- pending, active, failed
  reason          TEXT NOT NULL,              -- why it is not active, in words
  is_primary      BOOLEAN NOT NULL,
  redirect_to     TEXT NOT NULL,              -- '' when it serves the site itself
  proof           TEXT NOT NULL,              -- '', txt, cname: what proved it last
  proven_at       BIGINT NOT NULL DEFAULT 0,  -- since when the owner holds the name
  astray_at       BIGINT NOT NULL DEFAULT 0,  -- since when an active name points elsewhere
  findings        TEXT NOT NULL,              -- what the last check saw, JSON
  checks          BIGINT NOT NULL,            -- times claimed for a check; also the fencing token
  tries           BIGINT NOT NULL,            -- checks since the last good news: the back-off
  pending_at      BIGINT NOT NULL,            -- since when the current attempt to become active runs
  checked_at      BIGINT NOT NULL DEFAULT 0,
  next_check_at   BIGINT NOT NULL DEFAULT 0,
  lease_until     BIGINT NOT NULL DEFAULT 0,
  ssl_status      TEXT NOT NULL,              -- pending, active, failed, expired
  cert_issuer     TEXT NOT NULL,
  cert_not_before BIGINT NOT NULL DEFAULT 0,
  cert_expires_at BIGINT NOT NULL DEFAULT 0,
  cert_error      TEXT NOT NULL,
  cert_next_at    BIGINT NOT NULL DEFAULT 0,
  created_at      BIGINT NOT NULL,
  updated_at      BIGINT NOT NULL
);
CREATE UNIQUE INDEX domains_claim ON domains (owner_id, name);
CREATE UNIQUE INDEX domains_held ON domains (name) WHERE proven_at <> 0;
CREATE INDEX domains_site ON domains (site_id, name);
CREATE INDEX domains_zone ON domains (zone);
CREATE INDEX domains_name ON domains (name);
CREATE INDEX domains_due ON domains (next_check_at) WHERE next_check_at <> 0;

-- Written by package domain. What an account puts into _slipway.<domain>.
CREATE TABLE domain_tokens (
  owner_id TEXT PRIMARY KEY,
  token    TEXT NOT NULL
);

-- Written by package domain. Who let go of a name or lost it, until it is anybody's again.
CREATE TABLE domain_releases (
  name        TEXT NOT NULL,
  owner_id    TEXT NOT NULL,
  lost        BOOLEAN NOT NULL, -- taken over with proof by somebody else, not given up
  released_at BIGINT NOT NULL,
  PRIMARY KEY (name, owner_id)
);

-- Written by package domain. One row for each host that is or was routed.
CREATE TABLE domain_routes (
  host        TEXT PRIMARY KEY,
  site_id     TEXT NOT NULL,
  redirect_to TEXT NOT NULL,
  state       TEXT NOT NULL,   -- active, deleted
  version     BIGINT NOT NULL, -- of live_version
  changed_at  BIGINT NOT NULL
);
CREATE INDEX domain_routes_version ON domain_routes (version);

-- The edge reads this one.
CREATE VIEW custom_hosts AS
  SELECT host, site_id, redirect_to, state, version FROM domain_routes;

-- Written by package domain. IANA's list of RDAP servers (RFC 9224) as last fetched; one row.
CREATE TABLE rdap_bootstrap (
  id         BIGINT PRIMARY KEY,
  body       TEXT NOT NULL,
  fetched_at BIGINT NOT NULL
);
