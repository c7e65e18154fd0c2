-- +goose Up

-- The pull request that a deployment is for; 0: none. In preview_hosts a pull request's
-- address stands under ":" and its number in place of a branch: no branch is called so.
ALTER TABLE deployments ADD COLUMN pull_request BIGINT NOT NULL DEFAULT 0;
-- Whether the commit comes from a fork. Such a build sees no variables, no credential and no cache.
ALTER TABLE deployments ADD COLUMN fork BOOLEAN NOT NULL DEFAULT FALSE;
-- host/owner/repo that the commit was fetched from; empty: older than this column.
ALTER TABLE deployments ADD COLUMN repository TEXT NOT NULL DEFAULT '';

ALTER TABLE git_settings ADD COLUMN preview_days BIGINT NOT NULL DEFAULT 30;           -- after which an unused preview address ends; 0: never
ALTER TABLE git_settings ADD COLUMN tags TEXT NOT NULL DEFAULT 'ignore';               -- ignore, preview
ALTER TABLE git_settings ADD COLUMN deleted_branches TEXT NOT NULL DEFAULT 'end';      -- end, keep
ALTER TABLE git_settings ADD COLUMN forks TEXT NOT NULL DEFAULT 'approval';            -- approval, ignore
ALTER TABLE git_settings ADD COLUMN poll_minutes BIGINT NOT NULL DEFAULT 0;            -- 0: the repository is not polled
ALTER TABLE git_settings ADD COLUMN poll_at BIGINT NOT NULL DEFAULT 0;                 -- when it is polled next
ALTER TABLE git_settings ADD COLUMN poll_refs TEXT NOT NULL DEFAULT '';                -- branches and tags with their commits, as last seen, as JSON; empty: never seen
ALTER TABLE git_settings ADD COLUMN poll_error TEXT NOT NULL DEFAULT '';               -- why the last poll failed
ALTER TABLE git_settings ADD COLUMN polled_at BIGINT NOT NULL DEFAULT 0;               -- when it was last polled
CREATE INDEX git_settings_poll ON git_settings (poll_at) WHERE poll_minutes > 0;

-- Written by package pushes: pull requests as their forge last told of them.
CREATE TABLE git_pulls (
  site_id    TEXT NOT NULL,
  number     BIGINT NOT NULL,
  title      TEXT NOT NULL,
  branch     TEXT NOT NULL,      -- that it asks to merge
  source     TEXT NOT NULL,      -- owner/repo of the fork that the branch is in; empty: the site's own repository
  author     TEXT NOT NULL,
  commit_hash TEXT NOT NULL,
  open       BOOLEAN NOT NULL,
  fork       BOOLEAN NOT NULL,
  approved   TEXT NOT NULL,      -- the commit of a fork that a member approved; empty: none
  updated_at BIGINT NOT NULL,
  PRIMARY KEY (site_id, number)
);

-- Written by package pushes: what forges told of and what came of it, the newest of each site.
CREATE TABLE git_events (
  id            TEXT PRIMARY KEY,
  site_id       TEXT NOT NULL,
  provider      TEXT NOT NULL,   -- or poll
  name          TEXT NOT NULL,   -- as the forge calls it
  ref           TEXT NOT NULL,   -- branch, tag or pull request; empty: none
  commit_hash   TEXT NOT NULL,
  outcome       TEXT NOT NULL,
  deployment_id TEXT NOT NULL,   -- empty: nothing was deployed
  at            BIGINT NOT NULL
);
CREATE INDEX git_events_of_site ON git_events (site_id, id);

-- Which kind of forge a site's repository is on, where its hook has told.
CREATE VIEW site_forges AS SELECT site_id, provider FROM git_settings WHERE provider <> '';
