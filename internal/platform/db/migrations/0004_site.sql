-- +goose Up

-- Written by package site.
CREATE TABLE sites (
  id              TEXT PRIMARY KEY,
  owner_id        TEXT NOT NULL,
  name            TEXT NOT NULL,
  slug            TEXT NOT NULL,
  type            TEXT NOT NULL,             -- static, wordpress
  runtime         TEXT NOT NULL,             -- static, node, php, wordpress
  status          TEXT NOT NULL,             -- pending, provisioning, active, error, stopped
  status_reason   TEXT NOT NULL,
  repository      TEXT NOT NULL,             -- host/owner/repo, or empty
  branch          TEXT NOT NULL,             -- empty: the repository's default branch
  framework       TEXT NOT NULL,             -- as asked for, or empty
  build           TEXT NOT NULL,             -- JSON: the owner's own build settings
  credential      TEXT NOT NULL,             -- sealed JSON for fetching the repository, or empty
  needs_redeploy  BOOLEAN NOT NULL,          -- env or settings changed since the live release
  live_deployment TEXT NOT NULL,             -- empty until the first release is live
  live_release    TEXT NOT NULL,
  live_version    BIGINT NOT NULL,           -- grows with every change that the edge must see
  created_at      BIGINT NOT NULL,
  updated_at      BIGINT NOT NULL,
  deleted_at      BIGINT NOT NULL            -- 0: exists
);
CREATE INDEX sites_of_owner ON sites (owner_id, created_at DESC, id DESC) WHERE deleted_at = 0;
CREATE INDEX sites_live ON sites (live_version);

-- Written by package site: how many sites an owner has, kept in the transactions that
-- change it, so that a page of a long list doesn't have to count.
CREATE TABLE site_counts (
  owner_id TEXT NOT NULL,
  type     TEXT NOT NULL,
  status   TEXT NOT NULL,
  n        BIGINT NOT NULL,
  PRIMARY KEY (owner_id, type, status)
);

-- Written by package site: one name, one site. A released name stays its owner's for a while.
CREATE TABLE slugs (
  slug        TEXT PRIMARY KEY,
  owner_id    TEXT NOT NULL,
  site_id     TEXT NOT NULL,                 -- empty: released
  released_at BIGINT NOT NULL
);

-- Written by package site: environment variables, every value sealed.
CREATE TABLE env (
  id         TEXT PRIMARY KEY,
  site_id    TEXT NOT NULL,
  key        TEXT NOT NULL,
  value      TEXT NOT NULL,
  secret     BOOLEAN NOT NULL,
  target     TEXT NOT NULL,                  -- build, runtime or both, separated by a comma
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  UNIQUE (site_id, key)
);

-- Written by package site: deploy hooks. The id is the secret, so it is looked up by its
-- digest and kept sealed for its owner's eyes.
CREATE TABLE deploy_hooks (
  digest            TEXT PRIMARY KEY,        -- SHA-256 of the id
  sealed            TEXT NOT NULL,
  site_id           TEXT NOT NULL,
  owner_id          TEXT NOT NULL,
  name              TEXT NOT NULL,
  branch            TEXT NOT NULL,           -- empty: the site's branch
  any_branch        BOOLEAN NOT NULL,        -- callers may name another
  active            BOOLEAN NOT NULL,
  triggered_at      BIGINT NOT NULL,
  triggered         BIGINT NOT NULL,
  last_deployment   TEXT NOT NULL,
  created_at        BIGINT NOT NULL
);
CREATE INDEX deploy_hooks_of_site ON deploy_hooks (site_id, created_at);

-- Written by package site (and domain): the one counter that orders what the edge must see. Its
-- row lock makes versions commit in the order they were taken.
CREATE TABLE live_version (
  id BIGINT PRIMARY KEY,
  n  BIGINT NOT NULL
);
INSERT INTO live_version (id, n) VALUES (1, 0);

-- What other rooms may know of a site that exists.
CREATE VIEW open_sites AS
  SELECT id, owner_id, name, slug AS subdomain, type, status, live_deployment, live_release
  FROM sites WHERE deleted_at = 0;

-- The edge's contract: which host answers with what.
CREATE VIEW live AS
  SELECT slug AS host_label, id AS site_id, live_release AS release, live_deployment AS deployment_id,
         CASE WHEN deleted_at > 0        THEN 'deleted'
              WHEN status = 'stopped'    THEN 'stopped'
              WHEN live_release <> ''    THEN 'live'
              WHEN status = 'error'      THEN 'error'
              ELSE 'empty' END AS state,
         live_version AS version
  FROM sites;
