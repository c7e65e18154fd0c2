-- +goose Up

-- What is stored for a deployment's release, in bytes: all of its files, and those that the
-- release before it did not have. 0: not known, from before this was written.
ALTER TABLE deployments ADD COLUMN stored_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE deployments ADD COLUMN added_bytes BIGINT NOT NULL DEFAULT 0;
CREATE INDEX deployments_stored ON deployments (owner_id, site_id, id) WHERE stored_bytes > 0 AND release <> '';

-- Written by package buildtime: how long the builds of a site took in a calendar month, UTC.
-- It outlives the site.
CREATE TABLE build_time (
  owner_id TEXT NOT NULL,
  month    BIGINT NOT NULL,   -- 202611 is November 2026
  site_id  TEXT NOT NULL,
  ms       BIGINT NOT NULL,
  PRIMARY KEY (owner_id, month, site_id)
);

-- Written by package build: what is stored for the next builds of a site's branch, on the
-- node that built it last.
CREATE TABLE build_caches (
  site_id  TEXT NOT NULL,
  name     TEXT NOT NULL,     -- of the branch's folder
  owner_id TEXT NOT NULL,
  bytes    BIGINT NOT NULL,
  used_at  BIGINT NOT NULL,
  PRIMARY KEY (site_id, name)
);
CREATE INDEX build_caches_of_owner ON build_caches (owner_id, used_at);
