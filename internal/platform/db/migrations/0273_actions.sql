-- +goose Up

-- Which GitHub repository's workflows may deploy the site.
ALTER TABLE git_settings ADD COLUMN actions_repository    TEXT NOT NULL DEFAULT ''; -- owner/name; empty: none
ALTER TABLE git_settings ADD COLUMN actions_repository_id TEXT NOT NULL DEFAULT ''; -- of the first run: another repository may get the name later
ALTER TABLE git_settings ADD COLUMN actions_branch        TEXT NOT NULL DEFAULT ''; -- whose runs may deploy to production
ALTER TABLE git_settings ADD COLUMN actions_environment   TEXT NOT NULL DEFAULT ''; -- in which they must run for that; empty: in any
ALTER TABLE git_settings ADD COLUMN actions_by            TEXT NOT NULL DEFAULT ''; -- the user who allowed it

-- Written by package actions: runs of workflows that got an API key.
CREATE TABLE action_runs (
  token      TEXT NOT NULL PRIMARY KEY, -- digest of the ID token's id: it works once
  site_id    TEXT NOT NULL,
  key_id     TEXT NOT NULL,
  expires_at BIGINT NOT NULL            -- of the key and of the ID token, whichever is later
);
CREATE INDEX action_runs_site ON action_runs (site_id, expires_at);
