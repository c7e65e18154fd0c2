-- +goose Up

-- Written by package oauth. Apps that may ask people for a part of their rights.
CREATE TABLE oauth_apps (
  id               TEXT PRIMARY KEY,  -- app_…, or the https URL of a client ID metadata document
  owner_id         TEXT NOT NULL,     -- who registered it; empty: the installation's own, or described by its document
  name             TEXT NOT NULL,
  website          TEXT NOT NULL,
  redirect_uris    TEXT NOT NULL,     -- separated by line breaks
  confidential     BOOLEAN NOT NULL,  -- it has a secret and must send it
  secret           TEXT NOT NULL,     -- SHA-256, hex
  secret_hint      TEXT NOT NULL,     -- its first characters
  old_secret       TEXT NOT NULL,     -- the one before the last rotation …
  old_secret_until BIGINT NOT NULL,   -- … which works until then
  disabled_at      BIGINT NOT NULL,   -- by the operator, everywhere; 0: not
  fresh_until      BIGINT NOT NULL,   -- of a metadata document; 0: registered by hand
  created_at       BIGINT NOT NULL
);
CREATE INDEX oauth_apps_owner ON oauth_apps (owner_id, created_at);

-- The command line: a public app of every installation, which signs in by device.
INSERT INTO oauth_apps (id, owner_id, name, website, redirect_uris, confidential, secret, secret_hint, old_secret, old_secret_until,
  disabled_at, fresh_until, created_at)
VALUES ('app_slipway_cli', '', 'Slipway CLI', '', 'http://127.0.0.1/callback', FALSE, '', '', '', 0, 0, 0, 0);

-- Written by package oauth. What one person allowed one app, on one device.
CREATE TABLE oauth_grants (
  id         TEXT PRIMARY KEY,
  app_id     TEXT NOT NULL,
  user_id    TEXT NOT NULL,   -- who consented
  owner_id   TEXT NOT NULL,   -- whose things it is about
  scopes     TEXT NOT NULL,   -- separated by spaces
  sites      TEXT NOT NULL,   -- ids separated by spaces; empty: all
  expires_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL,
  used_at    BIGINT NOT NULL,
  used_addr  TEXT NOT NULL
);
CREATE INDEX oauth_grants_owner ON oauth_grants (owner_id, created_at);
CREATE INDEX oauth_grants_user ON oauth_grants (user_id, app_id);
CREATE INDEX oauth_grants_app ON oauth_grants (app_id);

-- Written by package oauth.
CREATE TABLE oauth_tokens (
  hash       TEXT PRIMARY KEY,  -- SHA-256 of the token, hex
  grant_id   TEXT NOT NULL,
  kind       TEXT NOT NULL,     -- access or refresh
  scopes     TEXT NOT NULL,     -- of an access token: a part of the grant's
  parent     TEXT NOT NULL,     -- hash of the refresh token that it replaces; empty: the first
  rotated_at BIGINT NOT NULL,   -- of a refresh token: when it was used; 0: it wasn't
  next       TEXT NOT NULL,     -- sealed: the pair that it was exchanged for, for a client that lost the answer
  expires_at BIGINT NOT NULL,
  created_at BIGINT NOT NULL
);
CREATE INDEX oauth_tokens_grant ON oauth_tokens (grant_id);
CREATE INDEX oauth_tokens_parent ON oauth_tokens (parent);
CREATE INDEX oauth_tokens_expiry ON oauth_tokens (expires_at);

-- Written by package oauth. Authorization codes.
CREATE TABLE oauth_codes (
  hash             TEXT PRIMARY KEY,  -- SHA-256 of the code, hex
  app_id           TEXT NOT NULL,
  user_id          TEXT NOT NULL,
  owner_id         TEXT NOT NULL,
  scopes           TEXT NOT NULL,     -- that the person allowed
  sites            TEXT NOT NULL,
  redirect_uri     TEXT NOT NULL,
  challenge        TEXT NOT NULL,     -- PKCE, S256
  grant_expires_at BIGINT NOT NULL,
  expires_at       BIGINT NOT NULL,
  used_at          BIGINT NOT NULL,   -- 0: it wasn't
  grant_id         TEXT NOT NULL      -- that it began; empty: none yet
);
CREATE INDEX oauth_codes_expiry ON oauth_codes (expires_at);

-- Written by package oauth. Programs without a browser that wait for a person (RFC 8628).
CREATE TABLE oauth_devices (
  hash             TEXT PRIMARY KEY,      -- SHA-256 of the device code, hex
  user_code        TEXT NOT NULL UNIQUE,  -- that the person types
  app_id           TEXT NOT NULL,
  scopes           TEXT NOT NULL,         -- that it asked for
  addr             TEXT NOT NULL,         -- of the program
  created_at       BIGINT NOT NULL,
  expires_at       BIGINT NOT NULL,
  wait             BIGINT NOT NULL,       -- least milliseconds between two polls
  polled_at        BIGINT NOT NULL,
  status           TEXT NOT NULL,         -- pending, approved, denied, used
  user_id          TEXT NOT NULL,         -- who decided
  owner_id         TEXT NOT NULL,
  granted          TEXT NOT NULL,         -- scopes that the person allowed
  sites            TEXT NOT NULL,
  grant_expires_at BIGINT NOT NULL
);
CREATE INDEX oauth_devices_expiry ON oauth_devices (expires_at);

ALTER TABLE audit ADD COLUMN grant_id TEXT NOT NULL DEFAULT '';
CREATE INDEX audit_grant ON audit (grant_id) WHERE grant_id <> '';
