-- +goose Up

-- Written by package deploy, read by package deployment.
CREATE TABLE deployments (
  id             TEXT PRIMARY KEY,
  site_id        TEXT NOT NULL,
  owner_id       TEXT NOT NULL,
  label          TEXT NOT NULL,     -- the last 12 characters of the id, in its own address
  status         TEXT NOT NULL,     -- pending, building, deploying, success, failed, canceled
  cause          TEXT NOT NULL,     -- provision, api, hook, dashboard, push, rollback
  branch         TEXT NOT NULL,
  title          TEXT NOT NULL,
  clear_cache    BOOLEAN NOT NULL,
  commit_hash    TEXT NOT NULL,
  commit_message TEXT NOT NULL,
  commit_author  TEXT NOT NULL,
  framework      TEXT NOT NULL,
  plan           TEXT NOT NULL,     -- JSON: what was done and why
  release        TEXT NOT NULL,     -- empty: none yet, or no longer kept
  runtime        TEXT NOT NULL,
  rollback_of    TEXT NOT NULL,
  error          TEXT NOT NULL,
  stages         TEXT NOT NULL,     -- JSON
  attempt        BIGINT NOT NULL,   -- the fencing token of the worker that runs it
  cancel         TEXT NOT NULL,     -- why it was asked to stop, or empty
  created_at     BIGINT NOT NULL,
  started_at     BIGINT NOT NULL,
  completed_at   BIGINT NOT NULL
);
CREATE INDEX deployments_of_site ON deployments (site_id, id DESC);
CREATE INDEX deployments_open ON deployments (site_id, status) WHERE status IN ('pending', 'building', 'deploying');
CREATE INDEX deployments_label ON deployments (label);

-- Written by package journal.
CREATE TABLE deployment_logs (
  deployment_id TEXT NOT NULL,
  n             BIGINT NOT NULL,    -- from 1, without gaps
  at            BIGINT NOT NULL,
  level         TEXT NOT NULL,      -- debug, info, warn, error
  stage         TEXT NOT NULL,
  message       TEXT NOT NULL,
  raw           TEXT NOT NULL,      -- with terminal colours, or empty when there are none
  PRIMARY KEY (deployment_id, n)
);

-- The edge's contract for the immutable address of a deployment.
CREATE VIEW previews AS
  SELECT d.label AS label, s.slug AS host_label, d.release AS release
  FROM deployments d JOIN sites s ON s.id = d.site_id
  WHERE d.release <> '' AND s.deleted_at = 0 AND s.status <> 'stopped';

-- Written by package build: under which uid of this host a site's builds run.
CREATE TABLE build_uids (
  uid         BIGINT PRIMARY KEY,
  site_id     TEXT NOT NULL UNIQUE,
  released_at BIGINT NOT NULL     -- 0: in use
);
