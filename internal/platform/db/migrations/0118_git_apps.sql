-- +goose Up

-- Written by package connection: this installation's apps at Git forges, by which users
-- connect their accounts there without a pasted token.
CREATE TABLE git_apps (
  id         TEXT PRIMARY KEY,
  provider   TEXT NOT NULL,      -- github, gitlab, gitea, bitbucket
  host       TEXT NOT NULL,      -- of the forge's web pages and repositories
  name       TEXT NOT NULL,
  client_id  TEXT NOT NULL,
  slug       TEXT NOT NULL,      -- in the address of a GitHub App's page; empty: an OAuth app
  hook_digest TEXT NOT NULL,     -- SHA-256 of the id of its webhook, which is a secret; empty: an OAuth app
  secrets    TEXT NOT NULL,      -- sealed JSON: the client secret, and a GitHub App's key and webhook secret
  created_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX git_apps_host ON git_apps (host);
CREATE UNIQUE INDEX git_apps_hook ON git_apps (hook_digest) WHERE hook_digest <> '';

-- Written by package connection: sign-ins at forges that are under way. A row ends with
-- the answer that it waits for, so that each counts once.
CREATE TABLE git_sign_ins (
  digest     TEXT PRIMARY KEY,   -- SHA-256 of the state that the forge sends back
  session_id TEXT NOT NULL,      -- that the answer must come in
  app_id     TEXT NOT NULL,      -- empty: a GitHub App is being created
  host       TEXT NOT NULL,
  verifier   TEXT NOT NULL,      -- sealed: of PKCE (RFC 7636)
  expires_at BIGINT NOT NULL
);
CREATE INDEX git_sign_ins_expires ON git_sign_ins (expires_at);

ALTER TABLE connections ADD COLUMN app_id TEXT NOT NULL DEFAULT '';           -- that issued the token; empty: an access token was pasted
ALTER TABLE connections ADD COLUMN expires_at BIGINT NOT NULL DEFAULT 0;      -- of the token; 0: never
ALTER TABLE connections ADD COLUMN refreshed_at BIGINT NOT NULL DEFAULT 0;
ALTER TABLE connections ADD COLUMN refreshing_until BIGINT NOT NULL DEFAULT 0; -- lease of the one that refreshes the token
ALTER TABLE connections ADD COLUMN ended BOOLEAN NOT NULL DEFAULT FALSE;      -- whether the forge takes its tokens no more: it has to be connected again
CREATE INDEX connections_app ON connections (app_id) WHERE app_id <> '';

-- The forge's id of its check run; empty: none.
ALTER TABLE forge_reports ADD COLUMN check_id TEXT NOT NULL DEFAULT '';

-- A GitHub App's events name a repository, and may concern several sites.
CREATE INDEX sites_of_repository ON sites (LOWER(repository)) WHERE deleted_at = 0;
