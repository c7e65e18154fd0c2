-- +goose Up

-- Written by package wordpress: what makes a site's WordPress its own.
CREATE TABLE wordpress_sites (
  site_id           TEXT PRIMARY KEY,
  owner_id          TEXT NOT NULL,
  secret            TEXT NOT NULL,     -- sealed: what its salts are made of
  title             TEXT NOT NULL,
  admin_email       TEXT NOT NULL,
  admin_user        TEXT NOT NULL,
  locale            TEXT NOT NULL,
  database_id       TEXT NOT NULL,     -- empty: none yet
  installed         TEXT NOT NULL,     -- version that was installed; empty: not yet
  xmlrpc            BOOLEAN NOT NULL,
  debug             BOOLEAN NOT NULL,
  maintenance       BOOLEAN NOT NULL,
  memory_mib        BIGINT NOT NULL,   -- of one request
  upload_mib        BIGINT NOT NULL,
  execution_seconds BIGINT NOT NULL,
  next_cron         BIGINT NOT NULL,   -- when its events are to be run again; 0: now
  created_at        BIGINT NOT NULL
);
CREATE INDEX wordpress_sites_cron ON wordpress_sites (next_cron);

-- Written by package core: cores that are stored, by what they were made of.
CREATE TABLE wordpress_cores (
  id         TEXT PRIMARY KEY,         -- digest of the source and of the files that are added
  version    TEXT NOT NULL,
  bundle     TEXT NOT NULL,
  created_at BIGINT NOT NULL
);

-- Which site a deployment is of, for services that know deployments by their id alone.
CREATE VIEW deployment_sites AS SELECT id, site_id FROM deployments;
