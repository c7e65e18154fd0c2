-- +goose Up
-- Written by package oauth: what apps created for their grants, and what is deleted with them.
CREATE TABLE oauth_made (
  kind     TEXT NOT NULL,  -- webhook, deploy_hook, channel
  id       TEXT NOT NULL,  -- of a deploy hook: the digest of its id
  owner_id TEXT NOT NULL,
  grant_id TEXT NOT NULL,
  PRIMARY KEY (kind, id)
);
CREATE INDEX oauth_made_grant ON oauth_made (grant_id);

-- Written by package oauth: apps that a team's members asked for, and that its admins approved.
CREATE TABLE oauth_approvals (
  owner_id     TEXT NOT NULL,
  app_id       TEXT NOT NULL,
  requested_by TEXT NOT NULL,    -- user
  approved_by  TEXT NOT NULL,    -- user; empty: not yet
  created_at   BIGINT NOT NULL,
  PRIMARY KEY (owner_id, app_id)
);
CREATE INDEX oauth_approvals_app ON oauth_approvals (app_id);

-- Which apps a team's members may authorize for it: all, approved, none.
CREATE VIEW app_policies AS SELECT owner_id, apps FROM teams WHERE deleted_at = 0;
