-- +goose Up

-- Written by package sso: where people may sign in with an account that they have elsewhere.
CREATE TABLE sso_providers (
  id           TEXT PRIMARY KEY,
  owner_id     TEXT NOT NULL,     -- the team whose members sign in with it; empty: the operator's, for everybody
  kind         TEXT NOT NULL,     -- google, microsoft, gitlab, github or oidc
  name         TEXT NOT NULL,     -- as the sign-in page shows it
  issuer       TEXT NOT NULL,
  client_id    TEXT NOT NULL,
  secret       TEXT NOT NULL,     -- sealed
  domains      TEXT NOT NULL,     -- whose addresses get an account at the first sign-in; separated by spaces, * is every one
  created_at   BIGINT NOT NULL
);

-- Written by package sso: accounts elsewhere that belong to a user. Never the email address alone says whose one is.
CREATE TABLE sso_identities (
  issuer      TEXT NOT NULL,
  subject     TEXT NOT NULL,      -- the issuer's id of the person
  id          TEXT NOT NULL UNIQUE,
  user_id     TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
  email       TEXT NOT NULL,      -- as the issuer told it last; shown, never compared
  created_at  BIGINT NOT NULL,
  used_at     BIGINT NOT NULL,    -- 0: never
  PRIMARY KEY (issuer, subject)
);
CREATE INDEX sso_identities_user ON sso_identities (user_id);

-- Written by package sso: sign-ins under way. Each works once, in the browser that began it.
CREATE TABLE sso_sign_ins (
  digest      TEXT PRIMARY KEY,   -- SHA-256 of the state, hex
  browser     TEXT NOT NULL,      -- SHA-256 of the browser's cookie, hex
  provider_id TEXT NOT NULL,
  secrets     TEXT NOT NULL,      -- sealed: PKCE's verifier and the nonce
  session_id  TEXT NOT NULL,      -- that links an identity to its user; empty: a sign-in
  next        TEXT NOT NULL,      -- a path of the dashboard
  expires_at  BIGINT NOT NULL
);
CREATE INDEX sso_sign_ins_browser ON sso_sign_ins (browser);
CREATE INDEX sso_sign_ins_end ON sso_sign_ins (expires_at);

-- The provider that a session was begun with; empty: none.
ALTER TABLE sessions ADD COLUMN provider_id TEXT NOT NULL DEFAULT '';

-- Who has an account elsewhere that signs them in.
CREATE VIEW linked_users AS SELECT DISTINCT user_id FROM sso_identities;
