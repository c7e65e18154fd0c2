-- +goose Up

-- What a deployment is for: production, which becomes what the site serves, or preview.
ALTER TABLE deployments ADD COLUMN target TEXT NOT NULL DEFAULT 'production';
-- Whether commit_hash was asked for, and is not merely the branch's newest.
ALTER TABLE deployments ADD COLUMN pinned BOOLEAN NOT NULL DEFAULT FALSE;
-- The label of the branch's preview address; empty: production.
ALTER TABLE deployments ADD COLUMN preview_label TEXT NOT NULL DEFAULT '';

-- Written by package preview: the stable address of each branch that has previews,
-- <label>--<subdomain>.<site domain>, and what it serves.
CREATE TABLE preview_hosts (
  site_id       TEXT NOT NULL,
  branch        TEXT NOT NULL,
  label         TEXT NOT NULL,
  deployment_id TEXT NOT NULL,     -- empty: none has succeeded yet
  release       TEXT NOT NULL,
  used_at       BIGINT NOT NULL,   -- when a deployment was last asked for
  PRIMARY KEY (site_id, branch),
  UNIQUE (site_id, label)
);
