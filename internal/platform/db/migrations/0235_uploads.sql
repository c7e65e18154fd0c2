-- +goose Up

-- Written by package upload: files that clients upload to sites without a repository, to be deployed.
CREATE TABLE uploads (
  id             TEXT PRIMARY KEY,
  site_id        TEXT NOT NULL,
  owner_id       TEXT NOT NULL,
  kind           TEXT NOT NULL,     -- output: published as it is; source: detected and built
  status         TEXT NOT NULL,     -- open or deployed
  target         TEXT NOT NULL,     -- production or preview
  branch         TEXT NOT NULL,
  title          TEXT NOT NULL,
  commit_hash    TEXT NOT NULL,     -- this and the next three as the client claims
  commit_message TEXT NOT NULL,
  commit_author  TEXT NOT NULL,
  dirty          BOOLEAN NOT NULL,  -- there were changes beside the commit
  manifest       TEXT NOT NULL,     -- the blob that lists the files; empty: none yet
  needed         TEXT NOT NULL,     -- the blob that lists what was missing when the manifest came; empty: nothing
  files          BIGINT NOT NULL,
  bytes          BIGINT NOT NULL,
  needed_bytes   BIGINT NOT NULL,
  deployment_id  TEXT NOT NULL,     -- the first of it; empty: none
  created_at     BIGINT NOT NULL,
  touched_at     BIGINT NOT NULL    -- when the last byte came
);
CREATE INDEX uploads_site ON uploads (site_id, id);
CREATE INDEX uploads_owner ON uploads (owner_id, touched_at);

-- Written by package upload: blobs that were received for an upload, and are durable.
CREATE TABLE upload_batches (
  id        TEXT PRIMARY KEY,
  upload_id TEXT NOT NULL REFERENCES uploads (id) ON DELETE CASCADE,
  blobs     TEXT NOT NULL           -- base64 of their digests and lengths
);
CREATE INDEX upload_batches_upload ON upload_batches (upload_id);

-- What a deployment was made of, where it was uploaded: as JSON, and the upload's id.
ALTER TABLE deployments ADD COLUMN source TEXT NOT NULL DEFAULT '';
ALTER TABLE deployments ADD COLUMN upload_id TEXT NOT NULL DEFAULT '';

-- Uploads that a deployment still needs.
CREATE VIEW uploads_in_use AS
  SELECT DISTINCT upload_id FROM deployments
  WHERE status IN ('pending', 'building', 'deploying') AND upload_id <> '';

-- The releases that a site keeps.
CREATE VIEW site_releases AS
  SELECT DISTINCT site_id, release FROM deployments WHERE release <> '';
