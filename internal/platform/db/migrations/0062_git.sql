-- +goose Up

-- Written by package pushes: what pushes to a site's repository do, and the address that its
-- forge calls. A site without a row has the defaults and no address.
CREATE TABLE git_settings (
  site_id       TEXT PRIMARY KEY,
  hook_digest   TEXT NOT NULL,     -- SHA-256 of the hook's id, which is a secret; empty: there is no hook
  hook_sealed   TEXT NOT NULL,     -- the id, for its owner's eyes
  secret        TEXT NOT NULL,     -- sealed: what the forge signs with
  auto_deploy   BOOLEAN NOT NULL,
  previews      TEXT NOT NULL,     -- off, branches, pull_requests, all
  watch         TEXT NOT NULL,     -- globs as JSON
  provider      TEXT NOT NULL,     -- of the last event; empty: none yet
  last_event    TEXT NOT NULL,     -- what it was and what came of it
  last_event_at BIGINT NOT NULL
);
CREATE UNIQUE INDEX git_settings_hook ON git_settings (hook_digest) WHERE hook_digest <> '';

-- Written by package pushes: calls that were handled, the newest of each site, so that none
-- acts twice.
CREATE TABLE git_deliveries (
  site_id TEXT NOT NULL,
  digest  TEXT NOT NULL,           -- of the forge's name for the call, or of the body
  seq     TEXT NOT NULL,           -- sorts by time
  PRIMARY KEY (site_id, digest)
);
CREATE INDEX git_deliveries_seq ON git_deliveries (site_id, seq);
